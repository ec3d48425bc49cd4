//! When GPUs were busy: an estimate and the range in which the truth is.

use gputrace_timeline::gpu::{GpuTime, Quality};

use super::stats::Durations;
use crate::intervals::Intervals;

/// Intervals that are kept open for what comes late.
const OPEN_INTERVALS: usize = 1 << 14;

/// Longest gaps that are kept.
const LONGEST_GAPS: usize = 8;

/// No estimate is told if kernels whose durations are not known make more of it than this part of the recording: where nothing
/// says when a kernel ended, it was drawn until the next one, and that may be 90 % too much.
const UNTOLD: u64 = 20;

/// Standard errors within which a mean is taken to be.
const ERRORS: u64 = 2;

/// The least and the most time that something can have taken, as spans; ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// `None` if it may have taken no time.
    pub(super) least: Option<(u64, u64)>,
    /// The end is `None` if nothing says that it has ended.
    pub(super) most: (u64, Option<u64>),
}

impl Reach {
    /// Exact times are both. A duration that is its class's mean may be longer or shorter by two standard errors, within
    /// what is proven. Anything else is only what is proven.
    pub(super) fn of(time: &GpuTime) -> Self {
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
        // What does not go on at the end went on before the begin: the windows bound both.
        let beyond = ends.latest.map_or(0, |latest| end.saturating_sub(latest));
        Self {
            least,
            most: (
                time.begin
                    .saturating_sub(beyond)
                    .max(begins.earliest)
                    .min(time.begin),
                Some(ends.latest.map_or(end, |latest| end.min(latest.max(time.end)))),
            ),
        }
    }
}

/// The union of spans that come nearly in order.
#[derive(Debug, Default)]
struct Union {
    open: Intervals,
    /// End of the last interval that is settled.
    settled: Option<u64>,
    total: u64,
    late: u64,
}

impl Union {
    /// Adds a span; intervals that are settled by that are given to `settle`, with the end of the one before.
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

/// Idle times between intervals.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    pub(super) durations: Durations,
    /// The longest of them, longest first, from when to when.
    pub(super) longest: Vec<(u64, u64)>,
}

impl Gaps {
    fn add(&mut self, last: Option<u64>, begin: u64) {
        let Some(gap) = last
            .and_then(|last| begin.checked_sub(last))
            .filter(|gap| *gap > 0)
        else {
            return;
        };
        self.durations.add(gap);
        let at = self.longest.partition_point(|(from, to)| to - from >= gap);
        if at < LONGEST_GAPS {
            self.longest.insert(at, (begin - gap, begin));
            self.longest.truncate(LONGEST_GAPS);
        }
    }
}

/// When an agent executed kernels: the union of their spans.
#[derive(Debug, Default)]
pub(super) struct Busy {
    estimate: Union,
    /// The part of it that is of kernels whose durations are known.
    known: Union,
    least: Union,
    most: Union,
    /// Earliest begin of a kernel of which nothing says that it has ended.
    endless: Option<u64>,
    /// Between one interval of the estimate and the next.
    pub(super) gaps: Gaps,
    /// Between those of the longest spans: what is surely idle.
    pub(super) sure_gaps: Gaps,
    pub(super) kernels: u64,
    /// Kernels whose begin or end no estimate tells.
    pub(super) untimed: u64,
}

impl Busy {
    pub(super) fn add(&mut self, time: &GpuTime) {
        self.kernels += 1;
        let Reach { least, most } = Reach::of(time);
        if time.is_drawn() && !time.unfinished {
            let gaps = &mut self.gaps;
            self.estimate
                .add(time.begin, time.end, |last, begin| gaps.add(last, begin));
        }
        if crate::lengths::Length::of(time).is_some() {
            self.known.add(time.begin, time.end, |_, _| {});
        } else {
            self.untimed += 1;
        }
        if let Some((begin, end)) = least {
            self.least.add(begin, end, |_, _| {});
        }
        match most {
            (begin, Some(end)) => {
                let gaps = &mut self.sure_gaps;
                self.most.add(begin, end, |last, begin| gaps.add(last, begin));
            }
            (begin, None) => {
                self.endless = Some(self.endless.map_or(begin, |endless| endless.min(begin)));
            }
        }
    }

    /// Settles what is open; nothing comes after this. `stopped` is when the recording stopped, ns.
    pub(super) fn finish(&mut self, stopped: u64) {
        let (gaps, sure_gaps) = (&mut self.gaps, &mut self.sure_gaps);
        self.estimate.finish(|last, begin| gaps.add(last, begin));
        self.known.finish(|_, _| {});
        self.least.finish(|_, _| {});
        if let Some(begin) = self.endless.take() {
            self.most
                .add(begin, stopped, |last, begin| sure_gaps.add(last, begin));
        }
        self.most.finish(|last, begin| sure_gaps.add(last, begin));
    }

