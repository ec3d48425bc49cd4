//! `cargo xtask test`: prepares the machine and runs the tests, from unit tests to traces of real
//! programs.
//!
//! `tests/tiers.toml` ([`tiers`]) says which tests run, and which of them share the machine. Each test
//! is a separate process ([`run`](mod@run)), so a test that hangs or dies does not end others. The
//! last page ([`page`]), also kept in `target/ci`, says what failed and what was skipped.

pub(crate) mod evidence;
mod page;
pub(crate) mod programs;
pub(crate) mod run;
pub(crate) mod suite;
pub(crate) mod tiers;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use self::programs::{Program, TestId};
use self::run::Runner;
use self::suite::{Account, Suite};
use self::tiers::{Tier, Tiers};
use crate::progress::{self, Seconds, long_step};
use crate::setup::{self, Purpose, Report, python};
use crate::workspace::{Workspace, cargo_binary};
use crate::{ebpf, exec, gen_catalog, rocm};

/// What people type, below the help.
const EXAMPLES: &str = "\
Examples:
  cargo xtask test                     the gate: what every change must pass
  cargo xtask test gputrace-e2e::stop  the tests of one program
  cargo xtask test --full              everything, on all releases and kernels, with new random inputs";

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only tests whose id contains this, such as `gputrace-e2e::stop` or `stop sigterm`
    filter: Option<String>,
    /// Everything that the gate leaves out, too: all ROCm releases and kernels, random seeds, long
    /// chaos, fuzzing, packages, the documentation
    #[arg(long)]
    full: bool,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let start = Instant::now();
        let tiers = Tiers::read(workspace)?;
        let prepared = Prepared::new(workspace, (!self.full).then_some(&tiers))?;
        tiers.check(&prepared.programs, jiff::Zoned::now().date())?;

        let wanted = |tier| tier == Tier::Gate || self.full && tier == Tier::Full;
        let chosen: Vec<TestId<'_>> = prepared
            .tests()
            .filter(|id| wanted(tiers.tier(id)))
            .filter(|id| {
                self.filter
                    .as_ref()
                    .is_none_or(|text| id.to_string().contains(text))
            })
            .collect();
        let mut runner = prepared.runner(workspace);
        let settings = if self.full {
            full_settings()
        } else {
            gate_settings(&tiers)
        };
        runner.environment.extend(settings);
        let suite = Suite {
            runner: &runner,
            tiers: &tiers,
            promised: prepared.promised,
            again: !self.full,
        };
        let account = suite.run(&chosen)?;
        let documented = self.filter.is_some() || examples(workspace, prepared.promised)?;

        let heading = format!("summary, after {}", Seconds(start.elapsed()));
        progress::heading(format_args!("{heading}"));
        let kept = workspace.target.join("ci");
        page::keep_count(&account, &kept.join("flaky.tsv"))?;
        let mut page = page::text(&account, &tiers);
        for missing in &prepared.lacking {
            page += &format!("\ntests on this were skipped: {missing}\n");
        }
        if !documented {
            page += "\nexamples of the documentation failed, see above\n";
        }
        let counts = page::counts(&account);
        fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
        fs::write(
            kept.join("summary.txt"),
            format!("{heading}\n{page}\n{counts}\n"),
        )
        .context("cannot keep the summary")?;
        progress::result(format_args!("{page}\n{counts}"))?;
        judge(&account, documented)?;
        if self.full && self.filter.is_none() {
            beyond_tests(workspace)
        } else {
            Ok(())
        }
    }
}

fn judge(account: &Account, documented: bool) -> Result<()> {
    if account.judged.is_empty() && documented {
        bail!("no test has such a name");
    }
    if account.passed() && documented {
        Ok(())
    } else {
        bail!("tests failed, see above")
    }
}

/// What the gate tells its tests: the same each time.
pub(crate) fn gate_settings(tiers: &Tiers) -> Vec<(String, OsString)> {
    let gate = &tiers.gate;
    vec![
        (
            "GPUTRACE_TEST_RELEASES".to_owned(),
            gate.releases.join(",").into(),
        ),
        (
            "PROPTEST_RNG_SEED".to_owned(),
            gate.proptest_seed.to_string().into(),
        ),
        (
            "GPUTRACE_CHAOS_ROUNDS".to_owned(),
            gate.chaos_rounds.to_string().into(),
        ),
    ]
}

