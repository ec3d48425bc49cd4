//! Records the same calls with both ways of attaching probes.

use std::collections::BTreeSet;

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench,
    compare::{compare, compare_within},
    csvout, kernel,
    process::now,
};
use gputrace_timeline::event::Call;
use rustix::process::Signal;

fn launch(backend: &str, workload: &[&str]) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--backend", backend, "--sys-trace", "-f", "csv"],
        workload,
    );
    let trace = outputs.trace();
    assert_eq!(trace.recording.backend, backend);
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    compare(&bench.log(), &trace).assert_exact();
    csvout::assert_same(&outputs, &trace);
}

/// Records a running program, `times` times in a row.
fn attach(backend: &str, times: u32) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    for number in 0..times {
        let outputs = bench.outputs(number);
        let options = ["--backend", backend, "--sys-trace", "-f", "csv"];
        let mut gputrace = bench.attach(&outputs, &options, &[program.pid()]);
        let begin = now();
        bench.wait_for_calls(&[program.pid()], 300);
        let window = begin..=now();
        gputrace.signal(Signal::INT);
        gputrace.finish();
        let (log, mut trace) = (bench.log(), outputs.trace());
        assert_eq!(trace.recording.backend, backend);
        trace.assert_sound(&EndReason::Interrupted);
        trace.assert_lossless();
        // HIP calls HSA, also in the call in which gputrace attached.
        let of_a_call_before = |call: &Call| {
            let calls = log.threads.get(&(call.pid, call.tid)).into_iter().flatten();
            let mut around = calls.filter(|one| one.begin <= call.begin);
            call.parent == 0 && around.any(|one| one.end.is_none_or(|end| call.end <= end))
        };
        let is_hsa = |call: &Call| trace.name(call).starts_with("hsa_");
        let inside: BTreeSet<u64> = (trace.calls.iter())
            .filter(|call| is_hsa(call) && of_a_call_before(call))
            .map(|call| call.correlation)
            .collect();
        trace
            .calls
            .retain(|call| !inside.contains(&call.correlation));
        compare_within(&log, &trace, &window).assert_exact();
    }
    program.close_stdin();
    program.finish();
}

#[test]
fn launch_with_uprobe_multi() {
    launch("uprobe_multi", &["hip_calls", "threads", "4", "10"]);
}

#[test]
fn launch_with_perf_events() {
    launch("perf", &["hip_calls", "threads", "4", "10"]);
}

#[test]
fn launch_with_perf_events_across_forks() {
    launch("perf", &["hip_calls", "fork", "2", "5"]);
}

#[test]
fn launch_with_perf_events_across_exec() {
    launch("perf", &["hip_calls", "exec", "2", "5"]);
}

#[test]
fn attach_with_uprobe_multi() {
    attach("uprobe_multi", 2);
}

/// With a perf event for each probe, the seventh recording in a row hung: the kernel was still
/// removing the probes of the first ones.
#[test]
fn attach_with_perf_events_ten_times() {
    attach("perf", 10);
    assert_eq!(kernel::definitions(), BTreeSet::new());
}
