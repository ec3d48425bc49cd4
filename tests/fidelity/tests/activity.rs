//! Readings of whether the GPU is at work, held against the software GPU's log.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

mod support;

use gputrace_e2e::Trace;
use gputrace_fidelity::{
    mixes::MIXES,
    run::attached,
    scenario::{Clock, Mode, ReadIndex, Scenario, Workload},
};
use gputrace_softgpu::truth::{Record, read_directory};
use gputrace_timeline::gpu::ActivityState;

use support::{gputrace, release};

/// A program whose GPU is at work half of the time, with kernels of 80 us to 1 ms.
fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let mut mixes = MIXES.iter();
    let Some(half) = mixes.find(|mix| mix.title == "GPU use of 50 %, longer kernels") else {
        panic!("the program that uses half of the GPU");
    };
    let scenario = Scenario {
        workload: Box::leak(Box::new(Workload { ..*half })),
        mode: Mode::Attach,
        clock: Clock::Plain,
        read_index: ReadIndex::Prompt,
    };
    let recorded = attached(&scenario, &release, &gputrace(), |capture| {
        let log = capture.with_file_name("../truth");
        Ok((Trace::read(capture), read_directory(&log)?))
    });
    let (trace, log) = recorded.unwrap_or_else(|error| panic!("ROCm {name}: {error:#}"));
    let node = trace.gpu.queues.first().and_then(|queue| queue.node_id);
    let mut kernels: Vec<(u64, u64)> = log
        .iter()
        .filter_map(|record| match record {
            Record::Dispatch(one) => Some((one.begin.ns, one.end?.ns)),
            _ => None,
        })
        .collect();
    kernels.sort_unstable();

    let readings = &trace.gpu.activity;
    let first = readings.first().map(|one| one.state);
    assert_eq!(first, Some(ActivityState::Begin), "ROCm {name}");
    assert!(
        readings
            .iter()
            .all(|one| one.node_id == node && node.is_some())
    );
    // The shares of time in which the GPU was at work, by spells and by single readings.
    let active = |state| match state {
        ActivityState::Active => Some(1_000_000),
        ActivityState::Idle => Some(0),
        ActivityState::Spell { active, .. } => Some(active),
        _ => None,
    };
    let shares: Vec<u32> = readings
        .iter()
        .filter_map(|one| active(one.state))
        .collect();
    assert!(
        shares.iter().any(|share| *share > 0) && shares.iter().any(|share| *share < 1_000_000),
        "ROCm {name}: {shares:?}"
    );
    // A reading was made after the one before it.
    for pair in readings.windows(2) {
        if let [before, reading] = pair
            && active(reading.state).is_some_and(|share| share > 0)
        {
            let mut kernels = kernels.iter();
            let ran = kernels.any(|(begin, end)| *begin <= reading.time && *end >= before.time);
            assert!(
                ran,
                "ROCm {name}: no kernel between {before:?} and {reading:?}"
            );
        }
    }
}

#[test]
fn of_rocm_5_2_3_are_true() {
    on("5.2.3");
}

#[test]
fn of_rocm_7_2_4_are_true() {
    on("7.2.4");
}
