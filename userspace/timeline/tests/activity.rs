//! Readings of whether a GPU is at work.

use std::io::Cursor;

use gputrace_abi::{
    gpu::{ACTIVITY_SIZE, Activity, activity},
    record::{RecordHeader, kind},
};
use gputrace_capture::{CaptureReader, meta::Recording};
use gputrace_timeline::{
    Timeline,
    event::Event,
    gpu::ActivityState,
    synthetic::{
        Synthetic,
        gpu::{GPU_NODE, agents},
    },
};

fn reading(gpu_id: u32, time: u64, state: u32) -> Activity {
    Activity {
        header: RecordHeader {
            size: ACTIVITY_SIZE as u16,
            kind: kind::ACTIVITY,
            domain: 0,
            cpu: 0,
        },
        gpu_id,
        state,
        time,
        stands_for: 1_000,
        register: 0,
        late: 7,
    }
}

#[test]
fn readings_come_in_order_with_the_node_of_their_gpu() {
    let mut capture = Synthetic::new(&Recording::default());
    for agent in agents() {
        capture.meta(agent);
    }
    let readings = [
        reading(GPU_NODE, 300, activity::ACTIVE),
        reading(GPU_NODE, 100, activity::BEGIN),
        reading(GPU_NODE, 200, activity::IDLE),
        reading(GPU_NODE, 500, activity::END),
        // Of a GPU that the node does not have, and in a state that only a later version knows.
        reading(77, 400, activity::REFUSED),
        reading(GPU_NODE, 450, 99),
    ];
    for one in &readings {
        capture.record(one);
    }
    let reader = CaptureReader::new(Cursor::new(capture.bytes())).unwrap();
    let found: Vec<_> = Timeline::new(reader)
        .unwrap()
        .filter_map(|event| match event.unwrap() {
            Event::Activity(one) => {
                assert_eq!((one.stands_for, one.late), (1_000, 7));
                Some((one.node_id, one.time, one.state))
            }
            _ => None,
        })
        .collect();
    let node = Some(GPU_NODE);
    assert_eq!(
        found,
        [
            (node, 100, ActivityState::Begin),
            (node, 200, ActivityState::Idle),
            (node, 300, ActivityState::Active),
            (None, 400, ActivityState::Refused),
            (node, 500, ActivityState::End),
        ]
    );
}
