//! Estimated durations in each output, compared with a synthetic recording whose truth is known
//! ([`synthetic::estimates`]).

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use gputrace_analysis::summary::tables::{TableOptions, TablesExporter, Units};
use gputrace_export::{
    Exporter, Output, OutputDir,
    csv::{CsvExporter, CsvOptions},
    json::JsonExporter,
    ndjson::NdjsonWriter,
    synthetic::{self, CLASSES, DRAWN, between, dispatch, estimated},
};
use gputrace_timeline::{event::Event, gpu::Quality};
use serde_json::{Value, json};

/// Number of dispatches of [`synthetic::estimates`], and how many of them have a known duration.
const COUNTS: (usize, usize) = (16, 12);

fn give(events: &[Event], mut exporter: Box<dyn Exporter>) -> Vec<Output> {
    for event in events {
        exporter.event(event).unwrap();
    }
    exporter.finish().unwrap()
}

fn csv(events: &[Event], directory: &Path) -> Vec<Output> {
    let out = OutputDir::open(directory, None).unwrap();
    let options = CsvOptions {
        stats: true,
        ..CsvOptions::default()
    };
    give(
        events,
        Box::new(CsvExporter::with_options(out, "app", options)),
    )
}

fn rows(directory: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(directory.join(name))
        .unwrap()
        .deserialize()
        .map(|row| row.unwrap())
        .collect()
}

fn cells<'a, const N: usize>(
    row: &'a BTreeMap<String, String>,
    columns: [&str; N],
) -> [&'a str; N] {
    columns.map(|column| row[column].as_str())
}

#[test]
fn statistics_have_a_table_of_what_rocprofv3s_columns_cannot_say() {
    let directory = tempfile::tempdir().unwrap();
    csv(&synthetic::estimates(), directory.path());
    let stats = rows(directory.path(), "app_kernel_stats.csv");
    // Sorted by totals. The kernel with unknown times is absent: its windows are no durations.
    let columns = ["Name", "Calls", "TotalDurationNs", "AverageNs"];
    assert_eq!(stats.len(), 2);
    assert_eq!(
        cells(&stats[0], columns),
        ["hang", "2", "400000", "200000.000000"]
    );
    assert_eq!(
        cells(&stats[1], columns),
        ["add(float*, float*)", "10", "104000", "10400.000000"]
    );
    let quality = rows(directory.path(), "app_kernel_stats_quality.csv");
    let columns = [
        "Name",
        "Calls",
        "Known_Durations",
        "Estimated_Durations",
        "Unknown_Durations",
        "TotalDurationNs",
        "TotalErrorNs",
        "AverageNs",
        "AverageErrorNs",
    ];
    let expected = [
        [
            "hang", "2", "2", "2", "0", "400000", "18000.0", "200000.0", "9000.0",
        ],
        [
            "add(float*, float*)",
            "11",
            "10",
            "10",
            "1",
            "104000",
            "3000.0",
            "10400.0",
            "300.0",
        ],
        [
            "(unknown kernel 0x7f001000)",
            "3",
            "0",
            "0",
            "3",
            "",
            "",
            "",
            "",
        ],
    ];
    assert_eq!(quality.len(), expected.len());
    for (row, expected) in quality.iter().zip(expected) {
        assert_eq!(cells(row, columns), expected);
    }
}

#[test]
fn classes_have_a_table() {
    let directory = tempfile::tempdir().unwrap();
    csv(&synthetic::estimates(), directory.path());
    let classes = rows(directory.path(), "app_kernel_classes.csv");
    assert_eq!(classes.len(), CLASSES.len());
    let columns = [
        "Kernel_Class",
        "Kernel_Name",
        "Node_Id",
        "Workgroup_Size_X",
        "Grid_Size_Y",
        "Dispatches",
        "Told",
        "Mean_Duration",
        "Mean_Error",
        "Shorter_Duration",
        "Longer_Duration",
        "Longer_Share",
    ];
    let expected = [
        [
            "0",
            "add(float*, float*)",
            "1",
            "64",
            "4",
            "11",
            "apart",
            "10400.0",
            "300.0",
            "",
            "",
            "",
        ],
        [
            "1", "hang", "1", "64", "4", "2", "apart", "200000.0", "9000.0", "120000.0",
            "520000.0", "0.2",
        ],
        [
            "2",
            "(unknown kernel 0x7f001000)",
            "1",
            "64",
            "4",
            "3",
            "mixed",
            "",
            "",
            "",
            "",
            "",
        ],
    ];
    for (row, expected) in classes.iter().zip(expected) {
        assert_eq!(cells(row, columns), expected);
    }
    // There are none if all times are exact.
    let exact = tempfile::tempdir().unwrap();
    csv(&synthetic::events(), exact.path());
    assert!(!exact.path().join("app_kernel_classes.csv").exists());
}

