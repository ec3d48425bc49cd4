//! Runs the chosen tests by their classes, and judges them.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::programs::TestId;
use super::run::{Ended, Ran, Runner};
use super::tiers::{Class, Tiers};
use crate::progress::{self, Seconds};

/// What a failed test prints if it found what no slowness of a machine excuses: a window that was
/// violated, an account that does not add up, something left behind.
const INVARIANT: &str = "INVARIANT";

/// More tests than these that fail and then pass are no bad luck.
const MOST_FLAKY: usize = 3;

/// How long a test that failed waits for a quiet machine before it is run again.
const QUIET_PATIENCE: Duration = Duration::from_secs(30);

/// Share of time, percent, in which tasks wait for a processor on a machine that is not quiet.
const LOUD: f64 = 20.0;

/// What came of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// It failed, then passed twice, and is known to depend on time.
    Flaky,
    /// It failed, then passed twice, and nobody knew that it depends on time.
    FlakyUnlisted,
    /// It says that it was skipped, where everything is promised and the tier file gives no reason.
    SkippedSilently,
    Failed,
}

impl Verdict {
    pub(crate) fn is_failure(self) -> bool {
        !matches!(self, Self::Passed | Self::Flaky)
    }
}

/// A test with what came of it.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) test: String,
    pub(crate) verdict: Verdict,
    /// Its first run.
    pub(crate) ran: Ran,
}

/// What came of all tests.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) judged: Vec<Judged>,
}

impl Account {
    pub(crate) fn of(&self, verdict: impl Fn(Verdict) -> bool) -> impl Iterator<Item = &Judged> {
        self.judged
            .iter()
            .filter(move |judged| verdict(judged.verdict))
    }

    /// Whether the suite has passed.
    pub(crate) fn passed(&self) -> bool {
        let flaky = self.of(|verdict| verdict == Verdict::Flaky).count();
        !self.judged.iter().any(|judged| judged.verdict.is_failure()) && flaky <= MOST_FLAKY
    }
}

/// What the suite is run with.
pub(crate) struct Suite<'a> {
    pub(crate) runner: &'a Runner,
    pub(crate) tiers: &'a Tiers,
    /// Whether the machine has all that tests need.
    pub(crate) promised: bool,
    /// Whether a test that traces is run again when it fails.
    pub(crate) again: bool,
}

