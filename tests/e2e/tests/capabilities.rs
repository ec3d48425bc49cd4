//! Runs gputrace with some capabilities instead of all: the main rows of docs/capabilities.md.
//!
//! It runs as root without the other capabilities, not as an ordinary user, who might not be
//! allowed to access this checkout.

use std::process::Command;

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench, Outputs, Running,
    compare::{compare, compare_if},
};

/// A command that runs gputrace with only these capabilities, and with these options.
fn gputrace_with(
    bench: &Bench,
    capabilities: &[&str],
    outputs: &Outputs,
    options: &[&str],
) -> Command {
    let gputrace = bench.gputrace(outputs);
    let mut command = Command::new("setpriv");
    let mut kept = "-all".to_owned();
    for capability in capabilities {
        kept.push_str(",+");
        kept.push_str(capability);
    }
    // After exec as root, a process has at most the bounding set.
    command
        .arg(format!("--bounding-set={kept}"))
        .arg("--inh-caps=-all");
    command
        .arg(gputrace.get_program())
        .args(gputrace.get_args())
        .args(options);
    for (name, value) in gputrace.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(bench.path());
    command
}

/// The minimum for a recording.
const LEAST: [&str; 2] = ["bpf", "perfmon"];

fn bpf_and_perfmon_launch(backend: &str) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let options = ["-s", "-f", "csv", "--backend", backend];
    let mut command = gputrace_with(&bench, &LEAST, &outputs, &options);
    command
        .arg("--")
        .arg(bench.program("hip_calls"))
        .args(["single", "5"]);
    Running::start("gputrace", &mut command).finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    compare(&bench.log(), &trace).assert_exact();
}

#[test]
fn bpf_and_perfmon_launch_by_default() {
    bpf_and_perfmon_launch("auto");
}

/// The tracing file system is root's, so root needs no further capability.
#[test]
fn bpf_and_perfmon_launch_by_perf_events() {
    bpf_and_perfmon_launch("perf");
}

#[test]
fn bpf_and_perfmon_attach() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // The program has all capabilities. gputrace must have as many to read its memory, but not to
    // read its mappings.
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let outputs = bench.outputs(0);
    let mut command = gputrace_with(
        &bench,
        &["bpf", "perfmon", "sys_ptrace"],
        &outputs,
        &["-f", "csv"],
    );
    command.args(["-p", &program.pid().to_string()]);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.wait_for_stderr("recording");
    bench.wait_for_calls(&[program.pid()], 300);
    gputrace.signal(rustix::process::Signal::INT);
    gputrace.finish();
    program.close_stdin();
    program.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    assert!(trace.calls.len() > 100, "only {} calls", trace.calls.len());
    compare_if(&bench.log(), &trace, |_| false).assert_right();
}

#[test]
fn bpf_and_perfmon_see_waits_for_processors() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = gputrace_with(&bench, &LEAST, &outputs, &["--sched", "-f", "csv"]);
    command.args(["--", "sleep", "0.01"]);
    Running::start("gputrace", &mut command).finish();
    assert!(!outputs.trace().observations.is_empty());
}

/// Asserts that gputrace refuses with the reason, instead of recording nothing.
fn refused(capabilities: &[&str], options: &[&str], needs: &str) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut command = gputrace_with(&bench, capabilities, &bench.outputs(0), options);
    command
        .arg("--")
        .arg(bench.program("hip_calls"))
        .args(["single", "1"]);
    let (code, said) = Running::start("gputrace", &mut command).fail();
    assert_eq!(code, 6, "{said}");
    assert!(said.contains(needs), "{said}");
    assert!(bench.log().is_empty(), "the program was started");
}

#[test]
fn nothing_without_capabilities() {
    refused(&[], &[], "CAP_BPF");
}
