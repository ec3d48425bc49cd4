//! What is proven about when the GPU worked on something, and the times that follow from it.

use crate::model::gpu::{GpuTime, Quality, Window};

/// A stamp of the GPU on the host's clock, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) time: u64,
    /// Maximum error, ns.
    pub(crate) uncertainty: u64,
}

impl Stamp {
    /// The earliest possible time.
    pub(crate) fn low(self) -> u64 {
        self.time.saturating_sub(self.uncertainty)
    }

    /// The latest possible time.
    pub(crate) fn high(self) -> u64 {
        self.time.saturating_add(self.uncertainty)
    }
}

/// Begin and end as stamped by the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exact {
    pub(crate) begin: Stamp,
    pub(crate) end: Stamp,
}

/// A time by which something had happened, and whether a read index showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) time: u64,
    pub(crate) sampled: bool,
}

impl Bound {
    /// A bound from an exact time or a completed signal.
    pub(crate) fn told(time: u64) -> Self {
        Self {
            time,
            sampled: false,
        }
    }

    /// A bound from a read index.
    pub(crate) fn sampled(time: u64) -> Self {
        Self {
            time,
            sampled: true,
        }
    }

    /// The earlier of two bounds, which is what both prove together.
    pub(crate) fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) if other.time < one.time => Some(other),
            (Some(one), _) => Some(one),
            (None, other) => other,
        }
    }
}

/// Everything known about one packet or copy by itself. All times are in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// It did not begin before this time, because the GPU had not been told of it.
    pub(crate) earliest: u64,
    /// When the queue's read index was first seen past it, that is, when it had begun.
    pub(crate) consumed: Option<u64>,
    /// When it began, estimated from the pace of the read index. Not a proof.
    pub(crate) estimate: Option<u64>,
    /// The recorder's last look before the read index was seen past it: the time, and the index at
    /// that time.
    pub(crate) looked: Option<(u64, u64)>,
    /// When its signal was first seen complete.
    pub(crate) ended_by: Option<u64>,
    /// Its begin and end as stamped by the GPU.
    pub(crate) exact: Option<Exact>,
    /// Whether it is known to be unfinished at the end of the recording.
    pub(crate) unfinished: bool,
}

impl Evidence {
    /// The earliest proof that it had ended. `followed` is when something that waits for its end
    /// had begun.
    pub(crate) fn ended(&self, followed: Option<Bound>) -> Option<Bound> {
        let exact = self.exact.map(|exact| Bound::told(exact.end.high()));
        Bound::earlier(
            exact,
            Bound::earlier(self.ended_by.map(Bound::told), followed),
        )
    }

    /// The earliest proof that it had begun. `is_kernel` says whether its begin stamp is that of
    /// its work. A barrier's begin stamp may lie before the end of its wait for earlier packets, so
    /// its end is used instead.
    pub(crate) fn begun(&self, is_kernel: bool, followed: Option<Bound>) -> Option<Bound> {
        let stamped = self.exact.filter(|_| is_kernel);
        let begin = stamped.map(|exact| Bound::told(exact.begin.high()));
        let consumed = self.consumed.map(Bound::sampled);
        Bound::earlier(Bound::earlier(begin, self.ended(followed)), consumed)
    }

    /// The earliest time at which it can have ended, given that it did not begin before `earliest`.
    pub(crate) fn ends_after(&self, earliest: u64) -> u64 {
        self.exact
            .map_or(earliest, |exact| exact.end.low().max(earliest))
    }

    /// Its times, given that it did not begin before `earliest`, and that something waiting for its
    /// end had begun by `followed`.
    pub(crate) fn time(&self, earliest: u64, followed: Option<Bound>) -> GpuTime {
        if let Some(Exact { begin, end }) = self.exact {
            // The bounds proven by the queue may be tighter than the clock's. They cannot
            // contradict it.
            let latest = self.consumed.unwrap_or(u64::MAX);
            let latest = begin.high().min(latest.max(begin.low()));
            let earliest = begin.low().max(earliest.min(latest));
            let from = begin.time.max(earliest).min(latest);
            let to = end.time.max(from);
            return GpuTime {
                quality: Quality::Exact,
                begin: from,
                end: to,
                begin_window: Window {
                    earliest,
                    latest: Some(latest),
                },
                end_window: Window {
                    earliest: end.low().max(earliest),
                    latest: Some(end.high().max(to)),
                },
                unfinished: false,
                estimate: None,
            };
        }
        let not_before = |bound: Bound| Bound {
            time: bound.time.max(earliest),
            ..bound
        };
        let ended = self.ended(followed).map(not_before);
        let begun = Bound::earlier(ended, self.consumed.map(Bound::sampled)).map(not_before);
        let is_sampled = [ended, begun]
            .into_iter()
            .flatten()
            .any(|bound| bound.sampled);
        GpuTime {
            quality: match ended {
                None => Quality::Submitted,
                Some(_) if is_sampled => Quality::Sampled,
                Some(_) => Quality::Bounded,
            },
            begin: earliest,
            end: ended.map_or(earliest, |bound| bound.time),
            begin_window: Window {
                earliest,
                latest: begun.map(|bound| bound.time),
            },
            end_window: Window {
                earliest,
                latest: ended.map(|bound| bound.time),
            },
            unfinished: self.unfinished && ended.is_none(),
            estimate: None,
        }
    }
}

