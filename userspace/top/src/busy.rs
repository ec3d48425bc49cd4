//! How long a GPU worked in an interval.

use gputrace_analysis::summary::Reach;
use gputrace_export::{intervals::Intervals, lengths::Length};
use gputrace_timeline::gpu::GpuTime;

use crate::snapshot;

/// Maximum number of separate spans that are kept of an interval.
const MOST_SPANS: usize = 1 << 16;

/// The unions of what kernels took, within the interval. ns, `CLOCK_BOOTTIME`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    /// Spans of known length.
    known: Intervals,
    /// What is sure of each kernel.
    least: Intervals,
    /// What each kernel can have taken.
    most: Intervals,
    /// Whether there are kernels of unknown length.
    unknown: bool,
}

impl Busy {
    /// Adds the part of a kernel's time that lies in `begin..end`.
    pub(crate) fn add(&mut self, time: &GpuTime, begin: u64, end: u64) {
        let clip = |(from, to): (u64, u64)| (from.max(begin), to.min(end));
        let Reach { least, most } = Reach::of(time);
        let (from, to) = clip((most.0, most.1.unwrap_or(u64::MAX)));
        insert_most(&mut self.most, from, to);
        if let Some((from, to)) = least.map(clip) {
            insert(&mut self.least, from, to);
        }
        if Length::of(time).is_some() {
            let (from, to) = clip((time.begin, time.end));
            self.unknown |= !insert(&mut self.known, from, to);
        } else {
            self.unknown |= from < to;
        }
    }

    /// Adds work that may have run at any time in `begin..end`.
    pub(crate) fn add_possible(&mut self, begin: u64, end: u64) {
        if begin < end {
            self.unknown = true;
            insert_most(&mut self.most, begin, end);
        }
    }

    /// Adds what `other` has.
    pub(crate) fn join(&mut self, other: &Self) {
        self.known.join(&other.known);
        self.least.join(&other.least);
        self.most.join(&other.most);
        self.unknown |= other.unknown;
    }

    /// How long work can have run in `begin..end` outside of `spans`, ns.
    pub(crate) fn possible_outside(&self, spans: &Intervals, begin: u64, end: u64) -> u64 {
        let clip = |(from, to): (u64, u64)| (from.max(begin), to.min(end).max(begin));
        let mut outside = 0;
        let mut spans = spans.iter().map(clip).peekable();
        for (mut from, to) in self.most.iter().map(clip) {
            while let Some((inside, until)) = spans.peek().copied() {
                if inside >= to {
                    break;
                }
                outside += inside.saturating_sub(from);
                from = from.max(until);
                if until > to {
                    break;
                }
                spans.next();
            }
            outside += to.saturating_sub(from);
        }
        outside
    }

    /// Time of work in `begin..end`, and its bounds.
    pub(crate) fn time(&self, begin: u64, end: u64) -> snapshot::Busy {
        let total = |spans: &Intervals| {
            let clipped = |(from, to): (u64, u64)| to.min(end).saturating_sub(from.max(begin));
            spans.iter().map(clipped).sum::<u64>()
        };
        let (known, least, most) = (total(&self.known), total(&self.least), total(&self.most));
        snapshot::Busy {
            ns: (!self.unknown).then_some(known),
            least_ns: least.min(most),
            most_ns: most,
        }
    }
}

/// Adds a span if there is room; whether there was.
fn insert(spans: &mut Intervals, begin: u64, end: u64) -> bool {
    let has_room = spans.len() < MOST_SPANS;
    if has_room {
        spans.insert(begin, end);
    }
    has_room
}

/// Adds a span; without room, the set covers more than it should.
fn insert_most(spans: &mut Intervals, begin: u64, end: u64) {
    spans.insert(begin, end);
    if spans.len() > MOST_SPANS {
        spans.coarsen(end);
    }
}
