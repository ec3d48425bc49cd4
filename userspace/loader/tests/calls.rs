//! The call-tracing programs on functions of this test program: the contents of the rings are
//! compared with the arguments of the calls.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helper functions too"
)]

mod support;

use std::{
    collections::HashSet,
    fs, hint,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Barrier, Mutex, MutexGuard, PoisonError, mpsc::channel},
    time::{Duration, Instant},
};

use gputrace_abi::{
    cookie::Cookie,
    counters::{CpuCounters, DropReason},
    frame::MAX_DEPTH,
    record::{LongSpan, Span, kind, span_flags},
};
use gputrace_loader::{
    attach::{End, Point, Scope, TracedFunction},
    calls::{BackendChoice, Calls, Options},
    present_cpus,
};
use zerocopy::FromBytes as _;

/// The eBPF programs count calls of the whole process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

#[inline(never)]
extern "C" fn six(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
    hint::black_box([b, c, d, e, f].into_iter().fold(a, u64::wrapping_add))
}

#[inline(never)]
extern "C" fn nine(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64) -> u64 {
    hint::black_box(a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i)
}

#[inline(never)]
extern "C" fn nested(depth: u64) -> u64 {
    if hint::black_box(depth) == 0 {
        7
    } else {
        hint::black_box(nested(depth - 1)) + 1
    }
}

/// File offset of a function of this program.
fn offset_of(function: *const ()) -> u64 {
    let address = function as u64;
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next().unwrap().split_once('-').unwrap();
        let offset = fields.nth(1).unwrap();
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        if (hex(start)..hex(end)).contains(&address) {
            return address - hex(start) + hex(offset);
        }
    }
    panic!("{address:#x} is not mapped")
}

fn options(backend: BackendChoice) -> Options {
    support::options(backend, 1 << 20)
}

/// Takes the test's turn and loads the programs; `None` where BPF is not available.
fn load(options: &Options) -> Option<(MutexGuard<'static, ()>, Calls)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Some((turn, support::load(options)?))
}

/// All records in the rings, in the order in which the calls began.
fn records(calls: &Calls) -> Vec<LongSpan> {
    let mut spans = Vec::new();
    for (_, mut ring) in calls.rings().unwrap() {
        while let Some(item) = ring.next() {
            let (span, stack) = Span::read_from_prefix(&item).unwrap();
            assert_eq!(usize::from(span.header.size), item.len());
            let stack = <[u64; 8]>::read_from_bytes(stack).unwrap_or_default();
            spans.push(LongSpan { span, stack });
        }
    }
    spans.sort_by_key(|long| long.span.begin);
    let unique: HashSet<u64> = spans.iter().map(|long| long.span.correlation).collect();
    assert_eq!(unique.len(), spans.len(), "every call has an id of its own");
    spans
}

fn attach(calls: &Calls, functions: &[(*const (), Cookie)]) -> gputrace_loader::probes::Probes {
    let functions: Vec<TracedFunction> = functions
        .iter()
        .map(|(function, cookie)| {
            TracedFunction::by_return(Point {
                offset: offset_of(*function),
                cookie: cookie.0,
            })
        })
        .collect();
    let probes = calls
        .attach(
            Path::new("/proc/self/exe"),
            Scope::Process(std::process::id()),
            &functions,
        )
        .unwrap();
    assert!(probes.failures.is_empty(), "{:?}", probes.failures);
    calls.add_target(std::process::id(), 0).unwrap();
    probes
}

fn arguments_and_results(backend: BackendChoice) {
    let Some((_turn, calls)) = load(&options(backend)) else {
        return;
    };
    let probes = attach(
        &calls,
        &[
            (six as *const (), Cookie::new(11, 0, 0)),
            (nine as *const (), Cookie::new(12, 3, 3)),
        ],
    );
    assert_eq!(six(1, 2, 3, 4, 5, 6), 21);
    let expected = nine(1, 2, 3, 4, 5, 6, 700, 800, 900);
    assert_eq!(six(u64::MAX, 1, 0, 0, 0, 0), 0);
    calls.stop().unwrap();
    six(9, 9, 9, 9, 9, 9);
    let got = records(&calls);
    assert_eq!(got.len(), 3, "{got:?}");
    let function: Vec<u32> = got.iter().map(|long| long.span.function).collect();
    assert_eq!(function, [11, 12, 11]);
    assert_eq!(got[0].span.args, [1, 2, 3, 4, 5, 6]);
    assert_eq!(got[0].span.result, 21);
    assert_eq!(got[1].span.args, [1, 2, 3, 4, 5, 6]);
    assert_eq!(got[1].stack, [700, 800, 900, 0, 0, 0, 0, 0]);
    assert_eq!(
        (got[1].span.result, got[1].span.header.domain),
        (expected, 3)
    );
    assert_eq!(got[2].span.result, 0);
    for long in &got {
        let span = &long.span;
        assert_eq!(span.header.kind, kind::SPAN);
        assert_eq!(
            (span.pid, span.depth, span.parent),
            (std::process::id(), 0, 0)
        );
        assert!(span.begin < span.end && span.correlation != 0);
    }
    let counters = calls.counters().unwrap();
    let seen: u64 = counters.iter().flat_map(|cpu| cpu.seen).sum();
    assert_eq!(seen, 3, "the call after the stop is not counted");
    drop(probes);
}

