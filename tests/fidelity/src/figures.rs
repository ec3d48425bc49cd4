//! Results of comparisons, summed up over runs.

use std::collections::BTreeMap;

use gputrace_timeline::gpu::Quality;

use crate::means::Means;

/// What can be wrong with a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flaw {
    /// The run itself failed, so there is nothing to compare.
    NotRun,
    /// Executed by the GPU, but not in the recording.
    Missing,
    /// More than once in the recording.
    Twice,
    /// In the recording, but never executed by the GPU.
    Invented,
    /// Wrong kernel name, or none.
    Kernel,
    /// Wrong size of grid or workgroup.
    Size,
    /// Wrong agent.
    Agent,
    /// No agent.
    NoAgent,
    /// Wrong completion signal.
    Signal,
    /// Wrong addresses, bytes or direction of a copy.
    Route,
    /// Not under the call that requested it.
    Parent,
    /// A call has more or fewer dispatches than it should.
    Count,
    /// Dispatches in another order than that of their launches.
    Order,
    /// The true time lies outside the window that the recording says is proven.
    Window,
    /// A mean duration whose stated error is too small.
    Mean,
    /// GPU use outside the stated range.
    Use,
    /// The ledger does not balance.
    Accounts,
    /// Something was lost and counted.
    Lost,
}

impl Flaw {
    /// Whether no slowness of the machine excuses it. A test that finds such a flaw says INVARIANT,
    /// and is not run again.
    #[must_use]
    pub const fn is_invariant(self) -> bool {
        matches!(self, Self::Twice | Self::Invented | Self::Window)
    }
}

impl Flaw {
    /// Description for the report.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotRun => "the run failed",
            Self::Missing => "missing from the recording",
            Self::Twice => "more than once in the recording",
            Self::Invented => "in the recording, never executed",
            Self::Kernel => "wrong kernel",
            Self::Size => "wrong grid or workgroup",
            Self::Agent => "wrong agent",
            Self::NoAgent => "agent not known",
            Self::Signal => "wrong completion signal",
            Self::Route => "wrong addresses, bytes or direction",
            Self::Parent => "wrong or no API call",
            Self::Count => "an API call with the wrong number of dispatches",
            Self::Order => "wrong order",
            Self::Window => "window violated",
            Self::Mean => "mean of a class far beyond its standard error",
            Self::Use => "GPU use outside of its range",
            Self::Accounts => "accounts out of balance",
            Self::Lost => "records lost and counted",
        }
    }
}

/// Flaws of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of flaws.
    pub count: u64,
    /// Descriptions of the first few.
    pub examples: Vec<String>,
}

/// Maximum number of examples kept for each kind.
const EXAMPLES: usize = 3;

/// Dispatches or copies: their numbers, and how well their times are known. Durations are in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number executed by the GPU that must be in the recording.
    pub required: u64,
    /// Number of these that are in the recording.
    pub found: u64,
    /// Number of others in the recording, which were under way when gputrace attached.
    pub early: u64,
    /// Number excepted by the crate's rules.
    pub excepted: u64,
    /// Required ones by quality, lowest first.
    pub quality: [u64; 4],
    /// Number in the recording that were stamped by the GPU.
    pub stamped: u64,
    /// Number of these that are exact.
    pub stamped_found: u64,
    /// Errors of exact begins.
    pub begin_errors: Vec<u64>,
    /// Errors of exact ends.
    pub end_errors: Vec<u64>,
    /// Time from the earliest begin to the latest end of those that are sampled or bounded.
    pub widths: Vec<u64>,
}

impl Work {
    /// Share of the required ones that were found, 0 to 1; 1 if none are required.
    #[must_use]
    pub fn completeness(&self) -> f64 {
        share(self.found, self.required)
    }

    /// Share of `quality` among those found.
    #[must_use]
    pub fn share_of(&self, quality: Quality) -> f64 {
        let [submitted, bounded, sampled, exact] = self.quality;
        let count = match quality {
            Quality::Submitted => submitted,
            Quality::Bounded => bounded,
            Quality::Sampled => sampled,
            Quality::Exact => exact,
        };
        share(count, self.quality.iter().sum())
    }

    /// Share of exact ones among those stamped by the GPU, 0 to 1; 1 if it stamped none.
    #[must_use]
    pub fn stamped_exact(&self) -> f64 {
        share(self.stamped_found, self.stamped)
    }

    pub(crate) fn count(&mut self, quality: Quality) {
        let [submitted, bounded, sampled, exact] = &mut self.quality;
        *match quality {
            Quality::Submitted => submitted,
            Quality::Bounded => bounded,
            Quality::Sampled => sampled,
            Quality::Exact => exact,
        } += 1;
    }

