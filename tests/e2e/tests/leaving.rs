//! A program that leaves the functions of a C library in every way: by exceptions, by the end and
//! the cancellation of a thread, by `longjmp`, and by going on with another stack. It must behave
//! under gputrace as it does alone, and every call must be accounted for.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use std::collections::BTreeMap;

use gputrace_capture::meta::{EndProbe, EndReason};
use gputrace_e2e::{Bench, Running, Trace};
use gputrace_timeline::event::CallEnd;

/// Rounds of each part of the program, as in `leaving.cpp`.
const ROUNDS: u64 = 5;
/// The program's exit status.
const STATUS: i32 = 7;
/// Options without limits, so that every call is recorded.
const UNLIMITED: [&str; 4] = ["--max-call-rate", "0", "--max-probe-time", "0"];

/// The lines that the program prints.
fn said(stdout: &str) -> Vec<&str> {
    let known = |line: &&str| {
        [
            "destroyed",
            "caught",
            "callers",
            "joined",
            "jumped",
            "swapped",
            "switched",
            "sum",
        ]
        .iter()
        .any(|word| line.starts_with(word))
    };
    stdout.lines().filter(known).collect()
}

/// What the program says without gputrace.
fn alone(bench: &Bench) -> String {
    let mut program = bench.start(&["leaving/leaving"]);
    assert_eq!(
        program.wait().code(),
        Some(STATUS),
        "{}",
        program.describe()
    );
    program.stdout()
}

/// Checks the calls in a recording of the whole program.
fn assert_accounted(trace: &Trace) {
    let total = trace.final_ledger().total();
    assert_eq!(total.imbalance(), 0, "INVARIANT: {total:?}");
    let mut ends: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for call in &trace.calls {
        let counts = ends.entry(trace.name(call)).or_default();
        match call.how {
            CallEnd::Returned(_) => counts.0 += 1,
            CallEnd::NotSeen => counts.1 += 1,
            _ => counts.2 += 1,
        }
    }
    let of = |name: &str| ends.get(name).copied().unwrap_or_default();
    assert_eq!(of("leave_return"), (2 * ROUNDS, 0, 0), "{ends:?}");
    // Four of the five rounds end by the exception, in the fifth all callbacks return.
    assert_eq!(of("leave_call_back"), (1, 0, 0), "{ends:?}");
    // They have no instruction that returns, or only a jump.
    assert_eq!(of("leave_by_jump"), (0, ROUNDS, 0), "{ends:?}");
    for name in ["leave_thread", "leave_wait"] {
        assert_eq!(of(name), (0, 1, 0), "{name} of {ends:?}");
    }
    assert_eq!(of("leave_jump"), (0, ROUNDS, 0), "{ends:?}");
    let probed = |name: &str| {
        let call = trace.calls_of(name).next();
        call.map(|call| trace.function(call).function.end_probe)
    };
    assert_eq!(probed("leave_return"), Some(EndProbe::Exits));
    assert_eq!(probed("leave_by_jump"), Some(EndProbe::NotSeen));
}

#[test]
fn a_launched_program_goes_its_ways() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let plain = alone(&bench);
    assert!(!said(&plain).is_empty(), "{plain}");
    for (number, backend) in (0..).zip(["uprobe_multi", "perf"]) {
        let outputs = bench.outputs(number);
        let mut command = bench.gputrace(&outputs);
        command
            .args(["--library", "libleaving.so", "--backend", backend])
            .args(UNLIMITED)
            .arg("--")
            .arg(bench.program("leaving/leaving"));
        let mut gputrace = Running::start("gputrace", &mut command);
        let status = gputrace.wait();
        assert_eq!(status.code(), Some(STATUS), "{}", gputrace.describe());
        assert_eq!(said(&gputrace.stdout()), said(&plain), "{backend}");
        outputs.assert_formats_agree();
        let trace = outputs.trace();
        trace.assert_sound(&EndReason::TargetsGone);
        assert_accounted(&trace);
    }
}

/// A service must not die because somebody looks at it.
#[test]
fn a_running_program_goes_its_ways() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let plain = alone(&bench);
    let outputs = bench.outputs(0);
    let mut program = bench.start(&["leaving/leaving", "wait"]);
    program.wait_for_stdout("ready");
    let library = bench.program("leaving/libleaving.so");
    let options = [&["--library", library.to_str().unwrap()][..], &UNLIMITED].concat();
    let mut gputrace = bench.attach(&outputs, &options, &[program.pid()]);
    program.send("go");
    assert_eq!(
        program.wait().code(),
        Some(STATUS),
        "{}",
        program.describe()
    );
    assert_eq!(said(&program.stdout()), said(&plain));
    gputrace.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    assert_accounted(&trace);
}