#[test]
fn arguments_and_results_by_uprobe_multi() {
    arguments_and_results(BackendChoice::UprobeMulti);
}

#[test]
fn arguments_and_results_by_perf_events() {
    arguments_and_results(BackendChoice::Perf);
}

/// Only the entries are probed of `nested`, which makes calls of its own: these are not inside it.
fn calls_without_ends(backend: BackendChoice) {
    let Some((_turn, calls)) = load(&options(backend)) else {
        return;
    };
    let point = |function: *const (), cookie| Point {
        offset: offset_of(function),
        cookie: Cookie::new(cookie, 0, 0).0,
    };
    let functions = [
        TracedFunction {
            entry: point(nested as *const (), 1),
            end: End::NotSeen,
        },
        TracedFunction::by_return(point(six as *const (), 2)),
    ];
    let scope = Scope::Process(std::process::id());
    let probes = calls
        .attach(Path::new("/proc/self/exe"), scope, &functions)
        .unwrap();
    assert!(probes.failures.is_empty(), "{:?}", probes.failures);
    calls.add_target(std::process::id(), 0).unwrap();
    assert_eq!(nested(2), 9);
    assert_eq!(six(1, 2, 3, 4, 5, 6), 21);
    calls.stop().unwrap();
    let got = records(&calls);
    let kinds: Vec<(u32, u8, u16)> = got
        .iter()
        .map(|long| {
            let span = &long.span;
            (span.function, span.header.kind, span.flags)
        })
        .collect();
    let entry = (1, kind::SPAN, span_flags::END_NOT_RECORDED);
    assert_eq!(kinds, [entry, entry, entry, (2, kind::SPAN, 0)]);
    for long in &got {
        let span = &long.span;
        assert_eq!((span.depth, span.parent), (0, 0));
        assert_eq!(span.begin == span.end, span.flags != 0);
    }
    assert_eq!((got[0].span.args[0], got[2].span.args[0]), (2, 0));
    let counters = calls.counters().unwrap();
    let seen: u64 = counters.iter().flat_map(|cpu| cpu.seen).sum();
    assert_eq!(seen, 4);
}

#[test]
fn calls_without_ends_by_uprobe_multi() {
    calls_without_ends(BackendChoice::UprobeMulti);
}

#[test]
fn calls_without_ends_by_perf_events() {
    calls_without_ends(BackendChoice::Perf);
}

#[test]
fn recursion_has_parents_up_to_the_limit() {
    let Some((_turn, calls)) = load(&options(BackendChoice::Auto)) else {
        return;
    };
    let probes = attach(&calls, &[(nested as *const (), Cookie::new(1, 2, 0))]);
    let deepest = MAX_DEPTH as u64 + 5;
    assert_eq!(nested(deepest), 7 + deepest);
    calls.stop().unwrap();
    let got = records(&calls);
    assert_eq!(got.len(), MAX_DEPTH);
    for (depth, long) in got.iter().enumerate() {
        assert_eq!(usize::from(long.span.depth), depth);
        assert_eq!(long.span.args[0], deepest - depth as u64);
        assert_eq!(long.span.result, 7 + deepest - depth as u64);
        let parent = depth
            .checked_sub(1)
            .map_or(0, |outer| got[outer].span.correlation);
        assert_eq!(long.span.parent, parent);
    }
    let dropped: u64 = calls
        .counters()
        .unwrap()
        .iter()
        .map(|cpu| cpu.dropped[DropReason::TooDeep as usize][2])
        .sum();
    assert_eq!(dropped, 6, "depths MAX_DEPTH to deepest");
    drop(probes);
}

