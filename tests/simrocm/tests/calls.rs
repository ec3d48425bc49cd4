//! Counts HIP's calls of HSA's exported functions, with a library in between.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use gputrace_harness::Run;
use support::Runner;

/// Runs a program with the counting library.
fn counted(runner: Runner<'_>, newer: &str) -> (Run, BTreeMap<String, u64>) {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libcount_calls.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/count_calls.c");
    let mut cc = Command::new("cc");
    let status = cc
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(status.unwrap().success());
    let counts = directory.path().join("counts");
    let run = runner
        .env("LD_PRELOAD", &library.to_string_lossy())
        .env("CALL_COUNTS", &counts.to_string_lossy())
        .env("SIMROCM_NEWER", newer)
        .run();
    run.assert_success();
    let text = std::fs::read_to_string(counts).unwrap();
    let counts = text.lines().map(|line| {
        let (name, count) = line.split_once(' ').unwrap();
        (name.to_owned(), count.parse().unwrap())
    });
    (run, counts.collect())
}

fn graph<'a>() -> Runner<'a> {
    Runner::new("graph").arguments(&["700", "30"])
}

/// Number of packets of all kinds that the GPU took.
fn packets(run: &Run) -> u64 {
    (run.all_dispatches().len() + run.packets().len()) as u64
}

#[test]
fn each_packet_has_its_reservation_and_its_doorbell() {
    let (run, counts) = counted(graph(), "");
    assert_eq!(counts["hsa_queue_add_write_index_screlease"], packets(&run));
    assert_eq!(counts["hsa_signal_store_screlease"], packets(&run));
    assert_eq!(
        (counts["hsa_queue_create"], counts["hsa_amd_queue_create"]),
        (1, 0)
    );
    // Only barriers have signals, each of which was armed before.
    let signalled = run
        .packets()
        .iter()
        .filter(|packet| packet.signal != 0)
        .count();
    assert_eq!(counts["hsa_signal_silent_store_relaxed"], signalled as u64);
}

#[test]
fn forced_profiling_arms_a_signal_for_every_kernel() {
    let (run, counts) = counted(graph().env("GPU_FORCE_QUEUE_PROFILING", "1"), "");
    let signals = run.all_dispatches().into_iter().map(|kernel| kernel.signal);
    let signals = signals.chain(run.packets().into_iter().map(|packet| packet.signal));
    let signalled = signals.filter(|signal| *signal != 0).count();
    assert!(signalled >= 700 * 30);
    assert_eq!(counts["hsa_signal_silent_store_relaxed"], signalled as u64);
}

#[test]
fn newer_releases_ring_after_8_packets_and_then_after_256() {
    let (run, counts) = counted(graph(), "doorbell_batches");
    let barriers = run.packets().len() as u64;
    assert_eq!(counts["hsa_queue_add_write_index_screlease"], 30 + barriers);
    // After 8, 264, 520 and 700 packets.
    assert_eq!(counts["hsa_signal_store_screlease"], 4 * 30 + barriers);
}

#[test]
fn newer_functions_are_called_in_the_place_of_the_older_ones() {
    let (_, counts) = counted(Runner::new("copies"), "queue_desc,signal_batch,copy_batch");
    assert_eq!(
        (
            counts["hsa_queue_create"],
            counts["hsa_amd_memory_async_copy"]
        ),
        (0, 0)
    );
    assert!(counts["hsa_amd_queue_create"] > 0);
    assert!(counts["hsa_amd_signal_batch_create"] > 0);
    assert!(counts["hsa_amd_memory_async_batch_copy"] > 0);
    let (_, counts) = counted(Runner::new("copies"), "gpu_only_signals");
    assert_eq!(counts["hsa_signal_create"], 0);
    assert!(counts["hsa_amd_signal_create"] > 0);
}
