//! When GPUs were busy: an estimate and the range in which the truth is.

use gputrace_timeline::gpu::{GpuTime, Quality};

use super::stats::Durations;
use gputrace_export::{intervals::Intervals, lengths::Length};

/// Intervals that are kept open for what comes late.
const OPEN_INTERVALS: usize = 1 << 14;

/// Longest gaps that are kept.
const LONGEST_GAPS: usize = 8;

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
    /// As spans are drawn; gaps are between these.
    drawn: Union,
    /// Of what is known: spans whose length is known, and what is proven of the others.
    known: Union,
    least: Union,
    most: Union,
    /// Earliest begin of a kernel of which nothing says that it has ended.
    endless: Option<u64>,
    /// Between one drawn interval and the next.
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
            self.drawn
                .add(time.begin, time.end, |last, begin| gaps.add(last, begin));
        }
        // A span whose length nothing tells may have been drawn up to the next one: that is no busy GPU.
        let known = match Length::of(time) {
            Some(_) => Some((time.begin, time.end)),
            None => {
                self.untimed += 1;
                least
            }
        };
        if let Some((begin, end)) = known {
            self.known.add(begin, end, |_, _| {});
        }
        if let Some((begin, end)) = least {
            self.least.add(begin, end, |_, _| {});
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

    /// Packets that the recording does not have may have been executed between `from` and `to`, ns: those of a queue that
    /// is older than the recording.
    pub(super) fn unseen(&mut self, from: u64, to: u64) {
        if from < to {
            let gaps = &mut self.sure_gaps;
            self.most.add(from, to, |last, begin| gaps.add(last, begin));
        }
    }

    /// Settles what is open; nothing comes after this. `stopped` is when the recording stopped, ns.
    pub(super) fn finish(&mut self, stopped: u64) {
        let (gaps, sure_gaps) = (&mut self.gaps, &mut self.sure_gaps);
        self.drawn.finish(|last, begin| gaps.add(last, begin));
        self.known.finish(|_, _| {});
        self.least.finish(|_, _| {});
        if let Some(begin) = self.endless.take() {
            self.most
                .add(begin, stopped, |last, begin| sure_gaps.add(last, begin));
        }
        self.most.finish(|last, begin| sure_gaps.add(last, begin));
    }

    /// The most likely time, ns; a lower bound if [`Busy::is_least`].
    pub(super) fn busy(&self) -> u64 {
        self.known.total
    }

    /// Whether there are kernels of which nothing tells how long they took: only what is proven of them is in the time.
    pub(super) fn is_least(&self) -> bool {
        self.untimed > 0
    }

    /// The least and the most that it can be, ns. The estimate is between them; both are it where all times are exact.
    pub(super) fn range(&self) -> (u64, u64) {
        let busy = self.busy();
        (self.least.total.min(busy), self.most.total.max(busy))
    }

    /// Spans that began before what was settled.
    pub(super) fn late(&self) -> u64 {
        self.drawn.late.max(self.known.late).max(self.most.late)
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

    /// A recording of a program that launches a kernel of 20 us each 4.35 ms, so that the GPU is busy for 0.46 % of the time.
    /// The recorder looks `after` ns after each launch, ns, and nothing stamps the kernels.
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

    /// Nothing in it tells when kernels end, so no number may look as if something did.
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
            assert!(busy.is_least(), "{} of {}", busy.untimed, busy.kernels);
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
            let (least, most) = busy.range();
            prop_assert!(least <= busy.busy() && busy.busy() <= most && most <= 1_000_000);
        }
    }
}
