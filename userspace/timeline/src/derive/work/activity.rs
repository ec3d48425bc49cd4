//! Readings of whether GPUs were at work.

use std::collections::VecDeque;

use gputrace_abi::gpu::{self, activity};

use super::{Work, knowledge::Losses, witness};
use crate::model::{
    event::Event,
    gpu::{Activity, ActivityState},
};

impl Work {
    /// Takes a reading. Those at random moments are events; those of spells show which kernels ran.
    pub(super) fn activity(&mut self, reading: &gpu::Activity, events: &mut VecDeque<Event>) {
        let node_id = self.knowledge.node_of_gpu(reading.gpu_id);
        let Some(seen) = witness::Reading::of(reading) else {
            if let Some(node) = node_id {
                self.means.watch(node);
            }
            events.extend(event(reading, node_id));
            return;
        };
        let Some(ran) = node_id.and_then(|node| self.means.read(node, seen)) else {
            return;
        };
        if self.knowledge.losses(ran.within.0, ran.within.1) > Losses::None {
            return;
        }
        let queue = self.queue_mut(ran.queue);
        if let Some(slot) = queue.and_then(|queue| queue.slot_mut(ran.index)) {
            slot.took = Some(ran.took);
        }
    }
}

/// The event of a reading; `None` for a state that this version does not know.
fn event(reading: &gpu::Activity, node_id: Option<u32>) -> Option<Event> {
    let state = match reading.state {
        activity::BEGIN => ActivityState::Begin,
        activity::IDLE => ActivityState::Idle,
        activity::ACTIVE => ActivityState::Active,
        activity::END => ActivityState::End,
        activity::REFUSED => ActivityState::Refused,
        activity::SPELL => ActivityState::Spell {
            active: reading.register,
            unseen: reading.late,
        },
        _ => return None,
    };
    Some(Event::Activity(Activity {
        node_id,
        time: reading.time,
        state,
        stands_for: reading.stands_for,
        late: match state {
            ActivityState::Spell { .. } => 0,
            _ => reading.late,
        },
    }))
}
