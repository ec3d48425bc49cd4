//! `cargo xtask lint`: the checks that a change must pass before review. Every warning is an error.

use std::process::Command;

use anyhow::{Result, bail};

use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{ebpf, exec};

/// Arguments of `cargo xtask lint`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only what every change must pass: neither the documentation nor the checks by other tools
    #[arg(long)]
    gate: bool,
}

/// One check: its name, its purpose, the program with its arguments, and its environment.
struct Check {
    what: &'static str,
    why: &'static str,
    tool: Tool,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Whether every change must pass it.
    gate: bool,
}

/// The program that runs a check.
#[derive(Clone, Copy)]
enum Tool {
    /// Cargo, and the tools that come with it.
    Cargo,
    /// Cargo with a subcommand whose program may be missing, because compiling it takes minutes
    /// that not everybody should have to spend.
    Extra(&'static str),
    /// The same, if it needs a repository that may be out of reach: the program, and the repository.
    Fetching(&'static str, &'static str),
    /// Another program, which may be missing.
    Other(&'static str),
}

impl Tool {
    /// Why it cannot be used here, if it cannot.
    fn lacks(self) -> Option<String> {
        let (Self::Extra(program) | Self::Fetching(program, _) | Self::Other(program)) = self
        else {
            return None;
        };
        if exec::find_program(program).is_none() {
            return Some(format!(
                "{program} is not installed; `cargo install --locked {program}` does that"
            ));
        }
        if let Self::Fetching(_, repository) = self {
            let mut asked = Command::new("git");
            asked
                .args(["ls-remote", "--quiet", "--exit-code", repository, "HEAD"])
                // Nobody is there to type a password.
                .env("GIT_TERMINAL_PROMPT", "0");
            if let Err(error) = exec::capture(&mut asked) {
                return Some(format!("{repository} cannot be reached: {error:#}"));
            }
        }
        None
    }
}

/// RustSec's database, from which cargo-deny has the holes that are known.
const ADVISORIES: &str = "https://github.com/RustSec/advisory-db";

/// Quickest first. Clippy and rustdoc share the checked dependencies. The fuzz targets are a
/// separate workspace, for which all dependencies would be checked again; `cargo xtask fuzz`
/// compiles them.
const CHECKS: [Check; 7] = [
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
    // The compiler that builds for BPF comes without clippy, and clippy's own compiler has no
    // `core` for BPF. So the programs are checked for the host, where aya-ebpf compiles too;
    // nothing is linked. The host's `core` is compiled for unwinding, which a program without std
    // must not use: hence the panic strategy.
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
        why: "licences, sources and duplicates of dependencies, by deny.toml",
        tool: Tool::Extra("cargo-deny"),
        arguments: &["deny", "check", "bans", "licenses", "sources"],
        environment: &[],
        gate: false,
    },
    Check {
        what: "cargo deny advisories",
        why: "known holes in dependencies",
        tool: Tool::Fetching("cargo-deny", ADVISORIES),
        arguments: &["deny", "check", "advisories"],
        environment: &[],
        gate: false,
    },
    // A test of gputrace checks commands and links without it.
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
        // userspace/loader does not compile without the eBPF objects.
        ebpf::build(workspace)?;
        let (mut made, mut failed) = (0, Vec::new());
        for check in CHECKS.iter().filter(|check| check.gate || !self.gate) {
            if let Some(reason) = check.tool.lacks() {
                progress::note(format_args!("SKIPPED: {}: {reason}", check.why));
                continue;
            }
            let mut command = match check.tool {
                Tool::Cargo | Tool::Extra(_) | Tool::Fetching(..) => workspace.cargo(),
                Tool::Other(program) => Command::new(program),
            };
            command
                .args(check.arguments)
                .envs(check.environment.iter().copied())
                .current_dir(&workspace.root);
            made += 1;
            // All checks run, so that one run shows all problems.
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
