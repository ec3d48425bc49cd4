//! Traces functions of a program itself and of a library that is not part of ROCm, and compares
//! them with the program's own numbers of calls.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failure is what a test is for"
)]

use std::{collections::BTreeMap, fs, process::Command, time::Duration};

use gputrace_abi::{counters::DropReason, domain::Domain, frame::MAX_DEPTH};
use gputrace_capture::meta::EndReason;
use gputrace_e2e::{Bench, Outputs, Running, Trace, csvout};
use rustix::process::Signal;
use serde_json::Value;

/// The functions of the program.
const ALL: &str = "^(fib|run|work::)";
/// Number of calls of `work::choose` and `work::Sum::take`, of each case of `choose`, and depth of
/// `work::deep`, as in `fib.cpp`.
const ROUNDS: u64 = 240;
const CASE: u64 = ROUNDS / 8;
const DEEP: u64 = 41;

/// Options without limits, so that every call is recorded.
const UNLIMITED: [&str; 4] = ["--max-call-rate", "0", "--max-probe-time", "0"];
/// Time limit for millions of calls where single-stepping is slow.
const LONG: Duration = Duration::from_secs(300);

/// Rows of a graph in the report: label, depth, calls, sum and own time, ns.
fn graph(value: &Value) -> Vec<(String, u64, u64, u64, u64)> {
    let rows = value["graph"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let number = |value: &Value| value.as_u64().unwrap();
            (
                row["label"].as_str().unwrap().to_owned(),
                number(&row["depth"]),
                number(&row["stats"]["count"]),
                number(&row["entry"]["accum"]),
                number(&row["self"]),
            )
        })
        .collect()
}

/// The report on the only process.
fn report(outputs: &Outputs) -> Value {
    let text = fs::read_to_string(outputs.file("_wall_clock.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let ranks = document["timemory"]["wall_clock"]["ranks"]
        .as_array()
        .unwrap();
    assert_eq!(ranks.len(), 1, "{text}");
    ranks[0].clone()
}

/// The calls that the program says it makes in each thread, by label and depth.
fn told(stdout: &str) -> BTreeMap<(String, u64), u64> {
    let lines = stdout
        .lines()
        .filter_map(|line| line.strip_prefix("calls "));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap().to_owned();
            let (label, depth, count) = (word(), word(), word());
            ((label, depth.parse().unwrap()), count.parse().unwrap())
        })
        .collect()
}

/// Asserts that own times add up to the times of the outermost calls.
fn assert_sums(rows: &[(String, u64, u64, u64, u64)]) {
    let own: u64 = rows.iter().map(|row| row.4).sum();
    let outermost: u64 = rows.iter().filter(|row| row.1 == 0).map(|row| row.3).sum();
    assert_eq!(own, outermost);
}

/// Checks the report's data about `fib`: each thread called it as `expected`, by depth.
fn assert_counted(rank: &Value, expected: &BTreeMap<(String, u64), u64>, runners: u64) {
    let counted = |rows: &[(String, u64, u64, u64, u64)]| -> BTreeMap<(String, u64), u64> {
        let fib = rows.iter().filter(|row| row.0 == "fib(long)");
        fib.map(|row| ((row.0.clone(), row.1), row.2)).collect()
    };
    let all = graph(rank);
    assert_sums(&all);
    let together = expected
        .iter()
        .map(|(key, count)| (key.clone(), count * runners))
        .collect();
    assert_eq!(counted(&all), together);
    let each = rank["threads"].as_array().unwrap();
    assert_eq!(each.len() as u64, runners);
    for thread in each {
        let rows = graph(thread);
        assert_eq!(&counted(&rows), expected);
        assert_sums(&rows);
    }
}

/// Checks report and trace of a run of `fib THREADS …`.
fn assert_right(outputs: &Outputs, stdout: &str, threads: u64) {
    let trace = outputs.trace();
    let expected = told(stdout);
    assert!(!expected.is_empty(), "{stdout}");
    let rank = report(outputs);
    let all = graph(&rank);
    let runners = threads + 1;
    assert_counted(&rank, &expected, runners);
    let calls = |label: &str| {
        all.iter()
            .filter(|row| row.0 == label)
            .map(|row| row.2)
            .sum::<u64>()
    };
    assert_eq!(calls("run(long, long)"), runners);
    assert_eq!(calls("work::choose(long)"), ROUNDS);
    assert_eq!(calls("work::Sum<double>::take(double)"), ROUNDS);
    assert_eq!(calls("work::catcher(long)"), CASE);
    // One of three calls is left by an exception, and so is its caller.
    assert_eq!(calls("work::between(long)"), CASE * 2 / 3);
    assert_eq!(calls("work::thrower(long)"), CASE * 2 / 3);
    assert_eq!(calls("work::tail(long)"), CASE);
    assert_eq!(calls("work::deep(long)"), MAX_DEPTH as u64);
    // The account contains exactly the calls that are not recorded.
    let total = trace.final_ledger().total();
    assert_eq!(
        total.dropped_for(DropReason::TooDeep),
        DEEP - MAX_DEPTH as u64
    );
    assert_eq!(total.dropped_for(DropReason::LostReturn), 2 * CASE / 3);
    assert_eq!(total.lost(), DEEP - MAX_DEPTH as u64 + 2 * CASE / 3);
    assert_eq!(total.imbalance(), 0);
}

