//! `gputrace top`, held against the software GPU's log.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

mod support;

use std::{fs, path::Path, process::Command, time::Duration};

use gputrace_e2e::Running;
use gputrace_fidelity::{
    release::{Release, equip},
    run::ROOM,
};
use rustix::process::Signal;
use serde_json::Value;

use support::{gputrace, kernels, program, release};

/// Kernels of 1.5 ms, one every 3 ms: the GPU is busy half of the time.
const SETTINGS: &str = "default_duration = { fixed_ns = 1_500_000 }\n";
const HALF: &[&str] = &["classes=1", "from=1", "to=1", "every=3000", "seconds=3"];
const LONGER: &[&str] = &["classes=1", "from=1", "to=1", "every=3000", "seconds=20"];

/// The program's kernel.
const NAME: &str = "mixed";

/// How long any of the kernels ran in `begin..end`, ns.
fn busy(kernels: &[(u64, u64)], begin: u64, end: u64) -> u64 {
    let mut reached = begin;
    let mut busy = 0;
    for (from, to) in kernels {
        let (from, to) = ((*from).max(reached), (*to).min(end));
        if to > from {
            busy += to - from;
            reached = to;
        }
    }
    busy
}

fn number(value: &Value, pointer: &str) -> u64 {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

/// The place of a run, with the software GPU's settings.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let prepared = fs::write(place.path().join("softgpu.toml"), SETTINGS)
        .and_then(|()| fs::create_dir_all(place.path().join("truth")));
    prepared.unwrap_or_else(|error| panic!("{error}"));
    place
}

