//! Captures that are truncated and damaged in any way are merged as far as possible, or refused.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]

use std::{fs, path::PathBuf};

use gputrace_capture::meta::{ClockSnapshot, End, Recording};
use gputrace_export::merge::Plan;
use gputrace_timeline::synthetic::{Synthetic, call};
use proptest::prelude::*;

/// A capture of a host.
fn capture(host: &str) -> Vec<u8> {
    let mut made = Synthetic::new(&Recording {
        hostname: host.to_owned(),
        boot_id: host.to_owned(),
        cpus: 1,
        clocks: ClockSnapshot {
            boottime: 1_000,
            realtime: 1_000_000,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    });
    for number in 1..50 {
        made.call(&call(number, 1_000 * number, 1_000 * number + 500));
    }
    made.meta(End {
        time: 60_000,
        ..End::default()
    });
    made.bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_they_hold(
        cut in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut first = capture("one");
        first.truncate(cut.index(first.len() + 1));
        for (place, byte) in &damage {
            if !first.is_empty() {
                let at = place.index(first.len());
                if let Some(place) = first.get_mut(at) {
                    *place = *byte;
                }
            }
        }
        let paths: Vec<PathBuf> = [("one", first), ("two", capture("two"))]
            .map(|(name, bytes)| {
                let path = directory.path().join(name);
                fs::write(&path, bytes).unwrap();
                path
            })
            .to_vec();
        if let Ok(plan) = Plan::new(&paths) {
            let events = plan.open().unwrap().filter_map(Result::ok).count();
            // Everything of the undamaged capture is there.
            prop_assert!(events > 49, "{} events", events);
        }
    }
}
