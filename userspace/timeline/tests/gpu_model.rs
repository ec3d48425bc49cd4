//! Reads captures of a simulated GPU: every packet comes once, every window contains the truth, and
//! nothing unknown is claimed.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod simulator;

use std::{collections::HashMap, io::Cursor};

use gputrace_capture::CaptureReader;
use gputrace_timeline::{
    Timeline,
    event::Event,
    gpu::{Dispatch, Quality, Window},
};
use proptest::prelude::*;
use simulator::{Clock, Config, Jump, Recorded, Truth, run};

fn plain(seed: u64) -> Config {
    Config {
        seed,
        generations: 1,
        packets: 200,
        signalled: 100,
        barrier: 100,
        other: 0,
        shared: 0,
        profiling: true,
        batched: 0,
        disordered: 0,
        unseen: 0,
        read_later: 0,
        lost: 0,
        step: 1,
        delay: 0,
        sampling: 0,
        hangs: false,
        clock: Clock {
            offset: 5_000_000_000,
            drift: 20,
            jump: None,
            uncertainty: 500,
        },
    }
}

fn contains(window: Window, truth: u64) -> bool {
    window.earliest <= truth && window.latest.is_none_or(|latest| truth <= latest)
}

/// Reads the capture and compares every dispatch with the truth.
fn check(config: &Config) -> Vec<(Truth, Dispatch)> {
    let Recorded {
        capture,
        truths,
        stop,
    } = run(config);
    let timeline = Timeline::new(CaptureReader::new(Cursor::new(capture)).unwrap()).unwrap();
    let mut by_kernarg: HashMap<u64, Truth> = truths
        .into_iter()
        .map(|truth| (truth.kernarg, truth))
        .collect();
    let mut queues = HashMap::new();
    let mut kernels = 0;
    let mut ids = Vec::new();
    let mut found = Vec::new();
    for event in timeline {
        match event.unwrap() {
            Event::Queue(queue) => assert!(queues.insert(queue.number, queue).is_none()),
            Event::Kernel(kernel) => {
                kernels += 1;
                assert_eq!(
                    (kernel.id, kernel.demangled.as_str()),
                    (1, "void scale<float>(float*, int)")
                );
            }
            // The first packet of a simulated queue may have any index.
            Event::Notice(notice) if notice.text.contains("in use before the recording") => {}
            Event::Notice(notice) if notice.text.contains("took is not known") => {}
            Event::Notice(notice) if config.clock.uncertainty == 0 => {
                assert!(
                    notice.text.contains("not aligned") || notice.text.contains("no end mark"),
                    "{notice:?}"
                );
            }
            Event::Notice(notice) => assert!(notice.text.contains("no end mark"), "{notice:?}"),
            Event::Dispatch(dispatch) => {
                assert_eq!(kernels, 1, "a kernel comes before its dispatches");
                let truth = by_kernarg.remove(&dispatch.kernarg);
                assert!(truth.is_some(), "twice, or never: {dispatch:?}");
                let truth = truth.unwrap();
                compare(config, stop, &truth, &dispatch);
                assert_eq!(queues[&dispatch.queue].id, truth.queue_id);
                ids.push(dispatch.id);
                found.push((truth, *dispatch));
            }
            _ => {}
        }
    }
    for truth in by_kernarg.values() {
        assert!(!truth.is_kernel || !truth.recorded, "missing: {truth:?}");
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    found
}

fn compare(config: &Config, stop: u64, truth: &Truth, dispatch: &Dispatch) {
    let at = || format!("{truth:?}\n{dispatch:?}");
    assert!(truth.is_kernel && truth.recorded, "{}", at());
    assert_eq!(dispatch.index, truth.index, "{}", at());
    assert_eq!(
        (dispatch.workgroup, dispatch.grid),
        ([64, 1, 1], [640, 1, 1])
    );
    if truth.own_recorded {
        assert_eq!(dispatch.origin.tid, truth.tid, "{}", at());
        assert_eq!(dispatch.origin.innermost, u64::from(truth.tid), "{}", at());
    }
    let time = &dispatch.time;
    assert!(time.begin <= time.end, "{}", at());
    assert!(contains(time.begin_window, truth.begin), "{}", at());
    assert!(contains(time.end_window, truth.end), "{}", at());
    assert!(!time.unfinished || truth.end > stop, "{}", at());
    assert_eq!(
        time.end_window.latest.is_some(),
        time.quality > Quality::Submitted,
        "{}",
        at()
    );
    if time.quality == Quality::Exact {
        assert!(truth.signalled && config.profiling, "{}", at());
        if !config.clock.is_near_jump(truth.begin) && !config.clock.is_near_jump(truth.end) {
            assert!(time.begin.abs_diff(truth.begin) <= 2_000, "{}", at());
            assert!(time.end.abs_diff(truth.end) <= 2_000, "{}", at());
        }
    }
}

fn share(found: &[(Truth, Dispatch)], which: impl Fn(Quality) -> bool) -> usize {
    let count = found
        .iter()
        .filter(|(_, dispatch)| which(dispatch.time.quality))
        .count();
    count * 100 / found.len()
}

#[test]
fn every_signalled_packet_is_exact() {
    for seed in 0..20 {
        assert_eq!(
            share(&check(&plain(seed)), |quality| quality == Quality::Exact),
            100
        );
        let rough = Config {
            batched: 30,
            read_later: 50,
            disordered: 30,
            other: 20,
            barrier: 70,
            generations: 3,
            ..plain(seed)
        };
        let exact = share(&check(&rough), |quality| quality == Quality::Exact);
        assert!(exact >= 97, "{exact} % with seed {seed}");
    }
}

#[test]
fn unsignalled_packets_are_sampled() {
    for seed in 0..20 {
        let config = Config {
            signalled: 0,
            sampling: 1_000_000,
            step: 4,
            delay: 20_000,
            ..plain(seed)
        };
        let sampled = share(&check(&config), |quality| quality == Quality::Sampled);
        assert!(sampled >= 85, "{sampled} %");
        let config = Config {
            sampling: 0,
            signalled: 10,
            ..config
        };
        let bounded = share(&check(&config), |quality| quality >= Quality::Bounded);
        assert!(bounded >= 75, "{bounded} %");
        let config = Config {
            signalled: 0,
            ..config
        };
        assert_eq!(
            share(&check(&config), |quality| quality == Quality::Submitted),
            100
        );
    }
}

#[test]
fn without_stamps_or_clock_ends_are_bounded() {
    for seed in 0..20 {
        let silent = Config {
            profiling: false,
            ..plain(seed)
        };
        assert!(share(&check(&silent), |quality| quality == Quality::Bounded) >= 90);
        let mut unsampled = plain(seed);
        unsampled.clock.uncertainty = 0;
        assert!(share(&check(&unsampled), |quality| quality == Quality::Bounded) >= 90);
    }
}

/// A runtime that stores nine of ten doorbells by itself.
#[test]
fn packets_may_begin_before_the_first_doorbell_that_is_seen() {
    for seed in 0..40 {
        let config = Config {
            unseen: 90,
            signalled: 0,
            sampling: 1_000_000,
            batched: if seed % 2 == 0 { 0 } else { 30 },
            ..plain(seed)
        };
        let found = check(&config);
        let sampled = share(&found, |quality| quality == Quality::Sampled);
        assert!(sampled >= 50, "{sampled} %");
        for (truth, dispatch) in found {
            let origin = dispatch.origin;
            assert!(origin.time <= truth.begin, "{truth:?}\n{dispatch:?}");
        }
    }
}

#[test]
fn a_hang_is_unfinished() {
    for seed in 0..20 {
        let config = Config {
            hangs: true,
            ..plain(seed)
        };
        let found = check(&config);
        let unfinished: Vec<u64> = found
            .iter()
            .filter(|(_, dispatch)| dispatch.time.unfinished)
            .map(|(truth, _)| truth.end)
            .collect();
        assert_eq!(unfinished, [u64::MAX]);
    }
}

fn configs() -> impl Strategy<Value = Config> {
    let percent = || prop_oneof![Just(0u32), Just(100), 0..100u32];
    let program = (
        any::<u64>(),
        1..4u64,
        percent(),
        percent(),
        0..30u32,
        0..50u32,
        any::<bool>(),
    );
    let doorbells = (
        percent(),
        percent(),
        percent(),
        prop_oneof![3 => Just(0u32), 1 => 0..40u32],
        prop_oneof![3 => Just(0u32), 1 => 0..100u32],
    );
    let hardware = (
        1..20u64,
        0..500_000u64,
        prop_oneof![Just(0u64), 100_000..3_000_000u64],
        any::<bool>(),
    );
    let jump = prop::option::of((
        1_000_000_000..1_010_000_000u64,
        -6_000_000_000..6_000_000_000i64,
    ));
    let clock = (
        6_000_000_000..u64::MAX / 4,
        -50..50i64,
        jump,
        prop_oneof![1 => Just(0u64), 9 => 1..800u64],
    );
    (program, doorbells, hardware, clock).prop_map(|(program, doorbells, hardware, clock)| {
        let (seed, generations, signalled, barrier, other, shared, profiling) = program;
        let (batched, disordered, read_later, lost, unseen) = doorbells;
        let (step, delay, sampling, hangs) = hardware;
        let (offset, drift, jump, uncertainty) = clock;
        Config {
            seed,
            generations,
            packets: 100,
            signalled,
            barrier,
            other,
            // Of a packet that nobody has seen yet, nobody knows that it shares a signal, or uses
            // one again if that record is lost, too.
            shared: if unseen == 0 { shared } else { 0 },
            profiling,
            batched,
            disordered,
            unseen,
            read_later,
            lost: if unseen == 0 { lost } else { 0 },
            step,
            delay,
            sampling,
            hangs,
            clock: Clock {
                offset,
                drift,
                jump: jump.map(|(at, by)| Jump { at, by }),
                uncertainty,
            },
        }
    })
}

proptest! {
    #[test]
    fn nothing_is_claimed_that_is_not_known(config in configs()) {
        check(&config);
    }
}
