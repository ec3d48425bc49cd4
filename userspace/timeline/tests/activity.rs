//! Readings of whether a GPU is at work, and the durations of kernels that they show.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use gputrace_abi::{
    gpu::{ACTIVITY_SIZE, Activity, activity},
    record::{RecordHeader, kind},
};
use gputrace_capture::{CaptureReader, meta::Recording};
use gputrace_timeline::{
    Timeline,
    event::Event,
    gpu::{ActivityState, GpuTime, KernelClass, Told},
    synthetic::{
        Synthetic,
        gpu::{GPU_NODE, agents, packet, queue},
    },
};

const US: u64 = 1_000;

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
        Activity {
            register: 250_000,
            late: 30_000,
            ..reading(GPU_NODE, 350, activity::SPELL)
        },
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
                let late = match one.state {
                    ActivityState::Spell { .. } => 0,
                    _ => 7,
                };
                assert_eq!((one.stands_for, one.late), (1_000, late));
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
            (
                node,
                350,
                ActivityState::Spell {
                    active: 250_000,
                    unseen: 30_000,
                },
            ),
            (None, 400, ActivityState::Refused),
            (node, 500, ActivityState::End),
        ]
    );
}

/// A reading of a spell: the register had this state between 2 us before `time` and then.
fn of_spell(time: u64, state: u32) -> Activity {
    Activity {
        stands_for: 0,
        late: 2_000,
        ..reading(GPU_NODE, time, state)
    }
}

/// The classes and the times of dispatches of a program that launches a kernel of 100 us each ms.
/// The register was read around each of them; with `others`, another process's kernels ran in
/// between.
fn launches(others: bool) -> (Vec<KernelClass>, Vec<GpuTime>) {
    let mut capture = Synthetic::new(&Recording::default());
    for agent in agents() {
        capture.meta(agent);
    }
    capture.meta(queue());
    capture.record(&reading(GPU_NODE, 500 * US, activity::BEGIN));
    for index in 0..40 {
        let launch = (1 + index) * 1_000 * US;
        let mut packet = packet(index, launch, 0);
        packet.read_index = index;
        capture.record(&packet);
        let mut edges = vec![(launch + 6 * US, launch + 106 * US)];
        if others {
            edges.push((launch + 500 * US, launch + 600 * US));
        }
        for (begin, end) in edges {
            for (time, state) in [
                (begin - 200 * US, activity::IDLE),
                (begin - US, activity::IDLE),
                (begin + US, activity::ACTIVE),
                (end - US, activity::ACTIVE),
                (end + US, activity::IDLE),
                (end + 100 * US, activity::IDLE),
            ] {
                capture.record(&of_spell(time, state));
            }
        }
    }
    let reader = CaptureReader::new(Cursor::new(capture.bytes())).unwrap();
    let (mut classes, mut times) = (Vec::new(), Vec::new());
    for event in Timeline::new(reader).unwrap() {
        match event.unwrap() {
            Event::KernelClass(class) => classes.push(*class),
            Event::Dispatch(dispatch) => times.push(dispatch.time),
            Event::Activity(one) => assert_eq!(one.state, ActivityState::Begin, "{one:?}"),
            _ => {}
        }
    }
    (classes, times)
}

#[test]
fn kernels_that_the_register_saw_have_a_mean() {
    let (classes, times) = launches(false);
    assert_eq!(classes.len(), 1);
    let mean = classes[0].mean.unwrap();
    assert_eq!((classes[0].told, classes[0].count), (Told::Apart, 40));
    assert!((mean.value - 100_000.0).abs() <= 1_000.0, "{mean:?}");
    assert!((3_000.0..4_000.0).contains(&mean.error), "{mean:?}");
    // All but the last two had ended when the doorbell after the next one rang.
    for time in &times[..38] {
        let length = time.drawn_end().unwrap() - time.drawn_begin().unwrap();
        assert!(length.abs_diff(100 * US) <= US, "{time:?}");
        // What the register shows is no proof.
        let latest = time.end_window.latest.unwrap();
        assert!(latest - time.end_window.earliest >= 1_000 * US, "{time:?}");
    }
}

#[test]
fn nothing_is_said_of_a_gpu_that_others_use() {
    let (classes, _) = launches(true);
    assert_eq!((classes[0].told, classes[0].mean), (Told::Unseen, None));
}
