use std::time::Duration;

use gputrace_capture::{
    identity::{Identity, Slurm},
    ledger::{Ledger, LedgerRow},
    meta::{ClockSnapshot, Recording},
};
use gputrace_export::synthetic::{self, START, between, dispatch, exact};
use gputrace_timeline::{
    event::{Call, CallEnd, Event, FunctionInfo, Pending, PendingQueue, ProcessInfo},
    gpu::{Activity, ActivityState, GpuTime, Quality},
    synthetic::call,
};
use proptest::prelude::*;
use ratatui::{Terminal, backend::TestBackend};

use crate::{
    Format, GroupBy, Options, Snapshot,
    intervals::Intervals,
    page,
    screen::{Asked, Key, Screen},
    snapshot::{Busy, KernelRow, Quantiles},
    terminal::keys,
};

mod groups;

const MS: u64 = 1_000_000;

fn begun(interval: u64, is_once: bool) -> Intervals {
    let mut intervals = Intervals::new(interval, is_once, &GroupBy::ALL);
    intervals.event(&Event::Recording(Box::new(Recording {
        clocks: ClockSnapshot {
            boottime: START,
            realtime: 1_700_000_000_000_000_000,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    })));
    intervals
}

fn kernel(id: u64, submit: u64, time: GpuTime) -> Event {
    Event::Dispatch(Box::new(dispatch(id, submit, time)))
}

fn account(time: u64, complete: bool, lost: u64) -> Event {
    let row = LedgerRow {
        seen: lost,
        dropped: vec![lost],
        ..LedgerRow::default()
    };
    Event::Ledger(Box::new(Ledger {
        time,
        complete,
        rows: vec![row],
        ..Ledger::default()
    }))
}

fn rest(intervals: &mut Intervals) -> Vec<Snapshot> {
    std::iter::from_fn(|| intervals.rest()).collect()
}

fn gpu(snapshot: &Snapshot) -> Busy {
    let gpu = snapshot.gpus.iter().find(|gpu| gpu.node == Some(1));
    let idle = Busy {
        ns: Some(0),
        ..Busy::default()
    };
    // Without a description of the agent, only work makes a GPU known.
    gpu.map_or(idle, |gpu| gpu.busy)
}

#[test]
fn a_whole_recording_is_one_interval() {
    let mut intervals = Intervals::new(500_000, true, &[]);
    synthetic::events()
        .iter()
        .for_each(|event| intervals.event(event));
    let all = rest(&mut intervals);
    let [snapshot] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!((snapshot.begin, snapshot.end), (START, START + 500_000));
    let [process] = &snapshot.processes[..] else {
        panic!("{:?}", snapshot.processes)
    };
    // One call was open when the recording stopped, and one dispatch had not ended.
    assert_eq!(
        (process.pid, process.usage.calls, process.usage.kernels),
        (100, 2, 7)
    );
    assert_eq!(process.command, "train");
    assert_eq!(process.usage.copies, 3);
    // Two kernels have no known length, so there is only a range: what the exact ones took, and
    // what the others can have taken besides.
    let busy = gpu(snapshot);
    assert_eq!(busy.ns, None);
    assert!(busy.least_ns >= 71_000, "{busy:?}");
    assert!(busy.least_ns < busy.most_ns, "{busy:?}");
    // The other GPU ran one kernel of known length.
    let other = snapshot.gpus.iter().find(|gpu| gpu.node == Some(2));
    assert_eq!(other.map(|gpu| gpu.busy.ns), Some(Some(20_000)));
}

#[test]
fn a_kernel_is_split_between_the_intervals_in_which_it_ran() {
    let mut intervals = begun(10 * MS, false);
    // The first interval begins with the first call.
    intervals.event(&Event::Call(call(1, START + MS, START + 2 * MS)));
    let begin = START + 5 * MS;
    intervals.event(&kernel(1, begin - 1000, exact(begin, begin + 22 * MS)));
    intervals.event(&account(START + 40 * MS, true, 0));
    let shown = rest(&mut intervals);
    let first = shown.first().map(|one| (one.begin, one.end));
    assert_eq!(first, Some((START + MS, START + 10 * MS)));
    let times: Vec<Option<u64>> = shown.iter().map(|one| gpu(one).ns).collect();
    let expected = [5, 10, 7, 0].map(|ms| Some(ms * MS));
    assert_eq!(times, expected);
    // It is counted where it ended.
    let counts: Vec<u64> = shown
        .iter()
        .map(|one| one.kernels.iter().map(|row| row.calls).sum())
        .collect();
    assert_eq!(counts, [0, 0, 1, 0]);
    let latency = Quantiles {
        p50: 1003,
        p99: 1003,
    };
    assert_eq!(
        shown[2]
            .processes
            .first()
            .and_then(|row| row.usage.launch_latency_ns),
        Some(latency)
    );
}

#[test]
fn pending_work_may_have_run_until_it_is_said_to_be_over() {
    let mut intervals = begun(10 * MS, false);
    let pending = |queues| {
        Event::Pending(Box::new(Pending {
            time: START,
            queues,
        }))
    };
    intervals.event(&pending(vec![PendingQueue {
        pid: 100,
        queue: 0,
        node_id: Some(1),
        dispatches: 3,
        since: START + 4 * MS,
    }]));
    let first = intervals.ended(START + 12 * MS).unwrap();
    let range = |least_ns, most_ns| Busy {
        ns: None,
        least_ns,
        most_ns,
    };
    assert_eq!(gpu(&first), range(0, 6 * MS));
    assert_eq!(
        first.processes.first().map(|row| row.usage.pending),
        Some(3)
    );
    // Nothing new was said: it is still pending.
    let second = intervals.ended(START + 20 * MS).unwrap();
    assert_eq!(gpu(&second), range(0, 10 * MS));
    assert!(intervals.ended(START + 29 * MS).is_none());
    intervals.event(&pending(Vec::new()));
    let third = intervals.ended(START + 30 * MS).unwrap();
    assert_eq!(third.processes, []);
}

#[test]
fn what_comes_late_is_counted_and_said() {
    let mut intervals = begun(10 * MS, false);
    assert!(intervals.ended(START + 10 * MS).is_some());
    let begin = START + 5 * MS;
    intervals.event(&kernel(1, begin, exact(begin, begin + MS)));
    let shown = intervals.ended(START + 20 * MS).unwrap();
    assert_eq!((shown.late, gpu(&shown).ns), (1, Some(0)));
    assert_eq!(shown.kernels.first().map(|row| row.total_ns), Some(MS));
    let next = intervals.ended(START + 30 * MS).unwrap();
    assert_eq!((next.late, next.kernels.len()), (0, 0));
}

#[test]
fn losses_are_those_of_the_interval_and_of_all() {
    let mut intervals = begun(10 * MS, false);
    intervals.event(&account(START + 5 * MS, false, 7));
    let lost = |intervals: &mut Intervals, time| {
        let shown = intervals.ended(time).unwrap();
        (shown.lost.now, shown.lost.total)
    };
    assert_eq!(lost(&mut intervals, START + 10 * MS), (7, 7));
    intervals.event(&account(START + 15 * MS, false, 9));
    assert_eq!(lost(&mut intervals, START + 20 * MS), (2, 9));
    assert_eq!(lost(&mut intervals, START + 30 * MS), (0, 9));
}

#[test]
fn calls_that_fail_are_counted() {
    let mut intervals = begun(10 * MS, false);
    let mut info = FunctionInfo {
        function: gputrace_capture::meta::Function {
            id: 0,
            name: "hipMalloc".to_owned(),
            returns: gputrace_capture::meta::ValueKind::HipError,
            ..gputrace_capture::meta::Function::default()
        },
        domain: Some(gputrace_abi::domain::Domain::HipRuntime),
        library: String::new(),
        build_id: String::new(),
        range: None,
    };
    intervals.event(&Event::Function(Box::new(info.clone())));
    info.function.id = 1;
    info.function.name = "hipGetLastError".to_owned();
    intervals.event(&Event::Function(Box::new(info)));
    for (id, (function, result)) in (1..).zip([(0, 0), (0, 2), (1, 2), (0, 600)]) {
        intervals.event(&Event::Call(Call {
            function,
            how: CallEnd::Returned(result),
            ..call(id, START + id, START + id + 5)
        }));
    }
    let shown = intervals.ended(START + 10 * MS).unwrap();
    let row = shown.processes.first().unwrap();
    // The error of an earlier call, and "not ready", are answers.
    assert_eq!((row.usage.calls, row.usage.failed_calls), (4, 1));
    let functions: Vec<(&str, u64, u64)> = shown
        .functions
        .iter()
        .map(|row| (row.name.as_str(), row.calls, row.failed))
        .collect();
    assert_eq!(functions, [("hipMalloc", 3, 1), ("hipGetLastError", 1, 0)]);
}

#[test]
fn absurd_times_neither_hang_nor_panic() {
    let mut intervals = begun(10 * MS, false);
    for time in [0, 1, START, u64::MAX - 1, u64::MAX] {
        intervals.event(&kernel(1, time, exact(time, u64::MAX)));
        intervals.event(&kernel(2, time, between(Quality::Sampled, 0, time)));
        intervals.event(&Event::Call(call(1, time, time)));
        let queue = PendingQueue {
            pid: 1,
            queue: 0,
            node_id: None,
            dispatches: u64::MAX,
            since: time,
        };
        intervals.event(&Event::Pending(Box::new(Pending {
            time,
            queues: vec![queue; 2],
        })));
    }
    assert!(intervals.ended(START + 10 * MS).is_some());
    intervals.event(&account(u64::MAX, true, 1));
    assert!(rest(&mut intervals).len() <= 64);
}

#[test]
fn a_page_has_what_is_known_and_ranges_of_the_rest() {
    let mut intervals = begun(1_000 * MS, false);
    for event in &synthetic::events()[1..] {
        match event {
            Event::Ledger(_) | Event::End(_) => {}
            Event::Process(info) => intervals.event(&Event::Process(Box::new(ProcessInfo {
                command: vec!["/opt/app/train".to_owned(), "--lr=0.1".to_owned()],
                identity: Identity {
                    user: "alice".to_owned(),
                    slurm: Some(Slurm {
                        job: 77,
                        ..Slurm::default()
                    }),
                    ..Identity::default()
                },
                ..(**info).clone()
            }))),
            event => intervals.event(event),
        }
    }
    intervals.event(&account(START + 900 * MS, false, 3));
    let mut shown = intervals.ended(START + 1_000 * MS).unwrap();
    shown.groups.retain(|by, _| *by == GroupBy::Job);
    shown.gputrace_cpus = Some(0.031);
    let options = Options {
        interval: Duration::from_secs(1),
        once: false,
        format: Format::Text,
        group_by: None,
        start: None,
        rows: 1,
        columns: None,
    };
    let mut text = String::new();
    page::write(&mut text, &shown, &options).unwrap();
    let expected = include_str!("page.expected.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page.expected.txt");
        std::fs::write(file, &text).unwrap();
    } else {
        assert_eq!(text, expected);
    }
}

