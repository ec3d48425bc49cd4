//! Reads traces with Perfetto's own Python package (`tests/readers`).
//!
//! `GPUTRACE_TEST_PYTHON` names an interpreter that has the package; `cargo xtask test` sets it.
//! Without it, the tests are skipped.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    ledger::{Ledger, LedgerRow},
    meta::{ArgSlot, ClockSnapshot, End, Function, Notice, Parameter, Recording, ValueKind},
};
use gputrace_export::{Exporter, OutputDir, csv::CsvExporter, synthetic};
use gputrace_perfetto::{GpuGrouping, PerfettoExporter, PerfettoOptions};
use gputrace_timeline::event::{
    Call, CallEnd, Event, FunctionInfo, Lifetime, LifetimeChange, ProcessInfo, ThreadInfo,
};

const ROUNDS: u64 = 200;

fn readers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/readers")
}

/// Runs Python with `arguments`; prints that the test is skipped if there is no Python.
fn python(arguments: &[&str]) -> Option<Output> {
    let Some(interpreter) = env::var_os("GPUTRACE_TEST_PYTHON") else {
        gputrace_skip::skipped("GPUTRACE_TEST_PYTHON is not set; `cargo xtask test` sets it");
        return None;
    };
    let output = Command::new(&interpreter)
        .args(arguments)
        .current_dir(readers())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("GPUTRACE_TEST_PYTHON can be run");
    Some(output)
}

#[track_caller]
fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_readers_find_damage() {
    if let Some(output) = python(&["-m", "unittest", "discover"]) {
        assert_success(&output);
    }
}

#[test]
fn the_official_protos_find_everything_and_agree_with_csv() {
    let place = tempfile::tempdir().unwrap();
    let directory = OutputDir::open(place.path(), None).unwrap();
    let mut exporters: [Box<dyn Exporter>; 2] = [
        Box::new(PerfettoExporter::new(&directory, "app.pftrace").unwrap()),
        Box::new(CsvExporter::new(directory, "app")),
    ];
    for event in events() {
        for exporter in &mut exporters {
            exporter.event(&event).unwrap();
        }
    }
    for exporter in exporters {
        exporter.finish().unwrap();
    }
    let file = |name: &str| place.path().join(name).display().to_string();
    let output = python(&[
        "perfetto_check.py",
        &file("app.pftrace"),
        "--csv-hip",
        &file("app_hip_api_trace.csv"),
        "--csv-hsa",
        &file("app_hsa_api_trace.csv"),
    ]);
    if let Some(output) = output {
        assert_success(&output);
        let summary = String::from_utf8(output.stdout).unwrap();
        for line in ["calls: 802", "unfinished: 2", "moved: 0", "deepest: 2"] {
            assert!(
                summary.lines().any(|found| found == line),
                "{line:?} in\n{summary}"
            );
        }
    }
}

#[test]
fn the_official_protos_find_all_gpu_work_and_agree_with_csv() {
    for grouping in [GpuGrouping::Queues, GpuGrouping::Streams] {
        let place = tempfile::tempdir().unwrap();
        let directory = OutputDir::open(place.path(), None).unwrap();
        let options = PerfettoOptions {
            grouping,
            compress: grouping == GpuGrouping::Streams,
            native_events: grouping == GpuGrouping::Queues,
        };
        let mut exporters: [Box<dyn Exporter>; 2] = [
            Box::new(PerfettoExporter::with_options(&directory, "app.pftrace", options).unwrap()),
            Box::new(CsvExporter::new(directory, "app")),
        ];
        for event in synthetic::events() {
            for exporter in &mut exporters {
                exporter.event(&event).unwrap();
            }
        }
        for exporter in exporters {
            exporter.finish().unwrap();
        }
        let file = |name: &str| place.path().join(name).display().to_string();
        let output = python(&[
            "perfetto_check.py",
            &file("app.pftrace"),
            "--csv-hip",
            &file("app_hip_api_trace.csv"),
            "--csv-kernel",
            &file("app_kernel_trace.csv"),
            "--csv-copy",
            &file("app_memory_copy_trace.csv"),
        ]);
        if let Some(output) = output {
            assert_success(&output);
            let summary = String::from_utf8(output.stdout).unwrap();
            for line in [
                "4  KERNEL_DISPATCH exact",
                "1  KERNEL_DISPATCH sampled",
                "1  KERNEL_DISPATCH bounded",
                "2  KERNEL_DISPATCH submitted",
                "2  MEMORY_COPY exact",
                "2  flows",
                match grouping {
                    GpuGrouping::Queues => "6  native",
                    GpuGrouping::Streams => "0  native",
                },
                "1  unfinished GPU work",
            ] {
                assert!(
                    summary.lines().any(|found| found.trim() == line),
                    "{line:?} in\n{summary}"
                );
            }
        }
        if let Some(output) = python(&["render_trace.py", &file("app.pftrace"), &file("app.svg")]) {
            assert_success(&output);
            let picture = std::fs::read_to_string(file("app.svg")).unwrap();
            assert!(picture.contains(">COMPUTE Agent 1 "), "{picture}");
            assert!(
                picture.contains("<title>add(float*, float*), 50.0 µs</title>"),
                "{picture}"
            );
        }
    }
}

