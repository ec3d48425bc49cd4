//! The measurement of what hits cost: it gives figures, and leaves nothing behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helper functions too"
)]

mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use gputrace_loader::calls::BackendChoice;

#[test]
fn hits_are_measured_and_nothing_is_left() {
    // The records of a batch must fit into the smallest ring, too.
    for (backend, ring_bytes) in [
        (BackendChoice::UprobeMulti, 1 << 20),
        (BackendChoice::UprobeMulti, 4096),
        (BackendChoice::Perf, 1 << 20),
    ] {
        let Some(calls) = support::load(&support::options(backend, ring_bytes)) else {
            return;
        };
        let begin = Instant::now();
        let (costs, probes) = calls.price().unwrap();
        println!(
            "figure price_time_{} = {} us",
            calls.backend(),
            begin.elapsed().as_micros()
        );
        println!("{} {costs:?}", calls.backend());
        // Nothing is cheaper than a record in the ring.
        let mut all = vec![costs.optimized, costs.emulated, costs.single_stepped];
        // What an end adds is a difference. In the smallest ring, each batch also has wake-ups,
        // which take longer than an end and vary by more.
        if ring_bytes > 4096 {
            all.extend([costs.at_return, costs.at_exit]);
        }
        assert!(all.iter().all(|cost| *cost > 50), "{costs:?}");
        drop(probes);
        let counters = calls.counters().unwrap();
        assert!(counters.iter().all(|one| one.sequence == 0
            && one.seen.iter().all(|seen| *seen == 0)
            && one.dropped.as_flattened().iter().all(|lost| *lost == 0)));
        for (cpu, mut ring) in calls.rings().unwrap() {
            assert!(
                ring.next().is_none(),
                "a record is left in the ring of CPU {cpu}"
            );
        }
        assert!(calls.targets().unwrap().is_empty());
        // The measuring thread leaves the map when the kernel has ended it.
        let limit = Instant::now() + Duration::from_secs(60);
        while !calls.threads().unwrap().is_empty() {
            assert!(
                Instant::now() < limit,
                "the measuring thread is still known"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}