/// Replaces the bounds of a sampled time by estimates: the begin by `begin`, and the end by `next`,
/// the begin of the next packet if that waited for this one.
pub(crate) fn estimated(time: GpuTime, begin: Option<u64>, next: Option<u64>) -> GpuTime {
    let (Quality::Sampled, Some(begin)) = (time.quality, begin) else {
        return time;
    };
    let within = |estimate: u64, window: Window| {
        let latest = window.latest.unwrap_or(u64::MAX);
        estimate.clamp(window.earliest.min(latest), latest)
    };
    let begin = within(begin, time.begin_window);
    let end = within(next.unwrap_or(time.end), time.end_window);
    GpuTime {
        begin,
        end: end.max(begin),
        ..time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(begin: u64, end: u64, uncertainty: u64) -> Evidence {
        let stamp = |time| Stamp { time, uncertainty };
        Evidence {
            exact: Some(Exact {
                begin: stamp(begin),
                end: stamp(end),
            }),
            ..Evidence::default()
        }
    }

    #[test]
    fn exact_times_carry_the_clock_s_uncertainty() {
        let time = exact(1000, 2000, 10).time(500, None);
        assert_eq!(
            (time.quality, time.begin, time.end),
            (Quality::Exact, 1000, 2000)
        );
        assert_eq!(
            (time.begin_window.earliest, time.begin_window.latest),
            (990, Some(1010))
        );
        assert_eq!(
            (time.end_window.earliest, time.end_window.latest),
            (1990, Some(2010))
        );
        // The doorbell rang at a time at which, within its uncertainty, the clock says the kernel
        // was already running.
        let time = exact(1000, 1002, 10).time(1005, None);
        assert_eq!((time.begin, time.end), (1005, 1005));
        assert_eq!(time.begin_window.earliest, 1005);
        // The read index was beyond it when the clock, by its uncertainty, would not have it
        // running yet.
        let mut evidence = exact(1000, 2000, 10);
        evidence.consumed = Some(995);
        let time = evidence.time(500, None);
        assert_eq!((time.begin, time.end), (995, 2000));
        assert_eq!(time.begin_window.latest, Some(995));
        // What contradicts it by more than that, leaves it as far as the clock allows.
        evidence.consumed = Some(900);
        assert_eq!(evidence.time(500, None).begin, 990);
    }

    #[test]
    fn quality_says_what_was_proven_by_what() {
        let evidence = Evidence {
            earliest: 100,
            ..Evidence::default()
        };
        let time = evidence.time(100, None);
        assert_eq!(
            (time.quality, time.begin, time.end),
            (Quality::Submitted, 100, 100)
        );
        assert_eq!(
            evidence.time(100, Some(Bound::told(200))).quality,
            Quality::Bounded
        );
        assert_eq!(
            evidence.time(100, Some(Bound::sampled(200))).quality,
            Quality::Sampled
        );

        let consumed = Evidence {
            consumed: Some(150),
            ..evidence
        };
        let time = consumed.time(100, None);
        assert_eq!(
            time.quality,
            Quality::Submitted,
            "begun, but who knows until when"
        );
        assert_eq!(
            (time.begin_window.latest, time.end_window.latest),
            (Some(150), None)
        );
        let time = consumed.time(120, Some(Bound::told(200)));
        assert_eq!(
            (time.quality, time.begin, time.end),
            (Quality::Sampled, 120, 200)
        );
        let time = consumed.time(120, Some(Bound::told(140)));
        assert_eq!(
            time.quality,
            Quality::Bounded,
            "the sample says nothing more"
        );
        assert_eq!(time.begin_window.latest, Some(140));
    }

    #[test]
    fn estimates_stay_within_what_is_proven() {
        let evidence = Evidence {
            consumed: Some(150),
            ..Evidence::default()
        };
        let time = evidence.time(100, Some(Bound::sampled(200)));
        let both = |time: GpuTime| (time.begin, time.end);
        assert_eq!(both(time), (100, 200));
        assert_eq!(both(estimated(time, Some(140), Some(160))), (140, 160));
        assert_eq!(both(estimated(time, Some(90), Some(300))), (100, 200));
        assert_eq!(both(estimated(time, Some(170), Some(120))), (150, 150));
        assert_eq!(both(estimated(time, Some(140), None)), (140, 200));
        assert_eq!(both(estimated(time, None, Some(160))), (100, 200));
        let exact = exact(110, 120, 1).time(100, None);
        assert_eq!(estimated(exact, Some(140), Some(160)), exact);
    }

    #[test]
    fn a_barrier_s_begin_proves_nothing() {
        assert_eq!(exact(10, 20, 1).begun(true, None), Some(Bound::told(11)));
        assert_eq!(exact(10, 20, 1).begun(false, None), Some(Bound::told(21)));
    }

    #[test]
    fn what_is_proven_to_have_ended_is_not_unfinished() {
        let evidence = Evidence {
            unfinished: true,
            ..Evidence::default()
        };
        assert!(evidence.time(0, None).unfinished);
        assert!(!evidence.time(0, Some(Bound::told(5))).unfinished);
    }
}
