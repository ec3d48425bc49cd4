//! Estimates where a dispatch without exact times lies within its proven bounds.

use gputrace_tomography::Lengths;

use super::{
    means::{Known, Pace},
    queue::Settled,
};
use crate::model::gpu::{Estimate, GpuTime, Quality};

/// How many following packets to consult when estimating how late a packet can have begun.
const AHEAD: usize = 32;

/// Where the last dispatch of a queue was placed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placed {
    /// When it most likely began, or the latest begin of an earlier dispatch if that is later, ns.
    likely: u64,
    /// The same, but of dispatches that are not drawn only what is proven.
    begin: u64,
    /// When it most likely ended, ns.
    end: u64,
}

impl Placed {
    /// The time of the first packet of `settled`. `known` holds what is known of their classes.
    pub(crate) fn place(
        &mut self,
        settled: &[Settled],
        known: &[Option<Known>],
        pace: Pace,
    ) -> GpuTime {
        let (Some(first), class) = (settled.first(), known.first().copied().flatten()) else {
            return GpuTime::default();
        };
        let time = match class {
            Some(class) => self.placed(first, class, settled, known, pace),
            None => first.time,
        };
        let time = self.in_order(time, first.stamped);
        if time.quality.is_placed() {
            self.likely = self.likely.max(time.begin);
            // The likely times of what is not drawn are those of looks: they would move what
            // follows, and cut it short. Only what is proven counts.
            let begin = time.drawn_begin().unwrap_or(time.begin_window.earliest);
            let end = time.drawn_end().unwrap_or(time.end_window.earliest);
            self.begin = self.begin.max(begin);
            self.end = self.end.max(end);
        }
        time
    }

    /// Moves the begin of `time`, which is that of a dispatch, into queue order: a queue launches its
    /// packets in order, so a packet begins no earlier than those before it, and no later than the
    /// stamped begin of any packet after it, the first of which is `stamped`. Proven bounds and
    /// stamps are unchanged.
    fn in_order(&self, time: GpuTime, stamped: u64) -> GpuTime {
        let (Quality::Sampled, Some(latest)) = (time.quality, time.begin_window.latest) else {
            return time;
        };
        let before = if time.is_drawn() {
            self.begin
        } else {
            self.likely
        };
        let begin = time
            .begin
            .max(before)
            .min(stamped)
            .clamp(time.begin_window.earliest.min(latest), latest);
        GpuTime {
            begin,
            end: time.end.max(begin),
            ..time
        }
    }

    fn placed(
        &self,
        first: &Settled,
        class: Known,
        settled: &[Settled],
        known: &[Option<Known>],
        pace: Pace,
    ) -> GpuTime {
        let time = first.time;
        let (Some(begun), Some(ended)) = (time.begin_window.latest, time.end_window.latest) else {
            return time;
        };
        if !matches!(time.quality, Quality::Bounded | Quality::Sampled) {
            return time;
        }
        let earliest = time.begin_window.earliest.min(begun);
        if let Some(mean) = class.mean {
            let mean_ns = class
                .lengths
                .and_then(|lengths| only_length(lengths, &time))
                .unwrap_or(mean.value) as u64;
            let waits = first.slot.barrier;
            let free = if waits {
                self.end.saturating_add(pace.gap)
            } else {
                0
            };
            let free = free.max(first.slot.evidence.earliest.saturating_add(pace.latency));
            let not_before = not_before(first, pace).max(earliest).min(begun);
            let begin = free.clamp(not_before, begun);
            let late = too_late(begin, settled, known, pace);
            let begin = begin.saturating_sub(late).clamp(not_before, begun);
            let ended_by_mean = begin.saturating_add(mean_ns);
            let end = ended_by_mean
                .max(ran_until(ended_by_mean, first, settled.get(1), pace))
                .clamp(time.end_window.earliest.min(ended), ended);
            return GpuTime {
                quality: Quality::Sampled,
                begin,
                end: end.max(begin),
                estimate: Some(Estimate {
                    class: class.class,
                    // Rounded up, so that no estimate looks exact.
                    error: mean.error.ceil() as u64,
                }),
                ..time
            };
        }
        if time.quality != Quality::Sampled {
            return time;
        }
        // Into a queue that had run dry, it began when it was submitted, not when it was seen to
        // have begun: that may be as late as the next submission.
        let submitted = first.slot.evidence.earliest;
        let was_dry = first.slot.barrier && self.end <= submitted;
        let begin = if was_dry {
            let not_before = not_before(first, pace).max(earliest).min(begun);
            submitted
                .saturating_add(pace.latency)
                .clamp(not_before, begun)
        } else {
            time.begin
        };
        // Where the queue may have run dry, it was not at work longer than others of its kind at
        // most.
        let may_be_dry = first.next.is_none_or(|next| next >= begin);
        let most = class.shortest.filter(|_| may_be_dry).unwrap_or(u64::MAX);
        let end = time.end.min(begin.saturating_add(most));
        GpuTime {
            begin,
            end: end
                .clamp(time.end_window.earliest.min(ended), ended)
                .max(begin),
            ..time
        }
    }
}

