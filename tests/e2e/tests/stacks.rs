//! Who called: stacks of calls, and folded stacks.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests read files that gputrace has made"
)]

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use gputrace_capture::stack::{Stack, StackEnd};
use gputrace_e2e::{Bench, Outputs, Trace, process::PATIENCE};
use gputrace_timeline::event::Call;

/// The lines of a file of folded stacks: frames and number.
fn folded(outputs: &Outputs, which: &str) -> Vec<(Vec<String>, u64)> {
    let path = outputs.file(&format!("_{which}.folded"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let lines = text.lines().map(|line| {
        let (frames, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let frames = frames.split(';').map(str::to_owned).collect();
        (frames, number.parse().unwrap_or_else(|_| panic!("{line}")))
    });
    lines.collect()
}

/// The stack of a call; `None` if it has none.
fn stack_of<'a>(trace: &'a Trace, call: &Call) -> Option<&'a Stack> {
    let find = |number: u32| {
        let found = trace.stacks.iter().find(|stack| stack.number == number);
        found.unwrap_or_else(|| panic!("stack {number} is not in the capture"))
    };
    let stack = find(call.stack_number?);
    Some(stack.same_as.map_or(stack, find))
}

#[test]
fn every_call_has_its_stack() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // So few rounds that the ring has room for a copy of each stack, if gputrace does not run
    // meanwhile.
    let outputs = bench.launch(
        &["--hip-trace", "--stacks=all", "-f", "folded"],
        &["hip_calls", "single", "4"],
    );
    let trace = outputs.trace();
    let mut times = BTreeMap::new();
    for call in &trace.calls {
        let stack = stack_of(&trace, call);
        if call.depth > 0 {
            assert_eq!(stack, None, "only the outermost call has one");
            continue;
        }
        let stack = stack.unwrap_or_else(|| panic!("{call:?} has none"));
        assert_eq!(stack.end, StackEnd::Complete, "{stack:?}");
        assert_eq!(stack.pid, call.pid);
        let file = stack.frames[0].file.unwrap_or_default();
        let file = trace.code_files.iter().find(|one| one.number == file);
        assert!(
            file.is_some_and(|file| file.path.ends_with("/hip_calls") && file.build_id.is_some())
        );
        let sum: &mut (u64, u64) = times.entry(call.function).or_default();
        sum.0 += 1;
        sum.1 += call.end - call.begin;
    }
    // Each file adds up to all calls, for each function.
    for (which, amount) in [("calls", 0), ("call_time", 1)] {
        let mut sums = BTreeMap::new();
        for (frames, number) in folded(&outputs, which) {
            assert_eq!(frames[0], "hip_calls");
            assert_eq!(frames[1], "_start", "{frames:?}");
            *sums.entry(frames.last().unwrap().clone()).or_default() += number;
        }
        let expected: BTreeMap<String, u64> = times
            .iter()
            .map(|(function, (calls, time))| {
                let name = trace.functions[function].function.name.clone();
                (name, [*calls, *time][amount])
            })
            .collect();
        assert_eq!(sums, expected, "{which}");
    }
    // As the program is written: `main` calls `rounds`, which calls `long_round`.
    let of_round = folded(&outputs, "calls");
    let of_round = of_round
        .iter()
        .filter(|(frames, _)| frames.last().unwrap() == "hipMalloc");
    let of_round: Vec<&Vec<String>> = of_round.map(|(frames, _)| frames).collect();
    assert!(!of_round.is_empty());
    for frames in of_round {
        let at = frames.iter().position(|frame| frame == "main").unwrap();
        assert!(frames[at + 1].starts_with("rounds("), "{frames:?}");
        assert!(frames[at + 2].contains("long_round("), "{frames:?}");
    }
    // The rounds are the same: most functions are called in one place, some in a few.
    let written = trace.stacks.iter().filter(|stack| stack.same_as.is_none());
    let written = written.count();
    assert!(
        written < times.len() * 3 / 2,
        "{written} stacks of {} functions",
        times.len()
    );
}