/// What the full run tells them: other random numbers each time, and more of them.
fn full_settings() -> Vec<(String, OsString)> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seed = since.as_secs() % 1_000_000_000;
    progress::note(format_args!(
        "PROPTEST_RNG_SEED={seed} GPUTRACE_CHAOS_SEED={seed}"
    ));
    vec![
        ("PROPTEST_RNG_SEED".to_owned(), seed.to_string().into()),
        ("PROPTEST_CASES".to_owned(), "2560".into()),
        ("GPUTRACE_CHAOS_SEED".to_owned(), seed.to_string().into()),
        ("GPUTRACE_CHAOS_SECONDS".to_owned(), "600".into()),
        ("GPUTRACE_CHAOS_CROWD".to_owned(), "20000".into()),
    ]
}

/// What the full run does beside running tests: each a command of its own, with its reason.
const BEYOND_TESTS: [(&str, &[&str]); 4] = [
    ("lints, and the documentation", &["lint"]),
    (
        // Those of a release, on all distributions: `cargo xtask package --portable --check`, which
        // compiles everything once more.
        "packages of the program that was tested, on one distribution",
        &[
            "package",
            "--binary",
            "target/debug/gputrace",
            "--check",
            "--on",
            "trixie",
        ],
    ),
    ("new inputs for all decoders", &["fuzz", "--seconds", "300"]),
    (
        "all tests on all kernels",
        &["vm", "--suite", "--jobs", "2"],
    ),
];

/// Does [`BEYOND_TESTS`], all of it.
fn beyond_tests(workspace: &Workspace) -> Result<()> {
    let mut failed = Vec::new();
    for (why, arguments) in BEYOND_TESTS {
        let mut command = workspace.cargo();
        command.arg("xtask").args(arguments);
        let what = arguments.join(" ");
        if long_step(&what, why, || exec::stream(&mut command)).is_err() {
            failed.push(what);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("failed: {}", failed.join(", "))
    }
}

/// The machine, made ready for tests, and the tests.
pub(crate) struct Prepared {
    pub(crate) programs: Vec<Program>,
    /// Whether everything is promised to be there, as in CI: then a skipped test is a failed one.
    pub(crate) promised: bool,
    /// What could not be provided, and why.
    lacking: Vec<String>,
}

impl Prepared {
    /// Makes the machine ready, and builds all tests and what they run. With tiers, only the ROCm
    /// releases of the gate.
    ///
    /// # Errors
    ///
    /// When something does not compile, or is missing where everything is promised.
    pub(crate) fn new(workspace: &Workspace, gate: Option<&Tiers>) -> Result<Self> {
        let report = setup::prepare(workspace, Purpose::Test);
        // Without root or ROCm there is still much to test; tests that are skipped say why. CI
        // promises to have everything, because there nobody would notice a skipped test.
        let promised = env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
        report.require(if promised {
            Purpose::Test
        } else {
            Purpose::Build
        })?;

        ebpf::build(workspace)?;
        build_tests(workspace)?;
        let programs = long_step("find the tests", "each is run by itself", || {
            programs::all(workspace, cargo_for_tests(workspace, promised))
        })?;
        let lacking = prepare_programs(workspace, &report, gate)?;
        if promised && !lacking.is_empty() {
            bail!("what CI promises is missing:\n{}", lacking.join("\n"))
        }
        Ok(Self {
            programs,
            promised,
            lacking,
        })
    }

    pub(crate) fn tests(&self) -> impl Iterator<Item = TestId<'_>> {
        self.programs
            .iter()
            .flat_map(|program| program.tests.iter().map(|test| program.id_of(test)))
    }

    /// Runs tests in the environment that they expect.
    pub(crate) fn runner(&self, workspace: &Workspace) -> Runner {
        let mut environment = environment(workspace, self.promised);
        // As cargo does, for programs that load the workspace's own libraries.
        let mut libraries = vec![
            workspace.target.join("debug/deps"),
            workspace.target.join("debug"),
        ];
        libraries.extend(env::split_paths(
            &env::var_os("LD_LIBRARY_PATH").unwrap_or_default(),
        ));
        if let Ok(libraries) = env::join_paths(libraries) {
            environment.push(("LD_LIBRARY_PATH".to_owned(), libraries));
        }
        environment.push(("CARGO".to_owned(), cargo_binary()));
        // They were built by `Prepared::new`. Each test would run their build scripts again.
        environment.push(("GPUTRACE_WORKLOADS_BUILT".to_owned(), "1".into()));
        Runner {
            environment,
            outputs: workspace.target.join("ci/outputs"),
            prefix: Vec::new(),
        }
    }
}

