//! Several gputraces at once: `gputrace status` lists them, and a file ends all of them.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{fs, path::PathBuf, process::Command};

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{Bench, Running, bench::with_own_mounts};
use rustix::process::Signal;
use serde_json::Value;

/// Ends all recordings of a node, as its documentation says.
const STOP_FILE: &str = "/run/gputrace.stop";

/// What `gputrace status` says of a process; `None` if it does not list it.
fn status(bench: &Bench, pid: u32) -> Option<Value> {
    let mut command = bench.gputrace_bare();
    let output = command.args(["status", "--json"]).output();
    let output = output.expect("gputrace");
    assert!(output.status.success(), "{output:?}");
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = all.get("recorders").and_then(Value::as_array).cloned();
    let mut all = all.expect("recorders").into_iter();
    all.find(|one| one.get("pid").and_then(Value::as_u64) == Some(pid.into()))
}

#[test]
fn who_records_is_listed_and_nobody_disturbs_the_others() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let pid = program.pid();
    let (first, second) = (bench.outputs(0), bench.outputs(1));
    let mut recording = bench.attach(&first, &[], &[pid]);
    let mut flight = bench.attach(&second, &["--flight", "1m"], &[pid]);
    let mut command = bench.gputrace_bare();
    command.args(["top", "--format", "json", "-p", &pid.to_string()]);
    let mut top = Running::start("top", &mut command);
    top.wait_for_stdout("hipModuleLaunchKernel");

    for (gputrace, kind) in [
        (&recording, "recording"),
        (&flight, "flight"),
        (&top, "top"),
    ] {
        let told = status(&bench, gputrace.pid()).expect(kind);
        let number = |member: &str| told.get(member).and_then(Value::as_u64);
        assert_eq!(told.get("kind"), Some(&Value::from(kind)), "{told}");
        for member in ["running_ns", "memory_bytes", "written_bytes"] {
            assert!(
                number(member).is_some_and(|value| value > 0),
                "{member}: {told}"
            );
        }
        // The rings alone.
        let kernel = number("kernel_memory_bytes");
        assert!(kernel.is_some_and(|bytes| bytes > 1 << 20), "{told}");
        let words = told.get("command").and_then(Value::as_array);
        let last = words.and_then(|words| words.last());
        assert_eq!(last, Some(&Value::from(pid.to_string())), "{told}");
    }
    let told = status(&bench, recording.pid()).expect("the recording");
    let capture = told.get("capture").and_then(Value::as_str);
    let capture = capture.map(PathBuf::from);
    assert_eq!(capture, first.capture().canonicalize().ok(), "{told}");
    // What looks, or exports, does not record.
    assert!(status(&bench, program.pid()).is_none());

    // Each ends without the others.
    top.signal(Signal::INT);
    top.finish();
    flight.signal(Signal::INT);
    flight.finish();
    assert!(status(&bench, flight.pid()).is_none());
    assert!(status(&bench, recording.pid()).is_some());
    recording.signal(Signal::INT);
    recording.finish();
    program.close_stdin();
    program.finish();
    let trace = first.trace();
    trace.assert_sound(&EndReason::Interrupted);
    assert!(!trace.calls.is_empty());
}

/// A command in a mount namespace with a `/run` of its own, after some shell code there.
fn with_own_run(command: &Command, prepare: &str) -> Command {
    let script = format!("set -e; mount -t tmpfs none /run; {prepare} exec \"$@\"");
    let mut own = with_own_mounts(&script);
    own.arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        own.current_dir(directory);
    }
    own
}

/// Makes the file in the mount namespace of a gputrace.
fn switch_off(gputrace: &Running) {
    let file = format!("/proc/{}/root{STOP_FILE}", gputrace.pid());
    fs::write(file, "").expect("a file in the namespace's /run");
}

#[test]
fn a_file_ends_recordings_and_refuses_new_ones() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let pid = program.pid().to_string();
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command.args(["-p", &pid]);
    let mut recording = Running::start("gputrace", &mut with_own_run(&command, ""));
    recording.wait_for_stderr("recording");
    switch_off(&recording);
    recording.finish();
    let said = recording.stderr();
    let expected = format!("{STOP_FILE} exists: the recording ends");
    assert!(said.contains(&expected), "{said}");
    outputs.trace().assert_sound(&EndReason::Interrupted);
    assert!(program.is_running());

    let prepare = format!("touch {STOP_FILE};");
    let mut refused = Running::start("gputrace", &mut with_own_run(&command, &prepare));
    let (status, said) = refused.fail();
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("recording is switched off on this node"),
        "{said}"
    );
    let mut told = bench.gputrace_bare();
    let told = with_own_run(told.arg("status"), &prepare).output();
    let told = told.expect("gputrace");
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(said.contains(&format!("`sudo rm {STOP_FILE}`")), "{said}");
    program.close_stdin();
    program.finish();
}

#[test]
fn a_launched_program_outlives_the_recording() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .arg("--")
        .arg(bench.program("hip_calls"))
        .args(["loop", "500"]);
    let mut own = with_own_run(&command, "");
    own.env("WORKLOAD_LOG", bench.logs());
    let mut gputrace = Running::start("gputrace", &mut own);
    gputrace.wait_for_stdout("ready");
    switch_off(&gputrace);
    gputrace.wait_for_stderr("waiting for process");
    // It waits for its input, and its status is gputrace's.
    assert!(gputrace.is_running());
    gputrace.close_stdin();
    gputrace.finish();
    outputs.trace().assert_sound(&EndReason::Interrupted);
}
