//! Where a dispatch without exact times most likely lies, within what is proven.

use super::{
    means::{Known, Pace},
    queue::Settled,
};
use crate::model::gpu::{Estimate, GpuTime, Quality};

/// Packets behind one whose begins are asked whether it can have begun so late.
const AHEAD: usize = 32;

/// The last dispatch of a queue that was placed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placed {
    /// When it most likely began, or the latest that one before it did, ns.
    begin: u64,
    /// When it most likely ended, ns.
    end: u64,
}

impl Placed {
    /// The time of the first of `settled`, of whose classes `known` tells, as far as they are known.
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
        if time.quality.is_drawn() {
            self.begin = self.begin.max(time.begin);
            self.end = self.end.max(time.end);
        }
        time
    }

    /// `time` of a dispatch, which begins no earlier than those before it and no later than those
    /// behind it by their stamps, the first of which is `stamped`: a queue launches its packets in
    /// their order. What is proven stays, and so do stamps.
    fn in_order(&self, time: GpuTime, stamped: u64) -> GpuTime {
        let (Quality::Sampled, Some(latest)) = (time.quality, time.begin_window.latest) else {
            return time;
        };
        let begin = time
            .begin
            .max(self.begin)
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
            let mean_ns = mean.value as u64;
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
                    error: mean.error as u64,
                }),
                ..time
            };
        }
        if time.quality != Quality::Sampled {
            return time;
        }
        // Where the queue may have run dry, it was not at work longer than others of its kind at most.
        let may_be_dry = first.next.is_none_or(|next| next > time.begin);
        let most = class.shortest.filter(|_| may_be_dry).unwrap_or(u64::MAX);
        let end = time.end.min(time.begin.saturating_add(most));
        GpuTime {
            end: end
                .clamp(time.end_window.earliest.min(ended), ended)
                .max(time.begin),
            ..time
        }
    }
}

/// When the recorder looked last and the packet had not begun, as far as the index is reported at once or in the steps that it
/// seems to be, ns. Hardware may report late, so this is no proof.
fn not_before(settled: &Settled, pace: Pace) -> u64 {
    let Some((looked, index)) = settled.slot.evidence.looked else {
        return 0;
    };
    match pace.step {
        Some(step) if settled.index >= index.saturating_add(step.saturating_sub(1)) => looked,
        _ => 0,
    }
}

/// Until when the first surely ran, as the next one, which waited for it, had not begun; 0 if nothing says so. Otherwise single
/// kernels would be cut short where looks bound them and never be longer than their mean, and all of them together too short.
fn ran_until(ended_by_mean: u64, first: &Settled, next: Option<&Settled>, pace: Pace) -> u64 {
    let waited = |next: &&Settled| {
        next.index == first.index.wrapping_add(1)
            && next.slot.barrier
            && next.slot.evidence.earliest.saturating_add(pace.latency) <= ended_by_mean
    };
    next.filter(waited)
        .map_or(0, |next| not_before(next, pace).saturating_sub(pace.gap))
}

/// How much earlier the first must have begun for those behind it to have begun when they were seen to have.
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

    /// Dispatches with the barrier bit submitted at these times, us, and looks: read index, time and time of the look before.
    fn settled(submitted: &[u64], looks: &[(u64, u64, u64)]) -> Vec<Settled> {
        let mut queue = Queue::new(QueueInfo::default(), 0, false);
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
            shortest: shortest.map(|us| us * US),
        })
    }

    /// Times of all in turn, us.
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
        // The look at 1100 saw that the second had not begun, so the first one still ran.
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
        // The second had begun at 1100 us, whatever the first one's mean.
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
    fn those_behind_say_how_late_the_first_began() {
        // The third had begun at 1200 us, so the first one's 100 and the second one's 50 us began early enough.
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
        // The second was submitted 4 ms after the first: nobody knows when that ended.
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
    fn begins_keep_the_order_of_the_queue() {
        // The looks place the first one's begin at 1095 us; of the second they say only that it began by 1200 us.
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

        // The third has stamps: those before it began no later, as far as it is proven that they can have.
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
    fn a_class_nobody_knows_leaves_the_time_as_it_is() {
        let settled = settled(&[1000, 1001], &[(1, 1100, 900), (2, 1400, 1100)]);
        assert_eq!(placed(&settled, &[None, None])[0].0, settled[0].time);
    }
}
