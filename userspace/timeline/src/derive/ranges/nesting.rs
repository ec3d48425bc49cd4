//! Nested ranges of a thread, among its calls.
//!
//! A range stands directly inside the call in which it began, and around the calls that are made there, as long as that
//! call has not returned. A range may live longer than it: objects whose constructor begins a range and whose destructor
//! ends it do that. It then stands inside the call around that one, from the first call on that is made there.

use crate::model::event::{Call, CallEnd};

/// A range that has not ended.
#[derive(Debug)]
pub(super) struct Open {
    /// The call that began it; its parent and depth are those of the place where the range is now.
    pub(super) call: Call,
    /// The function that it is shown as.
    pub(super) function: u32,
    /// Ranges around it, as the library counts them.
    pub(super) level: Option<u64>,
    /// The function that the last mark directly inside it is shown as.
    pub(super) mark: Option<u32>,
}

impl Open {
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

/// Nested ranges, outermost first. None is less deep among the calls than those around it.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    open: Vec<Open>,
    /// The function that the last mark outside of all is shown as.
    mark: Option<u32>,
}

impl Nesting {
    /// A range begins.
    pub(super) fn push(&mut self, open: Open) {
        self.open.push(open);
    }

    /// A mark, shown as this function.
    pub(super) fn mark(&mut self, function: u32) {
        match self.open.last_mut() {
            Some(open) => open.mark = Some(function),
            None => self.mark = Some(function),
        }
    }

    /// What kernels are called after: the last mark directly inside the innermost range, or else that range. rocprofv3 puts
    /// marks onto its stack of ranges and takes one entry off at the end of a range, so that a mark's range goes on for it.
    pub(super) fn innermost(&self) -> Option<u32> {
        match self.open.last() {
            Some(open) => open.mark.or(Some(open.function)),
            None => self.mark,
        }
    }

    /// The range directly around a call of the thread, 0 if there is none.
    pub(super) fn around(&mut self, call: &Call) -> u64 {
        // A later call that is less deep: what was around the range has returned.
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

    /// A range ends: the innermost, or, if the library counts, the innermost with that number of ranges around it. Also
    /// gives those inside it, innermost first.
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

    /// All end, innermost first.
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

/// Which of these ranges, outermost first, is directly around a call.
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
