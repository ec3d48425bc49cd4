//! `--suite`: runs what must work on every kernel, in one guest per kernel.
//!
//! A suite is a list of steps, each a shell command with a name: queries of the kernel
//! (`gputrace-vm`), gputrace itself, and every end-to-end test of `tests/e2e`. A step that hangs is
//! ended without ending the others. The guest prints marks between the outputs of steps, from which
//! [`Progress`] makes a line for each finished step.

mod progress;
mod steps;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use self::progress::{Outcome, Progress, STEP_BEGINS, STEP_ENDED};
use self::steps::{Step, VERIFIER, WITH_DRIVER, reason_to_leave_out};
use super::guest::{Driver, Guest};
use super::kernels::{self, Files, Kernel};
use super::programs::directory;
use super::turns::{Turns, Voice};
use super::verifier::{self, Figures, Table};
use crate::cache::lock;
use crate::progress::{Seconds, heading};
use crate::workspace::Workspace;

/// How often the guest may die in the same step before the step has failed.
const MOST_DEATHS: u32 = 2;

/// Time in seconds after which a step is ended.
const STEP_SECONDS: u32 = 240;

/// Factor by which end-to-end tests wait longer than on a real CPU.
const SLOWNESS: u32 = 20;

/// What to run, and where.
pub(super) struct Suite<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) kernels: &'a [&'a Kernel],
    /// Run only steps whose name contains this.
    pub(super) only: Option<&'a str>,
    /// Only the steps of [`steps::QUICK`].
    pub(super) quick: bool,
    /// Record the verifier's figures instead of comparing them.
    pub(super) update: bool,
    /// Number of guests that run at once.
    pub(super) jobs: usize,
    /// Whether to build the programs under test; otherwise those of the last run are used.
    pub(super) build: bool,
    pub(super) timeout: Duration,
    pub(super) mirror: Option<&'a str>,
}

impl Suite<'_> {
    /// Runs the suite on each kernel, [`Suite::jobs`] of them at once.
    ///
    /// # Errors
    ///
    /// When something does not build, a kernel cannot be fetched, or a step fails on a kernel.
    pub(super) fn run(&self) -> Result<()> {
        let start = Instant::now();
        // All runs share the directory of the programs under test.
        let directory = directory(self.workspace);
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let _lock = lock(&directory)?;
        let steps = self.steps()?;
        let mut guests = Vec::new();
        for kernel in self.kernels {
            guests.push((
                *kernel,
                kernels::ensure(self.workspace, kernel, self.mirror)?,
            ));
        }
        let (turns, next) = (Turns::new(guests.len()), AtomicUsize::new(0));
        let outcomes = Mutex::new(BTreeMap::new());
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((kernel, files)) = guests.get(number) else {
                    return;
                };
                let outcome = self.run_on(kernel, files, &steps, &turns.voice(number));
                let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                outcomes.insert(number, outcome);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.jobs.min(guests.len()) {
                scope.spawn(work);
            }
            work();
        });
        let outcomes = outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut failed = Vec::new();
        for ((kernel, _), outcome) in guests.iter().zip(outcomes.into_values()) {
            let count = outcome?;
            if count > 0 {
                failed.push(format!("{count} on {}", kernel.name));
            }
        }
        heading(format_args!(
            "suite on {} kernels, after {}",
            self.kernels.len(),
            Seconds(start.elapsed())
        ));
        if failed.is_empty() {
            Ok(())
        } else {
            bail!("steps failed, see above: {}", failed.join(", "))
        }
    }

    /// Runs the steps in a guest with `kernel`; returns the number of failures.
    fn run_on(
        &self,
        kernel: &Kernel,
        files: &Files,
        steps: &[Step],
        voice: &Voice<'_>,
    ) -> Result<usize> {
        voice.heading(format_args!("suite on {kernel}"));
        let chosen: Vec<&Step> = steps
            .iter()
            .filter(|step| match reason_to_leave_out(kernel, &step.name) {
                Some(reason) => {
                    voice.line(
                        "left out",
                        format_args!("{}: {reason}", step.name),
                        Duration::ZERO,
                    );
                    false
                }
                None => true,
            })
            .collect();
        let mut outcomes: Vec<Outcome> = Vec::new();
        let (mut deaths, mut failed) = (BTreeMap::new(), 0);
        while let Some(left) = chosen.get(outcomes.len()..).filter(|left| !left.is_empty()) {
            let mut screen = Progress::new(voice);
            let ended = Guest::new(self.workspace, kernel, files)?.run_script(
                script(self.workspace, left).as_bytes(),
                Driver::OnDemand,
                self.timeout,
                &mut screen,
            );
            outcomes.extend(screen.finish());
            let Err(error) = ended else { break };
            voice.note(format_args!("{error:#}"));
            // QEMU's emulation is inexact where one CPU patches code that another one is executing,
            // as Linux does when a tracepoint gets its first program: then the kernel oopses in the
            // middle of an instruction (seen once in a hundred steps). A problem that our programs
            // cause in a kernel would recur each time.
            match outcomes.pop_if(|last| last.status.is_none()) {
                Some(cut)
                    if *deaths
                        .entry(cut.name.clone())
                        .and_modify(|count| *count += 1)
                        .or_insert(1)
                        <= MOST_DEATHS =>
                {
                    voice.note(format_args!(
                        "{} has seen its guest die; once more, in a new one",
                        cut.name
                    ));
                }
                cut => {
                    // If no step was cut short, the guest has not booted, or has not ended.
                    failed += usize::from(cut.is_none());
                    outcomes.extend(cut);
                    break;
                }
            }
        }
        failed += outcomes
            .iter()
            .filter(|outcome| outcome.status != Some(0))
            .count();
        failed += chosen.len().saturating_sub(outcomes.len());
        if let Some(outcome) = outcomes.iter().find(|outcome| outcome.name == VERIFIER) {
            failed += self.judge_figures(kernel, &outcome.output, voice)?;
        }
        let passed = outcomes
            .iter()
            .filter(|outcome| outcome.status == Some(0))
            .count();
        voice.note(format_args!(
            "{kernel}: {passed} of {} steps passed",
            chosen.len()
        ));
        Ok(failed)
    }

    /// Prints the verifier's figures, and records or compares them; returns 1 if there is a problem
    /// with them.
    fn judge_figures(&self, kernel: &Kernel, output: &str, voice: &Voice<'_>) -> Result<usize> {
        // One file contains the figures of all kernels.
        static TABLE: Mutex<()> = Mutex::new(());
        let _lock = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        voice.note(format_args!("{}", output.trim_end()));
        let seen: BTreeMap<String, Figures> = output.lines().filter_map(verifier::line).collect();
        let path = self.workspace.root.join("tests/vm/verifier.txt");
        let mut table = Table::read(&path)?;
        if self.update {
            table.update(&path, kernel.name, &seen)?;
            return Ok(0);
        }
        let complaints = table.complaints(kernel.name, &seen);
        if complaints.is_empty() {
            return Ok(0);
        }
        voice.note(format_args!(
            "{}\n-> if that must be, `cargo xtask vm --suite --only {VERIFIER} --update` keeps the new figures",
            complaints.join("\n")
        ));
        Ok(1)
    }
}

