//! GPU busy time: an estimate, and the range that contains the true value.

mod active;

pub use self::active::{Active, Estimate};

use gputrace_timeline::gpu::{Activity, GpuTime, Quality};
use serde::Serialize;

use super::stats::Durations;
use gputrace_export::{intervals::Intervals, lengths::Length};

/// Maximum number of intervals that are kept open for late spans.
const OPEN_INTERVALS: usize = 1 << 14;

/// Maximum number of gaps that are listed: the longest.
const LONGEST_GAPS: usize = 8;

/// Number of standard errors within which a mean is assumed to lie.
const ERRORS: u64 = 2;

/// Kernels of unknown duration are left out of an estimate if they can have taken no more than one
/// part in this many of the recording.
const MISSING: u64 = 100;

/// If kernels can have run for more than one part in this many of a recording while the status
/// register was not read, what the register says is no figure of the whole recording.
const UNREAD: u64 = 50;

/// The shortest and the longest span that something can have taken, ns `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// `None` if it may have taken no time.
    pub least: Option<(u64, u64)>,
    /// The end is `None` if nothing proves that it has ended.
    pub most: (u64, Option<u64>),
}

impl Reach {
    /// For exact times both are the same. A duration that is its class's mean may be longer or
    /// shorter by two standard errors, within the proven limits. Otherwise only the proven limits
    /// count.
    #[must_use]
    pub fn of(time: &GpuTime) -> Self {
        if time.quality == Quality::Exact {
            return Self {
                least: Some((time.begin, time.end)),
                most: (time.begin, Some(time.end)),
            };
        }
        let (begins, ends) = (time.begin_window, time.end_window);
        let proven = begins
            .latest
            .map(|latest| (latest, ends.earliest))
            .filter(|(begin, end)| begin < end);
        let widest = (begins.earliest, ends.latest);
        let Some(estimate) = time.estimate else {
            return Self {
                least: proven,
                most: widest,
            };
        };
        let room = estimate.error.saturating_mul(ERRORS);
        let least = (time.begin, time.end.saturating_sub(room));
        let least = proven.or(Some(least)).filter(|(begin, end)| begin < end);
        let end = time.end.saturating_add(room);
        // Time by which it does not extend at the end, it extends at the begin: the windows bound
        // both.
        let beyond = ends.latest.map_or(0, |latest| end.saturating_sub(latest));
        Self {
            least,
            most: (
                time.begin
                    .saturating_sub(beyond)
                    .max(begins.earliest)
                    .min(time.begin),
                Some(
                    ends.latest
                        .map_or(end, |latest| end.min(latest.max(time.end))),
                ),
            ),
        }
    }
}

/// The union of spans that come nearly in order.
#[derive(Debug, Default)]
struct Union {
    open: Intervals,
    /// End of the last settled interval.
    settled: Option<u64>,
    total: u64,
    late: u64,
}

impl Union {
    /// Adds a span. Calls `settle` for each interval that becomes settled: with the end of the
    /// interval before, and the begin of this one.
    fn add(&mut self, begin: u64, end: u64, mut settle: impl FnMut(Option<u64>, u64)) {
        let settled = self.settled.unwrap_or(0);
        self.late += u64::from(begin < settled);
        self.open.insert(begin.max(settled), end);
        while self.open.len() > OPEN_INTERVALS && self.settle(&mut settle) {}
    }

    fn settle(&mut self, settle: &mut impl FnMut(Option<u64>, u64)) -> bool {
        let Some((begin, end)) = self.open.pop_first() else {
            return false;
        };
        settle(self.settled, begin);
        self.total += end - begin;
        self.settled = Some(end);
        true
    }

    fn finish(&mut self, mut settle: impl FnMut(Option<u64>, u64)) {
        while self.settle(&mut settle) {}
    }
}

/// A time in which a GPU was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// ns `CLOCK_BOOTTIME`.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Whether a kernel of unknown length can have run directly before or after it: the GPU may
    /// have been idle for longer.
    pub(super) is_part: bool,
}

impl Gap {
    /// Its length, ns.
    pub(super) fn length(&self) -> u64 {
        self.end - self.begin
    }
}

/// Idle times between kernels.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Of gaps that are known in full: they lie between kernels of known length.
    pub(super) durations: Durations,
    /// Number of gaps of which only a part is known.
    pub(super) parts: u64,
    /// The longest of both, longest first.
    pub(super) longest: Vec<Gap>,
}

