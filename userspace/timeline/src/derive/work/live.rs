//! Learning what the metadata says while the recording goes on, block by block.
//!
//! A timeline of a whole capture knows all metadata from the first record on. One that follows a recording knows what has come
//! so far: records about the GPU's work wait for [`super::LAG`], in which several clock samples come; a code object that
//! is found later than that leaves its kernels without names.

use std::collections::VecDeque;

use gputrace_capture::Meta;

use super::{Work, knowledge::Collected, means::Means};
use crate::model::event::Event;

impl Work {
    /// Begins to learn. Nothing is known yet.
    pub(crate) fn follow() -> Self {
        let mut work = Self::new(Collected::default(), &mut VecDeque::new());
        work.learning = Some(Box::default());
        work.means = Means::live();
        work
    }

    /// Takes metadata into account, if this is a recording that goes on.
    pub(crate) fn learn(&mut self, meta: Meta, events: &mut VecDeque<Event>) {
        let Some(collected) = &mut self.learning else {
            return;
        };
        let time = match &meta {
            Meta::Ledger(ledger) => Some(ledger.time),
            _ => None,
        };
        collected.take(meta);
        let (agent, code_objects) = collected.hand_over(&mut self.knowledge);
        events.extend(agent.map(|agent| Event::Agent(Box::new(agent))));
        self.kernels.add(code_objects, events);
        // Also when no records come, what waits for its time is due some day.
        if let Some(time) = time {
            self.advance(time, events);
        }
    }
}
