//! Ranges of synthetic calls, including calls that do not match.

mod around;
mod selection;

use gputrace_abi::domain::Domain;
use proptest::prelude::*;

use super::*;
use crate::model::{
    gpu::{self, Dispatch, Origin},
    values::Pointee,
};

const NAMES: [&str; 23] = [
    "roctxMarkA",
    "roctxRangePushA",
    "roctxRangePop",
    "roctxRangeStartA",
    "roctxRangeStop",
    "roctracer_activity_push_external_correlation_id",
    "roctracer_activity_pop_external_correlation_id",
    "roctxProfilerResume",
    "hipMalloc",
    "kokkosp_begin_parallel_for",
    "kokkosp_end_parallel_for",
    "kokkosp_begin_deep_copy",
    "kokkosp_end_deep_copy",
    "kokkosp_create_profile_section",
    "kokkosp_start_profile_section",
    "kokkosp_stop_profile_section",
    "kokkosp_init_library",
    "rocprofiler_push_external_correlation_id",
    "rocprofiler_pop_external_correlation_id",
    "rocprofsys_user_start_thread_trace",
    "rocprofsys_user_stop_thread_trace",
    "roctxNameOsThread",
    "roctxProfilerPause",
];

fn ranges() -> Ranges {
    let mut ranges = Ranges::default();
    for (id, name) in (0..).zip(NAMES) {
        ranges.function(&FunctionInfo::named(id, name, Some(Domain::MarkerCore)));
    }
    ranges
}

fn call(name: &str, begin: u64, returned: u64) -> Call {
    Call {
        function: NAMES.iter().position(|known| *known == name).unwrap() as u32,
        domain: Domain::MarkerCore.id(),
        pid: 1,
        tid: 2,
        begin,
        end: begin + 1,
        correlation: begin,
        parent: 0,
        depth: 0,
        cpu: 0,
        how: CallEnd::Returned(returned),
        stack_readable: true,
        args: [0; 6],
        stack: [0; 8],
        request: None,
        range: 0,
        external: None,
        stream_id: 0,
        stack_number: None,
        pointees: Vec::new(),
    }
}

fn text(mut call: Call, text: &str) -> Call {
    call.pointees.push(Pointee {
        word: 0,
        at_return: false,
        data: PointeeData::Text {
            text: text.to_owned(),
            cut: false,
        },
    });
    call
}

/// The call with `data` behind the pointer in an argument word.
fn pointing(mut call: Call, word: u8, data: PointeeData) -> Call {
    call.pointees.push(Pointee {
        word,
        at_return: matches!(data, PointeeData::Bytes(_)),
        data,
    });
    call
}

/// Names and times of the emitted calls.
fn shown(events: &[Event]) -> Vec<(String, u64, u64)> {
    let mut names: HashMap<u32, String> = (0..).zip(NAMES.map(str::to_owned)).collect();
    let mut shown = Vec::new();
    for event in events {
        match event {
            Event::Function(info) => {
                names.insert(info.function.id, info.function.name.clone());
            }
            Event::Call(call) => shown.push((names[&call.function].clone(), call.begin, call.end)),
            _ => {}
        }
    }
    shown
}

/// The origin of work that the calls' thread submits at `time`.
fn submitted(ranges: &mut Ranges, time: u64) -> Origin {
    let mut dispatch = Dispatch::default();
    (
        dispatch.origin.pid,
        dispatch.origin.tid,
        dispatch.origin.time,
    ) = (1, 2, time);
    let mut event = Event::Dispatch(Box::new(dispatch));
    assert!(ranges.annotate(&mut event));
    match event {
        Event::Dispatch(dispatch) => dispatch.origin,
        _ => panic!("it is a dispatch"),
    }
}

fn span(name: &str, begin: u64, end: u64) -> (String, u64, u64) {
    (name.to_owned(), begin, end)
}

