//! Exports of whole synthetic captures, compared with golden files and with the truth.
//!
//! `UPDATE_EXPECT=1 cargo test -p gputrace-export` rewrites the golden files; read the difference.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, io::Cursor, ops::ControlFlow, path::Path};

use expect_test::expect_file;
use gputrace_abi::{domain::Domain, record::task_op};
use gputrace_analysis::summary::SummaryExporter;
use gputrace_capture::{
    CaptureReader,
    ledger::{Ledger, LedgerRow},
    meta::{
        ArgSlot, ClockSnapshot, End, EndReason, Epoch, Function, Library, Mode, Notice, Parameter,
        ProbeCost, Process, Recording, ValueKind,
    },
};
use gputrace_export::{
    ExportError, Exporter, Output, OutputDir, Report,
    csv::{CsvExporter, CsvOptions},
    run,
};
use gputrace_timeline::{
    Timeline,
    event::{Call, CallEnd, Event},
    synthetic::{Synthetic, call, ledger},
};

const MILLISECOND: u64 = 1_000_000;

fn recording(domains: &[Domain]) -> Recording {
    Recording {
        hostname: "node7".to_owned(),
        mode: Mode::Launch {
            command: vec!["./train".to_owned(), "--fast".to_owned()],
        },
        domains: domains
            .iter()
            .map(|domain| domain.name().to_owned())
            .collect(),
        clocks: ClockSnapshot {
            boottime: 1_000 * MILLISECOND,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    }
}

/// A small recording with a bit of everything.
fn sample_calls() -> Vec<Call> {
    let base = 1_001 * MILLISECOND;
    let hip = Domain::HipRuntime.id();
    let hsa = Domain::HsaCore.id();
    vec![
        Call {
            function: 0,
            domain: hip,
            ..call(1, base, base + 2 * MILLISECOND)
        },
        Call {
            function: 0,
            domain: hip,
            cpu: 1,
            ..call(2, base + 3 * MILLISECOND, base + 4 * MILLISECOND)
        },
        Call {
            function: 2,
            domain: hsa,
            depth: 1,
            parent: 1,
            ..call(3, base + 10, base + 46)
        },
        Call {
            function: 1,
            domain: hip,
            tid: 101,
            how: CallEnd::RecordingStopped,
            ..call(4, base + 5 * MILLISECOND, base + 499 * MILLISECOND)
        },
        Call {
            function: 1,
            domain: hip,
            pid: 200,
            tid: 200,
            how: CallEnd::ThreadExited,
            ..call(5, base + 6 * MILLISECOND, base + 7 * MILLISECOND)
        },
        Call {
            function: 77,
            domain: hsa,
            ..call(6, base + 8 * MILLISECOND, base + 8 * MILLISECOND)
        },
    ]
}

fn sample() -> Vec<u8> {
    let calls = sample_calls();
    let mut capture = Synthetic::new(&recording(&[
        Domain::HipRuntime,
        Domain::HipCompiler,
        Domain::HsaCore,
    ]));
    capture
        .library(
            "/usr/lib/libamdhip64.so.5",
            &[
                ("hipMalloc", Domain::HipRuntime),
                ("hipDeviceSynchronize", Domain::HipRuntime),
                ("hsa_signal_create", Domain::HsaCore),
            ],
        )
        .meta(Process {
            pid: 100,
            name: "train".to_owned(),
            ..Process::default()
        })
        .task(task_op::FORK, 1_002 * MILLISECOND, 200, 200, 100, b"loader");
    for call in &calls {
        capture.call(call);
    }
    let mut account = ledger(
        &calls,
        &[
            (Domain::HipRuntime.id(), 1, 0, 3),
            (Domain::HsaCore.id(), 0, 3, 1),
        ],
    );
    account.unmatched_returns = 1;
    capture
        .meta(Epoch {
            time: 1_100 * MILLISECOND,
        })
        .meta(Notice {
            time: 0,
            text: "librocroller was replaced on disk.".to_owned(),
        })
        .meta(account)
        .meta(End {
            time: 1_500 * MILLISECOND,
            reason: EndReason::Interrupted,
        });
    capture.bytes()
}

fn timeline(capture: Vec<u8>) -> Timeline<Cursor<Vec<u8>>> {
    Timeline::new(CaptureReader::new(Cursor::new(capture)).unwrap()).unwrap()
}

/// Exports to CSV and a summary in `directory`.
fn export(capture: Vec<u8>, directory: &Path) -> Report {
    let out = OutputDir::open(directory, None).unwrap();
    let summary = out.file("summary.txt").unwrap();
    let exporters: Vec<Box<dyn Exporter>> = vec![
        Box::new(CsvExporter::new(out, "app")),
        Box::new(SummaryExporter::to_file(summary)),
    ];
    run(timeline(capture), exporters, &mut |_| {
        ControlFlow::Continue(())
    })
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn golden(directory: &Path, name: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    let made = fs::read_to_string(directory.join(name)).unwrap();
    expect_file![golden].assert_eq(&made);
}

const FILES: [&str; 5] = [
    "app_hip_api_trace.csv",
    "app_hsa_api_trace.csv",
    "app_loss.csv",
    "app_unfinished_calls.csv",
    "summary.txt",
];

#[test]
fn outputs_are_as_in_the_golden_files() {
    let directory = tempfile::tempdir().unwrap();
    let report = export(sample(), directory.path());
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(names(directory.path()), FILES);
    for file in FILES {
        golden(directory.path(), file);
    }
    for output in &report.outputs {
        assert_eq!(
            output.bytes,
            fs::metadata(&output.path).unwrap().len(),
            "{output:?}"
        );
    }
    assert_eq!(report.outputs.len(), FILES.len());
}

/// The rows of a CSV file as maps from column to field.
fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(path)
        .unwrap()
        .deserialize()
        .map(|row| row.unwrap())
        .collect()
}

#[test]
fn every_call_is_a_row_with_its_own_numbers() {
    let directory = tempfile::tempdir().unwrap();
    export(sample(), directory.path());
    let mut found = rows(&directory.path().join("app_hip_api_trace.csv"));
    found.extend(rows(&directory.path().join("app_hsa_api_trace.csv")));
    found.sort_by_key(|row| row["Correlation_Id"].parse::<u64>().unwrap());
    let names = ["hipMalloc", "hipDeviceSynchronize", "hsa_signal_create"];
    for (row, call) in found.iter().zip(sample_calls()) {
        assert_eq!(row["Domain"], Ledger::domain_name(call.domain));
        assert_eq!(
            row["Function"],
            names
                .get(call.function as usize)
                .map_or("(unknown function)", |name| name)
        );
        assert_eq!(row["Process_Id"], call.pid.to_string());
        assert_eq!(row["Thread_Id"], call.tid.to_string());
        assert_eq!(row["Correlation_Id"], call.correlation.to_string());
        assert_eq!(row["Start_Timestamp"], call.begin.to_string());
        assert_eq!(row["End_Timestamp"], call.end.to_string());
    }
    assert_eq!(found.len(), sample_calls().len());
}

#[test]
fn arguments_and_results_have_a_file_of_their_own_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let parameter = |name: &str, kind, word| Parameter {
        name: name.to_owned(),
        c_type: format!("{name}_t"),
        kind,
        at: ArgSlot::Register(word),
        ..Parameter::default()
    };
    let mut capture = Synthetic::new(&recording(&[Domain::HipRuntime]));
    capture.meta(Library {
        functions: vec![Function {
            id: 0,
            name: "hipMemset".to_owned(),
            domain: Domain::HipRuntime.id(),
            parameters: Some(vec![
                parameter("dst", ValueKind::Pointer, 0),
                parameter("value", ValueKind::Signed(4), 1),
            ]),
            returns: ValueKind::HipError,
            ..Function::default()
        }],
        ..Library::default()
    });
    capture.call(&Call {
        function: 0,
        domain: Domain::HipRuntime.id(),
        args: [0x1000, 0xffff_ffff, 0, 0, 0, 0],
        how: CallEnd::Returned(1),
        ..call(7, 10, 20)
    });
    let options = CsvOptions {
        arguments: true,
        ..CsvOptions::default()
    };
    let exporter = CsvExporter::with_options(out, "app", options);
    run(
        timeline(capture.bytes()),
        vec![Box::new(exporter)],
        &mut |_| ControlFlow::Continue(()),
    );
    let file = directory.path().join("app_arguments.csv");
    let text = fs::read_to_string(file).unwrap();
    let who = call(7, 10, 20);
    let (pid, tid) = (who.pid, who.tid);
    let expected = format!(
        "\"Process_Id\",\"Thread_Id\",\"Correlation_Id\",\"Function\",\"Position\",\"Type\",\"Name\",\"Value\"\n\
         {pid},{tid},7,\"hipMemset\",0,\"dst_t\",\"dst\",\"0x1000\"\n\
         {pid},{tid},7,\"hipMemset\",1,\"value_t\",\"value\",-1\n\
         {pid},{tid},7,\"hipMemset\",\"\",\"\",\"return\",\"1 hipErrorInvalidValue\"\n"
    );
    assert_eq!(text, expected);
    // The trace has exactly rocprofv3's columns.
    let trace = fs::read_to_string(directory.path().join("app_hip_api_trace.csv")).unwrap();
    assert!(trace.starts_with(
        r#""Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp""#
    ));
}

