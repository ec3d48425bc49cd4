//! `cargo xtask lint`: what a change must pass before anyone looks at it. Every warning is an error.

use std::process::Command;

use anyhow::{Result, bail};

use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{ebpf, exec};

/// Arguments of `cargo xtask lint`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// One check: what, why, cargo's arguments, and its environment.
struct Check {
    what: &'static str,
    why: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

/// Quickest first. Clippy and rustdoc share the dependencies that one of them has checked. The fuzz targets are a
/// workspace of their own, for which all dependencies would be checked once more: `cargo xtask fuzz` compiles them.
const CHECKS: [Check; 4] = [
    Check {
        what: "rustfmt",
        why: "one layout for all code",
        arguments: &["fmt", "--all", "--check"],
        environment: &[],
    },
    Check {
        what: "clippy",
        why: "lints of the root Cargo.toml, for code and tests",
        arguments: &["clippy", "--all-targets", "--", "-D", "warnings"],
        environment: &[],
    },
    // The compiler that builds for BPF comes without clippy, and clippy's own has no `core` for BPF. So the programs
    // are checked for the host, where aya-ebpf compiles too; nothing is linked. `core` for the host is compiled for
    // unwinding, which a program without std must not do: hence the panic strategy.
    Check {
        what: "clippy for eBPF",
        why: "the same lints for the programs that run in the kernel",
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
    },
    Check {
        what: "rustdoc",
        why: "documentation without broken links",
        arguments: &["doc", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
    },
];

/// What dependencies may be, by `deny.toml`. A tool of its own, which is not worth minutes of compiling to everybody.
const DENY: Check = Check {
    what: "cargo deny",
    why: "licences, known holes and duplicates of dependencies",
    arguments: &["deny", "check"],
    environment: &[],
};

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run by a method")]
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Build).require(Purpose::Build)?;
        // userspace/probe does not compile without the objects.
        ebpf::build(workspace)?;
        let mut failed = Vec::new();
        let mut checks: Vec<&Check> = CHECKS.iter().collect();
        if exec::find_program("cargo-deny").is_some() {
            checks.push(&DENY);
        } else {
            progress::note(format_args!(
                "SKIPPED: {}: cargo-deny is not installed; `cargo install --locked cargo-deny` does that",
                DENY.why
            ));
        }
        for check in &checks {
            let mut cargo = workspace.cargo();
            cargo
                .args(check.arguments)
                .envs(check.environment.iter().copied());
            // All of them, so that one run shows everything that is to be mended.
            if long_step(check.what, check.why, || exec::stream(&mut cargo)).is_err() {
                failed.push(check.what);
            }
        }
        let mut count = checks.len();
        // A test of gputrace's checks commands and links without it, so nobody needs to install it.
        if exec::find_program("mdbook").is_some() {
            count += 1;
            let mut mdbook = Command::new("mdbook");
            mdbook.args(["build", "docs"]).current_dir(&workspace.root);
            if long_step("mdbook", "the user guide as a book", || exec::stream(&mut mdbook)).is_err() {
                failed.push("mdbook");
            }
        }
        progress::heading(format_args!("lint: {} of {count} passed", count - failed.len()));
        if failed.is_empty() {
            Ok(())
        } else {
            bail!("{} failed, see above", failed.join(", "))
        }
    }
}
