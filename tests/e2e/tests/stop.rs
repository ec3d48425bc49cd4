//! However gputrace ends, the outputs are complete or readable up to that point, the program runs
//! on, and no probe is left behind.

use std::{path::Path, time::Instant};

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench, CallLog, Running, Trace,
    bench::figure,
    compare::{compare_if, compare_killed},
    csvout, kernel,
    process::{PATIENCE, eventually, now},
    trace::last_epoch,
};
use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to gputrace, and waits until it has ended. The time that this took is a figure
/// called `name`.
fn stop(name: &str, gputrace: &mut Running, signal: Signal) {
    let begin = Instant::now();
    gputrace.signal(signal);
    gputrace.wait();
    figure(&format!("stop.{name}"), begin.elapsed().as_secs_f64(), "s");
}

/// Launches a program that makes calls until its input ends, and waits until it has made some.
fn launch_loop(bench: &Bench, rate: &str) -> Running {
    let mut command = bench.gputrace(&bench.outputs(0));
    command
        .args(["-f", "csv,pftrace", "--"])
        .arg(bench.program("hip_calls"))
        .args(["loop", rate]);
    let gputrace = Running::start("gputrace", &mut command);
    gputrace.wait_for_stdout("ready");
    eventually("calls", PATIENCE, || {
        CallLog::count(&bench.logs(), None) > 100
    });
    gputrace
}

/// The last call in a round of `hip_calls` without a GPU.
const LAST_CALL: &str = "__hipPushCallConfiguration";

/// Time per call of a probed function, ns.
fn time_per_call(program: &mut Running) -> f64 {
    program.ask("time").parse().unwrap_or(f64::NAN)
}

/// Attaches to a program that measures the time of a probed function, ends gputrace by a signal,
/// and asserts that the program's code is as it was before. The times are figures.
fn leaves_nothing(name: &str, options: &[&str], signal: Signal) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.copy_synthetic();
    let mut program = bench.start(&["synthetic/synthetic", "timing", "5000"]);
    let pid = program.pid();
    let mut time_call = |when: &str| {
        let time = time_per_call(&mut program);
        figure(&format!("stop.{name}.call_{when}"), time, "ns");
    };
    time_call("before");
    assert!(kernel::breakpoints(pid, &library).is_empty());
    let mut gputrace = bench.attach(&bench.outputs(0), options, &[pid]);
    assert!(
        !kernel::breakpoints(pid, &library).is_empty(),
        "the check for breakpoints sees none"
    );
    let is_multi = bench.outputs(0).trace().recording.backend == "uprobe_multi";
    assert_eq!(
        is_multi,
        !kernel::probes_on(&library).is_empty(),
        "the check for probes sees none"
    );
    time_call("during");

    stop(name, &mut gputrace, signal);
    // The kernel removes the probes of a killed process by itself, a little later.
    let begin = Instant::now();
    eventually("INVARIANT: no probe is left", PATIENCE, || {
        kernel::probes_on(&library).is_empty()
            && kernel::breakpoints(pid, &library).is_empty()
            && kernel::definitions().is_empty()
    });
    figure(
        &format!("stop.{name}.removal"),
        begin.elapsed().as_secs_f64(),
        "s",
    );
    time_call("after");
    program.close_stdin();
    program.finish();
}

#[test]
fn nothing_is_left_after_ctrl_c() {
    leaves_nothing("ctrl_c", &[], Signal::INT);
}

#[test]
fn nothing_is_left_after_a_kill() {
    leaves_nothing("kill", &[], Signal::KILL);
}

#[test]
fn nothing_is_left_after_a_kill_with_the_perf_backend() {
    leaves_nothing("kill_perf", &["--backend", "perf"], Signal::KILL);
}

#[test]
fn nothing_is_left_after_ctrl_c_with_the_perf_backend() {
    leaves_nothing("ctrl_c_perf", &["--backend", "perf"], Signal::INT);
}