    fn add(&mut self, other: &Self) {
        self.required += other.required;
        self.found += other.found;
        self.early += other.early;
        self.excepted += other.excepted;
        for (mine, theirs) in self.quality.iter_mut().zip(other.quality) {
            *mine += theirs;
        }
        self.stamped += other.stamped;
        self.stamped_found += other.stamped_found;
        self.begin_errors.extend(&other.begin_errors);
        self.end_errors.extend(&other.end_errors);
        self.widths.extend(&other.widths);
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        1.0
    } else {
        part as f64 / whole as f64
    }
}

/// The cost of recording a running program.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// gputrace's own CPU time while the program ran, s.
    pub busy: f64,
    /// How long the program ran, s.
    pub wall: f64,
    /// Number of dispatches and copies in that time.
    pub work: u64,
    /// Description of the run; empty for a single run.
    pub name: String,
}

impl Cost {
    /// CPU time as a share of one core; 0 if the program's run time was not measurable.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.wall > 0.0 {
            self.busy / self.wall
        } else {
            0.0
        }
    }

    /// Dispatches and copies per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.wall > 0.0 {
            self.work as f64 / self.wall
        } else {
            0.0
        }
    }
}

/// The results of one run or of many.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Number of runs.
    pub runs: u64,
    /// Kernel dispatches.
    pub dispatches: Work,
    /// Copies.
    pub copies: Work,
    /// Number of dispatches and copies whose API call was checked.
    pub parents: u64,
    /// Number of those whose call began before gputrace attached.
    pub parents_before: u64,
    /// Number of those before the first observed doorbell of their queue, for which no call is
    /// claimed.
    pub parents_unwitnessed: u64,
    /// Flaws by kind.
    pub flaws: BTreeMap<Flaw, Found>,
    /// Number of records that were lost and counted, over all domains.
    pub lost: u64,
    /// Costs of the runs that gputrace attached to.
    pub costs: Vec<Cost>,
    /// Estimated means of the runs with kernel classes.
    pub means: Vec<Means>,
}

impl Figures {
    /// Adds a flaw.
    pub fn flaw(&mut self, flaw: Flaw, what: impl FnOnce() -> String) {
        let found = self.flaws.entry(flaw).or_default();
        found.count += 1;
        if found.examples.len() < EXAMPLES {
            found.examples.push(what());
        }
    }

    /// Number of flaws of this kind.
    #[must_use]
    pub fn count(&self, flaw: Flaw) -> u64 {
        self.flaws.get(&flaw).map_or(0, |found| found.count)
    }

    /// Adds the results of other runs. `name` is put before their examples.
    pub fn add(&mut self, other: &Self, name: &str) {
        self.runs += other.runs;
        self.dispatches.add(&other.dispatches);
        self.copies.add(&other.copies);
        self.parents += other.parents;
        self.parents_before += other.parents_before;
        self.parents_unwitnessed += other.parents_unwitnessed;
        self.lost += other.lost;
        self.costs.extend(other.costs.iter().map(|cost| Cost {
            name: name.to_owned(),
            ..cost.clone()
        }));
        self.means.extend(other.means.iter().cloned());
        for (flaw, theirs) in &other.flaws {
            let mine = self.flaws.entry(*flaw).or_default();
            mine.count += theirs.count;
            let room = EXAMPLES.saturating_sub(mine.examples.len());
            let examples = theirs.examples.iter().take(room);
            mine.examples
                .extend(examples.map(|example| format!("{name}: {example}")));
        }
    }
}

/// The value below which `share` (0 to 1) of the values lie; `None` if there are no values.
#[must_use]
pub fn quantile(values: &[u64], share: f64) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    let place = (share.clamp(0.0, 1.0) * last as f64).ceil() as usize;
    sorted.get(place).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let values: Vec<u64> = (0..=100).rev().collect();
        assert_eq!(quantile(&values, 0.5), Some(50));
        assert_eq!(quantile(&values, 0.99), Some(99));
        assert_eq!(quantile(&values, 1.0), Some(100));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn examples_are_few_and_named() {
        let mut one = Figures::default();
        for number in 0..10 {
            one.flaw(Flaw::Missing, || number.to_string());
        }
        let mut sum = Figures::default();
        sum.add(&one, "here");
        sum.add(&one, "there");
        let found = &sum.flaws[&Flaw::Missing];
        assert_eq!((found.count, found.examples.len()), (20, EXAMPLES));
        assert_eq!(found.examples[0], "here: 0");
    }
}