#[test]
fn the_kernel_trace_has_what_an_estimate_draws_and_its_quality_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let outputs = csv(&synthetic::estimates(), directory.path());
    let of = |name: &str| outputs.iter().find(|output| output.path.ends_with(name));
    assert_eq!(
        of("app_kernel_trace.csv").unwrap().content,
        "kernels with their times on the GPU; 4 of 16 are not in it, because how long they took is \
         not known: bounds are in *_kernel_trace_quality.csv"
    );
    let (all, known) = COUNTS;
    assert_eq!(rows(directory.path(), "app_kernel_trace.csv").len(), known);
    let quality = rows(directory.path(), "app_kernel_trace_quality.csv");
    assert_eq!(quality.len(), all);
    let columns = [
        "Kernel_Class",
        "Estimated_Duration",
        "Estimate_Error",
        "Quality",
    ];
    let of = |name: &str| -> Vec<[String; 4]> {
        let rows = quality.iter().filter(|row| row["Kernel_Name"] == name);
        rows.map(|row| cells(row, columns).map(str::to_owned))
            .collect()
    };
    let add = of("add(float*, float*)");
    for row in add.iter().take(10) {
        assert_eq!(*row, ["0", "10400", "300", "sampled"]);
    }
    assert_eq!(add[10], ["", "", "", "submitted"]);
    for row in of("(unknown kernel 0x7f001000)") {
        assert_eq!(row, ["", "", "", "sampled"]);
    }
}

#[test]
fn json_has_estimates_where_facts_of_its_own_are() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let exporter = JsonExporter::new(&out, "app_results.json").unwrap();
    give(&synthetic::estimates(), Box::new(exporter));
    let text = fs::read_to_string(directory.path().join("app_results.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let process = &document["rocprofiler-sdk-tool"][0];
    let dispatches = process["buffer_records"]["kernel_dispatch"]
        .as_array()
        .unwrap();
    let (all, known) = COUNTS;
    assert_eq!(dispatches.len(), known);
    let with_duration = dispatches
        .iter()
        .filter(|one| !one["gputrace"]["duration"].is_null());
    assert_eq!(with_duration.count(), known);
    let first = &dispatches[0]["gputrace"];
    assert_eq!(first["duration"], 10_400);
    assert_eq!(
        (&first["kernel_class"], &first["estimate_error"]),
        (&json!(0), &json!(300))
    );
    let own = &process["gputrace"];
    let untimed = own["untimed"]["kernel_dispatch"].as_array().unwrap();
    assert_eq!(untimed.len(), all - known);
    assert_eq!(
        own["kernel_classes"].as_array().unwrap().len(),
        CLASSES.len()
    );
    assert_eq!(own["kernel_classes"][0]["mean_error"], 300.0);
    assert_eq!(own["kernel_classes"][0]["longer"], Value::Null);
    assert_eq!(own["kernel_classes"][1]["shorter"], 120_000.0);
    assert_eq!(own["kernel_classes"][1]["longer_share"], 0.2);
    assert_eq!(own["kernel_classes"][2]["mean"], Value::Null);
    assert_eq!(
        own["kernel_durations"][1],
        json!({
            "name": "add(float*, float*)", "calls": 11, "known": 10, "estimated": 10, "unknown": 1, "total": 104_000,
            "total_error": 3000.0, "mean": 10400.0, "mean_error": 300.0,
        })
    );
    assert_eq!(own["kernel_durations"][2]["mean"], Value::Null);
    assert_eq!(own["copy_durations"], json!([]));
    // rocprofv3's summary counts known durations.
    let summary = process["summary"].as_array().unwrap();
    let kernels = summary
        .iter()
        .find(|one| one["domain"] == "KERNEL_DISPATCH")
        .unwrap();
    assert_eq!(kernels["stats"]["count"], known);
    assert_eq!(kernels["stats"]["sum"], 504_000);
}

#[test]
fn lines_have_estimates_and_classes() {
    let mut lines = NdjsonWriter::new(Vec::new());
    for event in &synthetic::estimates() {
        lines.event(event).unwrap();
    }
    let text = String::from_utf8(lines.into_inner()).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of =
        |kind: &str| -> Vec<&Value> { lines.iter().filter(|line| line["type"] == kind).collect() };
    let (all, known) = COUNTS;
    let dispatches = of("dispatch");
    assert_eq!(dispatches.len(), all);
    let with_duration = dispatches.iter().filter(|line| line["duration"].is_u64());
    assert_eq!(with_duration.count(), known);
    for line in &dispatches {
        assert_eq!(
            line.get("kernel_class").is_some(),
            line["duration"].is_u64()
        );
    }
    let classes = of("kernel_class");
    for (class, (told, mean, error, count)) in classes.iter().zip(CLASSES) {
        assert_eq!(class["told"], told.name());
        assert_eq!(class["dispatches"], count);
        let known = told.name() == "apart";
        assert_eq!(class["mean"], if known { json!(mean) } else { Value::Null });
        assert_eq!(
            class["mean_error"],
            if known { json!(error) } else { Value::Null }
        );
    }
    assert_eq!(classes.len(), CLASSES.len());
}

#[test]
fn tables_say_how_sure_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tables.txt");
    let options = TableOptions {
        per_domain: true,
        groups: Vec::new(),
        whole: false,
        units: Units::Usec,
        percentiles: Vec::new(),
        remarks: true,
        columns: None,
    };
    let exporter = TablesExporter::new(options, fs::File::create(&path).unwrap());
    give(&synthetic::estimates(), Box::new(exporter));
    let text = fs::read_to_string(path).unwrap();
    // sqrt(18^2 + 3^2) us.
    for line in [
        "Estimates: 12 of the durations. The standard error of their sum is 18.249 usec.",
        "Not in the table, because their durations are not known: 4 of KERNEL_DISPATCH.",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("unknown kernel"), "{text}");
}

