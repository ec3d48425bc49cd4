//! `cargo xtask flaky`: runs tests again and again, on a machine that is made busy, slow or jerky.
//!
//! A test whose verdict depends on luck is found on the day it is written: its author runs it here
//! before it joins the gate.

mod load;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use self::load::Load;
use crate::exec;
use crate::progress::{self, Seconds};
use crate::test::programs::TestId;
use crate::test::run::{Ended, Runner};
use crate::test::tiers::{Tier, Tiers};
use crate::test::{Prepared, gate_settings};
use crate::workspace::Workspace;

/// What people type, below the help.
const EXAMPLES: &str = "\
Examples:
  cargo xtask flaky gputrace-e2e::stop                     each test of this program, 20 times
  cargo xtask flaky --load quota:50 --load stop 'attach '  with half a processor, then with stops
  cargo xtask flaky --times 5 --load quota:50 --since main tests of packages that have changed";

/// Arguments of `cargo xtask flaky`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only tests of the gate whose id contains this
    filter: Option<String>,
    /// How often each test is run under each load
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// What disturbs the tests, more than once for several, one after the other: none; busy (two busy
    /// loops for each processor); quota:PERCENT (of one processor for the test and all that it
    /// starts); no-rt (without real-time priorities); stop (its processes stand still for 50 to 1500
    /// ms now and then)
    #[arg(long, value_name = "LOAD", default_value = "none")]
    load: Vec<Load>,
    /// Only tests of packages with files that have changed since this revision
    #[arg(long, value_name = "REV")]
    since: Option<String>,
    /// Seed of the moments at which processes are stopped
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What came of the runs of one test under one load.
struct Tally {
    test: String,
    load: String,
    walls: Vec<Duration>,
    failures: u32,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let tiers = Tiers::read(workspace)?;
        let prepared = Prepared::new(workspace, Some(&tiers))?;
        let changed = match &self.since {
            Some(revision) => Some(changed_files(workspace, revision)?),
            None => None,
        };
        let chosen: Vec<TestId<'_>> = prepared
            .tests()
            .filter(|id| tiers.tier(id) == Tier::Gate)
            .filter(|id| {
                self.filter
                    .as_ref()
                    .is_none_or(|text| id.to_string().contains(text))
            })
            .filter(|id| changed.as_ref().is_none_or(|files| is_touched(id, files)))
            .collect();
        if chosen.is_empty() {
            bail!("no test of the gate fits");
        }
        let mut runner = prepared.runner(workspace);
        runner.environment.extend(gate_settings(&tiers));
        let kept = workspace.target.join("ci/flaky");
        for directory in [&runner.outputs, &kept] {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mut unsteady = BTreeSet::new();
        for load in &self.load {
            progress::heading(format_args!(
                "{} tests, {} times, {load}",
                chosen.len(),
                self.times
            ));
            let under_way = load.start(self.seed)?;
            let runner = Runner {
                prefix: under_way.prefix(),
                ..runner.clone()
            };
            for id in &chosen {
                let limit = Duration::from_secs(tiers.limit(&id.to_string()));
                let tally = self.repeat(&runner, id, limit, load, &kept)?;
                tally.say();
                tally.keep(&workspace.target.join("flaky.tsv"))?;
                if tally.failures > 0 {
                    unsteady.insert(tally.test);
                }
            }
        }
        if unsteady.is_empty() {
            return Ok(());
        }
        bail!(
            "{} failed at least once; what they printed is in {}:\n{}",
            unsteady.len(),
            workspace.relative(&kept).display(),
            unsteady.into_iter().collect::<Vec<_>>().join("\n")
        )
    }

    fn repeat(
        &self,
        runner: &Runner,
        id: &TestId<'_>,
        limit: Duration,
        load: &Load,
        kept: &Path,
    ) -> Result<Tally> {
        let mut tally = Tally {
            test: id.to_string(),
            load: load.to_string(),
            walls: Vec::new(),
            failures: 0,
        };
        for number in 0..self.times {
            let ran = runner.run(id, limit, 0)?;
            tally.walls.push(ran.evidence.wall);
            if ran.passed() {
                continue;
            }
            tally.failures += 1;
            let name = format!("{}-{load}-{number}.txt", tally.test).replace(['/', ' ', ':'], "_");
            let how = match ran.ended {
                Ended::Hung => format!("did not end in {} s", limit.as_secs()),
                Ended::Failed(status) => status.to_string(),
                Ended::Passed => "passed".to_owned(),
            };
            let places = ran.processes.join("\n");
            let text = format!("{how}\n{}\n{places}\n{}", ran.evidence, ran.output);
            fs::write(kept.join(name), text).context("cannot keep what a test printed")?;
        }
        Ok(tally)
    }
}

