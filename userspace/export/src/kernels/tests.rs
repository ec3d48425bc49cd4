//! Compares the stage with a simple model of it, and checks its remarks.

use std::collections::HashMap;

use gputrace_capture::meta::{End, EndReason};
use gputrace_timeline::{
    event::{Call, RangeKind},
    gpu::QueueInfo,
};
use proptest::prelude::*;

use super::*;
use crate::synthetic::{START, dispatch, events, exact};

fn apply(options: KernelOptions, events: Vec<Event>) -> (Vec<Event>, Option<LeftOut>) {
    let mut stage = KernelStage::new(options);
    let mut given = Vec::new();
    for event in events {
        stage.take(event, &mut |event| given.push(event));
    }
    stage.finish(0, &mut |event| given.push(event));
    (given, stage.left_out())
}

fn filter(include: &str, exclude: &str, iterations: &str) -> KernelOptions {
    let regex = |text: &str| (!text.is_empty()).then(|| Regex::new(text).unwrap());
    KernelOptions {
        filter: KernelFilter {
            include: regex(include),
            exclude: regex(exclude),
            iterations: (!iterations.is_empty()).then(|| iterations.parse().unwrap()),
        },
        ..KernelOptions::default()
    }
}

fn ids(events: &[Event]) -> Vec<u64> {
    let mut ids: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Dispatch(dispatch) => Some(dispatch.id),
            _ => None,
        })
        .collect();
    ids.sort_unstable();
    ids
}