/// Runs `gputrace top` with `arguments` to its end. Returns its lines.
fn top(place: &Path, arguments: &[&str], program: Option<&Command>) -> Vec<Value> {
    let mut command = Command::new(gputrace());
    command
        .args(["top", "--format", "json"])
        .args(ROOM)
        .args(arguments);
    if let Some(program) = program {
        command
            .arg("--")
            .arg(program.get_program())
            .args(program.get_args());
    }
    equip(&mut command, place).unwrap_or_else(|error| panic!("{error:#}"));
    let output = command.output().unwrap_or_else(|error| panic!("{error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(!lines.is_empty(), "{said}");
    lines
}

/// The line has no more than a hundredth too much or too little of what the GPU did.
fn is_true(name: &str, line: &Value, kernels: &[(u64, u64)]) {
    let (begin, end) = (number(line, "/begin"), number(line, "/end"));
    let truth = busy(kernels, begin, end);
    let told = line.pointer("/gpus/0/busy/ns").and_then(Value::as_u64);
    let (least, most) = (
        number(line, "/gpus/0/busy/least_ns"),
        number(line, "/gpus/0/busy/most_ns"),
    );
    // Stamps of the GPU are right to within some 100 ns.
    let room = (end - begin) / 100 + 10_000;
    for told in [told, Some(least.max(truth)), Some(most.min(truth))]
        .into_iter()
        .flatten()
    {
        assert!(
            told.abs_diff(truth) <= room,
            "ROCm {name}: truth {truth}: {line}"
        );
    }
}

/// Calls of the program's kernel in a line.
fn calls(line: &Value) -> u64 {
    let rows = line.pointer("/kernels").and_then(Value::as_array);
    let of_program = |row: &&Value| row["name"].as_str().is_some_and(|name| name == NAME);
    let rows = rows.into_iter().flatten().filter(of_program);
    rows.map(|row| number(row, "/calls")).sum()
}

/// All of a launched program as one interval: the use of the GPU is right to within 1 %, and each
/// kernel is counted once.
fn launched(name: &str) {
    let Some(release) = release(name) else { return };
    let place = place();
    let program = program(&release, "mix", HALF);
    let lines = top(
        place.path(),
        &["--once", "--interval", "60s"],
        Some(&program),
    );
    let [line] = &lines[..] else {
        panic!("ROCm {name}: {lines:?}")
    };
    let kernels = kernels(place.path(), NAME);
    is_true(name, line, &kernels);
    assert!(
        line.pointer("/gpus/0/busy/ns").is_some_and(Value::is_u64),
        "ROCm {name}: {line}"
    );
    assert_eq!(calls(line), kernels.len() as u64, "ROCm {name}: {line}");
    assert_eq!(number(line, "/lost/total"), 0, "ROCm {name}: {line}");
}

/// The same in intervals. How many kernels come late depends on the machine; where none does, each
/// interval is right.
fn in_intervals(name: &str) {
    let Some(release) = release(name) else { return };
    let place = place();
    let program = program(&release, "mix", HALF);
    let lines = top(place.path(), &["--interval", "500ms"], Some(&program));
    let kernels = kernels(place.path(), NAME);
    let sum: u64 = lines.iter().map(calls).sum();
    assert_eq!(sum, kernels.len() as u64, "ROCm {name}");
    assert!(lines.len() > 3, "ROCm {name}: {lines:?}");
    for pair in lines.windows(2) {
        if let [one, next] = pair {
            assert_eq!(one["end"], next["begin"], "ROCm {name}");
        }
    }
    if lines.iter().all(|line| line["late"] == 0) {
        lines.iter().for_each(|line| is_true(name, line, &kernels));
    }
}

/// After attaching, the use of the GPU lies in the range that is told.
fn attached(release: &Release) {
    let name = &release.name;
    let place = place();
    let mut command = program(release, "mix", LONGER);
    equip(&mut command, place.path()).unwrap_or_else(|error| panic!("{error:#}"));
    let running = Running::start("the workload", &mut command);
    // It uses its queue by then, so that gputrace finds it.
    let deadline = std::time::Instant::now() + Duration::from_mins(1);
    while kernels(place.path(), NAME).len() < 20 {
        assert!(
            std::time::Instant::now() < deadline,
            "ROCm {name}: no kernels"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = running.pid().to_string();
    let lines = top(
        place.path(),
        &["-p", &pid, "--once", "--interval", "2s"],
        None,
    );
    running.signal(Signal::KILL);
    let kernels = kernels(place.path(), NAME);
    let [line] = &lines[..] else {
        panic!("ROCm {name}: {lines:?}")
    };
    let (begin, end) = (number(line, "/begin"), number(line, "/end"));
    let truth = busy(&kernels, begin, end);
    let (least, most) = (
        number(line, "/gpus/0/busy/least_ns"),
        number(line, "/gpus/0/busy/most_ns"),
    );
    assert!(
        least <= truth && truth <= most && most <= end - begin,
        "ROCm {name}: {truth} is not in {least}..{most}: {line}"
    );
    let ended = kernels.iter().filter(|(_, to)| (begin..end).contains(to));
    let (ended, said) = (ended.count() as u64, number(line, "/gpus/0/kernels"));
    // Kernels at both ends of the interval are placed by bounds.
    assert!(
        said.abs_diff(ended) <= 20,
        "ROCm {name}: {said} of {ended}: {line}"
    );
    assert!(said > 100, "ROCm {name}: {line}");
    let command = line.pointer("/processes/0/command").and_then(Value::as_str);
    assert_eq!(
        command,
        Some("mix classes=1 from=1 to=1 every=3000 seconds=20")
    );
}

#[test]
fn use_of_a_launched_program_of_rocm_6_4_3_is_true() {
    launched("6.4.3");
}

#[test]
fn use_of_a_launched_program_of_rocm_7_2_4_is_true() {
    launched("7.2.4");
}

#[test]
fn use_in_intervals_of_rocm_7_2_4_is_true() {
    in_intervals("7.2.4");
}

#[test]
fn use_of_a_running_program_of_rocm_6_4_3_is_true() {
    if let Some(release) = release("6.4.3") {
        attached(&release);
    }
}

#[test]
fn use_of_a_running_program_of_rocm_5_2_3_is_true() {
    if let Some(release) = release("5.2.3") {
        attached(&release);
    }
}