/// A kernel of no told class that looks show to have begun and ended within 1 us: its duration is an
/// estimate as well, and has an error.
#[test]
fn a_duration_between_looks_has_an_error() {
    let mut events = synthetic::estimates();
    let begin = synthetic::START + 150_000_000;
    let mut time = between(Quality::Sampled, begin, begin + 10_000);
    time.begin_window.latest = Some(begin + 400);
    time.end_window.earliest = begin + 9_600;
    let at = events.len() - 2;
    let mut work = dispatch(17, begin, time);
    work.kernel = None;
    events.insert(at, Event::Dispatch(Box::new(work)));

    let directory = tempfile::tempdir().unwrap();
    csv(&events, directory.path());
    let quality = rows(directory.path(), "app_kernel_trace_quality.csv");
    let columns = ["Kernel_Class", "Estimated_Duration", "Estimate_Error"];
    // 0.8 us / sqrt(12), rounded up.
    assert_eq!(cells(&quality[16], columns), ["", "10000", "231"]);

    let mut lines = NdjsonWriter::new(Vec::new());
    for event in &events {
        lines.event(event).unwrap();
    }
    let text = String::from_utf8(lines.into_inner()).unwrap();
    let line = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|line| line["dispatch_id"] == 17)
        .unwrap();
    assert_eq!(line["duration"], 10_000);
    assert_eq!(line["estimate_error"], 231);
    assert_eq!(line.get("kernel_class"), None);
}

/// A mean that may well be zero is always shown with its error.
#[test]
fn a_huge_error_is_never_far_from_its_number() {
    let mut events = synthetic::events();
    events.retain(|event| !matches!(event, Event::Dispatch(_)));
    let at = events.len() - 2;
    let time = estimated(synthetic::START, synthetic::START + 12_345, 0, 500_000);
    let work = dispatch(1, synthetic::START, time);
    events.insert(at, Event::Dispatch(Box::new(work)));
    let directory = tempfile::tempdir().unwrap();
    csv(&events, directory.path());
    let quality = rows(directory.path(), "app_kernel_stats_quality.csv");
    assert_eq!(
        cells(&quality[0], ["AverageNs", "AverageErrorNs"]),
        ["12345.0", "500000.0"]
    );
}

/// Ids of dispatches with the durations between their begins and ends, `None` where both are empty.
type Spans = Vec<(u64, Option<u64>)>;

/// A row's id, and the duration from its begin to its end.
fn span(id: Option<u64>, begin: Option<u64>, end: Option<u64>) -> (u64, Option<u64>) {
    assert_eq!(begin.is_some(), end.is_some());
    (id.unwrap(), end.zip(begin).map(|(end, begin)| end - begin))
}

