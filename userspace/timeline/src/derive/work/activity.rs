//! Readings of whether GPUs were at work.

use gputrace_abi::gpu::{self, activity};

use crate::model::{
    event::Event,
    gpu::{Activity, ActivityState},
};

/// The event of a reading; `None` for a state that this version does not know.
pub(super) fn event(reading: &gpu::Activity, node_id: Option<u32>) -> Option<Event> {
    let state = match reading.state {
        activity::BEGIN => ActivityState::Begin,
        activity::IDLE => ActivityState::Idle,
        activity::ACTIVE => ActivityState::Active,
        activity::END => ActivityState::End,
        activity::REFUSED => ActivityState::Refused,
        _ => return None,
    };
    Some(Event::Activity(Activity {
        node_id,
        time: reading.time,
        state,
        stands_for: reading.stands_for,
        late: reading.late,
    }))
}
