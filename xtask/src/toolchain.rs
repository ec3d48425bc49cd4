//! The compilers and tools that turn `ebpf/*` into BPF objects.
//!
//! Rust's stable toolchains have no `core` for `bpfel-unknown-none`, so it is built from source
//! (`-Z build-std=core`), which needs three things with matching versions:
//!
//! 1. a rustc with its library source that may use unstable features ([`compiler`]): a rustup
//!    nightly with the `rust-src` component, or the distribution's rustc with its source (Debian
//!    12: `rustc-web` and `rust-web-src`),
//! 2. the LLVM of that rustc's major version, with headers and tools ([`llvm`]),
//! 3. `bpf-linker` built with that LLVM ([`linker`]): it reads the bitcode that rustc writes, and
//!    bitcode of another major version is rejected or, worse, misread.

pub(crate) mod compiler;
pub(crate) mod linker;
pub(crate) mod llvm;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use self::compiler::Compiler;
use self::llvm::Llvm;
use crate::workspace::Workspace;

/// The tools of an eBPF build, found on this machine, with matching versions.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) compiler: Compiler,
    pub(crate) llvm: Llvm,
    /// The directory that contains `bpf-linker`.
    pub(crate) linker: PathBuf,
}

impl Toolchain {
    /// Finds the tools without installing anything.
    ///
    /// # Errors
    ///
    /// Names the first tool that is missing, and the command that provides it.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self> {
        const NEXT: &str = "run `cargo xtask setup --for build`";
        let compiler = match compiler::choose(compiler::candidates()) {
            Ok(compiler) => compiler,
            Err(refusals) => bail!("no Rust compiler here can build eBPF:\n{refusals}\n{NEXT}"),
        };
        let major = compiler.version.llvm;
        let llvm =
            llvm::find(major).with_context(|| format!("LLVM {major} is not installed: {NEXT}"))?;
        if !linker::works(workspace, major) {
            bail!(
                "bpf-linker {} for LLVM {major} is not installed: {NEXT}",
                linker::VERSION
            );
        }
        Ok(Self {
            compiler,
            llvm,
            linker: linker::directory(workspace, major),
        })
    }
}
