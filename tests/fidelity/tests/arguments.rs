//! Flags and structures among the arguments of calls, on real runtimes that do what they are asked for: shown as the program that
//! gave them, or got them, says.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, process::Command};

use gputrace_e2e::{Running, Trace};
use gputrace_fidelity::{
    release::preload,
    scenario::{WORKLOADS, Workload},
};
use serde_json::Value;

use support::{gputrace, release};

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let said = place.path().join("said");
    let workload = Workload {
        program: "arguments",
        arguments: &[],
        ..*WORKLOADS.first().expect("a workload")
    };
    let program = release.program(&workload, workload.arguments);
    let mut command = Command::new(gputrace());
    command
        .args(["--hip-trace", "-f", "csv", "-o", "run", "-d"])
        .arg(place.path().join("out"))
        .arg("--")
        .arg(program.get_program())
        .args(program.get_args())
        .env("LD_PRELOAD", preload().expect("the software GPU"))
        .env("SOFTGPU_LOG", place.path().join("truth"))
        .env("WORKLOAD_LOG", &said);
    Running::start("gputrace", &mut command).finish();

    let trace = Trace::read(&place.path().join("out/run.gtcap"));
    trace.assert_lossless();
    let lines = fs::read_to_string(&said).expect("what the program says");
    let mut checked = 0;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("an object");
        let word = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
        let wanted = format!("{}={}", word("name"), word("value"));
        let of_function = trace.calls_of(word("function"));
        let shown: Vec<_> = of_function.map(|call| trace.arguments(call)).collect();
        assert!(
            shown.iter().flatten().any(|argument| *argument == wanted),
            "ROCm {name}: {}: no {wanted} in {shown:?}",
            word("function")
        );
        checked += 1;
    }
    assert!(checked > 20, "only {checked} arguments");
}

#[test]
fn on_rocm_5_2_3() {
    on("5.2.3");
}

#[test]
fn on_rocm_5_7_1() {
    on("5.7.1");
}

#[test]
fn on_rocm_6_4_3() {
    on("6.4.3");
}
