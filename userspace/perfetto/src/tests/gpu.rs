//! GPU work: rows, lanes, annotations, flows, counters, native events.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gputrace_capture::counter::Counter;
use gputrace_export::synthetic::{
    self, START, between, dispatch, estimates, events, exact, submitted,
};
use gputrace_timeline::{
    event::{CounterSample, Event},
    gpu::{Copy, Dispatch, Quality},
};
use proptest::prelude::*;

use super::{
    Decoded, Shown,
    protos::{ComputeKernelLaunch, Data, Dim3},
    trace, trace_with, trace_with_limit,
};
use crate::{GpuGrouping, PerfettoOptions};

/// All work, also what is only a mark.
fn works(decoded: &Decoded) -> Vec<&Shown> {
    let all = decoded.slices.iter().chain(&decoded.instants);
    all.filter(|shown| shown.notes.contains_key("quality"))
        .collect()
}

fn gpu_slices(decoded: &Decoded) -> Vec<&Shown> {
    let of_gpu = |shown: &&Shown| shown.notes.contains_key("quality");
    decoded.slices.iter().filter(of_gpu).collect()
}

fn by_dispatch(decoded: &Decoded, id: u64) -> &Shown {
    let mut found = decoded.slices.iter().chain(&decoded.instants);
    found
        .find(|shown| shown.note("dispatch_id") == id.to_string())
        .unwrap()
}

fn track_name(decoded: &Decoded, shown: &Shown) -> String {
    decoded.tracks[&shown.track].name().to_owned()
}

fn dispatches(works: impl IntoIterator<Item = Dispatch>) -> Vec<Event> {
    works
        .into_iter()
        .map(|work| Event::Dispatch(Box::new(work)))
        .collect()
}

#[test]
fn only_real_times_are_on_the_tracks_of_gpus() {
    let decoded = trace(&events());
    let untimed = ", not known how long";
    let rows: BTreeMap<u64, (String, &str)> = (1..=8)
        .map(|id| {
            let shown = by_dispatch(&decoded, id);
            (id, (track_name(&decoded, shown), shown.category.as_str()))
        })
        .collect();
    for (id, (row, category)) in &rows {
        let queue = if *id == 7 {
            "COMPUTE Agent 2 QUEUE 2 GPU"
        } else {
            "COMPUTE Agent 1 QUEUE 1 GPU"
        };
        let timed = ![3, 4, 5, 6].contains(id);
        assert_eq!(row, &format!("{queue}{}", if timed { "" } else { untimed }));
        assert_eq!(
            *category,
            if timed {
                "kernel_dispatch"
            } else {
                "kernel_dispatch_untimed"
            }
        );
    }
    let copies: BTreeSet<(String, &str)> = works(&decoded)
        .into_iter()
        .filter(|shown| shown.notes.contains_key("copy_id"))
        .map(|shown| (track_name(&decoded, shown), shown.name.as_str()))
        .collect();
    assert_eq!(
        copies,
        BTreeSet::from([
            (
                "COPY to Agent 0 CPU".to_owned(),
                "MEMORY_COPY_DEVICE_TO_HOST"
            ),
            (
                "COPY to Agent 1 GPU".to_owned(),
                "MEMORY_COPY_HOST_TO_DEVICE"
            ),
            (
                format!("COPY to unknown agent{untimed}"),
                "MEMORY_COPY_NONE"
            ),
        ])
    );
    // Every track of an agent is below the agent's track.
    for (name, agent) in [
        ("COMPUTE Agent 1 QUEUE 1 GPU", "Agent 1 (gfx90a)"),
        ("COPY to Agent 0 CPU", "Agent 0 (AMD EPYC, \"7713\")"),
        ("kernels in flight: Agent 2", "Agent 2 (gfx90a)"),
    ] {
        assert_eq!(
            decoded.track(name).parent_uuid(),
            decoded.track(agent).uuid()
        );
    }
}