impl Gaps {
    /// Adds what lies between two settled intervals of [`Busy::taken`], in its units.
    fn add(&mut self, last: Option<u64>, begin: u64) {
        let Some(last) = last else { return };
        let gap = Gap {
            begin: last.div_ceil(2),
            end: begin / 2,
            is_part: last % 2 == 1 || begin % 2 == 1,
        };
        if gap.begin >= gap.end {
            return;
        }
        if gap.is_part {
            self.parts += 1;
        } else {
            self.durations.add(gap.length());
        }
        let length = gap.length();
        let at = self.longest.partition_point(|one| one.length() >= length);
        if at < LONGEST_GAPS {
            self.longest.insert(at, gap);
            self.longest.truncate(LONGEST_GAPS);
        }
    }

    /// Number of all.
    pub(super) fn count(&self) -> u64 {
        self.durations.calls + self.parts
    }

    /// The longest as far as it is known, ns.
    fn max(&self) -> u64 {
        self.longest.first().map_or(0, Gap::length)
    }
}

/// The longest gap between intervals, ns.
#[derive(Debug, Default)]
struct Longest(u64);

impl Longest {
    fn add(&mut self, last: Option<u64>, begin: u64) {
        let gap = last.map_or(0, |last| begin.saturating_sub(last));
        self.0 = self.0.max(gap);
    }
}

/// What can be said of a GPU's busy time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Meaning {
    /// It is an estimate, or exact.
    Estimate,
    /// It is a lower bound: what is proven of some kernels is missing in it, and nothing in it is an
    /// estimate.
    Least,
    /// Nothing: only its range is known. Kernels of unknown duration may have taken as much time, and
    /// an estimate without them is neither an estimate of all nor a lower bound.
    Nothing,
}

/// When an agent executed kernels: the union of their spans.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// Spans whose length is known, and all the time in which the others can have run; gaps are
    /// between these. In half ns: times of kernels of known length are even, those of others odd,
    /// so that a gap's ends tell what is beside it.
    taken: Union,
    /// Spans of known length, and the proven parts of the others.
    known: Union,
    least: Union,
    most: Union,
    /// Earliest begin of a kernel that is not proven to have ended.
    endless: Option<u64>,
    /// Earliest time at which a kernel can have begun, and latest at which one can have ended.
    reach: Option<(u64, u64)>,
    /// In which nothing ran, as estimated. What kernels of unknown length can have filled is none.
    pub(super) gaps: Gaps,
    /// Between the longest that all spans can be: what is surely idle.
    sure_gap: Longest,
    /// Between the least that is sure of each span.
    possible_gap: Longest,
    pub(super) kernels: u64,
    /// Kernels whose begin or end is not even estimated.
    pub(super) untimed: u64,
    /// What the GPU's status register says.
    active: Active,
    /// Set if kernels may be missing: how long they can have taken, ns.
    hidden: Option<u64>,
}

impl Busy {
    pub(super) fn add(&mut self, time: &GpuTime) {
        self.kernels += 1;
        let Reach { least, most } = Reach::of(time);
        let (from, to) = (most.0, most.1.unwrap_or(most.0));
        self.active.kernel(most.0, most.1, time.begin_window.latest);
        let reach = self.reach.unwrap_or((from, to));
        self.reach = Some((reach.0.min(from), reach.1.max(to)));
        // A span whose length nothing tells may have been drawn up to the next one: that is neither
        // a busy GPU nor an idle one.
        let known = if Length::of(time).is_some() {
            self.take(time.begin.saturating_mul(2), time.end.saturating_mul(2));
            Some((time.begin, time.end))
        } else {
            self.untimed += 1;
            if let (begin, Some(end)) = most {
                self.take_possible(begin, end);
            }
            least
        };
        if let Some((begin, end)) = known {
            self.known.add(begin, end, |_, _| {});
        }
        if let Some((begin, end)) = least {
            let (gap, first) = (&mut self.possible_gap, self.reach.map(|(first, _)| first));
            self.least
                .add(begin, end, |last, begin| gap.add(last.or(first), begin));
        }
        match most {
            (begin, Some(end)) => {
                let gap = &mut self.sure_gap;
                self.most
                    .add(begin, end, |last, begin| gap.add(last, begin));
            }
            (begin, None) => {
                self.endless = Some(self.endless.map_or(begin, |endless| endless.min(begin)));
            }
        }
    }

    /// Adds a reading of the GPU's status register.
    pub(super) fn reading(&mut self, reading: &Activity) {
        self.active.add(reading);
    }

    /// Adds to what is taken, in its units.
    fn take(&mut self, begin: u64, end: u64) {
        let gaps = &mut self.gaps;
        self.taken
            .add(begin, end, |last, begin| gaps.add(last, begin));
    }

    /// Adds time in which a kernel of unknown length can have run, ns.
    fn take_possible(&mut self, begin: u64, end: u64) {
        if begin < end {
            let end = end.saturating_mul(2).saturating_sub(1);
            self.take(begin.saturating_mul(2).saturating_add(1), end);
        }
    }

