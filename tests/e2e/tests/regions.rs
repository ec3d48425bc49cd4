//! Marker regions among functions of a program: the report by caller and callee, per-thread
//! switches, ids for other threads and thread names, compared with the program's known numbers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failure is what a test is for"
)]

use std::{collections::BTreeMap, fs};

use gputrace_e2e::{Bench, Outputs, Running};
use gputrace_timeline::{Timeline, event::Event};
use serde_json::Value;

const THREADS: u64 = 12;
const ITERATIONS: u64 = 20;
const N: u64 = 6;

/// Runs the program; returns the outputs and what was printed.
fn launched(bench: &Bench, options: &[&str]) -> (Outputs, Running) {
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(["--marker-trace", "--functions", "^(fib|run|once|scoped)[(]"])
        .args(options)
        .arg("--")
        .arg(bench.program("markers/regions"))
        .args([THREADS, ITERATIONS, N].map(|number| number.to_string()));
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    (outputs, gputrace)
}

/// Expected number of `fib` calls by recursion depth.
fn expect(n: u64, depth: usize, times: u64, calls: &mut BTreeMap<usize, u64>) {
    *calls.entry(depth).or_default() += times;
    if n >= 2 {
        expect(n - 1, depth + 1, times, calls);
        expect(n - 2, depth + 1, times, calls);
    }
}

/// Paths and counts in a part of the report; asserts that own times add up.
fn paths(part: &Value) -> BTreeMap<String, u64> {
    let mut path: Vec<String> = Vec::new();
    let mut paths = BTreeMap::new();
    let (mut own, mut outermost) = (0, 0);
    for row in part["graph"].as_array().unwrap() {
        let depth = row["depth"].as_u64().unwrap() as usize;
        path.truncate(depth);
        path.push(row["label"].as_str().unwrap().to_owned());
        let before = paths.insert(path.join("/"), row["stats"]["count"].as_u64().unwrap());
        assert_eq!(before, None, "{path:?} has two rows");
        own += row["self"].as_u64().unwrap();
        if depth == 0 {
            outermost += row["entry"]["accum"].as_u64().unwrap();
        }
    }
    assert_eq!(own, outermost);
    paths
}

/// Expected paths and counts of each thread that runs.
fn of_a_runner(runners: u64) -> BTreeMap<String, u64> {
    let region = format!("run({N}) x {ITERATIONS}");
    let run = format!("{region}/run(long, long)");
    let mut expected = BTreeMap::from([
        (region, runners),
        (run.clone(), runners),
        (format!("{run}/odd"), runners * ITERATIONS / 2),
        ("once()".to_owned(), 2 * runners),
        ("rocprofsys_user_start_thread_trace".to_owned(), runners),
        ("rocprofsys_user_stop_thread_trace".to_owned(), runners),
    ]);
    let mut calls = BTreeMap::new();
    expect(N, 1, runners * ITERATIONS / 2, &mut calls);
    for (depth, count) in calls {
        let fib = "/fib(long)".repeat(depth);
        expected.insert(format!("{run}{fib}"), count);
        expected.insert(format!("{run}/odd{fib}"), count);
    }
    expected
}