#[test]
fn only_calls_that_matter_have_stacks() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut program = bench.start(&["hip_calls", "loop", "100"]);
    let mut recorder = bench.attach(&outputs, &["--hip-trace", "--stacks"], &[program.pid()]);
    gputrace_e2e::process::eventually("some rounds are recorded", PATIENCE, || {
        fs::metadata(outputs.directory().join("trace.gtcap")).is_ok_and(|file| file.len() > 1 << 18)
    });
    program.close_stdin();
    program.finish();
    recorder.finish();
    let trace = outputs.trace();
    let mut with: BTreeMap<(&str, bool), u32> = BTreeMap::new();
    for call in &trace.calls {
        let name = trace.functions[&call.function].function.name.as_str();
        *with.entry((name, call.stack_number.is_some())).or_default() += 1;
        if let Some(stack) = stack_of(&trace, call) {
            assert_eq!(stack.end, StackEnd::Complete, "{stack:?}");
        }
    }
    let have = |name| with.contains_key(&(name, true));
    let lack = |name| with.contains_key(&(name, false));
    let matters = |name: &str| gputrace_catalog::stacks::caller(name).is_some();
    for (name, has) in with.keys() {
        assert_eq!(matters(name), *has, "{name}");
    }
    assert!(with.keys().any(|(name, _)| have(name)) && with.keys().any(|(name, _)| lack(name)));
}

/// The sums over a profile's samples by sample type, as Go's own pprof prints them.
fn read_by_go(profile: &Path) -> BTreeMap<String, u64> {
    let mut pprof = Command::new("go");
    let output = pprof.args(["tool", "pprof", "-raw"]).arg(profile).output();
    let output = output.unwrap_or_else(|error| panic!("go: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let samples = text.split_once("Samples:\n").map(|(_, rest)| rest);
    let samples = samples.and_then(|rest| rest.split_once("Locations\n"));
    let (samples, _) = samples.unwrap_or_else(|| panic!("{text}"));
    let mut lines = samples.lines();
    let types = lines.next().unwrap_or_default().split_whitespace();
    let types: Vec<&str> = types.map(|name| name.trim_end_matches("[dflt]")).collect();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    // Labels have lines of their own.
    for line in lines.filter(|line| !line.contains(":[")) {
        let Some((values, _)) = line.split_once(": ") else {
            continue;
        };
        let values = values.split_whitespace();
        let values: Vec<u64> = values.filter_map(|value| value.parse().ok()).collect();
        assert_eq!(values.len(), types.len(), "{line}");
        for (name, value) in types.iter().zip(values) {
            *sums.entry((*name).to_owned()).or_default() += value;
        }
    }
    sums
}

#[test]
fn go_reads_a_profile() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    if Command::new("go").arg("version").output().is_err() {
        return gputrace_e2e::bench::skipped("go is not installed: apt-get install golang-go");
    }
    let outputs = bench.launch(
        &["--hip-trace", "--stacks=all", "-f", "folded,pprof"],
        &["hip_calls", "threads", "2", "4"],
    );
    let sums = read_by_go(&outputs.file("_stacks.pb.gz"));
    for (which, unit) in [("calls", "count"), ("call_time", "nanoseconds")] {
        let expected: u64 = folded(&outputs, which)
            .iter()
            .map(|(_, number)| number)
            .sum();
        assert!(expected > 0);
        assert_eq!(
            sums.get(&format!("{which}/{unit}")),
            Some(&expected),
            "{sums:?}"
        );
    }
    let types: Vec<&str> = sums.keys().map(String::as_str).collect();
    assert_eq!(
        types,
        [
            "call_time/nanoseconds",
            "calls/count",
            "copied/bytes",
            "gpu_time/nanoseconds",
            "gpu_work/count",
            "wait_time/nanoseconds",
        ]
    );
}
