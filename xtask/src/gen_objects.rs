//! `cargo xtask gen-objects`: assembles the kernels of `gputrace verify` for each instruction set.
//!
//! The code objects are committed beside their source (`userspace/verify/objects`), because a build
//! must not depend on an LLVM that knows the newest GPUs. Run this after changing the source; a
//! test does the same and compares, if that LLVM is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::toolchain::llvm;
use crate::workspace::Workspace;
use crate::{exec, progress};

/// Version of the LLVM that makes the objects: the one that setup installs for the eBPF programs.
/// It supports all targets.
const LLVM: u32 = 22;

/// Directory of source and objects.
const DIRECTORY: &str = "userspace/verify/objects";

/// Kernels of the source, with the bytes of private memory that each one declares.
const KERNELS: [(&str, u32); 4] = [
    ("gputrace_spin_short", 0),
    ("gputrace_spin_medium", 0),
    ("gputrace_spin_long", 0),
    ("gputrace_spin_scratch", 1024),
];

/// All targets; `userspace/verify/src/objects.rs` includes their objects.
const TARGETS: [&str; 26] = [
    "gfx900", "gfx906", "gfx908", "gfx90a", "gfx90c", "gfx942", "gfx950", "gfx1010", "gfx1012",
    "gfx1030", "gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101",
    "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
    "gfx1250",
];

/// Arguments of `cargo xtask gen-objects`.
#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let tools = Tools::find()?;
        let directory = workspace.root.join(DIRECTORY);
        let source = fs::read_to_string(directory.join("spin.s"))?;
        progress::heading(format_args!(
            "assemble {} for {} targets",
            "spin.s",
            TARGETS.len()
        ));
        for gfx in TARGETS {
            tools.assemble(&source, gfx, &directory)?;
        }
        Ok(())
    }
}

/// The programs that make an object.
struct Tools {
    assembler: PathBuf,
    objcopy: PathBuf,
    linker: PathBuf,
}

impl Tools {
    /// # Errors
    ///
    /// When a program is missing; the message tells how to get it.
    fn find() -> Result<Self> {
        let llvm = llvm::find(LLVM).with_context(|| {
            format!("there is no LLVM {LLVM} with llvm-config; `cargo xtask setup` installs it")
        })?;
        let sysroot = exec::capture(Command::new("rustc").args(["--print", "sysroot"]))?;
        let linker =
            Path::new(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
        let tools = Self {
            assembler: llvm.tool("llvm-mc"),
            objcopy: llvm.tool("llvm-objcopy"),
            linker,
        };
        for tool in [&tools.assembler, &tools.objcopy, &tools.linker] {
            ensure!(tool.is_file(), "{} is not there", tool.display());
        }
        Ok(tools)
    }

    /// Makes `GFX.co` in a directory.
    fn assemble(&self, source: &str, gfx: &str, directory: &Path) -> Result<()> {
        let at = |suffix: &str| directory.join(format!("{gfx}.{suffix}"));
        let (text, object, linked) = (at("tmp.s"), at("tmp.o"), at("co"));
        fs::write(&text, substituted(source, gfx))?;
        let outcome = self.run(gfx, &text, &object, &linked);
        for temporary in [text, object] {
            // It may not have been created.
            let _ = fs::remove_file(temporary);
        }
        outcome.with_context(|| gfx.to_owned())
    }

    fn run(&self, gfx: &str, text: &Path, object: &Path, linked: &Path) -> Result<()> {
        exec::capture(
            Command::new(&self.assembler)
                .args(["--triple=amdgcn-amd-amdhsa", "--filetype=obj"])
                .arg(format!("--mcpu={gfx}"))
                .arg("-o")
                .args([object, text]),
        )?;
        exec::capture(
            Command::new(&self.linker)
                .args(["-flavor", "gnu", "-shared", "--no-undefined", "-o"])
                .args([linked, object]),
        )?;
        // This section names the linker's version, which differs between versions of Rust.
        exec::capture(
            Command::new(&self.objcopy)
                .args(["--remove-section", ".comment"])
                .arg(linked),
        )?;
        Ok(())
    }
}

/// The source for a target. Directives of a kernel descriptor cannot be conditional in LLVM's
/// assembler, so they are substituted here.
fn substituted(source: &str, gfx: &str) -> String {
    let is = |set: &[&str]| set.iter().any(|prefix| gfx.starts_with(prefix));
    // From LLVM's AMDGPUUsage: targets with architected flat scratch, with wave32 by default, and
    // with accumulation registers in the same file.
    let private = if is(&["gfx94", "gfx95", "gfx11", "gfx12"]) {
        "enable_private_segment"
    } else {
        "system_sgpr_private_segment_wavefront_offset"
    };
    let mut descriptor = format!("\t.amdhsa_{private} \\scratch\n");
    let wave32 = is(&["gfx10", "gfx11", "gfx12"]);
    if wave32 {
        descriptor += "\t.amdhsa_wavefront_size32 1\n";
    }
    if is(&["gfx90a", "gfx94", "gfx95"]) {
        descriptor += "\t.amdhsa_accum_offset 8\n";
    }
    let mut kernels = String::new();
    for (name, private) in KERNELS {
        kernels += &format!(
            "  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: {private}
    .wavefront_size: {}
    .sgpr_count: 16
    .vgpr_count: 6
    .max_flat_workgroup_size: 1024
    .args:
      - {{ .name: ticks, .offset: 0, .size: 8, .value_kind: by_value }}
      - {{ .name: seen, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global }}
",
            if wave32 { 32 } else { 64 }
        );
    }
    source
        .replace("@descriptor@\n", &descriptor)
        .replace("@kernels@\n", &kernels)
        .replace("@gfx@", gfx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_what_the_source_makes() {
        let checked_in = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(DIRECTORY);
        let tools = match Tools::find() {
            Ok(tools) => tools,
            Err(reason) => {
                eprintln!("SKIPPED: {reason:#}");
                return;
            }
        };
        let source = fs::read_to_string(checked_in.join("spin.s")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        for gfx in TARGETS {
            tools.assemble(&source, gfx, directory.path()).unwrap();
            let name = format!("{gfx}.co");
            let made = fs::read(directory.path().join(&name)).unwrap();
            let kept = fs::read(checked_in.join(&name)).unwrap();
            assert!(
                made == kept,
                "{name} is not what spin.s makes; `cargo xtask gen-objects`"
            );
        }
        let objects = fs::read_dir(&checked_in).unwrap().count();
        assert_eq!(
            objects,
            TARGETS.len() + 1,
            "objects without a target, or other files"
        );
    }
}