#[test]
fn what_is_left_when_the_probes_owner_is_killed_is_removed_later() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.copy_synthetic();
    let mut program = bench.start(&["synthetic/synthetic", "timing", "5000"]);
    let pid = program.pid();
    let options = ["--backend", "perf", "--include", "^hipSyntheticPush$"];
    let mut gputrace = bench.attach(&bench.outputs(0), &options, &[pid]);
    let defined = kernel::definitions();
    assert!(!defined.is_empty(), "the check for definitions sees none");
    let owner = kernel::owner_of_probes(gputrace.pid()).expect("the owner of the probes");
    let owner = Pid::from_raw(owner.cast_signed()).expect("a process id");
    kill_process(owner, Signal::KILL).expect("the owner is killed");
    eventually("no breakpoint is left", PATIENCE, || {
        kernel::breakpoints(pid, &library).is_empty()
    });
    gputrace.wait_for_stderr("that holds the probes has been killed");
    gputrace.signal(Signal::INT);
    gputrace.finish();
    let left: Vec<_> = kernel::definitions()
        .intersection(&defined)
        .cloned()
        .collect();
    assert_eq!(left.len(), defined.len(), "who removed them?");

    // Two recordings at once: neither may remove what the other one uses.
    let mut others: Vec<_> = [1, 2]
        .map(|number| bench.attach(&bench.outputs(number), &options, &[pid]))
        .into();
    eventually("INVARIANT: leftovers are removed", PATIENCE, || {
        kernel::definitions().is_disjoint(&defined)
    });
    let _ = time_per_call(&mut program);
    for gputrace in &mut others {
        gputrace.signal(Signal::INT);
        gputrace.finish();
    }
    for number in [1, 2] {
        let trace = bench.outputs(number).trace();
        trace.assert_sound(&EndReason::Interrupted);
        assert!(!trace.calls.is_empty(), "recording {number} has no call");
    }
    eventually("INVARIANT: no definition is left", PATIENCE, || {
        kernel::definitions().is_empty() && kernel::breakpoints(pid, &library).is_empty()
    });
    program.close_stdin();
    program.finish();
}

#[test]
fn ctrl_c_in_the_terminal() {
    // The terminal also sends it to the program, which dies of it either before or after gputrace
    // notices.
    for _ in 0..10 {
        let Some(bench) = Bench::privileged() else {
            return;
        };
        let mut gputrace = launch_loop(&bench, "500");
        gputrace.signal_group(Signal::INT);
        gputrace.wait();
        let outputs = bench.outputs(0);
        let trace = outputs.trace();
        let reason = trace.end.as_ref().map(|end| end.reason.clone());
        assert!(
            matches!(
                reason,
                Some(EndReason::Interrupted | EndReason::TargetsGone)
            ),
            "{reason:?}"
        );
        trace.assert_sound(&reason.unwrap_or_default());
        trace.assert_lossless();
        compare_killed(&bench.log(), &trace).assert_exact();
        for rest in ["_hip_api_trace.csv", "_loss.csv", "_results.pftrace"] {
            assert!(
                outputs.file(rest).exists(),
                "{rest} was not made: {}",
                gputrace.describe()
            );
        }
        csvout::assert_same(&outputs, &trace);
    }
}

#[test]
fn sigterm() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let mut gputrace = bench.attach(&bench.outputs(0), &["-f", "csv,pftrace"], &[program.pid()]);
    bench.wait_for_calls(&[program.pid()], 100);
    stop("sigterm", &mut gputrace, Signal::TERM);
    gputrace.finish();
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
    let trace = bench.outputs(0).trace();
    trace.assert_sound(&EndReason::Interrupted);
    csvout::assert_same(&bench.outputs(0), &trace);
}