#[test]
fn a_kernel_has_everything_that_is_known_of_it() {
    let decoded = trace(&events());
    let kernel = by_dispatch(&decoded, 2);
    assert_eq!(kernel.name, "add(float*, float*)");
    assert_eq!((kernel.begin, kernel.end), (START + 40_000, START + 90_000));
    for (name, value) in [
        ("quality", "exact"),
        ("begin_ns", "1000040000"),
        ("end_ns", "1000090000"),
        ("delta_ns", "50000"),
        ("submit_ns", "1000012000"),
        ("begin_window.earliest_ns", "1000039700"),
        ("begin_window.latest_ns", "1000040200"),
        ("begin_window.uncertainty_ns", "300"),
        ("end_window.uncertainty_ns", "300"),
        ("mangled_name", "_Z3addPfS_"),
        ("demangled_name", "add(float*, float*)"),
        ("kind", "KERNEL_DISPATCH"),
        ("agent", "Agent 1 (gfx90a)"),
        ("queue", "1"),
        ("hsa_queue_id", "7"),
        ("packet_index", "1"),
        ("kernel_id", "1"),
        ("VGPR_Count", "8"),
        ("Accum_VGPR_Count", "4"),
        ("SGPR_Count", "16"),
        ("grid.x", "1024"),
        ("grid.y", "4"),
        ("grid_size", "4096"),
        ("workgroup_size", "64"),
        ("Scratch_Size", "16"),
        ("LDS_Block_Size", "600"),
        ("kernarg", "0x7f002000"),
        ("completion_signal", "0x7f003000"),
        ("barrier", "true"),
        ("read_later", "false"),
        ("corr_id", "1"),
        ("innermost_corr_id", "2"),
        ("outermost_corr_id", "1"),
        ("pid", "100"),
        ("tid", "101"),
    ] {
        assert_eq!(kernel.note(name), value, "{name}");
    }
    let submitted = by_dispatch(&decoded, 5);
    assert_eq!(submitted.note("end_window.latest_ns"), "(none)");
    assert_eq!(submitted.note("end_window.uncertainty_ns"), "(none)");
    let copy = decoded
        .slices
        .iter()
        .find(|shown| shown.note("copy_id") == "1")
        .unwrap();
    for (name, value) in [
        ("src_agent", "Agent 0 (AMD EPYC, \"7713\")"),
        ("dst_agent", "Agent 1 (gfx90a)"),
        ("copy_bytes", "1048576"),
        ("mb_per_s", "10485"),
        ("stream", "0xb0"),
        ("stream_ID", "2"),
    ] {
        assert_eq!(copy.note(name), value, "{name}");
    }
}

#[test]
fn estimates_are_annotated_and_what_nothing_tells_says_so() {
    let decoded = trace(&estimates());
    let mut counts = [0; 3];
    for shown in works(&decoded) {
        let notes = [
            "kernel_class",
            "estimate_error_ns",
            "delta_ns",
            "duration",
            "quality",
        ];
        match notes.map(|note| shown.note(note)) {
            ["0", "300", "10400", "(none)", "sampled"]
            | ["1", "9000", "200000", "(none)", "sampled"] => {
                counts[0] += 1;
            }
            [
                "(none)",
                "(none)",
                "(none)",
                "not known: somewhere within the windows",
                quality,
            ] => counts[1 + usize::from(quality == "submitted")] += 1,
            other => panic!("{}: {other:?}", shown.name),
        }
    }
    assert_eq!(counts, [12, 3, 1]);
    let exact = trace(&events());
    assert_eq!(by_dispatch(&exact, 1).note("duration"), "(none)");
    assert_eq!(by_dispatch(&exact, 1).note("estimate_error_ns"), "(none)");
}

#[test]
fn only_what_is_known_is_drawn() {
    let options = PerfettoOptions {
        native_events: true,
        ..PerfettoOptions::default()
    };
    for decoded in [
        trace(&synthetic::drawn()),
        trace_with(&synthetic::drawn(), options),
    ] {
        for (id, ns) in synthetic::DRAWN {
            let shown = by_dispatch(&decoded, id);
            let is_unfinished = shown.notes.contains_key("unfinished");
            if let Some(ns) = ns {
                assert_eq!(shown.end - shown.begin, ns);
                assert_eq!(shown.note("delta_ns"), ns.to_string());
                assert_eq!(shown.category, "kernel_dispatch");
                continue;
            }
            assert_eq!(shown.category, "kernel_dispatch_untimed");
            assert_eq!(shown.end > shown.begin, is_unfinished, "{id}");
            assert_ne!(shown.note("begin_window.earliest_ns"), "(none)");
            for time in [
                "begin_ns",
                "end_ns",
                "delta_ns",
                "end_window.uncertainty_ns",
            ] {
                assert_eq!(shown.note(time), "(none)", "{id}: {time}");
            }
        }
        let native = |data: &Option<_>| matches!(data, Some(Data::GpuRenderStageEvent(_)));
        let drawn = decoded.packets.iter().filter(|packet| native(&packet.data));
        assert!([0, 3 + 2].contains(&drawn.count()));
        let untimed = decoded.instants_of("kernel_dispatch_untimed").len();
        assert_eq!(untimed, 4);
    }
}

