//! Collection periods: calls that begin in one are recorded with their end, and no others are.
#![expect(clippy::expect_used, reason = "tests")]

use std::ops::RangeInclusive;

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{Bench, Running, Trace, bench::figure, compare::compare_if};

/// The periods according to the recording's remarks.
fn periods(trace: &Trace) -> Vec<RangeInclusive<u64>> {
    let times = |part: &str| -> Vec<u64> {
        let told = trace
            .notices
            .iter()
            .filter(|notice| notice.text.contains(part));
        told.map(|notice| notice.time).collect()
    };
    let end = trace.end.as_ref().map_or(u64::MAX, |end| end.time);
    let ends = times(" ends: what begins").into_iter().chain([end]);
    times(" begins.")
        .into_iter()
        .zip(ends)
        .map(|(begin, end)| begin..=end)
        .collect()
}

fn attach(bench: &Bench, program: &Running, periods: &[&str]) -> Running {
    let options: Vec<&str> = periods.iter().flat_map(|period| ["-P", period]).collect();
    bench.attach(&bench.outputs(0), &options, &[program.pid()])
}

#[test]
fn calls_are_recorded_in_periods_only() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let mut gputrace = attach(&bench, &program, &["0.1:0.4:3", "0.001:0.3:1"]);
    let status = gputrace.wait();
    assert!(status.success(), "{}", gputrace.describe());
    program.close_stdin();
    program.finish();
    let trace = bench.outputs(0).trace();
    trace.assert_sound(&EndReason::DurationOver);
    trace.assert_lossless();
    let periods = periods(&trace);
    assert_eq!(periods.len(), 4, "{:?}", trace.notices);
    for call in &trace.calls {
        assert!(
            periods.iter().any(|period| period.contains(&call.begin)),
            "a call at {} in none of {periods:?}",
            call.begin
        );
    }
    // Setting the programs' state takes its time, more on a busy machine. But between the first call
    // that is recorded in a period and the last one, none is missing.
    let recorded = periods.iter().map(|period| {
        let calls = || {
            trace
                .calls
                .iter()
                .filter(|call| period.contains(&call.begin))
        };
        let begin = calls().map(|call| call.begin).min();
        let begin = begin.unwrap_or_else(|| panic!("no call is in {period:?}"));
        figure("periods.late", (begin - period.start()) as f64 / 1e6, "ms");
        begin..=calls().map(|call| call.end).max().unwrap_or(begin)
    });
    let recorded: Vec<RangeInclusive<u64>> = recorded.collect();
    let compared = compare_if(&bench.log(), &trace, |call| {
        // The log's times lie around those of the recording.
        let surely = |period: &RangeInclusive<u64>| {
            call.begin > *period.start() && call.end.is_some_and(|end| end < *period.end())
        };
        recorded.iter().any(surely)
    });
    compared.assert_exact();
    assert!(compared.found > 100, "{}", compared.found);
    let remark = trace
        .notices
        .iter()
        .find(|notice| notice.text.contains("4 collection periods"));
    assert!(remark.is_some(), "{:?}", trace.notices);
}

/// Gives a program more and more seconds for something, until it is done in time. `attempt` tells
/// whether it was.
fn with_enough_time(attempt: impl FnMut(u32) -> bool) {
    assert!([1, 5, 25, 125].into_iter().any(attempt), "not in time");
}

#[test]
fn a_call_that_returns_after_its_period_is_whole() {
    with_enough_time(a_call_returns_after_a_period);
}

/// False if the call began too late for that.
fn a_call_returns_after_a_period(seconds: u32) -> bool {
    let Some(bench) = Bench::privileged() else {
        return true;
    };
    let mut program = bench.start(&["synthetic/synthetic", "block", "2"]);
    let mut gputrace = attach(&bench, &program, &[&format!("0:{seconds}:1"), "600:1:1"]);
    gputrace.wait_for_stderr("collection period 1 begins");
    program.send("");
    program.wait_for_stdout("inside");
    gputrace.wait_for_stderr("collection period 1 ends");
    program.close_stdin();
    program.finish();
    gputrace.finish();
    let trace = bench.outputs(0).trace();
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    let period = periods(&trace).first().cloned().expect("a period");
    let log = bench.log();
    let middle = period.start().midpoint(*period.end());
    if log.calls().any(|call| call.begin > middle) {
        return false;
    }
    let across = trace.calls.iter().filter(|call| call.end > *period.end());
    assert_eq!(across.count(), 2, "{:?}", trace.calls);
    assert!(trace.calls.iter().all(|call| period.contains(&call.begin)));
    compare_if(&log, &trace, |call| period.contains(&call.begin)).assert_exact();
    true
}

#[test]
fn a_call_that_began_before_its_period_is_not_there() {
    with_enough_time(a_call_begins_before_a_period);
}

/// False if the call began within it.
fn a_call_begins_before_a_period(seconds: u32) -> bool {
    let Some(bench) = Bench::privileged() else {
        return true;
    };
    let mut program = bench.start(&["synthetic/synthetic", "block", "2"]);
    let mut gputrace = attach(&bench, &program, &[&format!("{seconds}:600:1")]);
    program.send("");
    program.wait_for_stdout("inside");
    gputrace.wait_for_stderr("collection period 1 begins");
    program.close_stdin();
    program.finish();
    gputrace.finish();
    let trace = bench.outputs(0).trace();
    trace.assert_sound(&EndReason::TargetsGone);
    let period = periods(&trace).first().cloned().expect("a period");
    if bench
        .log()
        .calls()
        .any(|call| call.begin >= *period.start())
    {
        return false;
    }
    assert!(trace.calls.is_empty(), "{:?}", trace.calls);
    let ledger = trace.ledger.as_ref().expect("an account");
    assert_eq!(ledger.total().seen, 0);
    true
}
