//! `bpf-linker`, which links the bitcode of all crates into one BPF object and writes its BTF.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use super::llvm::Llvm;
use crate::exec;
use crate::workspace::{Workspace, cargo_binary};

/// The version that setup installs.
pub(crate) const VERSION: &str = "0.13.0";

/// The LLVM versions with which it can be built: its `llvm-NN` features.
pub(crate) const LLVM_VERSIONS: RangeInclusive<u32> = 21..=23;

/// The cached installation for LLVM `major`, which is a `cargo install` root.
fn root(workspace: &Workspace, major: u32) -> PathBuf {
    workspace
        .tools
        .join(format!("bpf-linker-{VERSION}-llvm{major}"))
}

/// The directory of the executable, for `PATH`: rustc finds its BPF linker there by name.
pub(crate) fn directory(workspace: &Workspace, major: u32) -> PathBuf {
    root(workspace, major).join("bin")
}

/// Whether the cached one exists and runs. It is linked with LLVM's shared library, which may have
/// been removed since.
pub(crate) fn works(workspace: &Workspace, major: u32) -> bool {
    exec::capture(Command::new(directory(workspace, major).join("bpf-linker")).arg("--version"))
        .is_ok_and(|version| version.trim() == format!("bpf-linker {VERSION}"))
}

/// Builds it with `llvm`, whose major version is `major`, into the cache.
///
/// # Errors
///
/// When cargo cannot download or build it, or the result does not run.
pub(crate) fn install(workspace: &Workspace, llvm: &Llvm, major: u32) -> Result<()> {
    let mut command = Command::new(cargo_binary());
    command
        // Outside the checkout, whose cargo configuration does not apply to it.
        .current_dir("/")
        .args([
            "install",
            "bpf-linker",
            "--locked",
            "--force",
            "--no-default-features",
        ])
        .args([
            "--version",
            VERSION,
            "--features",
            &format!("llvm-{major}"),
            "--root",
        ])
        .arg(root(workspace, major))
        // llvm-sys looks for llvm-config there.
        .env("PATH", exec::path_with(&[&llvm.bin])?)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    exec::capture(&mut command)?;
    if !works(workspace, major) {
        bail!(
            "{} was built but does not run",
            directory(workspace, major).join("bpf-linker").display()
        );
    }
    Ok(())
}
