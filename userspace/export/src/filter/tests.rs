//! Tests filters on the synthetic recording.

use gputrace_capture::counter::Counter;
use gputrace_timeline::{
    event::CounterSample,
    observation::{Observation, Whose},
};

use super::*;
use crate::synthetic::{START, events};

/// What is left of the synthetic recording, and the counts of the filter.
fn filtered(options: FilterOptions) -> (Vec<Event>, FilteredOut) {
    let extent = Extent {
        begin: START,
        end: START + 500_000,
    };
    let mut filter = Filter::new(options, extent);
    events().iter().for_each(|event| filter.learn(event));
    let mut left = Vec::new();
    for event in events() {
        filter.take(event, &mut |event| left.push(event));
    }
    filter.finish(0, &mut |event| left.push(event));
    (left, filter.left_out())
}

/// Correlation ids of calls, ids of dispatches, and ids of copies.
fn shown(events: &[Event]) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let mut shown = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Call(call) => shown.0.push(call.correlation),
            Event::Dispatch(dispatch) => shown.1.push(dispatch.id),
            Event::Copy(copy) => shown.2.push(copy.id),
            _ => {}
        }
    }
    shown
}

/// Checks that every reference to a call is to one that is shown.
fn check_references(events: &[Event]) {
    let (calls, ..) = shown(events);
    let there = |id: u64| id == 0 || calls.contains(&id);
    for event in events {
        match event {
            Event::Call(call) => assert!(there(call.parent), "{call:?}"),
            Event::Dispatch(dispatch) => {
                assert!(there(dispatch.origin.innermost) && there(dispatch.origin.outermost));
            }
            Event::Copy(copy) => {
                assert!(there(copy.origin.innermost) && there(copy.origin.outermost));
            }
            _ => {}
        }
    }
}

#[test]
fn nothing_asked_lets_everything_through_but_for_the_remark() {
    let (left, out) = filtered(FilterOptions::default());
    assert_eq!(left.len(), events().len() + 1);
    assert_eq!((out.calls.0, out.work.0), (0, 0));
    let notices: Vec<_> = left
        .iter()
        .filter(|event| matches!(event, Event::Notice(_)))
        .collect();
    assert_eq!(notices.len(), 1);
    let at = |wanted: fn(&Event) -> bool| left.iter().position(wanted).unwrap();
    assert!(
        at(|event| matches!(event, Event::Notice(_)))
            < at(|event| matches!(event, Event::Ledger(_))),
        "remarks stand before the account"
    );
}

#[test]
fn a_window_shows_what_overlaps_it() {
    let (left, out) = filtered(FilterOptions {
        window: Some("90us:120us".parse().unwrap()),
        ..FilterOptions::default()
    });
    let (calls, mut dispatches, mut copies) = shown(&left);
    dispatches.sort_unstable();
    copies.sort_unstable();
    assert_eq!(calls, [] as [u64; 0]);
    // 2 ends at 90, 3 lies within, 4 ran at some time in between, 6 never ended.
    assert_eq!(dispatches, [2, 3, 4, 6]);
    assert_eq!(copies, [2]);
    assert_eq!(out.calls, (3, 3));
    assert_eq!(out.work, (6, 11));
    check_references(&left);
}

#[test]
fn names_are_those_of_functions_kernels_and_directions() {
    let (left, _) = filtered(FilterOptions {
        name: Some(Regex::new("^add|signal_store|DEVICE_TO_HOST").unwrap()),
        ..FilterOptions::default()
    });
    let (calls, dispatches, copies) = shown(&left);
    assert_eq!(calls, [2]);
    assert_eq!(
        dispatches.len(),
        6,
        "not the one that hangs, nor the unknown one"
    );
    assert_eq!(copies, [2]);
    check_references(&left);
    let origin = left.iter().find_map(|event| match event {
        Event::Dispatch(dispatch) => Some(dispatch.origin),
        _ => None,
    });
    let origin = origin.unwrap();
    assert_eq!(
        (origin.innermost, origin.caller, origin.outermost),
        (2, 2, 2),
        "the outermost call is not shown"
    );
}