#[test]
fn kokkos_tells_of_kernels_copies_and_sections() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    let create = |name: &str, begin, id: u32| {
        let call = text(call("kokkosp_create_profile_section", begin, 0), name);
        pointing(call, 1, PointeeData::Bytes(id.to_le_bytes().to_vec()))
    };
    let with = |name: &str, begin, argument| Call {
        args: [argument, 0, 0, 0, 0, 0],
        ..call(name, begin, 0)
    };
    let source = PointeeData::Text {
        text: "a".to_owned(),
        cut: false,
    };
    for call in [
        call("kokkosp_init_library", 5, 0),
        text(call("kokkosp_begin_parallel_for", 10, 0), "fill"),
        pointing(
            text(call("kokkosp_begin_deep_copy", 20, 0), "b"),
            2,
            source.clone(),
        ),
        call("kokkosp_end_deep_copy", 30, 0),
        // Views need no labels, and pages may be missing.
        pointing(call("kokkosp_begin_deep_copy", 32, 0), 2, source),
        call("kokkosp_end_deep_copy", 34, 0),
        call("kokkosp_begin_deep_copy", 36, 0),
        call("kokkosp_end_deep_copy", 38, 0),
        with("kokkosp_end_parallel_for", 40, 1),
        create("first", 50, 1),
        create("second", 51, 2),
        with("kokkosp_start_profile_section", 60, 1),
        // The upper half of a register that holds a 32-bit number is garbage.
        with("kokkosp_start_profile_section", 61, 2 | 7 << 32),
        with("kokkosp_stop_profile_section", 70, 1),
        with("kokkosp_stop_profile_section", 71, 2),
        with("kokkosp_start_profile_section", 80, 9),
        with("kokkosp_stop_profile_section", 81, 9),
        with("kokkosp_stop_profile_section", 82, 9),
    ] {
        ranges.call(call, &mut events);
    }
    let expected = [
        span("Kokkos::Initialization Complete", 5, 5),
        span("Kokkos::deep_copy b <- a", 20, 31),
        span("Kokkos::deep_copy ? <- a", 32, 35),
        span("kokkosp_begin_deep_copy", 36, 39),
        span("fill", 10, 41),
        span("first", 60, 71),
        span("second", 61, 72),
        span("kokkosp_start_profile_section", 80, 82),
    ];
    assert_eq!(shown(&events), expected);
    assert_eq!(ranges.remarks().count(), 1, "one end without a beginning");
}

#[test]
fn ranges_nest_and_marks_are_moments() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    for call in [
        text(call("roctxRangePushA", 10, 0), "outer"),
        text(call("roctxRangePushA", 20, 1), "inner"),
        text(call("roctxMarkA", 30, 0), "mark"),
        call("roctxRangePop", 40, 1),
        text(call("roctxRangePushA", 50, 1), "inner"),
        call("roctxRangePop", 60, 1),
        call("roctxRangePop", 70, 0),
        call("roctxRangePop", 80, u64::MAX),
    ] {
        ranges.call(call, &mut events);
    }
    let expected = [
        span("mark", 30, 30),
        span("inner", 20, 41),
        span("inner", 50, 61),
        span("outer", 10, 71),
    ];
    assert_eq!(shown(&events), expected);
    let functions = events
        .iter()
        .filter(|event| matches!(event, Event::Function(_)));
    assert_eq!(functions.count(), 3, "a text is described once");
    assert_eq!(ranges.remarks().count(), 1, "one end without a beginning");
}

#[test]
fn lost_ends_do_not_shift_others() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    for call in [
        text(call("roctxRangePushA", 10, 0), "outer"),
        text(call("roctxRangePushA", 20, 1), "its end is lost"),
        call("roctxRangePop", 40, 0),
    ] {
        ranges.call(call, &mut events);
    }
    assert_eq!(
        shown(&events),
        [span("its end is lost", 20, 40), span("outer", 10, 41)]
    );
    let Some(Event::Call(skipped)) = events.iter().find(|event| matches!(event, Event::Call(_)))
    else {
        panic!("no call");
    };
    assert_eq!(skipped.how, CallEnd::RecordingStopped);
}

/// Of a tool's function, perhaps only the entry is probed. The range ends all the same.
#[test]
fn a_range_ends_although_its_begin_has_no_end() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    let mut push = text(call("roctxRangePushA", 10, 0), "range");
    push.how = CallEnd::NotSeen;
    let mut pop = call("roctxRangePop", 40, 0);
    pop.how = CallEnd::NotSeen;
    for call in [push, pop] {
        ranges.call(call, &mut events);
    }
    assert_eq!(shown(&events), [span("range", 10, 41)]);
    let how: Vec<CallEnd> = events
        .iter()
        .filter_map(|event| match event {
            Event::Call(call) => Some(call.how),
            _ => None,
        })
        .collect();
    assert_eq!(how, [CallEnd::Returned(0)]);
}

#[test]
fn free_ranges_end_in_any_thread_and_order() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    let stop = |id, begin, tid| {
        let mut stop = call("roctxRangeStop", begin, 0);
        (stop.args[0], stop.tid) = (id, tid);
        stop
    };
    for call in [
        text(call("roctxRangeStartA", 10, 7), "first"),
        text(call("roctxRangeStartA", 20, 8), "second"),
        stop(7, 30, 5),
        stop(9, 35, 5),
    ] {
        ranges.call(call, &mut events);
    }
    ranges.ended((1, 2), 40, CallEnd::ThreadExited, &mut events);
    ranges.finish(50, &mut events);
    assert_eq!(
        shown(&events),
        [span("first", 10, 31), span("second", 20, 50)]
    );
}

