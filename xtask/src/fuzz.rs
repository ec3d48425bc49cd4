//! `cargo xtask fuzz`: runs all fuzz targets of tests/fuzz, each for a fixed time.
//!
//! It needs neither cargo-fuzz nor a nightly compiler: the compiler support for libFuzzer consists
//! of LLVM options that every compiler accepts (`tests/fuzz/rustc.sh`), and an address sanitizer
//! would find little in code without `unsafe`.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;

/// Arguments of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these targets [default: all of tests/fuzz/fuzz_targets]
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of libFuzzer's random numbers; the same seed tries the same inputs, as far as the
    /// machine's speed allows
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Number of targets that run at once [default: one per CPU]
    #[arg(long)]
    jobs: Option<usize>,
}

/// The platform for which the targets are built. It is named explicitly, so that cargo tells the
/// compiler which code becomes part of the targets.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Time in s after which libFuzzer reports an input as a hang; no input takes that long.
const SLOWEST: u32 = 10;

/// Memory limit of a target, MB. Decoders are bounded far below that.
const MEMORY: u32 = 2048;

/// Maximum length of an input in bytes.
const LONGEST: u32 = 1 << 16;

/// Extra time of a target beyond its limit, for the current input, and to read its corpus.
const GRACE: Duration = Duration::from_secs(120);

/// Inputs of each target that are kept in the repository; fuzzing begins with them.
const CORPUS: &str = "tests/fuzz-replay/corpus";

/// A running target.
struct Run {
    name: String,
    child: Child,
    log: PathBuf,
    findings: PathBuf,
    begin: Instant,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Build).require(Purpose::Build)?;
        let known = known_targets(workspace)?;
        if let Some(unknown) = self.targets.iter().find(|name| !known.contains(name)) {
            bail!(
                "no fuzz target is called {unknown}; there are {}",
                known.join(", ")
            );
        }
        let chosen = if self.targets.is_empty() {
            known
        } else {
            self.targets.clone()
        };
        let directory = workspace.target.join("fuzz");
        let mut build = workspace.cargo();
        build.args(["build", "--locked", "--profile=fuzz", "--bins"]);
        build.args([
            "--manifest-path=tests/fuzz/Cargo.toml",
            "--target",
            PLATFORM,
        ]);
        build.arg("--target-dir").arg(&directory);
        build.env("RUSTC_WRAPPER", workspace.root.join("tests/fuzz/rustc.sh"));
        long_step(
            "build the fuzz targets",
            "with what guides libFuzzer",
            || exec::stream(&mut build),
        )?;

        let programs = directory.join(PLATFORM).join("fuzz");
        let jobs = self
            .jobs
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        progress::heading(format_args!(
            "{} fuzz targets, {} s each, {jobs} at once, seed {}",
            chosen.len(),
            self.seconds,
            self.seed
        ));
        let mut waiting: VecDeque<String> = chosen.into();
        let mut running: Vec<Run> = Vec::new();
        let mut failed = Vec::new();
        while !waiting.is_empty() || !running.is_empty() {
            while running.len() < jobs.max(1)
                && let Some(name) = waiting.pop_front()
            {
                running.push(self.start(workspace, &programs, &directory, name)?);
            }
            let mut going_on = Vec::new();
            for mut run in running {
                let late = run.begin.elapsed() > Duration::from_secs(self.seconds) + GRACE;
                if late {
                    // It is our child and has not been waited for.
                    run.child.kill().context("cannot end a fuzz target")?;
                }
                match run
                    .child
                    .try_wait()
                    .context("cannot wait for a fuzz target")?
                {
                    None => going_on.push(run),
                    Some(status) => {
                        if !report(workspace, &run, status.success())? {
                            failed.push(run.name);
                        }
                    }
                }
            }
            running = going_on;
            thread::sleep(Duration::from_millis(100));
        }
        if failed.is_empty() {
            Ok(())
        } else {
            bail!("{} found something, see above", failed.join(", "))
        }
    }

    /// Starts a target. Its findings go into `directory`: the corpus, with which the next run
    /// begins, and inputs that break it.
    fn start(
        &self,
        workspace: &Workspace,
        programs: &Path,
        directory: &Path,
        name: String,
    ) -> Result<Run> {
        let corpus = directory.join("corpus").join(&name);
        let findings = directory.join("findings").join(&name);
        for path in [&corpus, &findings] {
            fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let log = directory.join(format!("{name}.log"));
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(programs.join(&name));
        command.current_dir(&workspace.root);
        command.arg(format!("-max_total_time={}", self.seconds));
        command.arg(format!("-seed={}", self.seed));
        command.arg(format!("-timeout={SLOWEST}"));
        command.arg(format!("-rss_limit_mb={MEMORY}"));
        command.arg(format!("-max_len={LONGEST}"));
        command.arg("-print_final_stats=1");
        command.arg(format!("-artifact_prefix={}/", findings.display()));
        // libFuzzer writes into the first directory.
        command.arg(&corpus);
        // Read only: what was found before, and is replayed by each run of the tests.
        command.arg(workspace.root.join(CORPUS).join(&name));
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().context("cannot write the log")?);
        command.stderr(output);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start `{}`", exec::describe(&command)))?;
        Ok(Run {
            name,
            child,
            log,
            findings,
            begin: Instant::now(),
        })
    }
}

