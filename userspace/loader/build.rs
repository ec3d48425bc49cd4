//! Passes the paths of the two compiled eBPF objects to the crate, which embeds them.
//!
//! `cargo xtask build-ebpf` builds them, with a different compiler than this crate, into
//! `target/bpf` of the workspace. `GPUTRACE_BPF_DIR` names another directory, for packagers who
//! build the objects elsewhere. The crate reads the paths by `env!("GPUTRACE_PROBES_OBJECT")` and
//! `env!("GPUTRACE_KERNEL_OBJECT")`.

use std::env;
use std::path::{Path, PathBuf};

/// Each object's file name, and the variable that passes its path to the crate.
const OBJECTS: [(&str, &str); 2] = [
    ("gputrace-probes.o", "GPUTRACE_PROBES_OBJECT"),
    ("gputrace-kernel.o", "GPUTRACE_KERNEL_OBJECT"),
];

fn main() {
    println!("cargo::rerun-if-env-changed=GPUTRACE_BPF_DIR");
    let directory = object_directory();
    for (file, variable) in OBJECTS {
        let object = directory.join(file);
        println!("cargo::rerun-if-changed={}", object.display());
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing runs as root when gputrace is built"
        )]
        if object.is_file() {
            println!("cargo::rustc-env={variable}={}", object.display());
        } else {
            println!(
                "cargo::error=the compiled eBPF object {} is not there: `cargo xtask build` makes it (or set \
                 GPUTRACE_BPF_DIR to the directory that holds it)",
                object.display()
            );
        }
    }
}

/// `GPUTRACE_BPF_DIR`, made absolute relative to the workspace root, or else the directory into
/// which xtask puts the objects.
///
/// The path must be absolute: `include_bytes!` resolves a relative one against the directory of the
/// source file.
fn object_directory() -> PathBuf {
    // Cargo runs a build script in the directory of its package, here userspace/loader.
    let workspace = env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
    let workspace = workspace.ancestors().nth(2).unwrap_or(Path::new("."));
    match env::var_os("GPUTRACE_BPF_DIR") {
        Some(directory) => workspace.join(directory),
        None => workspace.join("target").join("bpf"),
    }
}