#[test]
fn the_account_adds_up() {
    let directory = tempfile::tempdir().unwrap();
    let report = export(sample(), directory.path());
    let rows = rows(&directory.path().join("app_loss.csv"));
    let number = |row: &BTreeMap<String, String>, column: &str| row[column].parse::<i64>().unwrap();
    for row in &rows {
        let dropped: i64 = row
            .iter()
            .filter(|(name, _)| name.starts_with("Dropped_"))
            .map(|(_, n)| n.parse::<i64>().unwrap())
            .sum();
        assert_eq!(dropped, number(row, "Lost"));
        let parts =
            ["Written", "Unfinished", "Lost", "Unaccounted"].map(|column| number(row, column));
        assert_eq!(number(row, "Seen"), parts.iter().sum::<i64>());
    }
    for column in ["Seen", "Written", "Unfinished", "Lost"] {
        let sum = |domain: &dyn Fn(&str) -> bool, cpu: &dyn Fn(&str) -> bool| -> i64 {
            let chosen = rows
                .iter()
                .filter(|row| domain(&row["Domain"]) && cpu(&row["Cpu"]));
            chosen.map(|row| number(row, column)).sum()
        };
        let (any_domain, is_all) = (|domain: &str| domain != "TOTAL", |cpu: &str| cpu == "all");
        let total = sum(&|domain| domain == "TOTAL", &is_all);
        assert_eq!(total, sum(&any_domain, &is_all));
        assert_eq!(total, sum(&any_domain, &|cpu| cpu != "all"));
    }
    let total = rows.last().unwrap();
    let found = report.tally.total();
    assert_eq!(number(total, "Written"), found.finished as i64);
    assert_eq!(number(total, "Unfinished"), found.unfinished as i64);
}