/// The sum of a counter over all CPUs.
fn counted(calls: &Calls, of: impl Fn(&CpuCounters) -> u64) -> u64 {
    calls.counters().unwrap().iter().map(of).sum()
}

#[test]
fn a_full_ring_is_counted() {
    let small = Options {
        ring_bytes: 4096,
        ..options(BackendChoice::Auto)
    };
    let Some((_turn, calls)) = load(&small) else {
        return;
    };
    let probes = attach(&calls, &[(six as *const (), Cookie::new(1, 0, 0))]);
    for n in 0..200 {
        six(n, 0, 0, 0, 0, 0);
    }
    calls.stop().unwrap();
    let written = records(&calls).len() as u64;
    let lost = counted(&calls, |cpu| cpu.dropped[DropReason::RingFull as usize][0]);
    let seen = counted(&calls, |cpu| cpu.seen[0]);
    assert_eq!(seen, 200);
    assert!(lost > 0);
    assert_eq!(seen, written + lost);
    drop(probes);
}

/// Waits for the other threads inside a probed function; makes a nested call of `six`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn waits(barrier: *const Barrier) -> u64 {
    // SAFETY: the tests pass a barrier that outlives the call.
    unsafe { &*barrier }.wait();
    1
}

/// Calls `waits` in `count` threads at the same time; each of them has called it before.
fn wait_in_threads(count: usize) {
    let alone = Barrier::new(1);
    let barrier = Barrier::new(count);
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                waits(&raw const alone);
                waits(&raw const barrier);
            });
        }
    });
}

#[test]
fn more_threads_inside_calls_than_there_is_room_for_are_counted() {
    let small = Options {
        max_threads: 4,
        ..options(BackendChoice::Auto)
    };
    let Some((_turn, calls)) = load(&small) else {
        return;
    };
    let probes = attach(&calls, &[(waits as *const (), Cookie::new(1, 0, 0))]);
    // Each thread makes one call alone, and one together with all others. There is room for four
    // open calls and one idle thread.
    wait_in_threads(4);
    assert_eq!(counted(&calls, |cpu| cpu.seen[0]), 8);
    let lost = |calls: &Calls| {
        counted(calls, |cpu| {
            cpu.dropped[DropReason::ThreadMapFull as usize][0]
        })
    };
    assert_eq!(lost(&calls), 0, "as many as were asked for");
    wait_in_threads(9);
    calls.stop().unwrap();
    let (seen, lost) = (counted(&calls, |cpu| cpu.seen[0]), lost(&calls));
    assert_eq!(seen, 26);
    assert!(lost >= 4, "{lost}");
    assert_eq!(seen, records(&calls).len() as u64 + lost);
    drop(probes);
}

#[test]
fn threads_that_have_returned_leave_room_for_others() {
    let small = Options {
        max_threads: 4,
        ..options(BackendChoice::Auto)
    };
    let Some((_turn, calls)) = load(&small) else {
        return;
    };
    let probes = attach(&calls, &[(six as *const (), Cookie::new(1, 0, 0))]);
    let (called, calls_made) = channel();
    let over = Barrier::new(101);
    std::thread::scope(|scope| {
        for n in 0..100 {
            let (called, over) = (called.clone(), &over);
            scope.spawn(move || {
                six(n, 0, 0, 0, 0, 0);
                called.send(()).unwrap();
                // Not before all have called: a thread that ends is removed anyway.
                over.wait();
            });
            // One after the other: no two are inside the function at the same time.
            calls_made.recv().unwrap();
        }
        assert_eq!(
            counted(&calls, |cpu| cpu.dropped
                [DropReason::ThreadMapFull as usize][0]),
            0
        );
        assert_eq!(counted(&calls, |cpu| cpu.seen[0]), 100);
        assert!(calls.threads().unwrap().len() <= 2, "those that may stay");
        over.wait();
    });
    // A thread can be joined a moment before the kernel has ended it.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !calls.threads().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "all have ended");
        std::thread::yield_now();
    }
    calls.stop().unwrap();
    assert_eq!(records(&calls).len(), 100);
    drop(probes);
}

