//! What gputrace says tracing cost: the line at the end, the summary and the JSON document, compared
//! with the calls that the program made. How near the figures are to the truth is a figure of
//! `cargo xtask bench costs`, since it depends on the machine.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failure is what a test is for"
)]

use std::fs;

use gputrace_e2e::{Bench, Outputs, Running};
use serde_json::Value;

/// Records `program`; returns gputrace's messages.
fn recorded(bench: &Bench, outputs: &Outputs, options: &[&str], program: &[&str]) -> String {
    let mut command = bench.gputrace(outputs);
    command
        .args(["-S", "-f", "json"])
        .args(options)
        .arg("--")
        .arg(bench.program(program[0]))
        .args(&program[1..]);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    gputrace.stderr()
}

/// The bill in the JSON document.
fn bill(outputs: &Outputs) -> Value {
    let text = fs::read_to_string(outputs.file("_results.json")).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    document["rocprofiler-sdk-tool"][0]["gputrace"]["document"]["cost_of_tracing"].take()
}

/// Sum of a member of all rows.
fn sum(rows: &Value, member: &str) -> u64 {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row[member].as_u64().unwrap()).sum()
}

#[test]
fn a_hot_loop_is_billed_by_its_calls() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let options = [
        "--functions",
        "^fib[(]",
        "--max-probe-time",
        "0",
        "--max-call-rate",
        "0",
    ];
    // Each of two threads makes 20 times 1973 calls of fib.
    let fib = ["functions/fib", "1", "20", "15"];
    let stderr = recorded(&bench, &outputs, &options, &fib);
    let trace = outputs.trace();
    let calls = trace.calls.len() as u64;
    assert_eq!(calls, 2 * 20 * 1973);
    let prices = trace.recording.prices.unwrap();
    assert!(prices.measured, "{prices:?}");

    let bill = bill(&outputs);
    assert_eq!(bill["prices"]["measured"], true);
    let function = &bill["functions"][0];
    assert_eq!(function["name"], "fib(long)");
    assert_eq!(function["hits"], calls);
    let each = function["each_ns"].as_u64().unwrap();
    let entries = [prices.optimized, prices.emulated, prices.single_stepped];
    assert!(
        entries.contains(&(each - prices.at_exit)),
        "{each} {prices:?}"
    );
    assert_eq!(bill["cost_ns"], calls * each);
    for rows in [&bill["processes"], &bill["threads"], &bill["functions"]] {
        assert_eq!(
            (sum(rows, "hits"), sum(rows, "cost_ns")),
            (calls, calls * each)
        );
    }
    let threads: Vec<u64> = bill["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["hits"].as_u64().unwrap())
        .collect();
    assert_eq!(threads, [calls / 2; 2]);

    let line = |begin: &str| stderr.lines().find(|line| line.contains(begin));
    let told = line("tracing cost about").unwrap();
    for part in [
        "of a thread's time (thread ",
        "an estimate",
        "measured on this machine",
        "fib(long) cost most, ",
        &format!(" in {calls} calls: "),
        "--exclude-functions",
        "--max-call-rate",
    ] {
        assert!(told.contains(part), "{part} is not in: {told}");
    }
    let table: Vec<&str> = stderr
        .lines()
        .skip_while(|line| !line.starts_with("Cost of tracing (an estimate"))
        .take_while(|line| !line.is_empty())
        .collect();
    for (what, hits) in [
        ("process", calls),
        ("thread", calls / 2),
        ("function", calls),
    ] {
        let row = table.iter().find(|row| row.trim_start().starts_with(what));
        let row = row.unwrap_or_else(|| panic!("no row of a {what} in: {stderr}"));
        assert!(row.contains(&format!(" {hits} ")), "{row}");
    }
    assert!(
        table.iter().any(|row| row.contains("not included: ")),
        "{stderr}"
    );
}

#[test]
fn a_quiet_program_is_billed_in_a_line() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let stderr = recorded(&bench, &outputs, &[], &["hip_calls", "single", "3"]);
    assert!(!stderr.contains("tracing cost about"), "{stderr}");
    assert!(stderr.contains("Cost of tracing (an estimate"), "{stderr}");
    assert!(!stderr.contains("not included"), "{stderr}");
    let bill = bill(&outputs);
    let calls = outputs.trace().calls.len() as u64;
    assert!(calls > 0);
    assert_eq!(sum(&bill["functions"], "hits"), calls);
    assert_eq!(bill["cost_ns"], sum(&bill["functions"], "cost_ns"));
}
