//! Keeps the slices of a thread properly nested.
//!
//! A slice is two packets, a beginning and an end, and an end closes whatever slice is innermost on
//! the track at that moment; it does not say which. Trace processors sort packets by time, and packets
//! of the same time stay in the order of the file. So two things must hold for every thread, or slices
//! silently get the ends of their neighbours:
//!
//! * among packets of one time, the ends of what is over come before the beginnings of what follows,
//!   and an enclosing call begins before the calls inside it;
//! * slices nest: none ends inside a slice that began later.
//!
//! The recorder keeps one stack of calls per thread, so recorded calls do nest, and two entries on one
//! thread are hundreds of nanoseconds apart, so they never begin in the same nanosecond. What is left:
//! a call may take 0 ns on a coarse clock, which is drawn with 1 ns, and then its end may collide with
//! its neighbours; and a damaged capture may hold anything. A [`Nest`] follows the calls in the order
//! of [`gputrace_timeline::event::Event`], holds back the ends of calls that may have more calls
//! inside, and moves times by as little as keeps the rules. A call that is moved says so
//! ([`Drawn::moved`]) and gets its exact times as annotations. Only when a call of 0 ns comes at the very
//! end of the calls around it do these end a nanosecond late without saying so.
//!
//! A call that comes after calls inside it (it ended later, in another group) is drawn as it is: the
//! others are in the file already, with times that lie inside.

use std::ops::Range;

use gputrace_timeline::event::Call;

/// Where a call is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) begin: u64,
    /// Whether beginning or end differ from the call's.
    pub(crate) moved: bool,
    /// Whether no call before it in the event order encloses it.
    pub(crate) outermost: bool,
}

/// A call whose end is not written yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    correlation: u64,
    /// When it really began and ended.
    begin: u64,
    end: u64,
    /// When it is drawn to begin and end; not before it did.
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
    /// Time that the last call which is drawn too long takes up beyond its end.
    stretched: Range<u64>,
}

impl Nest {
    /// Takes the thread's next call: reports the ends that must be written before its beginning to
    /// `ended`, in order, and says where the call begins.
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

    /// Reports all ends still held back: nothing comes inside these calls any more.
    pub(crate) fn close(&mut self, ended: impl FnMut(u64)) {
        let all = std::mem::take(&mut self.open);
        all.iter().rev().map(|open| open.drawn_end).for_each(ended);
    }
}
