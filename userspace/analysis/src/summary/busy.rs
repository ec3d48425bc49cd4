//! GPU busy time: an estimate, and the range that contains the true value.

use gputrace_timeline::gpu::{GpuTime, Quality};
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

/// The shortest and the longest span that something can have taken, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// `None` if it may have taken no time.
    pub(super) least: Option<(u64, u64)>,
    /// The end is `None` if nothing proves that it has ended.
    pub(super) most: (u64, Option<u64>),
}

impl Reach {
    /// For exact times both are the same. A duration that is its class's mean may be longer or
    /// shorter by two standard errors, within the proven limits. Otherwise only the proven limits
    /// count.
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

/// Idle times between intervals.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    pub(super) durations: Durations,
    /// The longest gaps, longest first, as (begin, end).
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
    /// between these.
    taken: Union,
    /// Spans of known length, and the proven parts of the others.
    known: Union,
    least: Union,
    most: Union,
    /// Earliest begin of a kernel that is not proven to have ended.
    endless: Option<u64>,
    /// In which nothing ran, as estimated. What kernels of unknown length can have filled is none.
    pub(super) gaps: Gaps,
    /// Between the longest that all spans can be: what is surely idle.
    sure_gaps: Gaps,
    /// Between the least that is sure of each span.
    possible_gaps: Gaps,
    pub(super) kernels: u64,
    /// Kernels whose begin or end is not even estimated.
    pub(super) untimed: u64,
}

impl Busy {
    pub(super) fn add(&mut self, time: &GpuTime) {
        self.kernels += 1;
        let Reach { least, most } = Reach::of(time);
        // A span whose length nothing tells may have been drawn up to the next one: that is neither
        // a busy GPU nor an idle one.
        let (known, taken) = if Length::of(time).is_some() {
            let drawn = Some((time.begin, time.end));
            (drawn, drawn)
        } else {
            self.untimed += 1;
            let (begin, end) = most;
            (least, end.map(|end| (begin, end)))
        };
        if let Some((begin, end)) = taken {
            let gaps = &mut self.gaps;
            self.taken
                .add(begin, end, |last, begin| gaps.add(last, begin));
        }
        if let Some((begin, end)) = known {
            self.known.add(begin, end, |_, _| {});
        }
        if let Some((begin, end)) = least {
            let gaps = &mut self.possible_gaps;
            self.least
                .add(begin, end, |last, begin| gaps.add(last, begin));
        }
        match most {
            (begin, Some(end)) => {
                let gaps = &mut self.sure_gaps;
                self.most
                    .add(begin, end, |last, begin| gaps.add(last, begin));
            }
            (begin, None) => {
                self.endless = Some(self.endless.map_or(begin, |endless| endless.min(begin)));
            }
        }
    }

    /// Packets that are not in the recording may have been executed between `from` and `to`, ns:
    /// those of a queue that is older than the recording.
    pub(super) fn unseen(&mut self, from: u64, to: u64) {
        if from < to {
            let gaps = &mut self.sure_gaps;
            self.most.add(from, to, |last, begin| gaps.add(last, begin));
        }
    }

    /// Settles everything; must be the last call. `stopped` is when the recording stopped, ns.
    pub(super) fn finish(&mut self, stopped: u64) {
        let (gaps, sure_gaps) = (&mut self.gaps, &mut self.sure_gaps);
        if let Some(begin) = self.endless.take() {
            self.taken
                .add(begin, stopped, |last, begin| gaps.add(last, begin));
            self.most
                .add(begin, stopped, |last, begin| sure_gaps.add(last, begin));
        }
        self.taken.finish(|last, begin| gaps.add(last, begin));
        self.most.finish(|last, begin| sure_gaps.add(last, begin));
        self.known.finish(|_, _| {});
        let possible_gaps = &mut self.possible_gaps;
        self.least
            .finish(|last, begin| possible_gaps.add(last, begin));
    }

    /// The most likely time, ns; of kernels of which nothing tells how long they took
    /// ([`Busy::untimed`]), only what is proven is in it.
    pub(super) fn busy(&self) -> u64 {
        self.known.total
    }

