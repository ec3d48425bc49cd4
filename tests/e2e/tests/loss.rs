//! Forces every way in which a call can be lost or never return; the account must be exact.

use gputrace_abi::counters::DropReason;
use gputrace_capture::meta::EndReason;
use gputrace_e2e::{Bench, Comparison, Running, Trace, compare::compare};
use gputrace_timeline::event::CallEnd;
use rustix::process::{Pid, Signal, kill_process};

/// Checks the account of a trace: this many calls were seen, of which the given numbers were lost
/// for the named reasons, and none for other reasons.
fn assert_account(trace: &Trace, seen: usize, lost: &[(DropReason, usize)]) {
    let total = trace.final_ledger().without_values();
    let expected = |reason: &DropReason| {
        lost.iter()
            .find(|(other, _)| other == reason)
            .map_or(0, |(_, count)| *count)
    };
    for reason in DropReason::ALL {
        assert_eq!(
            total.dropped_for(*reason),
            expected(reason) as u64,
            "{} in {total:?}",
            reason.name()
        );
    }
    assert_eq!(total.seen, seen as u64, "{total:?}");
    assert_eq!(
        total.seen,
        total.written + total.unfinished + total.lost(),
        "{total:?}"
    );
}

/// Number of calls of a trace that ended in this way.
fn count(trace: &Trace, how: CallEnd) -> usize {
    trace.calls.iter().filter(|call| call.how == how).count()
}

/// Launches the synthetic program and checks that the trace is sound and does not contradict the
/// log.
fn launched(options: &[&str], arguments: &[&str]) -> Option<(Trace, Comparison)> {
    let bench = Bench::privileged()?;
    let workload: Vec<&str> = ["synthetic/synthetic"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    let trace = bench.launch(options, &workload).trace();
    trace.assert_sound(&EndReason::TargetsGone);
    let comparison = compare(&bench.log(), &trace);
    comparison.assert_right();
    Some((trace, comparison))
}

#[test]
fn ring_full() {
    const THREADS: usize = 200;
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let _ = bench.attach_with_full_rings(&outputs, THREADS);
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    let comparison = compare(&bench.log(), &trace);
    comparison.assert_right();
    let lost = comparison.missing.len();
    assert!(lost > 0, "the ring was never full");
    assert_account(&trace, 2 * THREADS, &[(DropReason::RingFull, lost)]);
}

#[test]
fn too_deep() {
    let Some((trace, comparison)) = launched(&[], &["recurse", "40", "3"]) else {
        return;
    };
    let lost = 3 * (40 - gputrace_abi::frame::MAX_DEPTH);
    assert_eq!(comparison.missing.len(), lost);
    assert_account(&trace, 3 * 40, &[(DropReason::TooDeep, lost)]);
}

#[test]
fn deep_but_not_too_deep() {
    let depth = gputrace_abi::frame::MAX_DEPTH;
    let Some((trace, comparison)) = launched(&[], &["recurse", &depth.to_string(), "10"]) else {
        return;
    };
    comparison.assert_exact();
    assert_account(&trace, depth * 10, &[]);
    assert_eq!(
        trace.calls.iter().map(|call| usize::from(call.depth)).max(),
        Some(depth - 1)
    );
}

#[test]
fn left_by_longjmp() {
    let Some((trace, comparison)) = launched(&[], &["longjmp", "50"]) else {
        return;
    };
    // longjmp leaves three nested calls each time; the call after that is an ordinary one.
    assert_eq!((comparison.missing.len(), comparison.found), (3 * 50, 50));
    assert_account(&trace, 4 * 50, &[(DropReason::LostReturn, 3 * 50)]);
}

#[test]
fn too_many_threads() {
    let Some((trace, comparison)) = launched(&["--max-threads", "4"], &["meet", "16"]) else {
        return;
    };
    // There is extra room of a quarter for threads without open calls, which is used for others
    // while there are no such threads.
    assert_eq!((comparison.missing.len(), comparison.found), (11, 5));
    assert_account(&trace, 16, &[(DropReason::ThreadMapFull, 11)]);
}

#[test]
fn threads_end_inside_calls() {
    let Some((trace, comparison)) = launched(&[], &["thread-exit"]) else {
        return;
    };
    comparison.assert_exact();
    assert_account(&trace, 5, &[]);
    assert_eq!(count(&trace, CallEnd::ThreadExited), 4);
}

#[test]
fn program_executes_another_inside_a_call() {
    let Some((trace, comparison)) = launched(&[], &["exec-inside"]) else {
        return;
    };
    comparison.assert_exact();
    assert_eq!(count(&trace, CallEnd::Executed), 1);
    assert_eq!(trace.final_ledger().total().lost(), 0);
}

#[test]
fn program_is_killed_inside_calls() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .arg("--")
        .arg(bench.program("synthetic/synthetic"))
        .args(["block", "3"]);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.wait_for_stdout("ready");
    gputrace.send("go");
    gputrace.wait_for_stdout("inside");
    let log = bench.log();
    let pid = i32::try_from(log.processes()[0])
        .ok()
        .and_then(Pid::from_raw);
    assert!(pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()));
    assert_eq!(
        gputrace.wait().code(),
        Some(128 + 9),
        "{}",
        gputrace.describe()
    );
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    compare(&log, &trace).assert_exact();
    assert_account(&trace, 6, &[]);
    assert_eq!(count(&trace, CallEnd::ThreadExited), 3);
}

#[test]
fn recording_stops_inside_calls() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["synthetic/synthetic", "block", "3"]);
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, &[], &[program.pid()]);
    program.send("go");
    program.wait_for_stdout("inside");
    gputrace.signal(Signal::INT);
    gputrace.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    compare(&bench.log(), &trace).assert_exact();
    assert_account(&trace, 6, &[]);
    assert_eq!(count(&trace, CallEnd::RecordingStopped), 3);
    // The return probes of those calls are gone; the program must not notice.
    program.close_stdin();
    program.finish();
}
