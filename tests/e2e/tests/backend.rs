//! Records the same calls with both ways of attaching probes.

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench,
    compare::{compare_if, compare_within},
    csvout,
    process::now,
};
use rustix::process::Signal;

/// Functions of all kinds: without arguments, with stack arguments, returning a pointer, mangled.
const FUNCTIONS: [&str; 5] = [
    "hipGetLastError",
    "hipMalloc",
    "hipModuleLaunchKernel",
    "hipGetErrorName",
    "hipExtModuleLaunchKernel",
];
/// The same as a filter. There are few, because the kernel takes long to remove probes of perf
/// events.
const FILTER: &str =
    "^(hipGetLastError|hipMalloc|hipModuleLaunchKernel|hipGetErrorName)$|hipExtModuleLaunchKernel";

fn chosen(name: &str) -> bool {
    FUNCTIONS.contains(&name)
}

fn launch(backend: &str, workload: &[&str]) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--backend", backend, "--include", FILTER, "-f", "csv"],
        workload,
    );
    let trace = outputs.trace();
    assert_eq!(trace.recording.backend, backend);
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    compare_if(&bench.log(), &trace, |call| chosen(&call.name)).assert_exact();
    assert!(trace.calls.iter().all(|call| chosen(trace.name(call))));
    csvout::assert_same(&outputs, &trace);
}

fn attach(backend: &str) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    for number in 0..2 {
        let outputs = bench.outputs(number);
        let options = ["--backend", backend, "--include", FILTER, "-f", "csv"];
        let mut gputrace = bench.attach(&outputs, &options, &[program.pid()]);
        let begin = now();
        bench.wait_for_calls(&[program.pid()], 300);
        let window = begin..=now();
        gputrace.signal(Signal::INT);
        gputrace.finish();
        let (mut log, trace) = (bench.log(), outputs.trace());
        for calls in log.threads.values_mut() {
            calls.retain(|call| chosen(&call.name));
        }
        assert_eq!(trace.recording.backend, backend);
        trace.assert_sound(&EndReason::Interrupted);
        trace.assert_lossless();
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
    attach("uprobe_multi");
}

#[test]
fn attach_with_perf_events() {
    attach("perf");
}
