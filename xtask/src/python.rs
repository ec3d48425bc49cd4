//! `cargo xtask python`: makes the wheel of the Python module, and runs its tests.
//!
//! The wheel is for every Python from 3.9 on (the stable ABI). It is installed into an environment of
//! xtask's own, with what the tests need.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::build::{self, Profile};
use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{exec, test};

/// Arguments of `cargo xtask python`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Make the wheel, optimised, and do not test it
    #[arg(long)]
    only_wheel: bool,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let python = setup::packaging::wheel_maker(workspace)?;
        let wheel = wheel(workspace, &python, self.only_wheel)?;
        if self.only_wheel {
            return Ok(());
        }
        setup::prepare(workspace, Purpose::Test).require(Purpose::Test)?;
        build::build(workspace, Profile::Debug)?;
        test::build_workloads(workspace)?;
        let mut install = Command::new(&python);
        install
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(["--no-input", "--no-deps", "--force-reinstall"]);
        exec::capture(install.arg(&wheel))?;
        let mut tests = Command::new(&python);
        tests
            .args(["-m", "pytest", "-p", "no:cacheprovider", "-v"])
            .arg(workspace.root.join("userspace/python/tests"))
            .env("GPUTRACE_BIN", workspace.gputrace("debug"))
            .env(
                "GPUTRACE_TEST_PROGRAM",
                workspace.workloads().join("hip_calls"),
            );
        long_step("test the Python module", "sessions and captures", || {
            exec::stream(&mut tests)
        })
    }
}

/// Makes the wheel.
fn wheel(workspace: &Workspace, python: &PathBuf, is_optimised: bool) -> Result<PathBuf> {
    let place = workspace.target.join("wheels");
    if place.exists() {
        fs::remove_dir_all(&place).context("cannot remove earlier wheels")?;
    }
    let mut maturin = Command::new(python);
    maturin
        .args(["-m", "maturin", "build", "--locked", "--manifest-path"])
        .arg(workspace.root.join("userspace/python/Cargo.toml"))
        .args(["--interpreter", "python3", "--out"])
        .arg(&place)
        .env("CARGO_TARGET_DIR", workspace.target.join("python"))
        .current_dir(&workspace.root);
    if is_optimised {
        maturin.args(["--release", "--strip"]);
    }
    long_step(
        "make the Python wheel",
        "PyO3 and Arrow are compiled with it",
        || exec::stream(&mut maturin),
    )?;
    let wheels = fs::read_dir(&place)?.collect::<Result<Vec<_>, _>>()?;
    let wheel = wheels.first().context("maturin made no wheel")?.path();
    progress::note(format_args!("{}", workspace.relative(&wheel).display()));
    Ok(wheel)
}