/// The one of two lengths, ns, that is within what is proven of a dispatch; `None` if both are, or
/// none.
fn only_length(lengths: Lengths, time: &GpuTime) -> Option<f64> {
    let (begin, end) = (time.begin_window, time.end_window);
    let most = end.latest?.saturating_sub(begin.earliest) as f64;
    let least = end.earliest.saturating_sub(begin.latest?) as f64;
    let fits = |length: &f64| (least..=most).contains(length);
    let mut fitting = [lengths.shorter, lengths.longer].into_iter().filter(fits);
    fitting.next().filter(|_| fitting.next().is_none())
}

/// When the recorder looked last and the packet had not begun, as far as the index is reported at
/// once or in the steps that it seems to be, ns. Hardware may report late, so this is no proof.
fn not_before(settled: &Settled, pace: Pace) -> u64 {
    let Some((looked, index)) = settled.slot.evidence.looked else {
        return 0;
    };
    match pace.step {
        Some(step) if settled.index >= index.saturating_add(step.saturating_sub(1)) => looked,
        _ => 0,
    }
}

/// The time until which the first packet certainly ran, because the next one, which waited for it,
/// had not begun; 0 if nothing shows that. Without this, kernels would be cut short where looks
/// bound them but would never be longer than their mean, so that all of them together would be too
/// short.
fn ran_until(ended_by_mean: u64, first: &Settled, next: Option<&Settled>, pace: Pace) -> u64 {
    let waited = |next: &&Settled| {
        next.index == first.index.wrapping_add(1)
            && next.slot.barrier
            && next.slot.evidence.earliest.saturating_add(pace.latency) <= ended_by_mean
    };
    next.filter(waited)
        .map_or(0, |next| not_before(next, pace).saturating_sub(pace.gap))
}