proptest! {
    #[test]
    fn no_time_is_lost_or_counted_twice(
        spans in proptest::collection::vec((0_u64..200, 1_u64..60), 0..30),
        length in 7_u64..50,
    ) {
        let mut intervals = begun(length, false);
        intervals.event(&Event::Call(call(1, START, START + 1)));
        let mut taken = [false; 300];
        for (id, (begin, took)) in (1..).zip(&spans) {
            let end = begin + took;
            taken[*begin as usize..end as usize].fill(true);
            intervals.event(&kernel(id, START, exact(START + begin, START + end)));
        }
        intervals.event(&account(START + 300, true, 0));
        let shown = rest(&mut intervals);
        let sum: u64 = shown.iter().map(|one| gpu(one).ns.unwrap_or(u64::MAX / 64)).sum();
        prop_assert_eq!(sum, taken.iter().filter(|taken| **taken).count() as u64);
        for one in &shown {
            prop_assert!(gpu(one).most_ns <= one.end - one.begin);
        }
        let calls: u64 = shown.iter().flat_map(|one| &one.kernels).map(|row| row.calls).sum();
        prop_assert_eq!(calls, spans.len() as u64);
        // One interval after the other, without gaps.
        for (one, next) in shown.iter().zip(shown.iter().skip(1)) {
            prop_assert_eq!(one.end, next.begin);
        }
    }
}

