//! Queues, streams and memory that a running program had created before gputrace attached.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

mod support;

use std::collections::BTreeSet;

use gputrace_e2e::Trace;
use gputrace_fidelity::{
    run::attached,
    scenario::{Clock, Mode, Moment, ReadIndex, Scenario, WORKLOADS, Workload},
};
use gputrace_timeline::gpu::{Copy, Direction, Dispatch, KnownBy};

use support::{gputrace, release};

/// Number of streams of the program.
const STREAMS: usize = 4;

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let Some(streams) = WORKLOADS
        .iter()
        .find(|workload| workload.title == "four streams")
    else {
        panic!("the workload with four streams");
    };
    // More than the queues can hold, so that the last third can be submitted only as the GPU works:
    // for a second after that moment, it cannot be finished. By then each stream and its queue has
    // been used.
    let workload = Workload {
        attach_arguments: &["2000"],
        attach_duration: "{ fixed_ns = 500_000 }",
        moment: Moment::Dispatches(200),
        ..*streams
    };
    let scenario = Scenario {
        workload: Box::leak(Box::new(workload)),
        mode: Mode::Attach,
        clock: Clock::Plain,
        read_index: ReadIndex::Prompt,
    };
    let trace = attached(&scenario, &release, &gputrace(), |capture| {
        Ok(Trace::read(capture))
    });
    let trace = trace.unwrap_or_else(|error| panic!("ROCm {name}: {error:#}"));

    let work = trace
        .gpu
        .dispatches
        .iter()
        .filter(|dispatch| dispatch.origin.tid != 0);
    // What was submitted by the call in which the program was stopped: of that call, and so of the
    // stream, nothing was seen but what it called of HSA.
    let (interrupted, work): (Vec<_>, Vec<_>) =
        work.partition(|dispatch| dispatch.origin.stream.is_none());
    assert!(interrupted.len() <= 1, "ROCm {name}: {interrupted:?}");
    let is_of_hip = |dispatch: &&Dispatch| {
        let outermost = dispatch.origin.outermost;
        let mut calls = trace.calls.iter();
        calls.any(|call| call.correlation == outermost && trace.name(call).starts_with("hip"))
    };
    assert!(
        !interrupted.iter().any(is_of_hip),
        "ROCm {name}: {interrupted:?}"
    );
    let used: BTreeSet<Option<u64>> = work.iter().map(|dispatch| dispatch.origin.stream).collect();
    assert_eq!(used.len(), STREAMS, "ROCm {name}: {used:?}");
    let queues = &trace.gpu.queues;
    assert!(queues.len() >= STREAMS, "ROCm {name}: {queues:?}");
    assert!(
        queues.iter().all(|queue| queue.node_id.is_some()),
        "ROCm {name}: {queues:?}"
    );
    let found = queues.len();
    for part in [
        format!("{found} queues were in use before the recording"),
        format!("the GPU of {found} of them is known. {STREAMS} streams with work are older"),
    ] {
        let says = trace
            .notices
            .iter()
            .any(|notice| notice.text.contains(&part));
        assert!(says, "ROCm {name}: no {part:?} in {:?}", trace.notices);
    }
}

/// Copies between memory that is older than the recording.
fn copies_on(name: &str) {
    let Some(release) = release(name) else { return };
    let Some(first) = WORKLOADS.first() else {
        panic!("a workload");
    };
    let workload = Workload {
        title: "copies within a GPU",
        program: "within",
        attach_arguments: &["400"],
        moment: Moment::Dispatches(20),
        ..*first
    };
    let scenario = Scenario {
        workload: Box::leak(Box::new(workload)),
        mode: Mode::Attach,
        clock: Clock::Plain,
        read_index: ReadIndex::Prompt,
    };
    let recorded = attached(&scenario, &release, &gputrace(), |capture| {
        let csv = capture.with_file_name("run_memory_copy_trace_quality.csv");
        Ok((Trace::read(capture), std::fs::read_to_string(csv)?))
    });
    let (trace, csv) = recorded.unwrap_or_else(|error| panic!("ROCm {name}: {error:#}"));

    // What was submitted by the call in which the program was stopped has no call.
    let (called, interrupted): (Vec<&Copy>, Vec<&Copy>) =
        trace.gpu.copies.iter().partition(|copy| {
            let outermost = copy.origin.outermost;
            let mut calls = trace.calls.iter();
            calls.any(|call| call.correlation == outermost && trace.name(call) == "hipMemcpyAsync")
        });
    assert!(interrupted.len() <= 1, "ROCm {name}: {interrupted:?}");
    assert!(called.len() >= 100, "ROCm {name}: {}", called.len());
    for copy in &called {
        assert_eq!(
            (copy.direction, copy.known_by),
            (Direction::DeviceToDevice, Some(KnownBy::Call)),
            "ROCm {name}: {copy:?}"
        );
    }
    let rows = csv.matches(r#""MEMORY_COPY_DEVICE_TO_DEVICE","call""#);
    assert_eq!(rows.count(), called.len(), "ROCm {name}");
    let remark = format!(
        "The direction of {} is what the program told HIP",
        called.len()
    );
    let mut notices = trace.notices.iter();
    assert!(
        notices.any(|notice| notice.text.contains(&remark)),
        "ROCm {name}: no {remark:?} in {:?}",
        trace.notices
    );
}

#[test]
fn copies_of_rocm_6_4_3_go_where_their_calls_say() {
    copies_on("6.4.3");
}

#[test]
fn copies_of_rocm_7_2_4_go_where_their_calls_say() {
    copies_on("7.2.4");
}

#[test]
fn queues_and_streams_of_rocm_5_2_3_are_found() {
    on("5.2.3");
}

#[test]
fn queues_and_streams_of_rocm_7_2_4_are_found() {
    on("7.2.4");
}
