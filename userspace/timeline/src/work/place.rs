//! Where a dispatch without exact times most likely lies, within what is proven.

use super::{
    means::{Known, Pace},
    queue::Settled,
};
use crate::gpu::{Estimate, GpuTime, Quality};

/// Packets behind one whose begins are asked whether it can have begun so late.
const AHEAD: usize = 32;

/// The last dispatch of a queue that was placed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placed {
    /// When it most likely ended, ns.
    end: u64,
}

impl Placed {
    /// The time of the first of `settled`, of whose classes `known` tells, as far as they are known.
    pub(crate) fn place(&mut self, settled: &[Settled], known: &[Option<Known>], pace: Pace) -> GpuTime {
        let (Some(first), class) = (settled.first(), known.first().copied().flatten()) else {
            return GpuTime::default();
        };
        let time = match class {
            Some(class) => self.placed(first, class, settled, known, pace),
            None => first.time,
        };
        if time.quality.is_drawn() {
            self.end = self.end.max(time.end);
        }
        time
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
            let end = begin
                .saturating_add(mean_ns)
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

/// How much earlier the first must have begun for those behind it to have begun when they were seen to have.
fn too_late(begin: u64, settled: &[Settled], known: &[Option<Known>], pace: Pace) -> u64 {
    let mut late = 0;
    let mut at = begin;
    let pairs = settled.iter().zip(settled.iter().skip(1)).zip(known);
    for ((one, next), known) in pairs.take(AHEAD) {
        let Some(mean) = known.and_then(|known| known.mean) else {
            break;
        };
        at = at.saturating_add(mean.value as u64).saturating_add(pace.gap);
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
