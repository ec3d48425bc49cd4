//! The programs under test, in a place where guests find them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::exec;
use crate::progress::long_step;
use crate::test::{build_tests, cargo_for_tests, programs};
use crate::workspace::Workspace;

/// The end-to-end tests that run in guests.
const TEST_PROGRAMS: [&str; 6] = ["backend", "launch", "attach", "loss", "stop", "undisturbed"];

/// Where guests find the programs under test.
pub(super) fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("vm").join("bin")
}

/// The programs under test, without debug information: guests read them through 9p. They are
/// copies, which nothing replaces meanwhile.
pub(super) struct Programs {
    pub(super) gputrace: PathBuf,
    pub(super) vm: PathBuf,
    /// Test programs by name.
    pub(super) tests: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    /// Their paths, once they have been built.
    pub(super) fn built(workspace: &Workspace) -> Self {
        let directory = directory(workspace);
        Self {
            gputrace: directory.join("gputrace"),
            vm: directory.join("gputrace-vm"),
            tests: TEST_PROGRAMS
                .map(|name| (name, directory.join(name)))
                .into(),
        }
    }

    pub(super) fn build(workspace: &Workspace) -> Result<Self> {
        // Built as in `cargo xtask test`, which then has nothing left to compile: cargo chooses the
        // features of common dependencies by the packages of a build, and recompiles for subsets of
        // them.
        build_tests(workspace)?;
        let built = long_step(
            "find the end-to-end tests",
            "they run in guests, too",
            || programs::all(workspace, cargo_for_tests(workspace, false)),
        )?;
        let programs = Self::built(workspace);
        let debug = workspace.gputrace("debug");
        stripped(&debug, &programs.gputrace)?;
        stripped(&debug.with_file_name("gputrace-vm"), &programs.vm)?;
        for (name, to) in &programs.tests {
            let id = format!("gputrace-e2e::{name}");
            let program = built.iter().find(|program| program.id == id);
            let program = program.with_context(|| format!("cargo names no test program {id}"))?;
            stripped(&program.file, to)?;
        }
        Ok(programs)
    }
}

/// Copies the program at `from` to `to` without debug information. It renames the new file, because
/// a guest may be running the old one.
fn stripped(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("new");
    let mut strip = Command::new("strip");
    exec::capture(strip.arg("--strip-debug").arg("-o").arg(&new).arg(from))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(&new, to).with_context(|| format!("cannot write {}", to.display()))
}