/// Reports the result of a target; returns whether it passed.
fn report(workspace: &Workspace, run: &Run, success: bool) -> Result<bool> {
    let log = fs::read(&run.log).with_context(|| format!("cannot read {}", run.log.display()))?;
    let log = String::from_utf8_lossy(&log);
    let executions = executions(&log);
    // Targets that did nothing fail, too: the check of the time alone would let them pass.
    let well = success && executions.is_some_and(|number| number > 0);
    let state = if well { "passed" } else { "FAILED" };
    let number = executions.map_or("no".to_owned(), |number| number.to_string());
    progress::line(
        state,
        format_args!("{}: {number} executions", run.name),
        run.begin.elapsed(),
    );
    if !well {
        let lines: Vec<&str> = log.lines().rev().take(40).collect();
        for line in lines.iter().rev() {
            progress::note(format_args!("{line}"));
        }
        if let Some(input) = reproducer(&log) {
            progress::note(format_args!("the input: {input}"));
            if let Some(joined) = joined(&run.name, input) {
                progress::note(format_args!(
                    "copied to {joined}, it joins the corpus: \
                     `cargo test -p gputrace-fuzz-replay {}` replays it",
                    run.name
                ));
            }
        }
        progress::note(format_args!(
            "inputs that break it are in {}, its output in {}",
            workspace.relative(&run.findings).display(),
            workspace.relative(&run.log).display()
        ));
    }
    Ok(well)
}

/// The targets by name, in order.
fn known_targets(workspace: &Workspace) -> Result<Vec<String>> {
    let directory = workspace.root.join("tests/fuzz/fuzz_targets");
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem()
        {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Number of executions from libFuzzer's final statistics: `stat::number_of_executed_units: 12345`.
fn executions(log: &str) -> Option<u64> {
    let number = log
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    number.trim().parse().ok()
}

/// The path under which a finding of a target joins the committed corpus.
fn joined(name: &str, input: &str) -> Option<String> {
    let file = Path::new(input).file_name()?.to_str()?;
    Some(format!("{CORPUS}/{name}/{file}"))
}

/// Path in libFuzzer's message `Test unit written to PATH`.
fn reproducer(log: &str) -> Option<&str> {
    log.lines()
        .find_map(|line| Some(line.split_once("Test unit written to ")?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfuzzers_last_words() {
        let log = "#8\tINITED\nartifact_prefix='f/'; Test unit written to f/crash-1\n\
                   stat::number_of_executed_units: 4711\nstat::average_exec_per_sec:     2";
        assert_eq!(executions(log), Some(4711));
        assert_eq!(reproducer(log), Some("f/crash-1"));
        assert_eq!((executions("#1"), reproducer("#1")), (None, None));
        assert_eq!(
            joined("smi", "f/crash-1").as_deref(),
            Some("tests/fuzz-replay/corpus/smi/crash-1")
        );
    }
}