    /// Packets that are not in the recording may have been executed between `from` and `to`, ns:
    /// those of a queue that is older than the recording.
    pub(super) fn unseen(&mut self, from: u64, to: u64) {
        if from < to {
            self.active.kernel(from, Some(to), None);
            let gap = &mut self.sure_gap;
            self.most.add(from, to, |last, begin| gap.add(last, begin));
        }
    }

    /// Settles everything; must be the last call. `stopped` is when the recording stopped, ns.
    pub(super) fn finish(&mut self, stopped: u64) {
        self.active.finish(stopped);
        if let Some(begin) = self.endless.take() {
            self.take_possible(begin, stopped);
            let gap = &mut self.sure_gap;
            self.most
                .add(begin, stopped, |last, begin| gap.add(last, begin));
            self.reach = self.reach.map(|(from, to)| (from, to.max(stopped)));
        }
        let gaps = &mut self.gaps;
        self.taken.finish(|last, begin| gaps.add(last, begin));
        let gap = &mut self.sure_gap;
        self.most.finish(|last, begin| gap.add(last, begin));
        self.known.finish(|_, _| {});
        // The first and the last kernel can be ones of which nothing is sure but that they ran.
        let gap = &mut self.possible_gap;
        let (first, last) = self.reach.unzip();
        self.least
            .finish(|last, begin| gap.add(last.or(first), begin));
        if let Some(end) = last {
            gap.add(self.least.settled.or(first), end);
        }
    }

    /// Kernels may be missing anywhere in a recording of `recorded` ns. Comes after
    /// [`Busy::finish`].
    pub(super) fn hide(&mut self, recorded: u64) {
        self.hidden = Some(recorded);
        self.gaps = Gaps::default();
        self.sure_gap = Longest::default();
        self.possible_gap = Longest(recorded);
    }

    /// Whether kernels are missing, or nothing tells how long some took.
    pub(super) fn is_partial(&self) -> bool {
        self.untimed > 0 || self.hidden.is_some()
    }

    /// The most likely time, ns; of kernels of which nothing tells how long they took
    /// ([`Busy::untimed`]), only what is proven is in it.
    pub(super) fn busy(&self) -> u64 {
        self.known.total
    }

    /// What that time is, in a recording of `recorded` ns.
    pub(super) fn meaning(&self, recorded: u64) -> Meaning {
        let busy = self.busy();
        let taken = self.hidden.unwrap_or(self.taken.total / 2);
        let missing = taken.saturating_sub(busy);
        if !self.is_partial() {
            Meaning::Estimate
        } else if busy == 0 {
            Meaning::Nothing
        } else if self.range().0 == busy {
            Meaning::Least
        } else if missing.saturating_mul(MISSING) <= recorded {
            Meaning::Estimate
        } else {
            Meaning::Nothing
        }
    }

    /// How long the GPU was at work for whatever process, by its status register, in a recording of
    /// `recorded` ns. `None` if the register tells nothing, or kernels can have run for long while
    /// it was not read.
    pub(super) fn active(&self, recorded: u64) -> Option<Estimate> {
        let unread = self.active.unread().saturating_mul(UNREAD);
        self.active_while_read().filter(|_| unread <= recorded)
    }

    /// The same for the times in which the register was read. `None` if it tells nothing, or
    /// contradicts what is proven of kernels.
    fn active_while_read(&self) -> Option<Estimate> {
        let active = self.active.estimate()?;
        (self.least.total <= self.most_active(active)).then_some(active)
    }

    /// The longest that kernels can have run, given how long the GPU was at work, ns.
    fn most_active(&self, active: Estimate) -> u64 {
        let room = active.error.saturating_mul(ERRORS);
        (active.value.saturating_add(room)).saturating_add(self.active.outside())
    }

    /// The lower and upper bound of the busy time, ns. The estimate lies between them; both equal
    /// it if all times are exact.
    pub(super) fn range(&self) -> (u64, u64) {
        let busy = self.busy();
        let most = match (self.hidden, self.active_while_read()) {
            (Some(hidden), _) => self.most.total.max(hidden),
            (None, Some(active)) => self.most.total.min(self.most_active(active)),
            (None, None) => self.most.total,
        };
        (self.least.total.min(busy), most.max(busy))
    }

    /// The least and the most that the longest gap can be, ns.
    pub(super) fn longest_gap_range(&self) -> (u64, u64) {
        let longest = self.gaps.max();
        (
            self.sure_gap.0.min(longest),
            self.possible_gap.0.max(longest),
        )
    }

    /// Spans that began before the last settled time.
    pub(super) fn late(&self) -> u64 {
        self.taken.late.max(self.known.late).max(self.most.late)
    }
}

#[cfg(test)]
mod tests;