#[test]
fn nothing_recorded_is_said_loudly_and_files_of_what_was_asked_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Synthetic::new(&recording(&[Domain::HsaCore]));
    capture
        .meta(Ledger {
            complete: true,
            ..Ledger::default()
        })
        .meta(End::default());
    export(capture.bytes(), directory.path());
    assert_eq!(
        names(directory.path()),
        ["app_hsa_api_trace.csv", "app_loss.csv", "summary.txt"]
    );
    let trace = fs::read_to_string(directory.path().join("app_hsa_api_trace.csv")).unwrap();
    assert_eq!(trace.lines().count(), 1, "only the header");
    let summary = fs::read_to_string(directory.path().join("summary.txt")).unwrap();
    assert!(
        summary.contains("NOTHING WAS RECORDED: no call of HSA_CORE_API was seen."),
        "{summary}"
    );
    let rows = rows(&directory.path().join("app_loss.csv"));
    assert_eq!(rows.len(), 2, "the domain asked for, and the total");
    assert_eq!(rows[0]["Domain"], "HSA_CORE_API");
}

#[test]
fn durations_that_include_single_stepping_are_marked() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Synthetic::new(&recording(&[Domain::HsaCore]));
    let function = |id, name: &str, probe_cost| Function {
        id,
        name: name.to_owned(),
        domain: Domain::HsaCore.id(),
        probe_cost,
        ..Function::default()
    };
    capture.meta(Library {
        functions: vec![
            function(0, "hsa_init", ProbeCost::SingleStepped),
            function(1, "hsa_shut_down", ProbeCost::Emulated),
        ],
        ..Library::default()
    });
    for (id, call) in (0..2).zip(sample_calls()) {
        let domain = Domain::HsaCore.id();
        capture.call(&Call {
            function: id,
            domain,
            ..call
        });
    }
    export(capture.bytes(), directory.path());
    let summary = fs::read_to_string(directory.path().join("summary.txt")).unwrap();
    assert!(summary.contains("hsa_init *"), "{summary}");
    assert!(!summary.contains("hsa_shut_down *"), "{summary}");
    assert!(
        summary.contains("* the kernel single-steps its first instruction"),
        "{summary}"
    );
}