fn notices(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Notice(notice) => Some(notice.text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn without_options_nothing_changes() {
    let (given, left_out) = apply(KernelOptions::default(), events());
    assert_eq!(given, events());
    assert_eq!(left_out, None);
}

#[test]
fn names_and_filters_work_together() {
    // Dispatch 6 is of `hang`, 8 of an unknown kernel, the others are of `add(float*, float*)`, but
    // 7 is on an unknown agent.
    for (options, expected) in [
        (filter("^add", "", ""), vec![1, 2, 3, 4, 5, 7]),
        (filter("", "add", ""), vec![6, 8]),
        (filter("float", "add", ""), vec![]),
        (filter("", "", "[1,[3-4]]"), vec![1, 3, 4, 6, 7, 8]),
        (filter("^add", "", "2"), vec![2]),
        (filter("unknown kernel 0x7f", "", ""), vec![8]),
        (
            KernelOptions {
                names: KernelNames::Mangled,
                ..filter("^_Z3add", "", "")
            },
            vec![1, 2, 3, 4, 5, 7],
        ),
        (
            KernelOptions {
                names: KernelNames::Truncated(|name| name.get(..3).unwrap_or(name)),
                ..filter("^add$", "", "")
            },
            vec![1, 2, 3, 4, 5, 7],
        ),
    ] {
        let (given, left_out) = apply(options, events());
        assert_eq!(ids(&given), expected);
        let left_out = left_out.unwrap();
        assert_eq!(
            (left_out.dispatches, left_out.of),
            (8 - expected.len() as u64, 8)
        );
        assert_eq!(left_out.any_name, !expected.is_empty());
        assert_eq!(notices(&given), [left_out.to_string()]);
        assert!(matches!(given.last(), Some(Event::End(_))));
        let rest = |events: &[Event]| {
            let other = |event: &&Event| !matches!(event, Event::Dispatch(_) | Event::Notice(_));
            events.iter().filter(other).count()
        };
        assert_eq!(rest(&given), rest(&events()));
    }
}

#[test]
fn each_agent_has_its_own_iterations() {
    let queue = |number, node_id| {
        Event::Queue(QueueInfo {
            number,
            node_id: Some(node_id),
            ..QueueInfo::default()
        })
    };
    let mut events = events();
    events.retain(|event| !matches!(event, Event::Dispatch(_)));
    let end = events.split_off(events.len() - 2);
    events.extend([queue(5, 1), queue(6, 2)]);
    // A name that both GPUs have, as one code object each; the agent is that of the queue.
    events.extend((1..=6).map(|id| {
        let mut work = dispatch(id, START, exact(START, START + 1));
        (work.node_id, work.queue) = (None, if id <= 3 { 5 } else { 6 });
        Event::Dispatch(Box::new(work))
    }));
    events.extend(end);
    let shown = |iterations| ids(&apply(filter("", "", iterations), events.clone()).0);
    assert_eq!(shown("1"), [1, 4]);
    assert_eq!(shown("[2-3]"), [2, 3, 5, 6]);
}

#[test]
fn names_are_shown_as_asked_and_the_mangled_one_kept() {
    for (names, shown) in [
        (KernelNames::Demangled, "add(float*, float*)"),
        (KernelNames::Mangled, "_Z3addPfS_.kd"),
        (
            KernelNames::Truncated(|name| name.get(..3).unwrap_or(name)),
            "add",
        ),
    ] {
        let options = KernelOptions {
            names,
            ..KernelOptions::default()
        };
        let (given, _) = apply(options, events());
        let info = given
            .iter()
            .find_map(|event| match event {
                Event::Kernel(info) if info.id == 1 => Some(info),
                _ => None,
            })
            .unwrap();
        assert_eq!(info.shown, shown);
        assert_eq!(info.kernel.name, "_Z3addPfS_");
        let mut gpus = Gpus::default();
        given.iter().for_each(|event| gpus.learn(event));
        assert_eq!(
            gpus.kernel_name(&dispatch(1, 0, exact(START, START))),
            shown
        );
    }
}

#[test]
fn an_early_end_is_told_too() {
    let mut cut = events();
    cut.truncate(cut.len() - 2);
    let (given, _) = apply(filter("", "", "1"), cut);
    assert_eq!(notices(&given).len(), 1);
    assert_eq!(ids(&given), [1, 6, 7, 8]);
}

#[test]
fn a_queue_that_hangs_does_not_fill_memory() {
    let mut stage = KernelStage::new(filter("", "", "[2,5]"));
    let mut given = Vec::new();
    // The very first dispatch comes last.
    for id in (2..100_000).chain([1]) {
        let work = dispatch(id, START, exact(START + id, START + id + 1));
        stage.take(Event::Dispatch(Box::new(work)), &mut |event| {
            given.push(event);
        });
        assert!(stage.held.len() <= 5);
    }
    let end = Event::End(End {
        time: START,
        reason: EndReason::Interrupted,
    });
    stage.take(end, &mut |event| given.push(event));
    assert_eq!(ids(&given), [2, 5]);
    assert_eq!(stage.left_out().unwrap().dispatches, 99_999 - 2);
}

proptest! {
    #[test]
    fn iterations_are_those_of_submission_whatever_the_order(
        work in Just((1..60_u64).collect::<Vec<_>>()).prop_shuffle(),
        kernels in proptest::collection::vec((1_u32..4, 1_u32..3, 1_u32..3), 60),
        ranges in proptest::collection::vec((1_u64..12, 0_u64..5), 1..4),
        missing in 0_u64..80,
    ) {
        let text: Vec<String> = ranges
            .iter()
            .map(|(first, more)| format!("[{first}-{}]", first + more))
            .collect();
        let options = filter("", "", &text.join(","));
        let iterations = options.filter.iterations.clone().unwrap();
        let of = |id: u64| kernels[usize::try_from(id).unwrap()];
        let mut seen: HashMap<(u32, u32, u32), u64> = HashMap::new();
        let mut expected = Vec::new();
        for id in (1..60).filter(|id| *id != missing) {
            let count = seen.entry(of(id)).or_default();
            *count += 1;
            if iterations.contains(*count) {
                expected.push(id);
            }
        }
        let events: Vec<Event> = work
            .into_iter()
            .filter(|id| *id != missing)
            .map(|id| {
                let (object, pid, node) = of(id);
                let mut work = dispatch(id, START, exact(START, START + 1));
                work.origin.pid = pid;
                work.node_id = Some(node);
                work.kernel = None;
                work.kernel_object = object.into();
                Event::Dispatch(Box::new(work))
            })
            .collect();
        let all = events.len() as u64;
        let (given, left_out) = apply(options, events);
        prop_assert_eq!(left_out.unwrap().dispatches, all - expected.len() as u64);
        prop_assert_eq!(ids(&given), expected);
    }
}

/// A range and a dispatch in it, with two calls: the launch within the range, and the range itself.
fn launched_in_a_range() -> Vec<Event> {
    let within = |event| match event {
        Event::Function(mut info) => {
            info.range = Some(RangeKind::Nested);
            (info.function.id, info.function.name) = (77, "solve".to_owned());
            Event::Function(info)
        }
        Event::Dispatch(mut dispatch) => {
            dispatch.origin.range = Some(77);
            Event::Dispatch(dispatch)
        }
        Event::Call(mut call) => {
            call.range = 5;
            Event::Call(call)
        }
        other => other,
    };
    let mut events: Vec<Event> = events().into_iter().map(within).collect();
    let call = events.iter().find_map(|event| match event {
        Event::Call(call) => Some(call.clone()),
        _ => None,
    });
    events.push(Event::Call(Call {
        domain: Domain::MarkerCore.id(),
        correlation: 5,
        range: 0,
        ..call.unwrap()
    }));
    events
}

#[test]
fn filters_look_at_kernels_not_at_their_ranges() {
    let plain = apply(filter("^add", "", ""), events()).0;
    let renamed = |include| {
        let options = KernelOptions {
            rename: true,
            ..filter(include, "", "")
        };
        apply(options, launched_in_a_range()).0
    };
    assert_ne!(ids(&plain), [0; 0]);
    assert_eq!(ids(&renamed("^add")), ids(&plain));
    assert_eq!(ids(&renamed("solve")), [0; 0]);
    // Every dispatch comes after the kernel of the new name, which refers to the original kernel.
    let mut names = HashMap::new();
    for event in renamed("^add") {
        match event {
            Event::Kernel(info) => {
                names.insert(info.id, (info.shown.clone(), info.renamed));
            }
            Event::Dispatch(dispatch) => {
                let (shown, renamed) = &names[&dispatch.kernel.unwrap()];
                assert_eq!((shown.as_str(), renamed.unwrap().range), ("solve", 77));
                assert!(names.contains_key(&renamed.unwrap().kernel));
            }
            _ => {}
        }
    }
}

#[test]
fn markers_recorded_for_names_alone_are_not_shown() {
    let ranges = |hide_markers| -> Vec<(u64, u64)> {
        let options = KernelOptions {
            rename: true,
            hide_markers,
            ..KernelOptions::default()
        };
        let (given, _) = apply(options, launched_in_a_range());
        let calls = given.iter().filter_map(|event| match event {
            Event::Call(call) => Some((call.correlation, call.range)),
            _ => None,
        });
        calls.collect()
    };
    let mut shown = ranges(false);
    assert_eq!(shown.pop(), Some((5, 0)));
    assert!(shown.iter().all(|(_, range)| *range == 5) && !shown.is_empty());
    let unranged: Vec<(u64, u64)> = shown.iter().map(|(call, _)| (*call, 0)).collect();
    assert_eq!(ranges(true), unranged);
}