fn known() -> Spans {
    DRAWN.into_iter().filter(|(_, ns)| ns.is_some()).collect()
}

#[test]
fn csv_draws_only_what_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let outputs = csv(&synthetic::drawn(), directory.path());
    let of = |table: &str| -> Spans {
        let rows = rows(directory.path(), &format!("app_kernel_{table}.csv"));
        let number = |row: &BTreeMap<String, String>, column: &str| row[column].parse().ok();
        rows.iter()
            .map(|row| {
                span(
                    number(row, "Dispatch_Id"),
                    number(row, "Start_Timestamp"),
                    number(row, "End_Timestamp"),
                )
            })
            .collect()
    };
    assert_eq!(of("trace"), known());
    assert_eq!(of("trace_quality"), DRAWN);
    for row in rows(directory.path(), "app_kernel_trace_quality.csv") {
        let is_drawn = !row["Start_Timestamp"].is_empty();
        for column in ["Trace_Row", "End_Uncertainty", "Start_Uncertainty"] {
            assert_eq!(!row[column].is_empty(), is_drawn, "{column}: {row:?}");
        }
        assert!(!row["Start_Earliest"].is_empty() && !row["End_Earliest"].is_empty());
    }
    let told = outputs
        .iter()
        .find(|output| output.path.ends_with("app_kernel_trace.csv"));
    assert!(told.unwrap().content.contains("5 of 8 are not in it"));
    // All calls are counted, and only what is drawn is added up.
    let sums = rows(directory.path(), "app_kernel_stats_quality.csv");
    let columns = ["Calls", "Unknown_Durations", "TotalDurationNs", "AverageNs"];
    assert_eq!(cells(&sums[0], columns), ["8", "5", "70400", "23466.7"]);
    let stats = rows(directory.path(), "app_kernel_stats.csv");
    let columns = ["Calls", "TotalDurationNs", "MinNs", "MaxNs"];
    assert_eq!(cells(&stats[0], columns), ["3", "70400", "10000", "50000"]);
    let copies = rows(directory.path(), "app_memory_copy_trace_quality.csv");
    let drawn = copies
        .iter()
        .filter(|row| !row["Start_Timestamp"].is_empty());
    assert_eq!((copies.len(), drawn.count()), (3, 2));
    assert_eq!(rows(directory.path(), "app_memory_copy_trace.csv").len(), 2);
}

#[test]
fn json_draws_only_what_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let exporter = JsonExporter::new(&out, "app_results.json").unwrap();
    give(&synthetic::drawn(), Box::new(exporter));
    let text = fs::read_to_string(directory.path().join("app_results.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let process = &document["rocprofiler-sdk-tool"][0];
    let of = |array: &Value| -> Spans {
        let records = array.as_array().unwrap().iter();
        records
            .map(|one| {
                assert_eq!(
                    one["gputrace"]["duration"],
                    one["end_timestamp"]
                        .as_u64()
                        .map_or(Value::Null, |end| json!(
                            end - one["start_timestamp"].as_u64().unwrap()
                        ),)
                );
                assert!(one["gputrace"]["end_earliest"].is_u64());
                span(
                    one["dispatch_info"]["dispatch_id"].as_u64(),
                    one["start_timestamp"].as_u64(),
                    one["end_timestamp"].as_u64(),
                )
            })
            .collect()
    };
    let (drawn, others) = DRAWN.split_at(3);
    assert_eq!(of(&process["buffer_records"]["kernel_dispatch"]), drawn);
    assert_eq!(
        of(&process["gputrace"]["untimed"]["kernel_dispatch"]),
        others
    );
}

#[test]
fn lines_draw_only_what_is_known() {
    let mut lines = NdjsonWriter::new(Vec::new());
    for event in &synthetic::drawn() {
        lines.event(event).unwrap();
    }
    let text = String::from_utf8(lines.into_inner()).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Spans = lines
        .filter(|line| line["type"] == "dispatch")
        .map(|line| {
            let number = |member: &str| line[member].as_u64();
            let found = span(number("dispatch_id"), number("begin"), number("end"));
            assert_eq!(number("duration"), found.1);
            assert_eq!(number("end_uncertainty").is_some(), found.1.is_some());
            assert!(number("start_earliest").is_some());
            found
        })
        .collect();
    assert_eq!(found, DRAWN);
}