/// The script that runs all steps one after the other, with marks between them.
fn script(workspace: &Workspace, steps: &[&Step]) -> String {
    let mut script = format!(
        "cd '{}'\nexport GPUTRACE_REQUIRE_BPF=1 RUST_TEST_THREADS=1 RUST_BACKTRACE=0 GPUTRACE_TEST_SLOWNESS={SLOWNESS} GPUTRACE_BIN='{}' files\n",
        workspace.root.display(),
        directory(workspace).join("gputrace").display()
    );
    // The tests' programs expect a machine without a driver; HIP behaves differently if there is a
    // driver but no GPU.
    let mut driver = false;
    for Step {
        name,
        script: command,
    } in steps
    {
        if name.contains(WITH_DRIVER) && !std::mem::replace(&mut driver, true) {
            // Modules that are already loaded are refused, which does no harm.
            script.push_str("load_driver 2>/dev/null\n");
        }
        // Standard error is part of the step's output.
        script += &format!(
            "echo; echo '{STEP_BEGINS}{name}'\n\
             timeout -k 5 {STEP_SECONDS} sh -c {} 2>&1\n\
             status=$?; echo; echo \"{STEP_ENDED}$status\"\n",
            quoted(command)
        );
    }
    script
}

fn quoted(command: &str) -> String {
    format!("'{}'", command.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;
    use crate::exec;

    #[test]
    fn a_failing_step_does_not_end_the_others() {
        let steps = [
            Step::new("bad", "echo it\\'s bad; exit 3"),
            Step::new("good", "true"),
        ];
        let workspace = Workspace {
            root: "/".into(),
            target: "/nonexistent".into(),
            bpf: "/nonexistent".into(),
            tools: "/nonexistent".into(),
        };
        let script = script(&workspace, &steps.iter().collect::<Vec<_>>());
        let printed = exec::capture(Command::new("sh").args(["-c", &script])).unwrap();
        let turns = Turns::new(1);
        let voice = turns.voice(0);
        let mut progress = Progress::new(&voice);
        progress.write_all(printed.as_bytes()).unwrap();
        let outcomes = progress.finish();
        assert_eq!(
            outcomes
                .iter()
                .map(|outcome| outcome.status)
                .collect::<Vec<_>>(),
            [Some(3), Some(0)]
        );
        assert_eq!(outcomes[0].output, "it's bad");
    }
}
