//! Provides the eBPF toolchain: compiler, LLVM, linker. [`crate::toolchain`] explains what is
//! needed and why.

use std::process::Command;

use anyhow::Result;

use super::machine::{Machine, PackageManager};
use super::{State, apt};
use crate::toolchain::compiler::{self, PINNED_NIGHTLY};
use crate::toolchain::linker;
use crate::toolchain::llvm::{self, Llvm};
use crate::workspace::Workspace;
use crate::{exec, progress};

/// Debian's rustc for building browsers, which is kept up to date in stable releases, with the
/// library source.
const DEBIAN_COMPILER: [&str; 3] = ["rustc-web", "rust-web-src", "libstd-rust-web-dev"];

/// Finds a compiler, or installs one: from Debian if possible, otherwise by rustup.
pub(super) fn compiler(machine: &Machine) -> Result<State> {
    let refusals = match compiler::choose(compiler::candidates()) {
        Ok(compiler) => return Ok(State::Ready(compiler.to_string())),
        Err(refusals) => refusals,
    };
    let rustup = exec::find_program("rustup").is_some();
    let from_debian = machine.packages == PackageManager::Apt && apt::offers("rustc-web");
    let nightly =
        format!("rustup toolchain install {PINNED_NIGHTLY} --profile minimal --component rust-src");
    if from_debian && machine.is_root() {
        apt::install(&DEBIAN_COMPILER)?;
    } else if !from_debian && rustup {
        progress::note(format_args!("{nightly} ..."));
        exec::capture(Command::new("rustup").args(nightly.split_whitespace().skip(1)))?;
    } else {
        let debian = format!(
            "{} {}",
            machine.packages.install_command(),
            DEBIAN_COMPILER.join(" ")
        );
        return Ok(State::Missing {
            what: format!("none of the Rust compilers here can build eBPF:\n{refusals}"),
            remedy: match (from_debian, rustup) {
                (true, false) => machine.as_root(&debian),
                (true, true) => format!("{}, or `{nightly}`", machine.as_root(&debian)),
                _ => format!("install rustup (https://rustup.rs), then `{nightly}`"),
            },
        });
    }
    Ok(match compiler::choose(compiler::candidates()) {
        Ok(compiler) => State::Done(compiler.to_string()),
        Err(refusals) => State::Missing {
            what: format!("what was installed cannot build eBPF:\n{refusals}"),
            remedy: format!("`{nightly}`"),
        },
    })
}

/// Finds bpf-linker for the chosen compiler in the cache, or builds it there, after installing LLVM
/// if necessary.
pub(super) fn linker(workspace: &Workspace, machine: &Machine) -> Result<State> {
    let Ok(compiler) = compiler::choose(compiler::candidates()) else {
        return Ok(State::Missing {
            what: "its LLVM version follows from the eBPF compiler, which is missing".into(),
            remedy: "get the eBPF compiler (above) and run this again".into(),
        });
    };
    let major = compiler.version.llvm;
    let found = llvm::find(major);
    let name = format!("{} for LLVM {major}", linker::VERSION);
    let directory = linker::directory(workspace, major);
    // The LLVM tools finish every object, so the linker alone is not enough.
    if found.is_some() && linker::works(workspace, major) {
        return Ok(State::Ready(format!("{name}, {}", directory.display())));
    }
    let llvm = match found {
        Some(llvm) => llvm,
        None => match install_llvm(machine, major)? {
            Ok(llvm) => llvm,
            Err(remedy) => {
                let what = format!(
                    "LLVM {major} with headers, libraries and tools: bpf-linker is built with it"
                );
                return Ok(State::Missing { what, remedy });
            }
        },
    };
    progress::note(format_args!(
        "building bpf-linker {name}, a minute or two ..."
    ));
    linker::install(workspace, &llvm, major)?;
    Ok(State::Done(format!(
        "{name}, built into {}",
        directory.display()
    )))
}

/// Installs LLVM `major` by apt-get; the inner error says how it can be installed otherwise.
fn install_llvm(machine: &Machine, major: u32) -> Result<Result<Llvm, String>> {
    // Polly and zstd are libraries that `llvm-config` tells bpf-linker to link with LLVM.
    let packages = [
        format!("llvm-{major}-dev"),
        format!("libpolly-{major}-dev"),
        "libzstd-dev".into(),
    ];
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let upstream = format!(
        "LLVM {major} from https://apt.llvm.org or https://releases.llvm.org, llvm-config in PATH"
    );
    let command = machine.packages.install_command();
    Ok(Err(match machine.packages {
        PackageManager::Apt if !packages.iter().all(|package| apt::offers(package)) => upstream,
        PackageManager::Apt if machine.is_root() => {
            apt::install(&packages)?;
            return Ok(llvm::find(major).ok_or(upstream));
        }
        PackageManager::Apt => machine.as_root(&format!("{command} {}", packages.join(" "))),
        PackageManager::Dnf => machine.as_root(&format!("{command} llvm-devel llvm libzstd-devel")),
        PackageManager::Pacman => machine.as_root(&format!("{command} llvm zstd")),
        PackageManager::Zypper => {
            machine.as_root(&format!("{command} llvm{major}-devel libzstd-devel"))
        }
        PackageManager::Unknown => upstream,
    }))
}