    /// The most likely time, ns.
    #[cfg(test)]
    pub(super) fn busy(&self) -> u64 {
        self.estimate.total
    }

    /// The most likely time, ns, of a recording of `recorded` ns; `None` if too much of it is a guess: then only the range is told.
    pub(super) fn told(&self, recorded: u64) -> Option<u64> {
        let guessed = self.estimate.total.saturating_sub(self.known.total);
        (guessed <= recorded / UNTOLD).then_some(self.estimate.total)
    }

    /// The least and the most that it can be, ns. The estimate is between them; both are it where all times are exact.
    pub(super) fn range(&self) -> (u64, u64) {
        let busy = self.estimate.total;
        (self.least.total.min(busy), self.most.total.max(busy))
    }

    /// Spans that began before what was settled.
    pub(super) fn late(&self) -> u64 {
        self.estimate.late.max(self.most.late)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_timeline::gpu::{Quality, Window};
    use proptest::prelude::*;

    use super::*;
    use crate::synthetic::{between, estimated, exact, submitted};

    fn busy(times: &[GpuTime]) -> Busy {
        let mut busy = Busy::default();
        times.iter().for_each(|time| busy.add(time));
        busy.finish(1_000_000);
        busy
    }

    #[test]
    fn exact_times_have_no_range() {
        let busy = busy(&[exact(1000, 1100), exact(1050, 1200), exact(5000, 5100)]);
        assert_eq!((busy.busy(), busy.range(), busy.untimed), (300, (300, 300), 0));
        assert_eq!(busy.gaps.longest, [(1200, 5000)]);
    }

    /// A kernel of 20 us each 4 ms, as a launch-bound program has them: the windows reach to the next one.
    #[test]
    fn idle_is_idle_where_the_class_tells_the_end() {
        let times: Vec<GpuTime> = (1..100)
            .map(|number| {
                let begin = number * 4_000_000;
                let mut time = estimated(begin, begin + 20_000, 1, 1000);
                time.begin_window.earliest = begin;
                time.end_window.latest = Some(begin + 4_000_000);
                time
            })
            .collect();
        let busy = busy(&times);
        assert_eq!(busy.busy(), 99 * 20_000);
        assert_eq!(busy.range(), (99 * 18_000, 99 * 22_000));
        assert_eq!(busy.gaps.durations.max, 3_980_000);
    }

    #[test]
    fn the_range_says_where_ends_are_not_known() {
        let busy = busy(&[
            exact(1000, 1100),
            between(Quality::Bounded, 2000, 5000),
            submitted(900_000, true),
        ]);
        assert_eq!(busy.busy(), 100);
        assert_eq!(busy.range(), (100, 100 + 3000 + 100_000));
        assert_eq!(busy.untimed, 2);
    }

    #[test]
    fn what_is_mostly_a_guess_is_not_told() {
        let sampled = |begin, end| {
            let mut time = between(Quality::Sampled, begin, end);
            // It can have taken next to no time.
            time.begin_window = Window {
                earliest: begin - 900,
                latest: Some(end),
            };
            time
        };
        let busy = busy(&[exact(1000, 1100), sampled(2000, 9000)]);
        assert_eq!((busy.busy(), busy.untimed), (7100, 1));
        assert_eq!(busy.told(1_000_000), Some(7100), "little of the recording");
        assert_eq!(busy.told(10_000), None);
        assert_eq!(busy.range(), (100, 8000));
    }

    #[test]
    fn a_huge_error_reaches_from_nothing_to_the_windows() {
        let busy = busy(&[estimated(100_000, 110_000, 1, 1_000_000_000)]);
        assert_eq!(busy.range(), (0, 110_000));
    }

    proptest! {
        #[test]
        fn the_estimate_is_within_the_range(
            works in proptest::collection::vec((0_u64..100_000, 0_u64..10_000, 0_u64..10_000, 0..5), 0..80),
        ) {
            let times: Vec<GpuTime> = works.iter().map(|(begin, ns, error, kind)| {
                let (begin, end) = (begin + 1000, begin + 1000 + ns);
                match kind {
                    0 => exact(begin, end),
                    1 => between(Quality::Sampled, begin, end),
                    2 => between(Quality::Bounded, begin, end),
                    3 => submitted(begin, false),
                    _ => estimated(begin, end, 1, *error),
                }
            }).collect();
            let busy = busy(&times);
            let (least, most) = busy.range();
            prop_assert!(least <= busy.busy() && busy.busy() <= most && most <= 1_000_000);
        }
    }
}
