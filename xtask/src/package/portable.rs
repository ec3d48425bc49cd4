//! A program for old and new distributions.
//!
//! Zig's C compiler brings the headers and the symbols of every glibc, and its linker. Rust's own
//! standard library needs glibc 2.17. So everything in C, libelf and zlib among it, is compiled for
//! [`GLIBC`], and the program is linked against that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::symbols::Version;
use super::{create, write};
use crate::progress::long_step;
use crate::setup::packaging;
use crate::workspace::Workspace;
use crate::{ebpf, exec};

/// The C library of RHEL 8, and of everything newer.
pub(super) const GLIBC: Version = Version {
    major: 2,
    minor: 28,
};

/// Builds the program, in a target directory of its own, and returns its path.
///
/// # Errors
///
/// When a tool cannot be had, or something does not compile.
pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let zig = packaging::portable(workspace)?;
    ebpf::build(workspace)?;
    let target = workspace.target.join("portable");
    create(&target)?;
    let compiler = target.join("cc");
    write(&compiler, &wrapper(&zig, &target.join("zig-cache")))?;
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", compiler.display()))?;
    let mut cargo = workspace.cargo();
    cargo
        .args([
            "build",
            "--locked",
            "--release",
            "--package",
            "gputrace-cli",
        ])
        .args(["--features", "portable"])
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", &compiler)
        .env("CC", &compiler)
        // Debug information is found by the build id, which zig leaves out if it is not told.
        .env("RUSTFLAGS", "-Clink-arg=-Wl,--build-id=sha1");
    // What is right for this machine is not for others.
    for name in [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CFLAGS",
        "LDFLAGS",
    ] {
        cargo.env_remove(name);
    }
    let why = format!("for glibc {GLIBC}, with libelf and zlib inside");
    long_step("build gputrace portably", &why, || exec::stream(&mut cargo))?;
    Ok(target.join("release/gputrace"))
}

/// A script that is called as a C compiler and linker.
fn wrapper(zig: &Path, cache: &Path) -> String {
    format!(
        r#"#!/bin/sh
# Zig as the C compiler and linker for glibc {GLIBC}, as `cargo xtask package --portable` calls it.
for argument do
    shift
    case $argument in
    # The target's name as Rust has it, which zig does not know.
    --target=*) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
ZIG_GLOBAL_CACHE_DIR='{cache}' ZIG_LOCAL_CACHE_DIR='{cache}' \
    exec '{zig}' cc -target x86_64-linux-gnu.{GLIBC} -fno-sanitize=all "$@"
"#,
        cache = cache.display(),
        zig = zig.display(),
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_compiler_gets_all_arguments_but_the_target() {
        let directory = tempfile::tempdir().unwrap();
        let (zig, compiler) = (directory.path().join("zig"), directory.path().join("cc"));
        write(&zig, "#!/bin/sh\nprintf '%s|' \"$@\"\n").unwrap();
        fs::set_permissions(&zig, fs::Permissions::from_mode(0o755)).unwrap();
        write(&compiler, &wrapper(&zig, directory.path())).unwrap();
        let arguments = ["--target=x86_64-unknown-linux-gnu", "-DA=\"two words\"", ""];
        let mut command = Command::new("sh");
        command.arg(&compiler).args(arguments);
        assert_eq!(
            exec::capture(&mut command).unwrap(),
            "cc|-target|x86_64-linux-gnu.2.28|-fno-sanitize=all|-DA=\"two words\"||"
        );
    }
}
