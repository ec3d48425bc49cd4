//! Nested ranges of a thread, and their place among its calls.
//!
//! A range is directly inside the call in which it began, and around the calls that are made there,
//! as long as that enclosing call has not returned. A range may outlive it: C++ objects whose
//! constructor begins a range and whose destructor ends it do that. From the first call made after
//! that return, the range is inside the next enclosing call.

use crate::model::event::{Call, CallEnd};

/// A range that has not ended.
#[derive(Debug)]
pub(super) struct Open {
    /// The call that began it; its parent and depth are updated to the range's present place.
    pub(super) call: Call,
    /// The function that stands for its text.
    pub(super) function: u32,
    /// Number of ranges around it, as the library counts them.
    pub(super) level: Option<u64>,
    /// The function that stands for the last mark directly inside it.
    pub(super) mark: Option<u32>,
}

impl Open {
    /// How the range ends when its end is seen: as the call that began it, or, if that call has no
    /// end of its own, like any other.
    pub(super) fn how(&self) -> CallEnd {
        match self.call.how {
            CallEnd::NotSeen => CallEnd::Returned(0),
            how => how,
        }
    }

    /// The range as a call.
    pub(super) fn over(self, end: u64, how: CallEnd) -> Call {
        Call {
            function: self.function,
            end: end.max(self.call.begin),
            how,
            ..self.call
        }
    }
}

/// Nested ranges, outermost first. A range's call depth is at least that of the ranges around it.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    open: Vec<Open>,
    /// The function that stands for the last mark outside all ranges.
    mark: Option<u32>,
}

impl Nesting {
    /// Begins a range.
    pub(super) fn push(&mut self, open: Open) {
        self.open.push(open);
    }

    /// Adds a mark that is shown as this function.
    pub(super) fn mark(&mut self, function: u32) {
        match self.open.last_mut() {
            Some(open) => open.mark = Some(function),
            None => self.mark = Some(function),
        }
    }

    /// The function after which kernels are named: the last mark directly inside the innermost
    /// range, otherwise that range. rocprofv3 pushes marks onto its stack of ranges and pops one
    /// entry at the end of a range, so there a mark's range goes on.
    pub(super) fn innermost(&self) -> Option<u32> {
        match self.open.last() {
            Some(open) => open.mark.or(Some(open.function)),
            None => self.mark,
        }
    }

    /// The range directly around a call of the thread, 0 if there is none.
    pub(super) fn around(&mut self, call: &Call) -> u64 {
        // A later call with less depth shows that the call around the range has returned.
        for open in self.open.iter_mut().rev() {
            if open.call.depth <= call.depth {
                break;
            }
            if open.call.begin <= call.begin {
                (open.call.parent, open.call.depth) = (call.parent, call.depth);
            }
        }
        around(&self.open, call)
    }

    /// Ends a range: the innermost one, or, if the library counts them, the innermost one with that
    /// number of ranges around it. Also returns the ranges inside it, innermost first.
    pub(super) fn end(&mut self, level: Option<u64>) -> (Vec<Open>, Option<Open>) {
        let matching = match level {
            None => self.open.len().checked_sub(1),
            Some(level) => self
                .open
                .iter()
                .rposition(|open| open.level.is_none_or(|mine| mine == level)),
        };
        let Some(matching) = matching else {
            return (Vec::new(), None);
        };
        let mut ended = Vec::new();
        while self.open.len() > matching {
            ended.extend(self.end_innermost());
        }
        let outermost = ended.pop();
        (ended, outermost)
    }

    /// Ends all ranges, innermost first.
    pub(super) fn end_all(&mut self) -> Vec<Open> {
        let mut ended = Vec::new();
        while let Some(open) = self.end_innermost() {
            ended.push(open);
        }
        ended
    }

    fn end_innermost(&mut self) -> Option<Open> {
        let mut open = self.open.pop()?;
        open.call.range = around(&self.open, &open.call);
        Some(open)
    }
}

/// The one of these ranges (outermost first) that directly encloses a call.
fn around(open: &[Open], call: &Call) -> u64 {
    let candidates = open
        .iter()
        .rev()
        .take_while(|open| open.call.depth >= call.depth);
    candidates
        .filter(|open| open.call.begin <= call.begin && open.call.parent == call.parent)
        .map(|open| open.call.correlation)
        .next()
        .unwrap_or(0)
}