/// A child process that lives until its input is closed.
fn child() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn processes_for_which_there_is_no_room_are_counted() {
    let small = Options {
        max_processes: 3,
        follow_forks: true,
        ..options(BackendChoice::Auto)
    };
    let Some((_turn, calls)) = load(&small) else {
        return;
    };
    calls.add_target(std::process::id(), 0).unwrap();
    // Each child's entry is removed when it ends, and the next one gets its place.
    for _ in 0..10 {
        end(child());
    }
    assert_eq!(counted(&calls, |cpu| cpu.untraced_processes), 0);
    assert_eq!(calls.targets().unwrap(), [std::process::id()]);
    let children: Vec<Child> = (0..5).map(|_| child()).collect();
    assert_eq!(calls.targets().unwrap().len(), 3);
    assert_eq!(counted(&calls, |cpu| cpu.untraced_processes), 3);
    children.into_iter().for_each(end);
    assert_eq!(calls.targets().unwrap(), [std::process::id()]);
}

#[test]
fn a_processor_that_comes_later_gets_a_ring() {
    let Some((_turn, calls)) = load(&options(BackendChoice::Auto)) else {
        return;
    };
    let count = calls.rings().unwrap().len();
    assert!(
        count >= calls.cpus() as usize,
        "one for each that can ever be"
    );
    assert!(
        calls.adopt(&present_cpus()).unwrap().is_empty(),
        "they have theirs"
    );
    assert!(
        calls.adopt(&[calls.cpus()]).unwrap().is_empty(),
        "no such processor"
    );
    assert_eq!(calls.rings().unwrap().len(), count);
}

#[test]
fn processes_that_are_no_targets_are_not_seen() {
    let Some((_turn, calls)) = load(&options(BackendChoice::Auto)) else {
        return;
    };
    let probes = attach(&calls, &[(six as *const (), Cookie::new(1, 0, 0))]);
    calls.remove_target(std::process::id()).unwrap();
    calls.remove_target(std::process::id()).unwrap();
    // This thread may have an entry already; a new thread has none.
    std::thread::spawn(|| six(0, 0, 0, 0, 0, 0)).join().unwrap();
    calls.stop().unwrap();
    assert!(records(&calls).is_empty());
    assert!(calls.threads().unwrap().is_empty());
    drop(probes);
}

fn points_that_cannot_be_probed_are_named(backend: BackendChoice) {
    let Some((_turn, calls)) = load(&options(backend)) else {
        return;
    };
    let good = Point {
        offset: offset_of(six as *const ()),
        cookie: Cookie::new(1, 0, 0).0,
    };
    // Far beyond the end of the file.
    let bad = Point {
        offset: 1 << 40,
        cookie: Cookie::new(2, 0, 0).0,
    };
    let scope = Scope::Process(std::process::id());
    let probes = calls
        .attach(
            Path::new("/proc/self/exe"),
            scope,
            &[good, bad].map(TracedFunction::by_return),
        )
        .unwrap();
    let failed: Vec<Point> = probes
        .failures
        .iter()
        .map(|failure| failure.point)
        .collect();
    assert_eq!(failed, [bad]);
    calls.add_target(std::process::id(), 0).unwrap();
    six(1, 2, 3, 4, 5, 6);
    calls.stop().unwrap();
    assert_eq!(records(&calls).len(), 1);
}

#[test]
fn points_that_cannot_be_probed_are_named_by_uprobe_multi() {
    points_that_cannot_be_probed_are_named(BackendChoice::UprobeMulti);
}

#[test]
fn points_that_cannot_be_probed_are_named_by_perf_events() {
    points_that_cannot_be_probed_are_named(BackendChoice::Perf);
}

/// One event has the probes of many functions, and its program gets the cookie of each.
#[test]
fn probes_of_one_perf_event_are_told_apart_in_all_threads() {
    let Some((_turn, calls)) = load(&options(BackendChoice::Perf)) else {
        return;
    };
    let functions = [six as *const (), nine as *const (), nested as *const ()];
    let cookies = [u32::MAX, 7, 8].map(|function| Cookie::new(function, 1, 0));
    let pairs: Vec<_> = functions.into_iter().zip(cookies).collect();
    let probes = attach(&calls, &pairs);
    let call = || {
        six(1, 2, 3, 4, 5, 6);
        nine(1, 2, 3, 4, 5, 6, 7, 8, 9);
        nested(0);
    };
    std::thread::scope(|scope| {
        scope.spawn(call);
        scope.spawn(call);
    });
    drop(probes);
    calls.settle();
    call();
    calls.stop().unwrap();
    let mut got: Vec<u32> = records(&calls)
        .iter()
        .map(|long| long.span.function)
        .collect();
    got.sort_unstable();
    assert_eq!(got, [7, 7, 8, 8, u32::MAX, u32::MAX]);
}