    /// What that time is, in a recording of `recorded` ns.
    pub(super) fn meaning(&self, recorded: u64) -> Meaning {
        let busy = self.busy();
        let missing = self.taken.total.saturating_sub(busy);
        if self.untimed == 0 {
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

    /// The lower and upper bound of the busy time, ns. The estimate lies between them; both equal
    /// it if all times are exact.
    pub(super) fn range(&self) -> (u64, u64) {
        let busy = self.busy();
        (self.least.total.min(busy), self.most.total.max(busy))
    }

    /// The least and the most that the longest gap can be, ns.
    pub(super) fn longest_gap_range(&self) -> (u64, u64) {
        let [longest, sure, possible] =
            [&self.gaps, &self.sure_gaps, &self.possible_gaps].map(|gaps| gaps.durations.max);
        (sure.min(longest), possible.max(longest))
    }

    /// Spans that began before the last settled time.
    pub(super) fn late(&self) -> u64 {
        self.taken.late.max(self.known.late).max(self.most.late)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use gputrace_abi::gpu::queue_reason;
    use gputrace_capture::{CaptureReader, meta::Recording};
    use gputrace_timeline::{
        Timeline,
        event::Event,
        gpu::Quality,
        synthetic::{
            Synthetic,
            gpu::{agents, code_object, packet, queue, queue_state},
        },
    };
    use proptest::prelude::*;

    use super::*;
    use gputrace_export::synthetic::{between, estimated, exact, submitted};

    fn busy(times: &[GpuTime]) -> Busy {
        let mut busy = Busy::default();
        times.iter().for_each(|time| busy.add(time));
        busy.finish(1_000_000);
        busy
    }

    #[test]
    fn exact_times_have_no_range() {
        let busy = busy(&[exact(1000, 1100), exact(1050, 1200), exact(5000, 5100)]);
        assert_eq!(
            (busy.busy(), busy.range(), busy.untimed),
            (300, (300, 300), 0)
        );
        assert_eq!(busy.gaps.longest, [(1200, 5000)]);
    }

    /// Kernels of 20 us every 4 ms, as in a launch-bound program: each window extends to the next
    /// kernel.
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
        assert_eq!(busy.longest_gap_range(), (3_978_000, 3_982_000));
        assert_eq!(busy.meaning(1_000_000), Meaning::Estimate);
    }

    #[test]
    fn what_kernels_of_unknown_length_can_have_filled_is_no_gap() {
        let mut times = vec![exact(1000, 1100), exact(5000, 5100), exact(9000, 9100)];
        assert_eq!(busy(&times).gaps.longest, [(1100, 5000), (5100, 9000)]);
        times.push(between(Quality::Sampled, 2000, 4000));
        let partly = busy(&times);
        assert_eq!(
            partly.gaps.longest,
            [(5100, 9000), (4000, 5000), (1100, 2000)]
        );
        assert_eq!(
            (partly.busy(), partly.meaning(1_000_000)),
            (300, Meaning::Least)
        );
        // An estimate may be too long, so what is missing makes no lower bound of it.
        times.push(estimated(20_000, 21_000, 1, 100));
        let estimate = busy(&times);
        assert_eq!(estimate.busy(), 1300);
        // The one of unknown duration took 2 us at most.
        assert_eq!(estimate.meaning(200_000), Meaning::Estimate);
        assert_eq!(estimate.meaning(100_000), Meaning::Nothing);
        assert_eq!(estimate.range(), (1100, 1300 + 2000 + 200));
        // Nothing says that it ended.
        times.push(submitted(1050, false));
        assert_eq!(busy(&times).gaps.durations.calls, 0);
    }

    /// A recording of a program that launches a kernel of 20 us every 4.35 ms, so that the GPU is
    /// busy for 0.46 % of the time. The recorder looks `after` ns after each launch, and the
    /// kernels have no stamps.
    fn launch_bound(after: u64) -> Vec<GpuTime> {
        const KERNELS: u64 = 1000;
        let mut capture = Synthetic::new(&Recording::default());
        for agent in agents() {
            capture.meta(agent);
        }
        capture.meta(queue());
        capture.meta(code_object(0));
        let mut looked = EVERY_NS;
        for index in 0..KERNELS {
            let time = EVERY_NS + index * EVERY_NS;
            capture.record(&packet(index, time, 0));
            let mut look = queue_state(time + after, queue_reason::SAMPLE, index + 1, index + 1);
            look.looked = looked;
            capture.record(&look);
            looked = look.time;
        }
        let reader = CaptureReader::new(Cursor::new(capture.bytes())).unwrap();
        let times: Vec<GpuTime> = Timeline::new(reader)
            .unwrap()
            .filter_map(|event| match event.unwrap() {
                Event::Dispatch(dispatch) => Some(dispatch.time),
                _ => None,
            })
            .collect();
        assert_eq!(times.len() as u64, KERNELS);
        times
    }

    const EVERY_NS: u64 = 4_350_000;

    /// Nothing in it tells when kernels end, so no number may suggest otherwise.
    #[test]
    fn a_launch_bound_program_has_no_busy_gpu() {
        for after in [15_000, 200_000, 3_000_000] {
            let times = launch_bound(after);
            let total = EVERY_NS * times.len() as u64;
            let truth = 20_000 * times.len() as u64;
            let mut busy = Busy::default();
            times.iter().for_each(|time| busy.add(time));
            busy.finish(EVERY_NS + total);
            let (least, most) = busy.range();
            assert!(
                least <= truth && truth <= most,
                "looks after {after} ns: {truth} is not in {least}..{most}"
            );
            assert_ne!(
                busy.meaning(total),
                Meaning::Estimate,
                "{} of {}",
                busy.untimed,
                busy.kernels
            );
            assert_eq!(busy.gaps.durations.calls, 0, "looks after {after} ns");
            let (value, percent) = (busy.busy(), busy.busy() * 100 / total);
            assert!(
                value <= truth,
                "looks after {after} ns: {value} ns, {percent} %, where the truth is {truth}"
            );
        }
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
            let (shortest, longest) = busy.longest_gap_range();
            let gap = busy.gaps.durations.max;
            prop_assert!(shortest <= gap && gap <= longest);
            let (least, most) = busy.range();
            prop_assert!(least <= busy.busy() && busy.busy() <= most && most <= 1_000_000);
        }
    }
}