/// Compiles the programs that tests trace. Returns what could not be provided.
fn prepare_programs(
    workspace: &Workspace,
    report: &Report,
    gate: Option<&Tiers>,
) -> Result<Vec<String>> {
    let mut lacking = Vec::new();
    if report.lacks_rocm() {
        lacking.push("ROCm".to_owned());
    } else {
        build_workloads(workspace)?;
        lacking = prepare_releases(workspace, gate.map(|tiers| &*tiers.gate.releases));
    }
    Ok(lacking)
}

/// Runs the examples in the documentation, by cargo. Returns whether they passed.
fn examples(workspace: &Workspace, promised: bool) -> Result<bool> {
    let mut cargo = cargo_for_tests(workspace, promised);
    cargo.args(["test", "--doc", "--no-fail-fast", "--quiet"]);
    let step = || {
        let status = exec::tee(&mut cargo, &mut io::stdout().lock(), |_| {});
        status.context("cannot follow the examples")
    };
    Ok(long_step("examples", "those in the documentation", step)?.success())
}

/// The environment that tests expect.
fn environment(workspace: &Workspace, promised: bool) -> Vec<(String, OsString)> {
    let archives = workspace.target.join("debug");
    let mut environment: Vec<(String, OsString)> = vec![
        // Several tests of one program are never run by it at once: they would trace one another.
        ("RUST_TEST_THREADS".to_owned(), "1".into()),
        (
            "GPUTRACE_BIN".to_owned(),
            workspace.gputrace("debug").into(),
        ),
        // Made by `build_tests`. Otherwise, tests of the stand-ins for ROCm would build them with
        // another cargo.
        ("GPUTRACE_SIMROCM_ARCHIVES".to_owned(), archives.into()),
    ];
    let python = python::READERS.interpreter(workspace);
    if python.is_file() {
        environment.push(("GPUTRACE_TEST_PYTHON".to_owned(), python.into()));
    }
    if promised {
        for required in ["GPUTRACE_REQUIRE_BPF", "GPUTRACE_REQUIRE_ROCM"] {
            environment.push((required.to_owned(), "1".into()));
        }
    }
    environment
}

/// A cargo command with the environment that tests expect.
pub(crate) fn cargo_for_tests(workspace: &Workspace, promised: bool) -> Command {
    let mut cargo = workspace.cargo();
    cargo.envs(environment(workspace, promised));
    cargo
}

/// Compiles all tests and the tool in one go. Cargo chooses the features of common dependencies for
/// all packages of a build: compiling the tool separately first would compile many of them twice.
///
/// # Errors
///
/// When something does not compile.
pub(crate) fn build_tests(workspace: &Workspace) -> Result<()> {
    let mut cargo = cargo_for_tests(workspace, false);
    // Libraries too, because some are linked or preloaded as files.
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
    build
        .arg(workspace.workloads())
        .current_dir(&workspace.root);
    long_step(
        "build the workloads",
        "programs on the real ROCm libraries, to be traced",
        || exec::stream(&mut build),
    )
}

/// Fetches the ROCm releases that tests run on (those with the given names, or all) and their
/// headers, and compiles the programs that use a GPU for each of them, and for this machine's ROCm.
/// Returns what could not be provided, and why.
fn prepare_releases(workspace: &Workspace, names: Option<&[String]>) -> Vec<String> {
    progress::heading(format_args!(
        "ROCm releases: what tests run on the software GPU"
    ));
    let mut lacking = Vec::new();
    // The stand-ins for ROCm have programs of their own, which name no libraries of a root.
    let stand_ins = Some(("simrocm", Path::new("")));
    let mut programs = vec![
        gpu_workloads(workspace, None),
        gpu_workloads(workspace, stand_ins),
    ];
    for release in rocm::for_tests(workspace, names) {
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

/// The command that compiles the GPU programs, for a release in a root directory or for this
/// machine's, to where tests look for them. Files that do not depend on the release are shared.
fn gpu_workloads(workspace: &Workspace, release: Option<(&str, &Path)>) -> Command {
    // The same directory as `CARGO_TARGET_TMPDIR` of tests.
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