#[test]
fn a_launched_program_outlives_sigterm_to_gputrace() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut gputrace = launch_loop(&bench, "500");
    let pid = bench.log().processes()[0];
    gputrace.signal(Signal::TERM);
    gputrace.wait();
    let trace = bench.outputs(0).trace();
    let reason = trace
        .end
        .as_ref()
        .map(|end| end.reason.clone())
        .unwrap_or_default();
    trace.assert_sound(&reason);
    // It may have been told to end, too, but it must not hang: its input has ended with gputrace's.
    gputrace.close_stdin();
    let process = format!("/proc/{pid}/stat");
    eventually("the program ends", PATIENCE, || {
        // A zombie whose new parent does not reap it counts as ended.
        std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn second_ctrl_c_gives_up_at_once() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    let mut gputrace = bench.attach(&bench.outputs(0), &["-f", "csv,pftrace"], &[program.pid()]);
    bench.wait_for_calls(&[program.pid()], 5000);
    gputrace.signal(Signal::INT);
    stop("second_ctrl_c", &mut gputrace, Signal::INT);
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
    // Whether or not gputrace had finished by then, the captured data can be read.
    let capture = bench.outputs(0).capture();
    compare_if(&bench.log(), &Trace::read(&capture), |_| false).assert_right();
}

/// Runs `gputrace export` on a capture. Returns its exit status and its messages.
fn export(bench: &Bench, capture: &Path, number: u32) -> (Option<i32>, String) {
    let outputs = bench.outputs(number);
    let mut command = bench.gputrace_bare();
    command
        .arg("export")
        .arg(capture)
        .args(["-f", "csv,pftrace", "-o", "trace", "-d"])
        .arg(outputs.directory());
    let mut export = Running::start("gputrace export", &mut command);
    let status = export.wait();
    (status.code(), export.stderr())
}

#[test]
fn a_killed_recording_can_be_exported() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "1000"]);
    let mut gputrace = bench.attach(&bench.outputs(0), &["-f", "csv,pftrace"], &[program.pid()]);
    let begin = now();
    bench.wait_for_calls(&[program.pid()], 10_000);
    let covered = now();
    let capture = bench.outputs(0).capture();
    eventually("the capture holds these calls", PATIENCE, || {
        last_epoch(&capture) >= covered
    });
    let killed = now();
    gputrace.signal(Signal::KILL);
    gputrace.wait();
    assert!(program.is_running());
    bench.wait_for_calls(&[program.pid()], 1000);
    program.close_stdin();
    program.finish();

    let trace = Trace::read(&capture);
    assert_eq!(trace.end, None);
    // Only calls that were still in the rings at that moment may be missing.
    let window = begin..=last_epoch(&capture);
    let missing = killed.saturating_sub(*window.end());
    figure("stop.killed.missing", missing as f64 / 1e6, "ms");
    let comparison = gputrace_e2e::compare::compare_within(&bench.log(), &trace, &window);
    comparison.assert_exact();
    assert!(comparison.found > 1000, "only {} calls", comparison.found);

    let (status, said) = export(&bench, &capture, 1);
    assert_eq!(status, Some(15), "{said}");
    assert!(
        said.contains("killed") || said.contains("no end mark"),
        "does not say that something is missing: {said}"
    );
    csvout::assert_same(&bench.outputs(1), &trace);
}

#[test]
fn a_launched_program_outlives_a_killed_gputrace() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut gputrace = launch_loop(&bench, "500");
    gputrace.signal(Signal::KILL);
    gputrace.wait();
    bench.wait_for_calls(&bench.log().processes(), 500);
    compare_if(&bench.log(), &bench.outputs(0).trace(), |_| false).assert_right();
}

#[test]
fn a_launched_program_outlives_a_gputrace_killed_at_its_start() {
    // The program's process exists, and waits until the probes are attached.
    for _ in 0..10 {
        let Some(bench) = Bench::privileged() else {
            return;
        };
        let mut command = bench.gputrace(&bench.outputs(0));
        command
            .arg("--")
            .arg(bench.program("hip_calls"))
            .args(["single", "1"]);
        let mut gputrace = Running::start("gputrace", &mut command);
        gputrace.wait_for_stderr("recording");
        gputrace.signal(Signal::KILL);
        gputrace.wait();
        eventually("the program runs to its last call", PATIENCE, || {
            // It may not have started its log yet.
            CallLog::count(&bench.logs(), None) > 0
                && bench
                    .log()
                    .calls()
                    .last()
                    .is_some_and(|call| call.name == LAST_CALL && call.end.is_some())
        });
    }
}
