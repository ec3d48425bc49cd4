//! The programs under test, where guests find them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::progress::long_step;
use crate::test::{build_tests, cargo_for_tests};
use crate::workspace::Workspace;

/// The end-to-end tests that run in guests.
const TEST_PROGRAMS: [&str; 6] = ["backend", "launch", "attach", "loss", "stop", "undisturbed"];

/// Where guests find the programs under test.
pub(super) fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("vm").join("bin")
}

/// The programs under test, without debug information: a guest reads them through 9p, and nobody replaces them
/// while it does.
pub(super) struct Programs {
    pub(super) gputrace: PathBuf,
    pub(super) vm: PathBuf,
    /// Test programs by name.
    pub(super) tests: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    /// Where they are once they have been built.
    pub(super) fn built(workspace: &Workspace) -> Self {
        let directory = directory(workspace);
        Self {
            gputrace: directory.join("gputrace"),
            vm: directory.join("gputrace-vm"),
            tests: TEST_PROGRAMS.map(|name| (name, directory.join(name))).into(),
        }
    }

    pub(super) fn build(workspace: &Workspace) -> Result<Self> {
        // As `cargo xtask test` builds them, which then leaves nothing to do here: cargo chooses the features
        // of common dependencies by the packages that it is given, and builds for some of them anew.
        build_tests(workspace)?;
        let mut built = BTreeMap::new();
        long_step("find the end-to-end tests", "they run in guests, too", || {
            // Human output has their paths, and says so in a stable way.
            let mut cargo = cargo_for_tests(workspace, false);
            cargo.args(["test", "--tests", "--no-run", "--color", "never"]);
            let output = cargo
                .output()
                .with_context(|| format!("cannot start `{}`", exec::describe(&cargo)))?;
            let printed = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                bail!("{}\n{printed}", exec::failure(&cargo, output.status));
            }
            built.extend(printed.lines().filter_map(executable));
            Ok(())
        })?;
        let programs = Self::built(workspace);
        let debug = workspace.gputrace("debug");
        stripped(&debug, &programs.gputrace)?;
        stripped(&debug.with_file_name("gputrace-vm"), &programs.vm)?;
        for (name, to) in &programs.tests {
            let path = built
                .get(*name)
                .with_context(|| format!("cargo names no test program {name}"))?;
            stripped(&workspace.root.join(path), to)?;
        }
        Ok(programs)
    }
}

/// Reads cargo's `  Executable tests/attach.rs (target/debug/deps/attach-0ea89876348a96be)`.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let (source, path) = line.trim().strip_prefix("Executable ")?.split_once(" (")?;
    let source = source.split_whitespace().last()?;
    let name = Path::new(source).file_stem().and_then(OsStr::to_str)?;
    Some((name.to_owned(), PathBuf::from(path.strip_suffix(')')?)))
}

/// Copies the program at `from` to `to` without debug information. By renaming: a guest may be running the old one.
fn stripped(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("new");
    let mut strip = Command::new("strip");
    exec::capture(strip.arg("--strip-debug").arg("-o").arg(&new).arg(from))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(&new, to).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_test_programs_are_found() {
        let line = "  Executable tests/attach.rs (target/debug/deps/attach-0ea89876348a96be)";
        assert_eq!(
            executable(line),
            Some((
                "attach".to_owned(),
                "target/debug/deps/attach-0ea89876348a96be".into()
            ))
        );
        let unit = "  Executable unittests src/lib.rs (target/debug/deps/gputrace_e2e-0f)";
        assert_eq!(executable(unit).unwrap().0, "lib");
        assert_eq!(executable("   Compiling gputrace-e2e v0.1.0 (/x)"), None);
    }
}
