//! `cargo xtask lint`: what a change must pass before anyone looks at it. Every warning is an error.

use std::process::Command;

use anyhow::{Result, bail};

use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{ebpf, exec};

/// Arguments of `cargo xtask lint`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what every change must pass: not the documentation, nor what other tools check
    #[arg(long)]
    gate: bool,
}

/// One check: what, why, the program with its arguments, and its environment.
struct Check {
    what: &'static str,
    why: &'static str,
    tool: Tool,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Whether every change must pass it.
    gate: bool,
}

/// What makes a check.
#[derive(Clone, Copy)]
enum Tool {
    /// Cargo, and what comes with it.
    Cargo,
    /// Cargo with a command that is not worth minutes of compiling to everybody: the program, which may be missing.
    Extra(&'static str),
    /// Another program, which may be missing.
    Other(&'static str),
}

/// Quickest first. Clippy and rustdoc share the dependencies that one of them has checked. The fuzz targets are a
/// workspace of their own, for which all dependencies would be checked once more: `cargo xtask fuzz` compiles them.
const CHECKS: [Check; 6] = [
    Check {
        what: "rustfmt",
        why: "one layout for all code",
        tool: Tool::Cargo,
        arguments: &["fmt", "--all", "--check"],
        environment: &[],
        gate: true,
    },
    Check {
        what: "clippy",
        why: "lints of the root Cargo.toml, for code and tests",
        tool: Tool::Cargo,
        arguments: &["clippy", "--all-targets", "--", "-D", "warnings"],
        environment: &[],
        gate: true,
    },
    // The compiler that builds for BPF comes without clippy, and clippy's own has no `core` for BPF. So the programs
    // are checked for the host, where aya-ebpf compiles too; nothing is linked. `core` for the host is compiled for
    // unwinding, which a program without std must not do: hence the panic strategy.
    Check {
        what: "clippy for eBPF",
        why: "the same lints for the programs that run in the kernel",
        tool: Tool::Cargo,
        arguments: &[
            "clippy",
            "--package=gputrace-probes",
            "--package=gputrace-kernel",
            "--package=gputrace-bench-programs",
            "--config=profile.dev.panic=\"abort\"",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
        gate: true,
    },
    Check {
        what: "rustdoc",
        why: "documentation without broken links",
        tool: Tool::Cargo,
        arguments: &["doc", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        gate: false,
    },
    Check {
        what: "cargo deny",
        why: "licences, known holes and duplicates of dependencies, by deny.toml",
        tool: Tool::Extra("cargo-deny"),
        arguments: &["deny", "check"],
        environment: &[],
        gate: false,
    },
    // A test of gputrace's checks commands and links without it.
    Check {
        what: "mdbook",
        why: "the user guide as a book",
        tool: Tool::Other("mdbook"),
        arguments: &["build", "docs"],
        environment: &[],
        gate: false,
    },
];

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Build).require(Purpose::Build)?;
        // userspace/loader does not compile without the objects.
        ebpf::build(workspace)?;
        let (mut made, mut failed) = (0, Vec::new());
        for check in CHECKS.iter().filter(|check| check.gate || !self.gate) {
            if let Tool::Extra(program) | Tool::Other(program) = check.tool
                && exec::find_program(program).is_none()
            {
                progress::note(format_args!(
                    "SKIPPED: {}: {program} is not installed; `cargo install --locked {program}` does that",
                    check.why
                ));
                continue;
            }
            let mut command = match check.tool {
                Tool::Cargo | Tool::Extra(_) => workspace.cargo(),
                Tool::Other(program) => Command::new(program),
            };
            command
                .args(check.arguments)
                .envs(check.environment.iter().copied())
                .current_dir(&workspace.root);
            made += 1;
            // All of them, so that one run shows everything that is to be mended.
            if long_step(check.what, check.why, || exec::stream(&mut command)).is_err() {
                failed.push(check.what);
            }
        }
        progress::heading(format_args!(
            "lint: {} of {made} passed",
            made - failed.len()
        ));
        if failed.is_empty() {
            Ok(())
        } else {
            bail!("{} failed, see above", failed.join(", "))
        }
    }
}
