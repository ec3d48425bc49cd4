//! The report in Markdown.

mod means;

use std::fmt::Write as _;

use gputrace_timeline::gpu::Quality;

use crate::{
    figures::{Cost, Figures, Flaw, Work, quantile},
    mixes::MIXES,
    release::{Release, SIMROCM},
    scenario::{Clock, Mode, ReadIndex, Scenario, WORKLOADS},
};

/// Flaws of which a single one makes the recording of a dispatch or copy wrong.
const ATTRIBUTES: [Flaw; 7] = [
    Flaw::Kernel,
    Flaw::Size,
    Flaw::Agent,
    Flaw::NoAgent,
    Flaw::Signal,
    Flaw::Route,
    Flaw::Invented,
];

/// A run and its results.
#[derive(Clone, Debug)]
struct Entry {
    release: String,
    stamps_all: bool,
    scenario: Scenario,
    figures: Figures,
}

/// All runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    quick: bool,
    entries: Vec<Entry>,
    /// Releases that were left out, and the reasons.
    left_out: Vec<(String, String)>,
}

impl Report {
    /// An empty report. `quick` says which matrix is run.
    #[must_use]
    pub fn new(quick: bool) -> Self {
        Self {
            quick,
            ..Self::default()
        }
    }

    /// Records that a release is missing.
    pub fn leave_out(&mut self, release: &str, why: &str) {
        self.left_out.push((release.to_owned(), why.to_owned()));
    }

    /// Adds a run.
    pub fn add(&mut self, release: &Release, scenario: &Scenario, figures: &Figures) {
        self.entries.push(Entry {
            release: release.name.clone(),
            stamps_all: release.stamps_all(),
            scenario: *scenario,
            figures: figures.clone(),
        });
    }

    /// Whether nothing was wrong with any recording.
    #[must_use]
    pub fn is_true(&self) -> bool {
        !self.entries.is_empty()
            && self
                .entries
                .iter()
                .all(|entry| entry.figures.flaws.is_empty())
    }

    fn sum(&self, which: impl Fn(&Entry) -> bool) -> Figures {
        let mut sum = Figures::default();
        for entry in self.entries.iter().filter(|entry| which(entry)) {
            sum.add(
                &entry.figures,
                &format!("{} {}", entry.release, entry.scenario),
            );
        }
        sum
    }