#[test]
fn domains_separate_calls_from_work() {
    for (word, expected) in [
        ("hip", (2, 0, 0)),
        ("kernel_dispatch", (0, 8, 0)),
        ("MEMORY_COPY", (0, 0, 3)),
    ] {
        let domains = domains_named(word);
        assert!(!domains.is_empty());
        let (left, _) = filtered(FilterOptions {
            domains,
            ..FilterOptions::default()
        });
        let (calls, dispatches, copies) = shown(&left);
        assert_eq!(
            (calls.len(), dispatches.len(), copies.len()),
            expected,
            "{word}"
        );
        check_references(&left);
    }
}

#[test]
fn processes_and_threads_that_are_not_asked_for_are_gone() {
    let (left, out) = filtered(FilterOptions {
        pids: vec![7],
        ..FilterOptions::default()
    });
    assert!(!left.iter().any(|event| matches!(event, Event::Process(_))));
    assert_eq!(out.calls, (3, 3));
    let (left, out) = filtered(FilterOptions {
        tids: vec![101],
        ..FilterOptions::default()
    });
    assert_eq!((out.calls.0, out.work.0), (0, 0));
    check_references(&left);
}

#[test]
fn words_for_domains_are_those_of_options_and_files() {
    assert_eq!(domains_named("hip-runtime-trace"), [Domain::HipRuntime]);
    assert_eq!(domains_named("HIP_RUNTIME_API"), [Domain::HipRuntime]);
    assert_eq!(
        domains_named("HIP_API"),
        [Domain::HipRuntime, Domain::HipCompiler]
    );
    assert_eq!(domains_named("hsa").len(), 4);
    assert!(domains_named("cuda").is_empty());
    assert!(domains_named("").is_empty());
}

#[test]
fn values_of_a_gpu_are_everybodys_and_those_of_a_process_its_own() {
    let left = |options| {
        let extent = Extent {
            begin: START,
            end: START + 500_000,
        };
        let mut filter = Filter::new(options, extent);
        let mut left = Vec::new();
        for pid in [0, 100, 101] {
            let counter = Counter {
                pid,
                ..Counter::default()
            };
            let sample = CounterSample {
                counter: counter.into(),
                time: START + 10,
                value: pid.into(),
            };
            filter.take(Event::Counter(sample), &mut |event| {
                if let Event::Counter(sample) = event {
                    left.push(sample.counter.pid);
                }
            });
        }
        left
    };
    assert_eq!(left(FilterOptions::default()), [0, 100, 101]);
    let pids = FilterOptions {
        pids: vec![101],
        ..FilterOptions::default()
    };
    assert_eq!(left(pids), [0, 101]);
    let domain = |domain| FilterOptions {
        domains: vec![domain],
        ..FilterOptions::default()
    };
    assert_eq!(left(domain(Domain::Counter)).len(), 3);
    assert_eq!(left(domain(Domain::Sched)).len(), 0);
}

#[test]
fn a_name_is_that_of_an_allocation_too() {
    let mut filter = Filter::new(
        FilterOptions {
            name: Some(Regex::new("_FREE$").unwrap()),
            ..FilterOptions::default()
        },
        Extent {
            begin: START,
            end: START + 500_000,
        },
    );
    let mut left = Vec::new();
    for name in ["MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_FREE"] {
        let one = Observation {
            domain: Domain::MemoryAllocation.id(),
            name: name.into(),
            whose: Whose::default(),
            begin: START,
            end: START,
            is_open: false,
            fields: Vec::new(),
        };
        filter.take(Event::Observation(Box::new(one)), &mut |event| {
            left.push(event);
        });
    }
    assert!(
        matches!(&left[..], [Event::Observation(one)] if one.name == "MEMORY_ALLOCATION_FREE"),
        "{left:?}"
    );
}