fn screen() -> Screen {
    let mut intervals = begun(1_000 * MS, false);
    for event in &synthetic::events()[1..] {
        if !matches!(event, Event::Ledger(_) | Event::End(_)) {
            intervals.event(event);
        }
    }
    let hostile = ProcessInfo {
        pid: 100,
        command: vec!["/opt/\u{1b}[2Jtrain".to_owned(), "x".repeat(200)],
        ..ProcessInfo::default()
    };
    intervals.event(&Event::Process(Box::new(hostile)));
    let mut screen = Screen::default();
    screen.take(intervals.ended(START + 1_000 * MS).unwrap());
    screen
}

fn drawn(screen: &Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for line in buffer.content().chunks(width.into()) {
        let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[test]
fn the_screen_fits_80_columns_and_escapes_what_comes_from_outside() {
    let screen = screen();
    let text = drawn(&screen, 80, 24);
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.contains(r"\x1b"), "{text}");
    for part in [
        "Agent 1 (gfx90a)",
        "BUSY %",
        "PENDING",
        "CALLS/s",
        "1 process, 0 events lost",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    // Wider terminals show more; tiny ones do no harm.
    assert!(drawn(&screen, 160, 24).contains("LAUNCH p50/p99"));
    for (width, height) in [(1, 1), (10, 3), (20, 60), (500, 2)] {
        drawn(&screen, width, height);
    }
    drawn(&Screen::default(), 80, 24);
}

#[test]
fn keys_choose_what_is_seen() {
    let mut screen = screen();
    let mut press = |keys: &[Key]| {
        for key in keys {
            assert_ne!(screen.key(*key), Asked::End, "{key:?}");
        }
        drawn(&screen, 120, 24)
    };
    let text = press(&[Key::Enter]);
    assert!(
        text.contains("process 100") && text.contains("add(float*, float*)"),
        "{text}"
    );
    let text = press(&[Key::Char('3')]);
    assert!(text.contains("hipLaunchKernel"), "{text}");
    // Letters of the text are no keys.
    let text = press(&[Key::Char('/'), Key::Char('q'), Key::Char('q')]);
    assert!(
        text.contains("/qq_") && !text.contains("hipLaunchKernel"),
        "{text}"
    );
    let text = press(&[Key::Backspace, Key::Backspace, Key::Char('h'), Key::Enter]);
    assert!(
        text.contains("/h") && text.contains("hipLaunchKernel"),
        "{text}"
    );
    let text = press(&[Key::Escape, Key::Char('?')]);
    assert!(
        text.contains("choose a row") && !text.contains("process 100  /"),
        "{text}"
    );
    // Any key ends the help, and only that.
    let text = press(&[Key::Char('1')]);
    assert!(
        !text.contains("choose a row") && text.contains("FUNCTION"),
        "{text}"
    );
    assert!(press(&[Key::Char(' ')]).contains("FROZEN"));
    assert!(!screen.take(Snapshot::default()));
    screen.key(Key::Char(' '));
    assert!(screen.take(Snapshot::default()));
    // No row is left to choose.
    screen.key(Key::Down);
    screen.key(Key::Enter);
    drawn(&screen, 80, 24);
    assert_eq!(screen.key(Key::Char('q')), Asked::End);
    assert_eq!(screen.key(Key::Interrupt), Asked::End);
}

#[test]
fn rows_are_sorted_by_numbers_not_by_their_text() {
    let kernel = |name: &str, mean_ns: Option<f64>| KernelRow {
        name: name.to_owned(),
        calls: 1,
        known: mean_ns.map_or(0, |_| 1),
        mean_ns,
        ..KernelRow::default()
    };
    let mut screen = Screen::default();
    screen.take(Snapshot {
        end: 1_000 * MS,
        kernels: vec![
            kernel("b_950_us", Some(950_000.0)),
            kernel("a_unknown", None),
            kernel("c_1_2_ms", Some(1_200_000.0)),
        ],
        ..Snapshot::default()
    });
    let mut order = |keys: &str| {
        for key in keys.chars() {
            screen.key(Key::Char(key));
        }
        let text = drawn(&screen, 80, 24);
        let mut names: Vec<&str> = ["a_unknown", "b_950_us", "c_1_2_ms"].to_vec();
        names.sort_by_key(|name| text.find(name));
        names
    };
    let as_given = ["b_950_us", "a_unknown", "c_1_2_ms"];
    assert_eq!(order("2"), as_given);
    // By process: all the same.
    assert_eq!(order("s"), as_given);
    assert_eq!(order("s"), ["a_unknown", "b_950_us", "c_1_2_ms"]);
    assert_eq!(order("sss"), ["c_1_2_ms", "b_950_us", "a_unknown"]);
    // Before the first column comes the last.
    assert_eq!(order("2S"), ["c_1_2_ms", "b_950_us", "a_unknown"]);
}

#[test]
fn the_status_register_tells_of_intervals_that_were_read_throughout() {
    let mut intervals = begun(100 * MS, false);
    let reading = |at: u64, state| {
        Event::Activity(Activity {
            node_id: Some(1),
            time: START + at,
            state,
            stands_for: MS,
            late: 0,
        })
    };
    intervals.event(&Event::Call(call(1, START, START + 1)));
    // One kernel after the other, of which nothing tells how long they took.
    for id in 1..300 {
        let begin = START + id * MS;
        intervals.event(&kernel(
            id,
            begin,
            between(Quality::Bounded, begin, begin + MS),
        ));
    }
    // The readings begin in the middle of the first interval. A quarter finds the GPU at work.
    intervals.event(&reading(50 * MS, ActivityState::Begin));
    for at in 51..300 {
        let is_active = at % 4 == 0;
        let state = if is_active {
            ActivityState::Active
        } else {
            ActivityState::Idle
        };
        intervals.event(&reading(at * MS, state));
    }
    intervals.event(&account(START + 300 * MS, true, 0));
    let shown = rest(&mut intervals);
    let active: Vec<Option<u64>> = shown
        .iter()
        .filter_map(|one| one.gpus.first().map(|gpu| gpu.active_ns))
        .collect();
    let [None, Some(second), Some(third)] = active[..] else {
        panic!("{active:?}")
    };
    for one in [second, third] {
        assert!((22 * MS..28 * MS).contains(&one), "{one}");
    }
}

proptest! {
    #[test]
    fn what_lies_outside_is_what_no_span_covers(
        most in proptest::collection::vec((0_u64..100, 1_u64..20), 0..10),
        spans in proptest::collection::vec((0_u64..100, 1_u64..20), 0..10),
    ) {
        let mut busy = crate::busy::Busy::default();
        let mut read = gputrace_export::intervals::Intervals::default();
        let mut taken = [false; 128];
        for (begin, took) in &most {
            busy.add_possible(*begin, begin + took);
            taken[*begin as usize..(begin + took) as usize].fill(true);
        }
        for (begin, took) in &spans {
            read.insert(*begin, begin + took);
            taken[*begin as usize..(begin + took) as usize].fill(false);
        }
        let expected = taken[10..90].iter().filter(|taken| **taken).count() as u64;
        prop_assert_eq!(busy.possible_outside(&read, 10, 90), expected);
    }
}

#[test]
fn bytes_of_a_terminal_are_keys() {
    for (bytes, expected) in [
        (&b"q"[..], vec![Key::Char('q')]),
        (b"\x1b", vec![Key::Escape]),
        (b"\x1b[A\x1bOB", vec![Key::Up, Key::Down]),
        (b"\x1b[15~s", vec![Key::Char('s')]),
        (b"\x1b[1;5Aq", vec![Key::Up, Key::Char('q')]),
        (
            b"\t\r\x7f\x03",
            vec![Key::Tab, Key::Enter, Key::Backspace, Key::Interrupt],
        ),
        ("é".as_bytes(), vec![Key::Char('é')]),
        (b"\xff\x00", vec![]),
        (b"\x1b[", vec![]),
    ] {
        assert_eq!(keys(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn one_interval_has_the_length_asked_for_and_all_that_was_seen() {
    for (seen, expected) in [(70, 50), (20, 20)] {
        let mut intervals = begun(50 * MS, true);
        let at = START + seen * MS;
        intervals.event(&Event::Call(call(1, at, at + MS)));
        intervals.event(&account(START + 100 * MS, true, 0));
        let shown: Vec<(u64, u64)> = rest(&mut intervals)
            .iter()
            .map(|one| ((one.begin - START) / MS, (one.end - START) / MS))
            .collect();
        assert_eq!(shown, [(expected, 100)]);
    }
}