    fn releases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .entries
            .iter()
            .map(|entry| entry.release.as_str())
            .collect();
        names.dedup();
        names
    }

    /// The whole report.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    /// An earlier report with this one's section of mean durations in the place of its own, or
    /// before the details by release; `None` if it has neither.
    #[must_use]
    pub fn with_means(&self, earlier: &str) -> Option<String> {
        let begin = earlier
            .find(means::TITLE)
            .or_else(|| earlier.find("## ROCm "))?;
        let (before, rest) = earlier.split_at_checked(begin)?;
        let behind = rest.strip_prefix(means::TITLE).map_or(Some(rest), |old| {
            old.find("\n## ").and_then(|at| old.get(at + 1..))
        })?;
        let mut text = before.to_owned();
        // Writing to a string does not fail.
        let _ = self.means(&mut text);
        text.push_str(behind);
        Some(text)
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let all = self.sum(|_| true);
        writeln!(out, "# How true recordings of GPU work are\n")?;
        writeln!(
            out,
            "Made by `cargo xtask fidelity{} --write`; do not edit. Unmodified programs run on the real ROCm libraries and \
             on a software GPU, which writes down what it really executed and when. gputrace records them from outside. \
             Each recording is held against that log, dispatch by dispatch and copy by copy. The rules, with all \
             exceptions, open `tests/fidelity/src/lib.rs`.\n",
            if self.quick { " --quick" } else { "" }
        )?;
        writeln!(
            out,
            "{} runs on {}, {} CPUs. ROCm: {}.\n",
            all.runs,
            kernel(),
            std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            self.releases().join(", ")
        )?;
        for (release, why) in &self.left_out {
            writeln!(out, "ROCm {release} was left out: {why}.\n")?;
        }
        let is_real = |entry: &Entry| !entry.release.starts_with(SIMROCM);
        self.summary(out, "Summary: real ROCm", &is_real)?;
        if self.entries.iter().any(|entry| !is_real(entry)) {
            self.summary(out, "Summary: stand-ins for ROCm", &|entry| !is_real(entry))?;
        }
        self.means(out)?;
        self.details(out)?;
        self.conditions(out)?;
        flaws(out, &all)?;
        out.write_str(ON_HARDWARE)
    }

    fn summary(
        &self,
        out: &mut String,
        title: &str,
        which: &dyn Fn(&Entry) -> bool,
    ) -> std::fmt::Result {
        let all = &self.sum(which);
        writeln!(out, "## {title}\n")?;
        writeln!(out, "| what | aim | measured |\n|---|---|---|")?;
        for mode in Mode::ALL {
            let sum = self.sum(|entry| which(entry) && entry.scenario.mode == mode);
            let once = sum.count(Flaw::Twice) == 0;
            let twice = if once { "" } else { ", some more than once" };
            for (what, work) in [("dispatches", &sum.dispatches), ("copies", &sum.copies)] {
                writeln!(
                    out,
                    "| {what} recorded exactly once, {mode} | 100 % | {}, {} of {}{twice} |",
                    percent(work.completeness()),
                    work.found,
                    work.required
                )?;
            }
        }
        let checked = all.dispatches.found + all.copies.found;
        let wrong = |flaws: &[Flaw]| flaws.iter().map(|flaw| all.count(*flaw)).sum::<u64>();
        writeln!(
            out,
            "| kernel, grid, workgroup, agent, queue, signal, addresses, bytes | 100 % right | {} wrong of {checked} |",
            wrong(&ATTRIBUTES)
        )?;
        writeln!(
            out,
            "| API call that asked for it | 100 % right | {} wrong of {} ({} more began before gputrace came; of {} more \
             none is claimed) |",
            wrong(&[Flaw::Parent, Flaw::Count, Flaw::Order]),
            all.parents - all.parents_before - all.parents_unwitnessed,
            all.parents_before,
            all.parents_unwitnessed
        )?;
        writeln!(
            out,
            "| begin and end within the window | 100 % | {} outside of {checked} |",
            all.count(Flaw::Window)
        )?;
        for (what, work) in [("dispatches", &all.dispatches), ("copies", &all.copies)] {
            writeln!(
                out,
                "| error of exact begins, {what}: p50, p99, max | p99 at most 2 µs | {} |",
                quantiles(&work.begin_errors)
            )?;
            writeln!(
                out,
                "| error of exact ends, {what}: p50, p99, max | p99 at most 2 µs | {} |",
                quantiles(&work.end_errors)
            )?;
            writeln!(
                out,
                "| {what} that the GPU stamped and that are exact | | {} of {} |",
                percent(work.stamped_exact()),
                work.stamped
            )?;
        }
        let is_hip = |entry: &Entry| which(entry) && entry.scenario.workload.is_hip;
        let profiled = self
            .sum(|entry| entry.scenario.mode == Mode::Launch && entry.stamps_all && is_hip(entry));
        writeln!(
            out,
            "| exact dispatches, launched, HIP that can stamp all (5.4 and later) | 99.9 % | {} |",
            percent(profiled.dispatches.share_of(Quality::Exact))
        )?;
        let attached = self.sum(|entry| entry.scenario.mode == Mode::Attach && is_hip(entry));
        let sampled = attached.dispatches.share_of(Quality::Exact)
            + attached.dispatches.share_of(Quality::Sampled);
        writeln!(
            out,
            "| sampled or exact dispatches, attached, HIP | 95 % | {} |",
            percent(sampled)
        )?;
        writeln!(
            out,
            "| gputrace's CPU time while attached, of one core: over all runs, median, max | 3 % | {} |",
            costs(&all.costs)
        )?;
        writeln!(
            out,
            "| accounts: seen = written + lost, per domain | exactly | {} out of balance; {} records lost and counted |\n",
            all.count(Flaw::Accounts),
            all.lost
        )
    }

    fn means(&self, out: &mut String) -> std::fmt::Result {
        if self
            .entries
            .iter()
            .all(|entry| entry.figures.means.is_empty())
        {
            return Ok(());
        }
        let runs = self.sum(|entry| entry.scenario.workload.is_mix).runs;
        means::heading(out, runs, &self.releases())?;
        for workload in &MIXES {
            for read_index in ReadIndex::ALL {
                let sum = self.sum(|entry| {
                    entry.scenario.workload == workload && entry.scenario.read_index == read_index
                });
                if sum.runs > 0 {
                    means::row(out, &format!("{} | {read_index}", workload.title), &sum)?;
                }
            }
        }
        writeln!(out)
    }

    fn details(&self, out: &mut String) -> std::fmt::Result {
        for release in self.releases() {
            writeln!(out, "## ROCm {release}\n")?;
            writeln!(
                out,
                "D: dispatches, C: copies, found of required. The shares are those of dispatches. Errors are those of \
                 exact begins, widths those of the windows of dispatches that are not exact, both in µs.\n"
            )?;
            writeln!(
                out,
                "| workload | mode | runs | D | C | exact | sampled | bounded | submitted | error p50 / p99 / max \
                 | width p50 | flaws |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
            )?;
            for workload in &WORKLOADS {
                for mode in Mode::ALL {
                    let sum = self.sum(|entry| {
                        entry.release == release
                            && entry.scenario.workload == workload
                            && entry.scenario.mode == mode
                    });
                    if sum.runs > 0 {
                        row(out, &format!("{} | {mode}", workload.title), &sum)?;
                    }
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn conditions(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "## By clock and read index\n")?;
        writeln!(
            out,
            "| clock | read index | runs | D | C | exact | sampled | bounded | submitted | error p50 / p99 / max \
             | width p50 | flaws |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        )?;
        for clock in Clock::ALL {
            for read_index in ReadIndex::ALL {
                let sum = self.sum(|entry| {
                    entry.scenario.clock == clock && entry.scenario.read_index == read_index
                });
                if sum.runs > 0 {
                    row(out, &format!("{clock} | {read_index}"), &sum)?;
                }
            }
        }
        writeln!(
            out,
            "\nClocks: plain; begun elsewhere and 80 ppm too fast; the same with leaps of +10 s, -3 s and -7 ms every \
             0.7 s. Read index: reported at once; every 16 packets and 300 µs late.\n"
        )
    }
}

/// A row of a table of runs.
fn row(out: &mut String, name: &str, sum: &Figures) -> std::fmt::Result {
    let work = &sum.dispatches;
    let share = |quality| {
        if work.found == 0 {
            "-".to_owned()
        } else {
            percent(work.share_of(quality))
        }
    };
    writeln!(
        out,
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        sum.runs,
        of(work),
        of(&sum.copies),
        share(Quality::Exact),
        share(Quality::Sampled),
        share(Quality::Bounded),
        share(Quality::Submitted),
        quantiles(&work.begin_errors),
        quantile(&work.widths, 0.5).map_or_else(|| "-".to_owned(), micros),
        sum.flaws.values().map(|found| found.count).sum::<u64>()
    )
}

/// Maximum number of characters of an example: the output of a failed program can be long.
const MOST_OF_AN_EXAMPLE: usize = 400;

fn flaws(out: &mut String, all: &Figures) -> std::fmt::Result {
    writeln!(out, "## What was excepted, and what was wrong\n")?;
    writeln!(
        out,
        "Excepted by the rules: {} dispatches in ROCr's own queues; {} copies in flight when gputrace came. Not \
         required, but recorded and compared: {} dispatches that were under way when it came.\n",
        all.dispatches.excepted, all.copies.excepted, all.dispatches.early
    )?;
    if all.flaws.is_empty() {
        return writeln!(out, "Nothing was wrong.\n");
    }
    for (flaw, found) in &all.flaws {
        writeln!(
            out,
            "* {}: {} times. For example:",
            flaw.words(),
            found.count
        )?;
        for example in &found.examples {
            let line: String = example
                .replace('\n', " ")
                .chars()
                .take(MOST_OF_AN_EXAMPLE)
                .collect();
            writeln!(out, "  * {line}")?;
        }
    }
    writeln!(out)
}

/// The number found, out of those required.
fn of(work: &Work) -> String {
    if work.found == work.required {
        work.found.to_string()
    } else {
        format!("**{} of {}**", work.found, work.required)
    }
}

/// The cost of recording as a share of one core: of all runs together, the median, and the maximum
/// with the name of its run.
fn costs(all: &[Cost]) -> String {
    let mut sorted: Vec<&Cost> = all.iter().collect();
    sorted.sort_by(|one, other| one.share().total_cmp(&other.share()));
    let (Some(median), Some(most)) = (sorted.get(sorted.len() / 2), sorted.last()) else {
        return "-".to_owned();
    };
    let busy: f64 = all.iter().map(|cost| cost.busy).sum();
    let wall: f64 = all.iter().map(|cost| cost.wall).sum();
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    format!(
        "{}, {}, {} ({}: {:.0} ms of {:.1} s, {:.0} dispatches and copies a second)",
        share(busy / wall.max(f64::MIN_POSITIVE)),
        share(median.share()),
        share(most.share()),
        most.name,
        most.busy * 1e3,
        most.wall,
        most.rate()
    )
}

/// A share in percent; never rounded up to 100.
fn percent(share: f64) -> String {
    if share >= 1.0 {
        "100 %".to_owned()
    } else {
        format!("{:.2} %", (share * 1e4).floor() / 100.0)
    }
}

fn micros(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1000.0)
}

fn quantiles(values: &[u64]) -> String {
    let at = |share| quantile(values, share).map(micros);
    match (at(0.5), at(0.99), at(1.0)) {
        (Some(half), Some(most), Some(max)) => format!("{half} / {most} / {max}"),
        _ => "-".to_owned(),
    }
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!(
        "{} {}",
        name.sysname().to_string_lossy(),
        name.release().to_string_lossy()
    )
}

/// What the software GPU cannot show.
const ON_HARDWARE: &str = "\
## On a machine with a GPU

The software GPU takes its packets, writes its stamps and counts its clock as the HSA specification and ROCr's
sources say hardware does. That it does so in every respect, only hardware shows: `sudo gputrace verify` asks it in a
minute (docs/hardware.md). What a whole comparison would take:

1. A machine with an AMD GPU and ROCm, root, and a kernel with BTF. `tests/workloads/gpu/build.sh target/gpu`
   builds the programs.
2. The truth has to come from somewhere else. rocprofv3 gives, in a run of its own, the same programs' dispatches and
   copies (`rocprofv3 --kernel-trace --memory-copy-trace -f csv -- PROGRAM`): number, kernel, grid, workgroup, agent and
   queue must agree with `gputrace -f csv -- PROGRAM`, and durations as two runs of one program do.
3. For times within one run, the program itself has to say what the runtime told it: `hsa_ticks` writes down
   `hsa_amd_profiling_get_dispatch_time` of each packet, which must be within the windows of gputrace's recording, and
   equal to its exact times to within the stated uncertainty of the clock.
4. What to look for: whether the read index ever runs ahead of a kernel's begin; whether a packet is ever taken before its
   doorbell; stamps of SDMA on each generation; how far apart two readings of the clock are under load.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_never_rounded_up_to_all() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.99999), "99.99 %");
        assert_eq!(percent(0.0), "0.00 %");
    }

    #[test]
    fn a_report_without_runs_proves_nothing() {
        let mut report = Report::new(true);
        report.leave_out("9.9.9", "it is not there");
        assert!(!report.is_true());
        assert!(report.markdown().contains("9.9.9 was left out"));
    }
}