impl Suite<'_> {
    /// Runs the tests: pure ones side by side, those that trace one by one, node-wide ones last.
    ///
    /// # Errors
    ///
    /// When a test cannot be started or followed.
    pub(crate) fn run(&self, tests: &[TestId<'_>]) -> Result<Account> {
        fs::create_dir_all(&self.runner.outputs)
            .with_context(|| format!("cannot make {}", self.runner.outputs.display()))?;
        let of_class = |class| -> Vec<TestId<'_>> {
            tests
                .iter()
                .copied()
                .filter(|id| self.tiers.class(id) == class)
                .collect()
        };
        let mut account = Account::default();
        for (class, what) in [
            (Class::Pure, "tests that trace nothing, side by side"),
            (Class::Tracing, "tests that trace programs, one at a time"),
            (Class::NodeWide, "tests of the whole machine, last"),
        ] {
            let tests = of_class(class);
            if tests.is_empty() {
                continue;
            }
            progress::heading(format_args!("{} {what}", tests.len()));
            if class == Class::Pure {
                self.side_by_side(&tests, &mut account)?;
            } else {
                for id in tests {
                    let judged = self.judge(&id, true, 0)?;
                    say(&judged);
                    account.judged.push(judged);
                }
            }
        }
        Ok(account)
    }

    /// Runs tests on all processors. Says a line for each program, and for each test that failed.
    fn side_by_side(&self, tests: &[TestId<'_>], account: &mut Account) -> Result<()> {
        let mut left: BTreeMap<&str, (usize, usize, Duration)> = BTreeMap::new();
        for id in tests {
            let (count, all, _) = left.entry(&id.program.id).or_default();
            (*count, *all) = (*count + 1, *all + 1);
        }
        let waiting: Mutex<VecDeque<TestId<'_>>> = Mutex::new(tests.iter().copied().collect());
        let next = || {
            waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let (done, results) = mpsc::channel();
        thread::scope(|scope| {
            for slot in 0..workers {
                let (done, next) = (done.clone(), &next);
                scope.spawn(move || {
                    while let Some(id) = next() {
                        let judged = self.judge(&id, false, slot);
                        if done.send((id, judged)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(done);
            for (id, judged) in results {
                let judged = judged?;
                if judged.verdict != Verdict::Passed {
                    say(&judged);
                }
                if let Some((count, all, took)) = left.get_mut(&*id.program.id) {
                    *count -= 1;
                    *took += judged.ran.evidence.wall;
                    if *count == 0 {
                        let what = format_args!("{}: {all} tests", id.program.id);
                        progress::line("done", what, *took);
                    }
                }
                account.judged.push(judged);
            }
            Ok(())
        })
    }

    /// Runs a test, once more where that is allowed, and judges it.
    fn judge(&self, id: &TestId<'_>, traces: bool, slot: usize) -> Result<Judged> {
        let test = id.to_string();
        let limit = Duration::from_secs(self.tiers.limit(&test));
        let ran = self.runner.run(id, limit, slot)?;
        let may_run_again = self.again && traces && !ran.output.contains(INVARIANT);
        let verdict = match ran.ended {
            Ended::Passed if self.is_skipped_silently(&test, &ran) => Verdict::SkippedSilently,
            Ended::Passed => Verdict::Passed,
            Ended::Failed(_) if may_run_again && self.passes_twice(id, limit, slot)? => {
                if self.tiers.depends_on_time(&test) {
                    Verdict::Flaky
                } else {
                    Verdict::FlakyUnlisted
                }
            }
            Ended::Failed(_) | Ended::Hung => Verdict::Failed,
        };
        Ok(Judged { test, verdict, ran })
    }

    fn is_skipped_silently(&self, test: &str, ran: &Ran) -> bool {
        self.promised && ran.skips().next().is_some() && self.tiers.reason_to_skip(test).is_none()
    }

    fn passes_twice(&self, id: &TestId<'_>, limit: Duration, slot: usize) -> Result<bool> {
        progress::note(format_args!("{id} failed; it is run again, twice"));
        let begin = Instant::now();
        while is_loud() && begin.elapsed() < QUIET_PATIENCE {
            thread::sleep(Duration::from_millis(500));
        }
        for _ in 0..2 {
            if !self.runner.run(id, limit, slot)?.passed() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether tasks have waited for a processor in the last ten seconds. Where the kernel does not
/// say, no.
fn is_loud() -> bool {
    let text = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let share = text
        .lines()
        .find(|line| line.starts_with("some "))
        .and_then(|line| {
            line.split_whitespace()
                .find_map(|field| field.strip_prefix("avg10="))
        })
        .and_then(|share| share.parse::<f64>().ok());
    share.is_some_and(|share| share > LOUD)
}

/// Says at once how a test went; of one that failed, what it printed.
fn say(judged: &Judged) {
    let state = match judged.verdict {
        Verdict::Passed => "passed",
        Verdict::Flaky | Verdict::FlakyUnlisted => "FLAKY",
        Verdict::SkippedSilently => "SKIPPED",
        Verdict::Failed if judged.ran.ended == Ended::Hung => "HUNG",
        Verdict::Failed => "FAILED",
    };
    progress::line(
        state,
        format_args!("{}", judged.test),
        judged.ran.evidence.wall,
    );
    if judged.verdict != Verdict::Passed {
        progress::note(format_args!("{}", judged.ran.output.trim_end()));
        progress::note(format_args!("{}", judged.ran.evidence));
    }
    if !judged.ran.processes.is_empty() {
        let were = if judged.ran.ended == Ended::Hung {
            "hung here"
        } else {
            "were left behind"
        };
        let places = judged.ran.processes.join("\n");
        progress::note(format_args!("its processes {were}:\n{places}"));
    }
    let limit = Duration::from_secs(60);
    if judged.verdict == Verdict::Passed && judged.ran.evidence.wall > limit {
        progress::note(format_args!(
            "longer than {}: {}",
            Seconds(limit),
            judged.ran.evidence
        ));
    }
}
