//! `cargo xtask test`: prepares the machine and runs every test, from unit tests to traces of real programs.

use std::env;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::progress::{self, Seconds, long_step};
use crate::setup::{self, Purpose, python};
use crate::workspace::Workspace;
use crate::{ebpf, exec, gen_catalog, rocm};

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains this
    filter: Option<String>,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let start = Instant::now();
        let report = setup::prepare(workspace, Purpose::Test);
        // Without root or ROCm there is still much to test; those tests say themselves why they are skipped. CI
        // promises to have everything, so that there a skipped test would be a test that nobody knows is not run.
        let promised = env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
        report.require(if promised { Purpose::Test } else { Purpose::Build })?;

        ebpf::build(workspace)?;
        build_tests(workspace)?;
        let mut lacking = Vec::new();
        if !report.lacks_rocm() {
            build_workloads(workspace)?;
            lacking = prepare_releases(workspace);
        }
        if promised && !lacking.is_empty() {
            bail!("what CI promises is missing:\n{}", lacking.join("\n"))
        }

        let mut cargo = cargo_for_tests(workspace, promised);
        cargo.args(["test", "--no-fail-fast"]).args(&self.filter);
        let typed = exec::describe(&cargo);
        progress::heading(format_args!(
            "{typed}: from unit tests to traces of running programs"
        ));
        let testing = Instant::now();
        let mut tally = Tally::default();
        let status = exec::tee(&mut cargo, &mut io::stdout().lock(), |line| tally.add_line(line))
            .context("cannot follow the tests")?;

        progress::heading(format_args!("summary, after {}", Seconds(start.elapsed())));
        let state = if status.success() { "passed" } else { "FAILED" };
        progress::line(state, format_args!("{tally}"), testing.elapsed());
        if let Err(missing) = report.require(Purpose::Test) {
            progress::note(format_args!(
                "tests that need what is missing were skipped: {missing:#}"
            ));
        }
        for missing in &lacking {
            progress::note(format_args!("tests on this were skipped: {missing}"));
        }
        if status.success() {
            Ok(())
        } else {
            bail!("tests failed, see above")
        }
    }
}

/// Cargo with what tests find in their environment.
pub(crate) fn cargo_for_tests(workspace: &Workspace, promised: bool) -> Command {
    let mut cargo = workspace.cargo();
    // One test at a time: end-to-end tests would trace one another's programs and disturb one another's timing. All
    // packages in one run all the same, because cargo would compile common dependencies again for some of them alone.
    cargo.env("RUST_TEST_THREADS", "1");
    cargo.env("GPUTRACE_BIN", workspace.gputrace("debug"));
    // Made by `build_tests`. Tests of the stand-ins for ROCm would build them by a cargo of their own.
    cargo.env("GPUTRACE_SIMROCM_ARCHIVES", workspace.target.join("debug"));
    let python = python::interpreter(workspace);
    if python.is_file() {
        cargo.env("GPUTRACE_TEST_PYTHON", python);
    }
    if promised {
        cargo.env("GPUTRACE_REQUIRE_BPF", "1");
        cargo.env("GPUTRACE_REQUIRE_ROCM", "1");
    }
    cargo
}

/// Compiles all tests and the tool in one go. Cargo chooses the features of common dependencies for all packages that
/// it is given: compiling the tool by itself first would compile many of them twice.
///
/// # Errors
///
/// When something does not compile.
pub(crate) fn build_tests(workspace: &Workspace) -> Result<()> {
    let mut cargo = cargo_for_tests(workspace, false);
    // Libraries too: some are linked or preloaded as files.
    cargo.args(["build", "--lib", "--bins", "--tests"]);
    long_step(
        "build the tool and its tests",
        "so that tests start from a finished tool",
        || exec::stream(&mut cargo),
    )
}

/// Compiles the programs that end-to-end tests trace.
///
/// # Errors
///
/// When their build script fails.
pub(crate) fn build_workloads(workspace: &Workspace) -> Result<()> {
    let script = workspace.root.join("tests/workloads/build.sh");
    let mut build = Command::new(&script);
    build.arg(workspace.workloads()).current_dir(&workspace.root);
    long_step(
        "build the workloads",
        "programs on the real ROCm libraries, to be traced",
        || exec::stream(&mut build),
    )
}

/// Fetches the ROCm releases that tests run on, and their headers, and compiles the programs that use a GPU for each, and for the ROCm of
/// this machine. Returns what could not be had, and why.
fn prepare_releases(workspace: &Workspace) -> Vec<String> {
    progress::heading(format_args!("ROCm releases: what tests run on the software GPU"));
    let mut lacking = Vec::new();
    let mut programs = vec![gpu_workloads(workspace, None)];
    for release in rocm::for_tests(workspace) {
        match release.root {
            Ok(root) => programs.push(gpu_workloads(workspace, Some((release.name, &root)))),
            Err(error) => lacking.push(format!("ROCm {}: {error:#}", release.name)),
        }
    }
    if let Err(error) = gen_catalog::fetch_headers(workspace) {
        lacking.push(format!(
            "headers of ROCm, to compare the catalogue with: {error:#}"
        ));
    }
    let built = long_step(
        "build the GPU workloads",
        "programs that use a GPU, for each release",
        || programs.iter_mut().try_for_each(exec::stream),
    );
    if let Err(error) = built {
        lacking.push(format!("the programs of tests/workloads/gpu: {error:#}"));
    }
    lacking
}

/// The command that compiles the programs that use a GPU, for a release in a root directory or for this machine's, to
/// where tests look for them. They share what does not depend on the release.
fn gpu_workloads(workspace: &Workspace, release: Option<(&str, &Path)>) -> Command {
    // Cargo's `CARGO_TARGET_TMPDIR` of tests.
    let directory = workspace.target.join("tmp/gpu-workloads");
    let mut build = Command::new(workspace.root.join("tests/workloads/gpu/build.sh"));
    build.current_dir(&workspace.root);
    match release {
        None => build.arg(&directory),
        Some((name, root)) => build
            .arg(directory.join(name))
            .arg(root)
            .arg(directory.join("objects")),
    };
    build
}

/// What cargo test printed at the ends of its test programs, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    programs: u32,
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Tally {
    /// Adds a line if it is one of those: `test result: ok. 12 passed; 0 failed; 1 ignored; …`.
    fn add_line(&mut self, line: &str) {
        let Some(counts) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        self.programs += 1;
        for count in counts.1.split("; ") {
            if let Some((number, kind)) = count.split_once(' ')
                && let Ok(number) = number.parse::<u32>()
            {
                match kind {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.ignored += number,
                    _ => {}
                }
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            programs,
            passed,
            failed,
            ignored,
        } = self;
        write!(
            f,
            "{passed} passed, {failed} failed, {ignored} ignored in {programs} test programs"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_programs_are_added_up() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.10s",
            "test a ... ok",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 4.00s",
            "test result: nonsense",
        ] {
            tally.add_line(line);
        }
        assert_eq!(
            tally,
            Tally {
                programs: 2,
                passed: 15,
                failed: 2,
                ignored: 1
            }
        );
    }
}