/// How much earlier than `begin` the first packet must have begun, given when those after it were
/// seen to have begun.
fn too_late(begin: u64, settled: &[Settled], known: &[Option<Known>], pace: Pace) -> u64 {
    let mut late = 0;
    let mut at = begin;
    let pairs = settled.iter().zip(settled.iter().skip(1)).zip(known);
    for ((one, next), known) in pairs.take(AHEAD) {
        let Some(mean) = known.and_then(|known| known.mean) else {
            break;
        };
        at = at
            .saturating_add(mean.value as u64)
            .saturating_add(pace.gap);
        let evidence = &next.slot.evidence;
        if next.index != one.index.wrapping_add(1) || !next.slot.barrier || evidence.earliest > at {
            break;
        }
        if let Some(latest) = next.time.begin_window.latest {
            late = late.max(at.saturating_sub(latest));
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use gputrace_abi::gpu::{PACKET_RECORD_SIZE, Packet};
    use gputrace_tomography::Mean;
    use zerocopy::FromZeros as _;

    use super::*;
    use crate::{
        derive::work::queue::{Queue, Settle},
        model::gpu::{Origin, QueueInfo, Window},
    };

    const US: u64 = 1_000;
    const PACE: Pace = Pace {
        gap: 5 * US,
        latency: 10 * US,
        step: Some(1),
    };

    /// Dispatches with the barrier bit, submitted at these times in us, and looks: read index,
    /// time, and time of the previous look.
    fn settled(submitted: &[u64], looks: &[(u64, u64, u64)]) -> Vec<Settled> {
        let mut queue = Queue::new(QueueInfo::default(), 0, 0, false);
        for (index, time) in submitted.iter().enumerate() {
            let mut packet = Packet::new_zeroed();
            packet.header.size = PACKET_RECORD_SIZE as u16;
            (packet.index, packet.time, packet.ring_packets) = (index as u64, time * US, 1024);
            packet.packet[0] = 2 | 1 << 8 | 1 << 16 | 64 << 32 | 1 << 48;
            let origin = Origin {
                time: packet.time,
                ..Origin::default()
            };
            queue.insert(&packet, origin, false);
        }
        for (read_index, time, looked) in looks {
            queue.sample(*read_index, time * US, looked * US);
        }
        let mut settled = Vec::new();
        queue.settle(u64::MAX, Settle::All(u64::MAX), &mut settled);
        settled
    }

    fn known(mean: Option<u64>, shortest: Option<u64>) -> Option<Known> {
        Some(Known {
            class: 7,
            mean: mean.map(|us| Mean {
                value: (us * US) as f64,
                error: 2e3,
            }),
            lengths: None,
            shortest: shortest.map(|us| us * US),
        })
    }

    /// The times of all dispatches in turn, us.
    fn placed(settled: &[Settled], known: &[Option<Known>]) -> Vec<(GpuTime, u64, u64)> {
        let mut placed = Placed::default();
        (0..settled.len())
            .map(|at| {
                let time = placed.place(&settled[at..], &known[at..], PACE);
                (time, time.begin / US, time.end / US)
            })
            .collect()
    }

    #[test]
    fn one_follows_the_other_by_their_means() {
        let settled = settled(
            &[1000, 1001, 1002, 1003],
            &[(1, 1100, 900), (4, 1400, 1050)],
        );
        let known = [
            known(Some(80), None),
            known(Some(60), None),
            known(Some(70), None),
            None,
        ];
        let times = placed(&settled, &known);
        let spans: Vec<(u64, u64)> = times
            .iter()
            .take(3)
            .map(|(_, begin, end)| (*begin, *end))
            .collect();
        // The look at 1100 us showed that the second had not begun, so the first was still running.
        assert_eq!(spans, [(1010, 1095), (1100, 1160), (1165, 1235)]);
        for (time, ..) in times.iter().take(3) {
            let estimate = time.estimate.unwrap();
            assert_eq!(
                (time.quality, estimate.class, estimate.error),
                (Quality::Sampled, 7, 2 * US)
            );
        }
        assert_eq!(times[3].0.estimate, None, "nothing says when it ended");
    }

    #[test]
    fn what_is_proven_bounds_what_is_drawn() {
        // The second had begun at 1100 us, regardless of the first one's mean.
        let settled = settled(&[1000, 1001, 1002], &[(2, 1100, 900), (3, 1200, 1100)]);
        let known = [known(Some(500), None), known(Some(500), None), None];
        for (time, begin, end) in placed(&settled, &known).into_iter().take(2) {
            let latest = time.end_window.latest.unwrap();
            assert!(
                begin >= 1000 && time.end <= latest && end >= begin,
                "{time:?}"
            );
        }
    }

    #[test]
    fn of_two_lengths_only_one_may_be_possible() {
        let window = |earliest: u64, latest: u64| Window {
            earliest: earliest * US,
            latest: Some(latest * US),
        };
        let time = |begins, ends| GpuTime {
            begin_window: begins,
            end_window: ends,
            ..GpuTime::default()
        };
        let lengths = Lengths {
            shorter: 100e3,
            longer: 900e3,
            longer_share: 0.3,
        };
        let only = |time: GpuTime| only_length(lengths, &time);
        let short = time(window(1000, 1010), window(1020, 1300));
        assert_eq!(only(short), Some(100e3));
        let long = time(window(1000, 1010), window(1200, 2300));
        assert_eq!(only(long), Some(900e3));
        let either = time(window(1000, 1010), window(1020, 2300));
        assert_eq!(only(either), None);
        let neither = time(window(1000, 1010), window(1020, 1050));
        assert_eq!(only(neither), None);
        assert_eq!(only(GpuTime::default()), None);
    }

    #[test]
    fn those_behind_say_how_late_the_first_began() {
        // The third had begun at 1200 us, so the first one's 100 us and the second one's 50 us
        // began early enough.
        let settled = settled(
            &[1000, 1001, 1002, 1003],
            &[(3, 1165, 900), (4, 1300, 1200)],
        );
        let known = [
            known(Some(100), None),
            known(Some(50), None),
            known(Some(50), None),
            None,
        ];
        let times = placed(&settled, &known);
        assert_eq!((times[0].1, times[1].1, times[2].1), (1005, 1110, 1165));
    }

    #[test]
    fn idle_is_no_work_of_a_class_without_a_mean() {
        // The second was submitted 4 ms after the first, whose end is unknown.
        let settled = settled(
            &[1000, 5000, 9000],
            &[(1, 1050, 900), (2, 5050, 4950), (3, 9050, 8950)],
        );
        let shortest = [known(None, Some(300)); 3];
        let times = placed(&settled, &shortest);
        for (time, begin, end) in times.iter().take(2) {
            assert!(end - begin <= 300 && time.estimate.is_none(), "{time:?}");
        }
        assert_eq!(placed(&[], &[]).len(), 0);
    }

    #[test]
    fn a_kernel_begins_when_it_is_submitted_into_a_queue_that_had_run_dry() {
        // Doorbells are the only looks: each sees that the kernel before it has been taken.
        let settled = settled(
            &[1000, 1500, 2000, 2500],
            &[
                (1, 1500, 1000),
                (2, 2000, 1500),
                (3, 2500, 2000),
                (4, 3000, 2500),
            ],
        );
        let shortest = [known(None, Some(40)); 4];
        let spans: Vec<(u64, u64)> = placed(&settled, &shortest)
            .iter()
            .map(|(_, begin, end)| (*begin, *end))
            .collect();
        // Nothing tells when the last one ended.
        assert_eq!(spans[..3], [(1010, 1050), (1510, 1550), (2010, 2050)]);
    }

    #[test]
    fn begins_keep_the_order_of_the_queue() {
        // The looks place the first one's begin at 1095 us. For the second they show only that it
        // had begun by 1200 us.
        let mut settled = settled(&[1000, 1001, 1002], &[]);
        let window = Window {
            earliest: 1001 * US,
            latest: Some(1200 * US),
        };
        let sampled = GpuTime {
            quality: Quality::Sampled,
            begin: 1001 * US,
            end: 1200 * US,
            begin_window: window,
            end_window: window,
            ..GpuTime::default()
        };
        settled[0].time = GpuTime {
            begin: 1095 * US,
            end: 1100 * US,
            ..sampled
        };
        settled[1].time = sampled;
        let times = placed(&settled, &[None; 3]);
        assert_eq!((times[0].1, times[1].1, times[1].2), (1095, 1095, 1200));

        // The third has stamps. Those before it began no later, as far as their proven bounds
        // allow.
        settled[2].time = GpuTime {
            quality: Quality::Exact,
            begin: 1090 * US,
            end: 1300 * US,
            ..sampled
        };
        (settled[0].stamped, settled[1].stamped) = (1090 * US, 1090 * US);
        let times = placed(&settled, &[None; 3]);
        assert_eq!((times[0].1, times[1].1, times[2].1), (1090, 1090, 1090));
        settled[0].time.begin_window.earliest = 1092 * US;
        let times = placed(&settled, &[None; 3]);
        assert_eq!((times[0].1, times[2].1), (1092, 1090), "stamps stay");
    }

    #[test]
    fn what_is_not_drawn_does_not_cut_short_what_follows() {
        let window = |earliest: u64, latest: u64| Window {
            earliest: earliest * US,
            latest: Some(latest * US),
        };
        let sampled = GpuTime {
            quality: Quality::Sampled,
            begin: 1390 * US,
            end: 1400 * US,
            begin_window: window(1001, 1400),
            end_window: window(1002, 1400),
            ..GpuTime::default()
        };
        let mut settled = settled(&[1000, 1001, 1002], &[]);
        settled[0].time = sampled;
        settled[1].time = GpuTime {
            begin_window: window(1002, 1430),
            end_window: window(1003, 1430),
            ..sampled
        };
        let times = placed(&settled, &[None, known(Some(80), None), None]);
        assert!(!times[0].0.is_drawn());
        let (time, begin, end) = times[1];
        assert!(time.is_drawn() && begin < 1350, "{time:?}");
        assert_eq!(end - begin, 80);
    }

    #[test]
    fn a_class_nobody_knows_leaves_the_time_as_it_is() {
        let settled = settled(&[1000, 1001], &[(1, 1100, 900), (2, 1400, 1100)]);
        assert_eq!(placed(&settled, &[None, None])[0].0, settled[0].time);
    }
}
