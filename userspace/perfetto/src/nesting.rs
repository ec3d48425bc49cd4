//! Keeps the slices of a thread properly nested.
//!
//! A slice is two packets, a begin and an end, and an end closes whatever slice is innermost on the
//! track at that time; it does not say which. Trace processor sorts packets by time, and packets of
//! the same time stay in the order of the file. So two conditions must hold for every thread, or
//! slices silently get the ends of their neighbours:
//!
//! * Among packets of the same time, the ends of earlier slices come before the begins of later
//!   ones, and an enclosing call begins before the calls inside it.
//! * Slices nest: none ends inside a slice that began later.
//!
//! The recorder keeps one stack of calls per thread, so recorded calls do nest, and two entries on
//! one thread are hundreds of nanoseconds apart, so they never begin in the same nanosecond. Two
//! problems remain. A call may take 0 ns on a coarse clock; it is drawn with 1 ns, and then its end
//! may collide with its neighbours. And a damaged capture may contain anything. A [`Nest`] follows
//! the calls in the order of [`gputrace_timeline::event::Event`], holds back the ends of calls that
//! may have more calls inside, and moves times by as little as the conditions require. A call that
//! is moved is marked as such ([`Drawn::moved`]) and gets its exact times as annotations. Only when
//! a call of 0 ns comes at the very end of its enclosing calls do these end a nanosecond late
//! without a mark.
//!
//! A call that comes after calls inside it (because it ended later, in another group) is drawn as
//! it is: the others are already in the file, with times that lie inside.

use std::ops::Range;

use gputrace_timeline::event::Call;

/// Where a call is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) begin: u64,
    /// Whether the drawn begin or end differs from the call's.
    pub(crate) moved: bool,
    /// Whether no earlier call in the event order encloses it.
    pub(crate) outermost: bool,
}

/// A call whose end is not written yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    correlation: u64,
    /// Its true begin and end.
    begin: u64,
    end: u64,
    /// Its drawn begin and end, which are not earlier.
    drawn_begin: u64,
    drawn_end: u64,
}

impl Open {
    fn encloses(&self, call: &Call) -> bool {
        let touches = call.begin == self.end && call.parent == self.correlation;
        self.begin <= call.begin && (call.begin < self.end || touches)
    }
}

/// The calls of one thread that may get further calls inside, outermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nest {
    open: Vec<Open>,
    /// The time by which the last call is drawn too long.
    stretched: Range<u64>,
}

impl Nest {
    /// Takes the thread's next call: calls `ended`, in order, for the ends that must be written
    /// before its begin, and returns where the call begins.
    pub(crate) fn place(&mut self, call: &Call, mut ended: impl FnMut(u64)) -> Drawn {
        while let Some(over) = self.open.pop_if(|top| !top.encloses(call)) {
            ended(over.drawn_end);
            if over.drawn_end > over.end {
                self.stretched = over.end..over.drawn_end;
            }
        }
        let (earliest, latest) = match self.open.last() {
            Some(outer) => (outer.drawn_begin, outer.end),
            None => (0, u64::MAX),
        };
        let drawn_begin = if self.stretched.contains(&call.begin) {
            self.stretched.end.max(earliest)
        } else {
            call.begin.max(earliest)
        };
        let end = call.end.min(latest).max(call.begin);
        let drawn_end = end.max(drawn_begin.saturating_add(1));
        for outer in &mut self.open {
            outer.drawn_end = outer.drawn_end.max(drawn_end);
        }
        self.open.push(Open {
            correlation: call.correlation,
            begin: call.begin,
            end,
            drawn_begin,
            drawn_end,
        });
        Drawn {
            begin: drawn_begin,
            moved: drawn_begin != call.begin || drawn_end != call.end,
            outermost: self.open.len() == 1,
        }
    }

    /// Reports all ends that are still held back: no more calls come inside these calls.
    pub(crate) fn close(&mut self, ended: impl FnMut(u64)) {
        let all = std::mem::take(&mut self.open);
        all.iter().rev().map(|open| open.drawn_end).for_each(ended);
    }
}
