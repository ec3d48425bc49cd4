//! `cargo xtask build`: from a clean clone to `target/<profile>/gputrace`.

use anyhow::{Result, bail};

use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{ebpf, exec};

/// Arguments of `cargo xtask build`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimise the tool itself, not only what it depends on
    #[arg(long)]
    release: bool,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Build).require(Purpose::Build)?;
        build(
            workspace,
            if self.release {
                Profile::Release
            } else {
                Profile::Debug
            },
        )
    }
}

/// The cargo profile of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// `target/debug`. Dependencies are optimised even so, see the root `Cargo.toml`.
    Debug,
    /// `target/release`.
    Release,
}

impl Profile {
    /// The profile's directory below cargo's target directory.
    fn directory(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

/// Compiles the eBPF objects and then the tool that embeds them.
///
/// # Errors
///
/// When either fails to compile.
pub(crate) fn build(workspace: &Workspace, profile: Profile) -> Result<()> {
    ebpf::build(workspace)?;
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--package", "gputrace-cli"]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    long_step(
        "build gputrace",
        "the tool, with the eBPF objects inside",
        || exec::stream(&mut cargo),
    )?;
    let binary = workspace.gputrace(profile.directory());
    if !binary.is_file() {
        bail!(
            "cargo succeeded but {} is not there: is `build.target-dir` set? Use CARGO_TARGET_DIR",
            binary.display()
        );
    }
    progress::note(format_args!("{}", workspace.relative(&binary).display()));
    Ok(())
}