#[test]
fn an_account_that_does_not_balance_is_said_loudly() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Synthetic::new(&recording(&[Domain::HipRuntime]));
    let row = |cpu, seen| LedgerRow {
        cpu,
        seen,
        written: 1,
        ..LedgerRow::default()
    };
    // One too many on one CPU and one too few on another must not cancel out.
    capture
        .call(&call(1, 1, 2))
        .call(&Call {
            cpu: 1,
            ..call(2, 3, 4)
        })
        .meta(Ledger {
            complete: true,
            rows: vec![row(0, 0), row(1, 2)],
            ..Ledger::default()
        })
        .meta(End::default());
    export(capture.bytes(), directory.path());
    let summary = fs::read_to_string(directory.path().join("summary.txt")).unwrap();
    assert!(
        summary.contains("DOES NOT BALANCE: 2 calls unaccounted for."),
        "{summary}"
    );
}

#[test]
fn a_killed_recording_is_exported_and_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Synthetic::new(&recording(&[Domain::HipRuntime]));
    let row = LedgerRow {
        seen: 3,
        written: 1,
        ..LedgerRow::default()
    };
    capture
        .call(&call(1, 1, 2))
        .meta(Ledger {
            complete: false,
            rows: vec![row],
            ..Ledger::default()
        })
        .call(&call(2, 3, 4));
    let mut bytes = capture.bytes();
    bytes.pop();
    let report = export(bytes, directory.path());
    assert!(report.truncation.is_some());
    assert_eq!(
        rows(&directory.path().join("app_hip_api_trace.csv")).len(),
        1
    );
    let summary = fs::read_to_string(directory.path().join("summary.txt")).unwrap();
    for words in [
        "until the recorder was killed",
        "NOT FINAL",
        "ends inside a block",
        "2 calls still open",
    ] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
}

#[test]
fn without_any_account_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Synthetic::new(&recording(&[Domain::HipRuntime]));
    export(capture.call(&call(1, 1, 2)).bytes(), directory.path());
    let summary = fs::read_to_string(directory.path().join("summary.txt")).unwrap();
    assert!(
        summary.contains("NOT KNOWN: the recorder ended before it could write one"),
        "{summary}"
    );
    assert!(rows(&directory.path().join("app_loss.csv")).is_empty());
}

#[test]
fn a_domain_of_a_newer_version_is_not_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Synthetic::new(&recording(&[]));
    export(
        capture
            .call(&Call {
                domain: 31,
                ..call(1, 1, 2)
            })
            .bytes(),
        directory.path(),
    );
    let rows = rows(&directory.path().join("app_other_api_trace.csv"));
    assert_eq!(rows[0]["Domain"], "domain 31");
}

#[test]
fn cancelling_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let csv = Box::new(CsvExporter::new(out, "app"));
    let mut last = None;
    let report = run(timeline(sample()), vec![csv], &mut |progress| {
        last = Some(progress);
        ControlFlow::Break(())
    });
    assert!(report.cancelled && report.outputs.is_empty());
    let last = last.unwrap();
    assert_eq!(last.bytes, last.total);
    assert_eq!(names(directory.path()), [""; 0]);
}

/// Fails at the first call.
struct Failing;

impl Exporter for Failing {
    fn format(&self) -> &'static str {
        "failing"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        match event {
            Event::Call(_) => Err(ExportError::Encode {
                format: "failing",
                reason: "it always does".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        Ok(Vec::new())
    }
}

#[test]
fn one_failing_format_does_not_stop_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let exporters: Vec<Box<dyn Exporter>> =
        vec![Box::new(Failing), Box::new(CsvExporter::new(out, "app"))];
    let report = run(timeline(sample()), exporters, &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(report.failures.len(), 1);
    assert_eq!(
        report.failures[0].1.to_string(),
        "cannot write failing: it always does"
    );
    assert_eq!(names(directory.path()), FILES[..4]);
}

#[test]
fn long_lists_are_cut_and_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Synthetic::new(&recording(&[Domain::HipRuntime]));
    for number in 1..=30 {
        capture
            .call(&Call {
                pid: number,
                how: CallEnd::RecordingStopped,
                ..call(u64::from(number), 0, u64::from(number))
            })
            .meta(Notice {
                time: 0,
                text: format!("remark {number}."),
            });
    }
    export(capture.bytes(), directory.path());
    let summary = fs::read_to_string(directory.path().join("summary.txt")).unwrap();
    for words in [
        "30 calls had not returned",
        "and 10 more that were open for a shorter time",
        "and 11 more",
    ] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    assert!(
        summary.contains("  30 ns") && !summary.contains("  10 ns"),
        "the longest are listed: {summary}"
    );
}
