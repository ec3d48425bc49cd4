//! Learns from the metadata of a live recording, block by block.
//!
//! A timeline of a finished capture knows all metadata from the first record on. One that follows a
//! recording knows only what has arrived so far. Records about the GPU's work wait for
//! [`super::LAG`], during which several clock samples arrive. If a code object is found even later,
//! dispatches of its kernels remain without names.

use std::collections::VecDeque;

use gputrace_capture::Meta;

use super::{Work, knowledge::Collected, means::Means};
use crate::model::event::{Event, Pending, PendingQueue};

impl Work {
    /// Starts without any metadata.
    pub(crate) fn follow() -> Self {
        let mut work = Self::new(Collected::default(), &mut VecDeque::new());
        work.learning = Some(Box::default());
        work.means = Means::live();
        work
    }

    /// Takes metadata into account if this is a live recording.
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
        // Delayed records must come due even if no further records arrive.
        if let Some(time) = time {
            self.advance(time, events);
        }
    }

    /// What the queues still have to do after the records made up to [`super::LAG`] before `until`.
    pub(crate) fn pending(&self, until: u64) -> Pending {
        let open = self.queues.iter().filter_map(|queue| {
            let mut open = queue.open_dispatches();
            let first = open.next()?;
            Some(PendingQueue {
                pid: queue.info.pid,
                queue: queue.info.number,
                node_id: queue.info.node_id,
                dispatches: 1 + open.count() as u64,
                since: first.evidence.earliest,
            })
        });
        Pending {
            time: until.saturating_sub(super::LAG),
            queues: open.collect(),
        }
    }
}