#[test]
fn regions_are_rows_around_what_is_called_in_them() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (outputs, _) = launched(&bench, &[]);
    outputs.trace().assert_lossless();
    outputs.assert_formats_agree();
    let text = fs::read_to_string(outputs.file("_wall_clock.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let rank = &document["timemory"]["wall_clock"]["ranks"][0];

    let threads = rank["threads"].as_array().unwrap();
    assert_eq!(threads.len() as u64, THREADS + 2);
    let runners = threads
        .iter()
        .filter(|thread| paths(thread) == of_a_runner(1));
    assert_eq!(runners.count() as u64, THREADS, "{text}");

    let mut expected = of_a_runner(THREADS + 1);
    // Two calls of the thread that is given an id, and one of the main thread.
    *expected.get_mut("once()").unwrap() += 3;
    for (path, count) in [
        ("roctxNameOsThread", 1),
        ("scoped()", 1),
        // The object's region began in its constructor and ended in its destructor, neither of
        // which is traced.
        ("scoped()/scope", 1),
        ("scoped()/scope/once()", 2),
        ("rocprofiler_push_external_correlation_id", 1),
        ("rocprofiler_pop_external_correlation_id", 1),
    ] {
        expected.insert(path.to_owned(), count);
    }
    assert_eq!(paths(rank), expected);
    let remarks = document["timemory"]["wall_clock"]["remarks"]
        .as_array()
        .unwrap();
    assert_eq!(remarks, &Vec::<Value>::new());
}

#[test]
fn regions_outlive_traced_constructors() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args([
            "--marker-trace",
            "--functions",
            "^(once|scoped|Scope::Scope)[(]",
            "--",
        ])
        .arg(bench.program("markers/regions"))
        .args(["0", "0", "0"]);
    Running::start("gputrace", &mut command).finish();
    let text = fs::read_to_string(outputs.file("_wall_clock.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let rows = document["timemory"]["wall_clock"]["ranks"][0]["graph"]
        .as_array()
        .unwrap();
    let depths: Vec<(&str, u64)> = rows
        .iter()
        .map(|row| {
            (
                row["label"].as_str().unwrap(),
                row["depth"].as_u64().unwrap(),
            )
        })
        .skip_while(|(label, _)| *label != "scoped()")
        .take(4)
        .collect();
    assert_eq!(
        depths,
        [
            ("scoped()", 0),
            ("Scope::Scope()", 1),
            ("scope", 1),
            ("once()", 2)
        ]
    );
}

#[test]
fn threads_switch_name_and_identify() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (outputs, gputrace) = launched(&bench, &["-f", "rocpd,pftrace"]);
    let text = gputrace.stdout();
    let other: u32 = text
        .lines()
        .find_map(|line| line.strip_prefix("other "))
        .unwrap()
        .parse()
        .unwrap();
    outputs.assert_formats_agree();
    let trace = outputs.trace();

    let ids: Vec<_> = trace
        .calls_of("once()")
        .filter(|call| call.tid == other)
        .map(|call| call.external)
        .collect();
    assert_eq!(ids, [Some(4712), None]);
    let elsewhere = trace.calls_of("once()").filter(|call| call.tid != other);
    assert!(elsewhere.into_iter().all(|call| call.external.is_none()));

    let events = Timeline::open(&outputs.file(".gtcap"))
        .unwrap()
        .selected_regions();
    let mut functions = BTreeMap::new();
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    for event in events {
        match event.unwrap() {
            Event::Function(info) => {
                functions.insert(info.function.id, info.function.name);
            }
            Event::Call(call) => *shown.entry(functions[&call.function].clone()).or_default() += 1,
            _ => {}
        }
    }
    let expected = [
        ("once()", THREADS + 1),
        ("rocprofsys_user_start_thread_trace", THREADS + 1),
        ("rocprofsys_user_stop_thread_trace", THREADS + 1),
    ];
    let expected: BTreeMap<String, u64> = expected
        .map(|(name, count)| (name.to_owned(), count))
        .into();
    assert_eq!(shown, expected);

    // The main thread's name is in the database and in Perfetto's trace.
    for file in ["_results.db", "_results.pftrace"] {
        let bytes = fs::read(outputs.file(file)).unwrap();
        assert!(
            String::from_utf8_lossy(&bytes).contains("conductor"),
            "{file}"
        );
    }
    let mut query = bench.gputrace_bare();
    query.args([
        "query".as_ref(),
        outputs.file(".gtcap").as_os_str(),
        "SELECT name FROM threads WHERE tid = pid".as_ref(),
    ]);
    let mut query = Running::start("gputrace", &mut query);
    query.finish();
    assert!(query.stdout().contains("conductor"), "{}", query.stdout());
}