/// The result that the program prints: it is the same whether traced or not.
fn result(stdout: &str) -> Option<&str> {
    stdout.lines().find(|line| line.starts_with("total "))
}

/// Runs the program under gputrace; the program's output is part of gputrace's standard output.
fn launched(bench: &Bench, options: &[&str], workload: &[&str]) -> (Outputs, Running) {
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(options)
        .arg("--")
        .arg(bench.program(workload[0]))
        .args(&workload[1..]);
    let mut gputrace = Running::start("gputrace", &mut command);
    let status = gputrace.wait_within(LONG);
    assert!(status.success(), "{status}: {}", gputrace.describe());
    (outputs, gputrace)
}

#[test]
fn of_a_launched_program() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut plain = bench.start(&["functions/fib", "1", "2", "3"]);
    plain.finish();
    let options = [&["--functions", ALL, "-f", "csv"][..], &UNLIMITED].concat();
    let (outputs, gputrace) = launched(&bench, &options, &["functions/fib", "12", "20", "10"]);
    assert_eq!(result(&gputrace.stdout()), result(&plain.stdout()));
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    assert_right(&outputs, &gputrace.stdout(), 12);
    csvout::assert_same(&outputs, &trace);
    let fib = trace.calls_of("fib(long)").next().unwrap();
    let function = &trace.function(fib).function;
    assert!(function.source.contains("fib.cpp:"), "{}", function.source);
    assert_eq!(Domain::from_id(function.domain), Some(Domain::Function));
}

/// As in rocprofiler-systems' example, twelve threads and the main thread call `fib(10)`
/// repeatedly, but 200 times, a fifth of the example's number: its half a million calls already
/// take half a minute in a virtual machine.
#[test]
fn as_many_calls_as_in_the_example_of_others() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let options = [
        &["--functions", "^fib", "--ring-size", "64MiB"][..],
        &UNLIMITED,
    ]
    .concat();
    let (outputs, gputrace) = launched(&bench, &options, &["functions/fib", "12", "200", "10"]);
    let expected = told(&gputrace.stdout());
    let calls = 13 * expected.values().sum::<u64>();
    let account = format!("{calls} calls seen, {calls} recorded, 0 of them unfinished, none lost");
    assert!(
        gputrace.stderr().contains(&account),
        "{}",
        gputrace.stderr()
    );
    // Without the thread's own function, which is not traced here, `fib` is one level further out.
    let expected = expected
        .into_iter()
        .map(|((label, depth), count)| ((label, depth - 1), count))
        .collect();
    assert_counted(&report(&outputs), &expected, 13);
}

#[test]
fn of_a_stripped_program_with_a_debug_file() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let options = [&["--functions", ALL][..], &UNLIMITED].concat();
    let (outputs, gputrace) = launched(
        &bench,
        &options,
        &["functions/fib_stripped", "2", "10", "6"],
    );
    assert_right(&outputs, &gputrace.stdout(), 2);
}

#[test]
fn of_a_running_program_with_a_library() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.program("functions/libshared.so");
    for (number, library) in (0..).zip([library.to_str().unwrap(), "libshared.so"]) {
        let mut program = bench.start(&["functions/fib", "wait", "3", "10", "7"]);
        let outputs = bench.outputs(number);
        let options = [
            "--functions",
            ALL,
            "--library",
            library,
            "-f",
            "csv,pftrace,json",
        ];
        let mut gputrace = bench.attach(&outputs, &options, &[program.pid()]);
        program.send("go");
        program.wait_for_stdout("total");
        gputrace.signal(Signal::INT);
        assert!(gputrace.wait().success(), "{}", gputrace.describe());
        let stdout = program.stdout();
        program.close_stdin();
        program.finish();
        assert_right(&outputs, &stdout, 3);
        let trace = outputs.trace();
        csvout::assert_same(&outputs, &trace);
        assert_eq!(trace.calls_of("shared_twice").count() as u64, CASE);
        for call in trace.calls_of("shared_twice") {
            assert_eq!(Domain::from_id(call.domain), Some(Domain::Library));
            // The argument, and twice the argument as the result.
            assert_eq!(trace_result(call), Some(call.args[0] * 2));
        }
        assert!(outputs.file("_library_api_trace.csv").exists());
        assert!(outputs.file("_function_trace.csv").exists());
    }
}

fn trace_result(call: &gputrace_timeline::event::Call) -> Option<u64> {
    match call.how {
        gputrace_timeline::event::CallEnd::Returned(result) => Some(result),
        _ => None,
    }
}

