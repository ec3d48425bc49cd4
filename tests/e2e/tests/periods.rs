//! Collection periods: what begins in one is recorded with its end, and nothing else is.

use std::ops::RangeInclusive;

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{Bench, Running, Trace, compare::compare_if};

/// What is recorded this long after a period began or before it ends is recorded for sure, ns: setting the programs' state
/// takes the kernel milliseconds.
const MARGIN: u64 = 100_000_000;

/// The periods, as the recording's remarks tell them.
fn periods(trace: &Trace) -> Vec<RangeInclusive<u64>> {
    let times = |part: &str| -> Vec<u64> {
        let told = trace.notices.iter().filter(|notice| notice.text.contains(part));
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
    let Some(bench) = Bench::privileged() else { return };
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
    let inside = |begin: u64, end: u64| {
        let surely = |period: &RangeInclusive<u64>| {
            begin >= period.start().saturating_add(MARGIN) && end.saturating_add(MARGIN) <= *period.end()
        };
        periods.iter().any(surely)
    };
    let compared = compare_if(&bench.log(), &trace, |call| {
        call.end.is_some_and(|end| inside(call.begin, end))
    });
    compared.assert_right();
    assert!(compared.missing.is_empty(), "{:?}", compared.missing);
    assert!(compared.found > 100, "{}", compared.found);
    let remark = trace
        .notices
        .iter()
        .find(|notice| notice.text.contains("4 collection period(s)"));
    assert!(remark.is_some(), "{:?}", trace.notices);
}

#[test]
fn a_call_that_returns_after_its_period_is_whole() {
    let Some(bench) = Bench::privileged() else { return };
    let mut program = bench.start(&["synthetic/synthetic", "block", "2"]);
    let mut gputrace = attach(&bench, &program, &["0:5:1", "600:1:1"]);
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
    let across = trace.calls.iter().filter(|call| call.end > *period.end());
    assert_eq!(across.count(), 2, "{:?}", trace.calls);
    assert!(trace.calls.iter().all(|call| period.contains(&call.begin)));
    compare_if(&bench.log(), &trace, |call| period.contains(&call.begin)).assert_exact();
}

#[test]
fn a_call_that_began_before_its_period_is_not_there() {
    let Some(bench) = Bench::privileged() else { return };
    let mut program = bench.start(&["synthetic/synthetic", "block", "2"]);
    let mut gputrace = attach(&bench, &program, &["5:600:1"]);
    program.send("");
    program.wait_for_stdout("inside");
    gputrace.wait_for_stderr("collection period 1 begins");
    program.close_stdin();
    program.finish();
    gputrace.finish();
    let trace = bench.outputs(0).trace();
    trace.assert_sound(&EndReason::TargetsGone);
    assert!(trace.calls.is_empty(), "{:?}", trace.calls);
    let ledger = trace.ledger.as_ref().expect("an account");
    assert_eq!(ledger.total().seen, 0);
}