#[test]
fn work_gets_the_range_and_the_id_of_its_thread() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    let mut push = call("roctracer_activity_push_external_correlation_id", 15, 0);
    push.args[0] = 77;
    for call in [
        text(call("roctxRangePushA", 10, 0), "solve"),
        push,
        call("hipMalloc", 20, 0),
        call("roctracer_activity_pop_external_correlation_id", 30, 0),
        call("roctxRangePop", 40, 0),
        call("hipMalloc", 50, 0),
    ] {
        ranges.call(call, &mut events);
    }
    let ids: Vec<Option<u64>> = events
        .iter()
        .filter_map(|event| match event {
            Event::Call(call) if call.function == 8 => Some(call.external),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [Some(77), None]);
    let at = |time| {
        let origin = submitted(&mut ranges, time);
        (origin.range.is_some(), origin.external)
    };
    assert_eq!(
        [5, 12, 25, 35, 45].map(at),
        [
            (false, None),
            (true, None),
            (true, Some(77)),
            (true, None),
            (false, None)
        ]
    );
}

#[test]
fn kernels_after_a_mark_are_called_after_it_until_its_range_ends() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    for call in [
        text(call("roctxMarkA", 10, 0), "begin"),
        text(call("roctxRangePushA", 20, 0), "solve"),
        text(call("roctxMarkA", 30, 0), "half"),
        text(call("roctxRangePushA", 40, 0), "inner"),
        call("roctxRangePop", 50, 0),
        call("roctxRangePop", 60, 0),
    ] {
        ranges.call(call, &mut events);
    }
    let names: HashMap<u32, String> = events
        .iter()
        .filter_map(|event| match event {
            Event::Function(info) => Some((info.function.id, info.function.name.clone())),
            _ => None,
        })
        .collect();
    let at = |time| {
        let range = submitted(&mut ranges, time).range;
        range.map_or("", |range| names[&range].as_str())
    };
    assert_eq!(
        [5, 15, 25, 35, 45, 55, 65].map(at),
        ["", "begin", "solve", "half", "inner", "half", "begin"]
    );
}

#[test]
fn too_many_texts_are_arguments_and_counted() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    for number in 0..=MOST_TEXTS + 1 {
        let mark = text(
            call("roctxMarkA", 10 + number as u64, 0),
            &number.to_string(),
        );
        ranges.call(mark, &mut events);
    }
    let last = shown(&events).pop().unwrap();
    assert_eq!(last.0, "roctxMarkA");
    let Some(Event::Call(last)) = events.last() else {
        panic!("no call");
    };
    let info = events.iter().rev().find_map(|event| match event {
        Event::Function(info) if info.function.id == last.function => Some(info),
        _ => None,
    });
    assert_eq!(
        info.unwrap().range,
        Some(RangeKind::Mark),
        "it is a moment as well"
    );
    let said = &last.pointees.first().unwrap().data;
    assert!(
        matches!(said, PointeeData::Text { text, .. } if *text == (MOST_TEXTS + 1).to_string())
    );
    let remarks: Vec<String> = ranges.remarks().collect();
    assert_eq!(remarks.len(), 1);
    assert!(
        remarks[0].starts_with("Markers: 2 marks and ranges have texts beyond the first 65536"),
        "{remarks:?}"
    );
}

