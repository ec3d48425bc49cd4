//! `cargo xtask fidelity`: compares recordings of GPU work with what the software GPU really did.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::build::{self, Profile};
use crate::exec;
use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;

/// Arguments of `cargo xtask fidelity`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this release of `cargo xtask rocm`, or `simrocm` [default: all available ones]
    #[arg(long, value_name = "RELEASE")]
    release: Vec<String>,
    /// Run each workload, clock and so on a few times instead of all combinations, and only the
    /// oldest and the newest ROCm release: minutes instead of an hour
    #[arg(long)]
    quick: bool,
    /// Only the programs whose estimated mean durations are compared with the truth; with `--write`,
    /// only this section of docs/fidelity.md is replaced
    #[arg(long)]
    means: bool,
    /// Only runs whose description contains this, e.g. `graph, attach`
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the report to docs/fidelity.md
    #[arg(long)]
    write: bool,
}

/// The program that runs and compares.
const PACKAGE: &str = "gputrace-fidelity";

/// The stand-ins for ROCm's libraries.
const STAND_INS: &str = "gputrace-simrocm";

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Run).require(Purpose::Run)?;
        // A release build as it is shipped, because CPU time is among the figures.
        build::build(workspace, Profile::Release)?;
        let mut cargo = workspace.cargo();
        cargo.args([
            "build",
            "--release",
            "--package",
            PACKAGE,
            "--package",
            "gputrace-mockkfd",
        ]);
        long_step(
            "build the comparison",
            "the program that runs and compares",
            || exec::stream(&mut cargo),
        )?;

        let mut compare = Command::new(workspace.target.join("release").join(PACKAGE));
        compare.current_dir(&workspace.root);
        compare.arg("--gputrace").arg(workspace.gputrace("release"));
        if let Some(libraries) = stage(workspace) {
            compare.arg("--simrocm").arg(libraries);
        }
        for release in &self.release {
            compare.arg("--release").arg(release);
        }
        if let Some(only) = &self.only {
            compare.arg("--only").arg(only);
        }
        for (is_asked, option) in [(self.quick, "--quick"), (self.means, "--means")] {
            if is_asked {
                compare.arg(option);
            }
        }
        if self.write {
            compare
                .arg("--write")
                .arg(workspace.root.join("docs/fidelity.md"));
        }
        long_step(
            "compare",
            "programs on the software GPU, recorded and held against its log",
            || exec::stream(&mut compare),
        )
    }
}

/// Stages the stand-ins. If that fails, prints so and returns `None`; the report then does not
/// include them.
fn stage(workspace: &Workspace) -> Option<PathBuf> {
    let directory = workspace.target.join("tmp/fidelity-simrocm");
    let mut cargo = workspace.cargo();
    cargo.args([
        "run",
        "--quiet",
        "--package",
        STAND_INS,
        "--bin",
        "simrocm-stage",
        "--",
    ]);
    cargo.arg(&directory).args(["--hip", "5"]);
    let staged = long_step(
        "stage the stand-ins",
        "small libraries in the place of ROCm's",
        || exec::stream(&mut cargo),
    );
    match staged {
        Ok(()) => Some(directory.join("lib")),
        Err(error) => {
            progress::note(format_args!("without the stand-ins: {error:#}"));
            None
        }
    }
}