impl Tally {
    /// The upper bound of the rate of failures, percent, that the runs leave possible with 95 %
    /// confidence: 3/N for no failure, and about two standard deviations more for some.
    fn bound(&self) -> f64 {
        let (runs, failures) = (self.walls.len().max(1) as f64, f64::from(self.failures));
        let bound = (failures + 3.0 + 2.0 * failures.sqrt()) / runs;
        (100.0 * bound).min(100.0)
    }

    /// The wall time below which a share of the runs was.
    fn wall(&self, share: f64) -> Duration {
        let mut walls = self.walls.clone();
        walls.sort_unstable();
        let last = walls.len().saturating_sub(1);
        let index = (share * last as f64).round() as usize;
        walls.get(index).copied().unwrap_or_default()
    }

    fn say(&self) {
        let state = if self.failures == 0 {
            "steady"
        } else {
            "UNSTEADY"
        };
        let text = format_args!(
            "{}: {} of {} failed, below {:.0} %; longest {}",
            self.test,
            self.failures,
            self.walls.len(),
            self.bound(),
            Seconds(self.wall(1.0))
        );
        progress::line(state, text, self.wall(0.5));
    }

    fn keep(&self, path: &PathBuf) -> Result<()> {
        let line = format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\n",
            jiff::Timestamp::now(),
            self.test,
            self.load,
            self.walls.len(),
            self.failures,
            self.wall(0.5).as_millis(),
            self.wall(0.99).as_millis()
        );
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Files that differ from a revision, those that git does not know included.
fn changed_files(workspace: &Workspace, revision: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for arguments in [
        ["diff", "--name-only", revision, "--"].as_slice(),
        &["ls-files", "--others", "--exclude-standard"],
    ] {
        let mut git = std::process::Command::new("git");
        git.args(arguments).current_dir(&workspace.root);
        let printed = exec::capture(&mut git)?;
        files.extend(printed.lines().map(|line| workspace.root.join(line)));
    }
    Ok(files)
}

/// Whether a file of the test has changed: its own, or one that all tests of its package share.
fn is_touched(id: &TestId<'_>, files: &[PathBuf]) -> bool {
    let package = id.program.directory();
    let tests = package.join("tests");
    files.iter().any(|file| {
        *file == id.program.source
            || file.starts_with(package)
                // Another test program's file.
                && !(file.parent() == Some(&tests) && id.program.source.starts_with(&tests))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::programs::Program;

    #[test]
    fn a_bound_says_what_so_few_runs_leave_possible() {
        let tally = |runs, failures| Tally {
            test: String::new(),
            load: String::new(),
            walls: vec![Duration::from_secs(1); runs],
            failures,
        };
        let shown = |runs, failures| format!("{:.0}", tally(runs, failures).bound());
        assert_eq!(shown(20, 0), "15");
        assert_eq!(shown(300, 0), "1");
        assert_eq!(shown(100, 4), "11");
        assert_eq!(shown(3, 3), "100");
        assert_eq!(tally(3, 0).wall(0.5), Duration::from_secs(1));
    }

    #[test]
    fn a_test_is_touched_by_its_own_files_and_its_packages() {
        let mut program = Program::with_tests("p::stop", &["t"]);
        program.place("/w/tests/e2e", "/w/tests/e2e/tests/stop.rs");
        let touched = |file: &str| is_touched(&program.id_of("t"), &[PathBuf::from(file)]);
        assert!(touched("/w/tests/e2e/tests/stop.rs"));
        assert!(touched("/w/tests/e2e/src/process.rs"));
        assert!(touched("/w/tests/e2e/tests/support/mod.rs"));
        assert!(!touched("/w/tests/e2e/tests/attach.rs"));
        assert!(!touched("/w/userspace/cli/src/main.rs"));
    }
}