#[test]
fn flows_lead_from_both_calls_to_the_gpu() {
    let decoded = trace(&events());
    let with_flow = |id: u64| -> Vec<&Shown> {
        let ends = decoded.slices.iter().chain(&decoded.instants);
        ends.filter(|shown| shown.flows.contains(&id)).collect()
    };
    for (id, call) in [(1, "hipLaunchKernel"), (2, "hsa_signal_store_relaxed")] {
        let ends = with_flow(id);
        assert_eq!(
            ends[0].name, call,
            "the earliest end is where the flow begins"
        );
        assert_eq!(ends.len(), 1 + 7 + 3);
    }
    // No call is known to have submitted this one.
    assert!(by_dispatch(&decoded, 8).flows.is_empty());
    let mut same = dispatch(1, START, exact(START + 10, START + 20));
    same.origin.outermost = same.origin.innermost;
    assert_eq!(by_dispatch(&trace(&dispatches([same])), 1).flows, [2]);
}

#[test]
fn without_gpu_work_calls_have_no_flows() {
    let decoded = trace(&events()[1..]);
    assert!(decoded.slice(2).flows.is_empty());
}

#[test]
fn kernels_at_the_same_time_are_on_lanes_of_one_name() {
    let at = |begin, end| exact(START + begin, START + end);
    let decoded = trace(&dispatches([
        dispatch(1, START, at(100, 200)),
        dispatch(2, START, at(150, 250)),
        dispatch(3, START, at(200, 300)),
        dispatch(4, START, at(50, 100)),
    ]));
    let tracks: Vec<u64> = (1..=4).map(|id| by_dispatch(&decoded, id).track).collect();
    assert_eq!(tracks[0], tracks[2], "one follows the other");
    // Its end would be written after the begin that is already there.
    assert_eq!(tracks[3], tracks[1]);
    assert_ne!(tracks[0], tracks[1]);
    let names: BTreeSet<String> = (1..=4)
        .map(|id| track_name(&decoded, by_dispatch(&decoded, id)))
        .collect();
    assert_eq!(names.len(), 1);
    assert!(
        gpu_slices(&decoded)
            .iter()
            .all(|shown| shown.inside.is_none())
    );
}

proptest! {
    #[test]
    fn every_span_is_drawn_once_and_as_long_as_it_is(
        spans in proptest::collection::vec((0_u64..400, 0_u64..90, 0_u8..4), 1..120),
    ) {
        let works: Vec<Dispatch> = spans
            .iter()
            .zip(1..)
            .map(|((begin, length, quality), id)| {
                let (begin, end) = (START + begin, START + begin + length);
                dispatch(id, begin.saturating_sub(10), match quality {
                    0 => exact(begin, end),
                    1 => synthetic::estimated(begin, end, 0, 1),
                    2 => between(Quality::Bounded, begin, end),
                    _ => submitted(begin, false),
                })
            })
            .collect();
        let decoded = trace(&dispatches(works.iter().cloned()));
        let shown = decoded.slices.iter().chain(&decoded.instants);
        let drawn = shown.filter(|shown| shown.notes.contains_key("quality")).count();
        prop_assert_eq!(drawn, works.len());
        for work in &works {
            let shown = by_dispatch(&decoded, work.id);
            prop_assert_eq!(shown.inside, None);
            prop_assert_eq!(shown.begin, work.time.begin);
            if work.time.is_drawn() {
                prop_assert_eq!(shown.end, work.time.end.max(work.time.begin + 1));
            }
        }
        for values in decoded.counters.values() {
            prop_assert!(values.iter().all(|(_, value)| *value >= 0));
            prop_assert_eq!(values.last().map(|(_, value)| *value), Some(0));
        }
    }
}

