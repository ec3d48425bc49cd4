//! Compares what `--scratch-memory-trace` finds on real runtimes with the packet processor's
//! requests and the runtimes' changes of the queue descriptor.

#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, path::Path, process::Command};

use gputrace_e2e::{Trace, formats};
use gputrace_fidelity::{release::Release, truth::Truth};
use serde_json::Value;

use support::{gputrace, program, release};

/// Long enough for the recorder to look while the kernel has its memory, and again while its queue
/// has none, even on a busy machine: HIP's own kernels are the last in the queue.
const SETTINGS: &str = "default_duration = { fixed_ns = 1_000_000 }
[[kernel]]
name = \"uses_scratch\"
duration = { fixed_ns = 600_000_000 }
[[kernel]]
name = \"__amd_rocclr_*\"
duration = { fixed_ns = 500_000_000 }
";

const COLUMNS: &str = r#""Kind","Operation","Agent_Id","Queue_Id","Thread_Id","Alloc_Flags","Start_Timestamp","End_Timestamp","Allocation_Size""#;

/// Records a program with a kernel that needs scratch memory. The outputs are `out/run_…` in
/// `place`.
fn record(release: &Release, place: &Path, option: &str) {
    let program = program(release, "features", &["{objects}/module.hsaco"]);
    support::record(&program, place, SETTINGS, &[option, "-f", "csv,json,rocpd"]);
}

/// A change of a queue's scratch memory.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    frees: bool,
    bytes: u64,
    address: u64,
    hsa_queue: u64,
    begin: u64,
    end: u64,
}

/// The changes seen by the packet processor.
fn expected(truth: &Truth) -> Vec<Change> {
    let mut changes = Vec::new();
    for one in &truth.scratch {
        for (frees, which) in [(true, 0), (false, 1)] {
            if one.location[0] != one.location[1] && one.location[which] != 0 {
                changes.push(Change {
                    frees,
                    bytes: one.bytes[which],
                    address: one.location[which],
                    hsa_queue: one.hsa_queue,
                    begin: one.begin,
                    end: one.end,
                });
            }
        }
    }
    changes
}

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    record(&release, place, "-s");
    let truth = Truth::read(&place.join("truth"), &place.join("said")).expect("the truth");
    let expected = expected(&truth);
    assert!(expected.len() >= 2, "ROCm {name}: {:?}", truth.scratch);
    if let Some(python) = formats::python() {
        let counts = formats::agree(&gputrace(), &place.join("out/run.gtcap"), &python);
        assert_eq!(counts.get("scratch_memory"), Some(&(expected.len() as u64)));
    }

    let text = fs::read_to_string(place.join("out/run_results.json")).expect("the document");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let processes = document["rocprofiler-sdk-tool"]
        .as_array()
        .expect("processes");
    let records = processes.iter().filter_map(|process| {
        let records = process["buffer_records"]["scratch_memory"].as_array()?;
        let kinds = &process["strings"]["buffer_records"];
        Some(records.iter().map(move |record| (record, kinds)))
    });
    let records: Vec<(&Value, &Value)> = records.flatten().collect();
    let number = |value: &Value| {
        value
            .as_u64()
            .unwrap_or_else(|| panic!("a number: {value}"))
    };
    assert_eq!(
        records.len(),
        expected.len(),
        "ROCm {name}: {records:?} {expected:?}"
    );
    let csv =
        fs::read_to_string(place.join("out/run_scratch_memory_trace.csv")).expect("the table");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(COLUMNS));
    for ((record, kinds), expected) in records.iter().zip(&expected) {
        let kind = &kinds[number(&record["kind"]) as usize];
        assert_eq!(kind["kind"], "SCRATCH_MEMORY");
        let operation = if expected.frees {
            "SCRATCH_MEMORY_FREE"
        } else {
            "SCRATCH_MEMORY_ALLOC"
        };
        assert_eq!(
            kind["operations"][number(&record["operation"]) as usize],
            operation
        );
        let size = if expected.frees { 0 } else { expected.bytes };
        assert_eq!(number(&record["allocation_size"]), size);
        assert_eq!(number(&record["gputrace"]["address"]), expected.address);
        // The previous look saw the old state, and this one the new state.
        let (begin, end) = (
            number(&record["start_timestamp"]),
            number(&record["end_timestamp"]),
        );
        assert!(
            begin <= expected.end && expected.begin <= end,
            "ROCm {name}: {begin} to {end}, {expected:?}"
        );
        let row = lines.next().expect("a row");
        let queue = number(&record["queue_id"]["handle"]);
        let flags = number(&record["flags"]);
        assert_eq!(
            row,
            format!(
                r#""SCRATCH_MEMORY","{operation}","Agent 1",{queue},0,{flags},{begin},{end},{size}"#
            )
        );
    }
    assert_eq!(lines.next(), None);

    let answer = Command::new(gputrace())
        .arg("query")
        .arg(place.join("out/run.gtcap"))
        .args([
            "SELECT operation, size, agent_type FROM scratch_memory",
            "--format",
            "json",
        ])
        .output()
        .expect("an answer");
    let rows: Vec<Value> = serde_json::from_slice(&answer.stdout).expect("rows");
    let sizes: Vec<u64> = rows.iter().map(|row| number(&row["size"])).collect();
    let frees = |change: &Change| if change.frees { 0 } else { change.bytes };
    assert_eq!(sizes, expected.iter().map(frees).collect::<Vec<_>>());
    assert!(
        rows.iter().all(|row| row["agent_type"] == "GPU"),
        "{rows:?}"
    );
}

gputrace_releases::on_each_release!(on);

#[test]
fn alone_it_shows_no_kernels() {
    let Some(release) = release("5.2.3") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    record(&release, place.path(), "--scratch-memory-trace");
    let trace = Trace::read(&place.path().join("out/run.gtcap"));
    trace.assert_lossless();
    assert!(trace.calls.is_empty(), "{:?}", trace.calls.first());
    let out = place.path().join("out");
    let csv = fs::read_to_string(out.join("run_scratch_memory_trace.csv")).expect("the table");
    assert!(csv.lines().count() >= 3, "{csv}");
    assert!(!out.join("run_kernel_trace.csv").exists());
}