/// Two threads that copy; one of them executes another program in between and hangs at the end.
fn events() -> Vec<Event> {
    let mut events = vec![
        Event::Recording(Box::new(Recording {
            hostname: "node".to_owned(),
            clocks: clocks(500),
            ..Recording::default()
        })),
        Event::Clocks(clocks(500)),
        function(0, "hipMemcpy", Domain::HipRuntime),
        function(1, "hsa_signal_create", Domain::HsaCore),
    ];
    for (pid, name) in [(10, "sh"), (20, "app")] {
        events.push(Event::Process(Box::new(ProcessInfo {
            pid,
            name: name.to_owned(),
            ..ProcessInfo::default()
        })));
    }
    events.push(Event::Thread(ThreadInfo {
        pid: 20,
        tid: 21,
        name: "worker".to_owned(),
    }));
    let mut number = 0;
    for round in 0..ROUNDS {
        let begin = 1_000 + round * 1_000;
        if round == ROUNDS / 2 {
            events.push(Event::Lifetime(Lifetime {
                time: begin - 100,
                pid: 10,
                tid: 10,
                what: LifetimeChange::Executed {
                    name: "app2".to_owned(),
                },
            }));
            events.push(Event::Clocks(clocks(begin - 50)));
        }
        for (pid, tid) in [(10, 10), (20, 21)] {
            let inner = call(number + 2, number + 1, pid, tid, begin + 100, begin + 400);
            let outer = call(number + 1, 0, pid, tid, begin, begin + 500);
            // In groups of records, the enclosing call may come last.
            let order = if round % 3 == 0 {
                [inner, outer]
            } else {
                [outer, inner]
            };
            events.extend(order.map(Event::Call));
            number += 2;
        }
    }
    let end = 1_000 + ROUNDS * 1_000;
    for (depth, parent) in [(0, 0), (1, number + 1)] {
        let mut hung = call(
            number + 1 + depth,
            parent,
            10,
            10,
            end + 10 * depth,
            end + 500,
        );
        hung.how = CallEnd::RecordingStopped;
        events.push(Event::Call(hung));
    }
    let rows = [(Domain::HipRuntime, 3), (Domain::HsaCore, 0)].map(|(domain, lost)| LedgerRow {
        cpu: 1,
        domain: domain.id(),
        seen: 2 * ROUNDS + 1 + lost,
        written: 2 * ROUNDS,
        unfinished: 1,
        dropped: vec![lost, 0, 0, 0, 0, 0],
    });
    events.extend([
        Event::Notice(Notice {
            time: end + 600,
            text: "a remark".to_owned(),
        }),
        Event::Ledger(Box::new(Ledger {
            time: end + 600,
            complete: true,
            rows: rows.to_vec(),
            ..Ledger::default()
        })),
        Event::End(End {
            time: end + 600,
            ..End::default()
        }),
    ]);
    events
}

fn clocks(time: u64) -> ClockSnapshot {
    ClockSnapshot {
        boottime: time,
        monotonic: time,
        monotonic_raw: time,
        realtime: time,
        uncertainty: 10,
        realtime_error: None,
    }
}

fn call(correlation: u64, parent: u64, pid: u32, tid: u32, begin: u64, end: u64) -> Call {
    let inner = parent != 0;
    Call {
        function: inner.into(),
        domain: if inner {
            Domain::HsaCore.id()
        } else {
            Domain::HipRuntime.id()
        },
        pid,
        tid,
        begin,
        end,
        correlation,
        parent,
        depth: inner.into(),
        cpu: 1,
        how: CallEnd::Returned(100),
        stack_readable: true,
        args: [correlation; 6],
        stack: [0; 8],
        request: None,
        range: 0,
        external: None,
        stream_id: 0,
        stack_number: None,
        pointees: Vec::new(),
    }
}

fn function(id: u32, name: &str, domain: Domain) -> Event {
    Event::Function(Box::new(FunctionInfo {
        function: Function {
            id,
            name: name.to_owned(),
            domain: domain.id(),
            parameters: Some(vec![Parameter {
                name: "kind".to_owned(),
                c_type: "int".to_owned(),
                kind: ValueKind::Signed(4),
                at: ArgSlot::Register(0),
                ..Parameter::default()
            }]),
            returns: ValueKind::HipError,
            ..Function::default()
        },
        domain: Some(domain),
        library: "lib.so".to_owned(),
        build_id: String::new(),
        range: None,
    }))
}