#[test]
fn more_at_once_than_there_are_lanes_is_drawn_too() {
    let works = |time| dispatches((1..=200).map(|id| dispatch(id, START, time)));
    let decoded = trace(&works(exact(START + 10, START + 20)));
    assert_eq!(gpu_slices(&decoded).len(), 200);
    assert_eq!(
        decoded
            .slices
            .iter()
            .map(|shown| shown.track)
            .collect::<BTreeSet<_>>()
            .len(),
        200
    );
    // What had not ended needs no slice of its own.
    let decoded = trace(&works(submitted(START + 10, true)));
    let marks = decoded.instants_of("kernel_dispatch_untimed").len();
    assert_eq!((gpu_slices(&decoded).len(), marks), (64, 136));
}

#[test]
fn what_had_not_ended_is_open_until_the_end_and_marked() {
    let decoded = trace(&events());
    let hung = by_dispatch(&decoded, 6);
    assert_eq!((hung.begin, hung.end), (START + 17_000, START + 500_000));
    assert_eq!(hung.note("unfinished"), "the recording stopped");
    let mark = decoded.instant("unfinished: hang");
    assert_eq!(
        (mark.begin, mark.category.as_str()),
        (START + 500_000, "unfinished")
    );
    assert_eq!(mark.note("open_ns"), "483000");
}

#[test]
fn counters_show_what_is_in_flight() {
    let decoded = trace(&events());
    let values = |name: &str| {
        let values = &decoded.counters[&decoded.track(name).uuid()];
        let us: Vec<(u64, i64)> = values
            .iter()
            .map(|(time, value)| ((time - START) / 1000, *value))
            .collect();
        us
    };
    let kernels = [
        (10, 1),
        (12, 2),
        (14, 3),
        (15, 4),
        (17, 5),
        (40, 4),
        (90, 3),
        (110, 2),
        (300, 3),
        (301, 2),
        (400, 1),
        (500, 0),
    ];
    assert_eq!(values("kernels in flight: Agent 1"), kernels);
    assert_eq!(values("kernels in flight: Agent 2"), [(18, 1), (80, 0)]);
    assert_eq!(
        values("copy bytes in flight: Agent 1"),
        [(30, 1 << 20), (250, 0)]
    );
}

#[test]
fn what_was_read_is_below_the_agent_and_the_process() {
    let counter = |name: &str, unit: &str, pid| {
        Arc::new(Counter {
            name: name.to_owned(),
            unit: unit.to_owned(),
            pid,
            gpu_id: 51234,
            node_id: Some(1),
            cumulative: name == "sdma",
            ..Counter::default()
        })
    };
    let (power, sdma) = (
        counter("power1_average", "W", 0),
        counter("sdma", "ns", 100),
    );
    let sample = |counter: &Arc<Counter>, time, value| {
        Event::Counter(CounterSample {
            counter: Arc::clone(counter),
            time: START + time,
            value,
        })
    };
    let mut all = events();
    let last = all.split_off(all.len() - 2);
    all.extend([
        sample(&power, 10, 250.5),
        sample(&sdma, 20, 5e3),
        sample(&power, 30, 97.0),
    ]);
    all.extend(last);
    let decoded = trace(&all);
    let track = decoded.track("power1_average: Agent 1");
    assert_eq!(track.counter.as_ref().unwrap().unit_name(), "W");
    assert_eq!(
        decoded.reals[&track.uuid()],
        [(START + 10, 250.5), (START + 30, 97.0)]
    );
    let agent = decoded.tracks[&track.parent_uuid()].clone();
    assert!(agent.name().starts_with("Agent 1"), "{agent:?}");
    let track = decoded.track("sdma (sum): Agent 1");
    assert_eq!(decoded.reals[&track.uuid()], [(START + 20, 5e3)]);
    assert_eq!(decoded.tracks[&track.parent_uuid()].pid(), 100);
}

#[test]
fn streams_in_place_of_queues() {
    let streams = PerfettoOptions {
        grouping: GpuGrouping::Streams,
        ..PerfettoOptions::default()
    };
    let (by_queue, by_stream) = (trace(&events()), trace_with(&events(), streams));
    assert_eq!(works(&by_queue).len(), works(&by_stream).len());
    let row = |id| track_name(&by_stream, by_dispatch(&by_stream, id));
    assert_eq!(row(2), "COMPUTE Agent 1 STREAM 0 of process 100 GPU");
    assert_eq!(row(1), "COMPUTE Agent 1 STREAM 1 of process 100 GPU");
    by_stream.track("COPY to Agent 1 STREAM 2 of process 100 GPU");
}

