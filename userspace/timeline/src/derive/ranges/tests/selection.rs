//! What is shown if only what programs ask for is.

use super::*;

#[test]
fn threads_switch_for_themselves() {
    let mut ranges = ranges();
    ranges.select();
    let mut shows = |calls: &[(&str, u64, u32)]| -> Vec<bool> {
        let mut events = Vec::new();
        for (name, begin, tid) in calls {
            let call = Call {
                tid: *tid,
                ..call(name, *begin, 0)
            };
            ranges.call(call, &mut events);
        }
        let mallocs = events
            .iter_mut()
            .filter(|event| matches!(event, Event::Call(call) if call.function == 8));
        mallocs.map(|event| ranges.annotate(event)).collect()
    };
    assert_eq!(shows(&[("hipMalloc", 10, 2)]), [false]);
    let shown = shows(&[
        ("rocprofsys_user_start_thread_trace", 20, 2),
        ("hipMalloc", 30, 2),
        ("hipMalloc", 31, 3),
        ("rocprofsys_user_stop_thread_trace", 40, 2),
        ("hipMalloc", 50, 2),
    ]);
    assert_eq!(shown, [true, false, false]);
    assert_eq!(ranges.remarks().count(), 0);
}

#[test]
fn it_is_said_if_nothing_was_selected() {
    let of = |names: &[&str]| -> Vec<String> {
        let (mut ranges, mut events) = (ranges(), Vec::new());
        ranges.select();
        for (begin, name) in (10..).step_by(10).zip(names) {
            ranges.call(call(name, begin, 0), &mut events);
        }
        for mut event in events {
            ranges.annotate(&mut event);
        }
        ranges.remarks().collect()
    };
    let said = of(&["hipMalloc", "hipMalloc"]);
    assert_eq!(said.len(), 1);
    assert!(
        said[0].starts_with("Nothing was selected, 2 calls"),
        "{said:?}"
    );
    assert!(said[0].contains("no call of such a function"), "{said:?}");
    let said = of(&["hipMalloc", "roctxProfilerResume"]);
    assert!(said[0].contains("nothing was recorded between"), "{said:?}");
    assert_eq!(
        of(&["roctxProfilerResume", "hipMalloc"]),
        Vec::<String>::new()
    );
}

/// Nobody shall take time in which work is not shown for idle time.
#[test]
fn work_that_is_not_shown_is_said() {
    let of = |selects: bool, names: &[&str]| -> Vec<String> {
        let (mut ranges, mut events) = (ranges(), Vec::new());
        if selects {
            ranges.select();
        }
        for (begin, name) in (10..).step_by(10).zip(names) {
            let origin = Origin {
                pid: 1,
                tid: 2,
                time: begin,
                ..Origin::default()
            };
            match *name {
                "kernel" => events.push(Event::Dispatch(Box::new(Dispatch {
                    origin,
                    ..Dispatch::default()
                }))),
                "copy" => events.push(Event::Copy(Box::new(gpu::Copy {
                    origin,
                    ..gpu::Copy::default()
                }))),
                _ => ranges.call(call(name, begin, 0), &mut events),
            }
        }
        for mut event in events {
            ranges.annotate(&mut event);
        }
        ranges.remarks().collect()
    };
    let region = ["roctxProfilerResume", "kernel", "roctxProfilerPause"];
    let beside = [&["hipMalloc"], &region[..], &["kernel", "copy"]].concat();
    let said = of(true, &beside);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with(
            "Work of GPUs outside of selected regions is not shown: 2 of 3 kernels and copies. "
        ),
        "{said:?}"
    );
    assert_eq!(of(false, &beside), Vec::<String>::new());
    // Calls outside of them do not matter to GPUs.
    let calls = [&["hipMalloc"], &region[..], &["hipMalloc"]].concat();
    assert_eq!(of(true, &calls), Vec::<String>::new());
}

#[test]
fn a_region_that_was_open_when_the_recording_began_is_said() {
    let of = |is_new: bool, names: &[&str]| -> Vec<String> {
        let (mut ranges, mut events) = (ranges(), Vec::new());
        ranges.select();
        if is_new {
            ranges.begun(1);
        }
        for (begin, name) in (10..).step_by(10).zip(names) {
            ranges.call(call(name, begin, 0), &mut events);
        }
        for mut event in events {
            ranges.annotate(&mut event);
        }
        ranges.remarks().collect()
    };
    let inside = [
        "hipMalloc",
        "hipMalloc",
        "roctxProfilerPause",
        "hipMalloc",
        "roctxProfilerResume",
        "hipMalloc",
    ];
    let said = of(false, &inside);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("Process 1 was inside a region") && said[0].contains("GPUs: 2)"),
        "{said:?}"
    );
    // A program that began later has not asked for anything before its first switch.
    assert_eq!(of(true, &inside), Vec::<String>::new());
    let outside = ["hipMalloc", "roctxProfilerResume", "hipMalloc"];
    assert_eq!(of(false, &outside), Vec::<String>::new());
}