/// A call with this correlation id, parent and depth.
#[test]
fn ids_are_for_the_thread_that_they_name() {
    let on = |name: &str, begin, tid, arguments: [u64; 3]| {
        let [a, b, c] = arguments;
        Call {
            tid,
            args: [a, b, c, 0, 0, 0],
            ..call(name, begin, 0)
        }
    };
    let push = |begin, tid, whose, id| {
        on(
            "rocprofiler_push_external_correlation_id",
            begin,
            tid,
            [9, whose, id],
        )
    };
    let pop = |begin, tid, whose| {
        on(
            "rocprofiler_pop_external_correlation_id",
            begin,
            tid,
            [9, whose, 0],
        )
    };
    let malloc = |begin, tid| on("hipMalloc", begin, tid, [0; 3]);
    let (mut ranges, mut events) = (ranges(), Vec::new());
    for tid in [2, 3] {
        let name = String::new();
        assert!(ranges.annotate(&mut Event::Thread(ThreadInfo { pid: 1, tid, name })));
    }
    for call in [
        push(10, 2, 3, 77),
        push(12, 2, 0, 88),
        malloc(20, 2),
        malloc(21, 3),
        pop(30, 2, 3),
        malloc(40, 2),
        malloc(41, 3),
        pop(50, 2, 2),
        malloc(60, 2),
        // A thread id that does not belong to this process means the caller.
        push(70, 2, 4711, 99),
        malloc(80, 2),
    ] {
        ranges.call(call, &mut events);
    }
    let ids: Vec<Option<u64>> = events
        .iter()
        .filter_map(|event| match event {
            Event::Call(call) if call.function == 8 => Some(call.external),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [Some(88), Some(77), Some(88), None, None, Some(99)]);
    assert_eq!(ranges.remarks().count(), 0);
}

#[test]
fn threads_are_called_what_they_say() {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    ranges.call(
        text(call("roctxNameOsThread", 10, 0), "solver"),
        &mut events,
    );
    let named = |tid, name: &str| {
        Event::Thread(ThreadInfo {
            pid: 1,
            tid,
            name: name.to_owned(),
        })
    };
    assert_eq!(events.first(), Some(&named(2, "solver")));
    let mut shown = |tid, name: &str| {
        let mut event = named(tid, name);
        assert!(ranges.annotate(&mut event));
        event
    };
    assert_eq!(shown(2, "app"), named(2, "solver"));
    assert_eq!(shown(3, "app"), named(3, "app"));
    ranges.ended((1, 2), 20, CallEnd::ThreadExited, &mut Vec::new());
    let mut again = named(2, "other");
    assert!(ranges.annotate(&mut again));
    assert_eq!(again, named(2, "other"), "another thread with the number");
}

proptest! {
    #[test]
    fn any_calls_come_out_at_most_once(steps in proptest::collection::vec((0..NAMES.len(), 0u64..4, 0u64..3, 1u32..3), 0..60)) {
        let (mut ranges, mut events) = (ranges(), Vec::new());
        for (time, (name, returned, argument, tid)) in (10..).step_by(10).zip(&steps) {
            let mut call = text(call(NAMES[*name], time, *returned), "text");
            (call.args[0], call.tid) = (*argument, *tid);
            ranges.call(call, &mut events);
        }
        ranges.finish(10_000, &mut events);
        let mut begins: Vec<u64> = shown(&events).iter().map(|(_, begin, _)| *begin).collect();
        let count = begins.len();
        begins.sort_unstable();
        begins.dedup();
        prop_assert_eq!(begins.len(), count);
        let comes_out = |name: &str| {
            !matches!(
                marker(name),
                Some(Marker::Pop { .. } | Marker::Stop | Marker::NameSection | Marker::StopSection)
            )
        };
        let begun = steps.iter().filter(|(name, ..)| comes_out(NAMES[*name])).count();
        prop_assert_eq!(count, begun);
        for event in &events {
            if let Event::Call(call) = event {
                prop_assert!(call.begin <= call.end);
            }
        }
    }
}

#[test]
fn annotations_are_marks_and_ranges_that_may_overlap() {
    use gputrace_capture::meta::{Annotated, Annotation as Note};

    let mut ranges = ranges();
    let mut ready = Vec::new();
    let mut note = |id: u64, time: u64, what, text: &str| {
        let note = Note {
            id,
            time,
            pid: 7,
            tid: 8,
            what,
            text: text.to_owned(),
        };
        ranges.note(&note, &mut ready);
    };
    note(1, 10, Annotated::Begin, "warm-up");
    note(2, 15, Annotated::Mark, "here");
    note(3, 20, Annotated::Begin, "steady");
    note(1, 30, Annotated::End, "");
    note(4, 35, Annotated::Mark, "here");
    note(9, 36, Annotated::End, "");
    ranges.finish(50, &mut ready);
    let mut names = HashMap::new();
    let mut calls = Vec::new();
    for event in ready {
        match event {
            Event::Function(info) => {
                assert_eq!(info.domain, Some(Domain::MarkerCore));
                let known = names.insert(info.function.id, info.function.name);
                assert_eq!(known, None);
            }
            Event::Call(call) => {
                assert_eq!((call.pid, call.tid), (7, 8));
                calls.push((
                    names[&call.function].clone(),
                    call.begin,
                    call.end,
                    call.how,
                ));
            }
            other => panic!("{other:?}"),
        }
    }
    let call = |name: &str, begin, end, how| (name.to_owned(), begin, end, how);
    let returned = CallEnd::Returned(0);
    assert_eq!(
        calls,
        [
            call("here", 15, 15, returned),
            call("warm-up", 10, 30, returned),
            call("here", 35, 35, returned),
            call("steady", 20, 50, CallEnd::RecordingStopped),
        ]
    );
    assert_eq!(names.len(), 3);
    assert_eq!(ranges.remarks().count(), 2);
}