#[test]
fn what_is_called_too_often_is_counted() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let options = [
        "--functions",
        "^fib",
        "--max-call-rate",
        "1000",
        "--max-probe-time",
        "0",
    ];
    let (outputs, gputrace) = launched(&bench, &options, &["functions/fib", "2", "100", "8"]);
    let trace: Trace = outputs.trace();
    let total = trace.final_ledger().total();
    let lost = total.dropped_for(DropReason::TooOften);
    let calls: u64 = told(&gputrace.stdout()).values().sum::<u64>() * 3;
    assert!(lost > 0);
    assert_eq!(
        (total.seen, total.written + lost),
        (calls, calls),
        "INVARIANT: {total:?}"
    );
    let told = gputrace.stderr();
    let part = format!(
        "fib(long) was called more than 1000 times a second; {lost} of its calls are not recorded"
    );
    assert!(told.contains(&part), "{told}");
}

/// If the probes stayed attached, the program would run for minutes.
#[test]
fn what_takes_too_much_time_loses_its_probes() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let rounds = 200_000;
    let options = ["--functions", "^(fib|run)", "--max-call-rate", "5000"];
    let workload = ["functions/fib", "2", &rounds.to_string(), "10"];
    let (outputs, gputrace) = launched(&bench, &options, &workload);
    assert!(
        result(&gputrace.stdout()).is_some(),
        "{}",
        gputrace.describe()
    );
    let part = "fib(long) was called so often that its probes took about ";
    assert!(gputrace.stderr().contains(part), "{}", gputrace.stderr());
    let trace = outputs.trace();
    assert!(
        trace
            .notices
            .iter()
            .any(|notice| notice.text.starts_with(part))
    );
    let total = trace.final_ledger().total();
    let calls = told(&gputrace.stdout()).values().sum::<u64>() * 3;
    assert!(total.seen < calls / 10, "{total:?} of {calls}");
    // Calls in progress when the probes were removed are recorded if their end was still seen.
    let lost = total.dropped_for(DropReason::TooOften);
    assert_eq!(
        (total.seen, total.imbalance()),
        (total.written + lost, 0),
        "{total:?}"
    );
    // The other functions keep their probes.
    assert_eq!(trace.calls_of("run(long, long)").count(), 3);
}

#[test]
fn many_functions_need_many_descriptors() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = Command::new("prlimit");
    let gputrace = bench.gputrace(&outputs);
    let script = "ulimit -Sn; exec \"$0\" 1 1 3";
    command
        .arg("--nofile=40:")
        .arg(gputrace.get_program())
        .args(gputrace.get_args())
        .args([
            "--functions",
            ALL,
            "--backend",
            "perf",
            "--",
            "sh",
            "-c",
            script,
        ])
        .arg(bench.program("functions/fib"));
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    let stderr = gputrace.stderr();
    assert!(!stderr.contains("could not be probed"), "{stderr}");
    assert!(
        outputs.trace().calls_of("fib(long)").count() > 0,
        "{}",
        gputrace.describe()
    );
    // The program has the same limit as without gputrace.
    assert!(
        gputrace.stdout().starts_with("40\n"),
        "{}",
        gputrace.stdout()
    );
}

/// The library may come at any time, so that is told at the end, too, and by the exit status.
#[test]
fn too_many_functions_of_a_launched_programs_library() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.program("functions/libshared.so");
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command.arg("--library").arg(&library);
    command.args(["--max-functions", "2", "--"]);
    command
        .arg(bench.program("functions/fib"))
        .args(["1", "1", "3"]);
    let mut gputrace = Running::start("gputrace", &mut command);
    let (status, text) = gputrace.fail();
    assert_eq!(status, 2, "{text}");
    let told = "match, more than 2, so none is traced: choose fewer by --include REGEX or \
                --exclude REGEX, or allow more with --max-functions 3";
    assert_eq!(text.matches(told).count(), 2, "{text}");
    // The program ran as ever.
    assert!(result(&gputrace.stdout()).is_some(), "{text}");
    assert_eq!(outputs.trace().calls_of("shared_twice").count(), 0);
}

#[test]
fn mistakes_are_told() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["functions/fib", "wait", "1", "1", "3"]);
    let pid = program.pid().to_string();
    for (options, code, parts) in [
        (
            &["--functions", "no_such"][..],
            11,
            &["functions matches", "nm -C"][..],
        ),
        (&["--functions", "^add"], 11, &["only inlined", ": add;"]),
        (
            &["--functions", ".", "--max-functions", "3"],
            2,
            &["match, more than 3", "--max-functions"],
        ),
        (
            &["--library", "libnothing.so"],
            11,
            &["no library libnothing.so mapped", "--wait"],
        ),
        (
            &["--library", "libshared.so", "--include", "zzz"],
            11,
            &["none of its", "libshared.so"],
        ),
    ] {
        let mut command = bench.gputrace(&bench.outputs(9));
        command.args(options).args(["-p", &pid]);
        let (status, text) = Running::start("gputrace", &mut command).fail();
        assert_eq!(status, code, "{options:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{options:?}: {part} in {text}");
        }
    }
    program.close_stdin();
    program.wait();
}