/// A launch of a grid of 1024 x 4 x 1 work-items in workgroups of 64.
fn assert_launch(launch: &ComputeKernelLaunch) {
    let sizes = |dim: &Option<Dim3>| {
        let dim = dim.clone().unwrap();
        [dim.x(), dim.y(), dim.z()]
    };
    assert_eq!(sizes(&launch.grid_size), [16, 4, 1]);
    assert_eq!(sizes(&launch.workgroup_size), [64, 1, 1]);
    let args: BTreeMap<&str, u64> = launch
        .args
        .iter()
        .map(|arg| (arg.name(), arg.uint_value()))
        .collect();
    assert_eq!(args["thread_count"], 4096);
    // VGPRs and accumulation VGPRs, if the kernel is known; and group memory, part of which the
    // kernel declares.
    if args.len() > 1 {
        assert_eq!(args["registers_per_thread"], 8 + 4);
        assert_eq!(args["shared_mem_static"] + args["shared_mem_dynamic"], 600);
    }
}

#[test]
fn native_events_hold_the_same_spans() {
    let with = PerfettoOptions {
        native_events: true,
        ..PerfettoOptions::default()
    };
    let decoded = trace_with(&events(), with);
    let (mut names, mut contexts) = (BTreeMap::new(), BTreeMap::new());
    let mut computes = BTreeSet::new();
    let mut found = BTreeSet::new();
    for packet in &decoded.packets {
        let interned = packet.interned_data.clone().unwrap_or_default();
        for entry in &interned.gpu_specifications {
            let known = names.insert(entry.iid(), entry.name().to_owned());
            assert!(known.is_none_or(|known| known == entry.name()));
            if entry.category() == 2 {
                computes.insert(entry.iid());
            }
        }
        for entry in &interned.graphics_contexts {
            contexts.insert(entry.iid(), entry.pid());
        }
        if let Some(Data::GpuRenderStageEvent(event)) = &packet.data {
            assert_eq!(contexts[&event.context()], 100);
            let row = &names[&event.hw_queue_iid()];
            assert_eq!(
                computes.contains(&event.stage_iid()),
                row.starts_with("COMPUTE"),
                "{row}"
            );
            assert_eq!(event.launch.is_some(), row.starts_with("COMPUTE"), "{row}");
            if let Some(launch) = &event.launch {
                assert_launch(launch);
            }
            found.insert((
                packet.timestamp(),
                event.duration(),
                names[&event.hw_queue_iid()].clone(),
                names[&event.stage_iid()].clone(),
            ));
        }
    }
    let drawn: BTreeSet<_> = gpu_slices(&decoded)
        .into_iter()
        .filter(|shown| ["kernel_dispatch", "memory_copy"].contains(&shown.category.as_str()))
        .map(|shown| {
            let row = track_name(&decoded, shown);
            (
                shown.begin,
                shown.end - shown.begin,
                row,
                shown.name.clone(),
            )
        })
        .collect();
    assert_eq!(found, drawn);
    // By default, each piece of work is there once.
    let decoded = trace(&events());
    let native = |data: &Option<_>| matches!(data, Some(Data::GpuRenderStageEvent(_)));
    assert!(!decoded.packets.iter().any(|packet| native(&packet.data)));
    assert_eq!(works(&decoded).len(), 11);
}

#[test]
fn forgetting_interned_strings_changes_nothing() {
    let (all, forgetful) = (trace(&events()), trace_with_limit(&events(), 100));
    assert!(forgetful.resets > 5);
    let notes = |decoded: &Decoded| -> Vec<_> {
        let slices = works(decoded).into_iter();
        slices
            .map(|shown| (shown.name.clone(), shown.notes.clone()))
            .collect()
    };
    assert_eq!(notes(&all), notes(&forgetful));
}

#[test]
fn absurd_numbers_do_no_harm() {
    let mut all = dispatches([
        dispatch(u64::MAX, 0, exact(u64::MAX - 1000, u64::MAX - 500)),
        dispatch(2, u64::MAX, between(Quality::Sampled, 500, 400)),
    ]);
    all.push(Event::Copy(Box::new(Copy {
        bytes: u64::MAX,
        destination_node: Some(u32::MAX),
        time: exact(1000, 2000),
        ..Copy::default()
    })));
    assert_eq!(works(&trace(&all)).len(), 3);
}
