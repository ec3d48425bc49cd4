//! What `--memory-allocation-trace` finds on real runtimes, queried through rocpd's views: the
//! allocations that the program made through HIP, and everything that HIP requested from HSA.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{collections::BTreeMap, path::Path, process::Command};

use gputrace_capture::meta::Notice;
use gputrace_catalog::memory::{Allocation, allocation};
use gputrace_e2e::{Trace, bench::skipped};
use gputrace_fidelity::{release::Release, scenario::WORKLOADS};
use gputrace_harness::{
    rocm,
    said::{self, Said},
};
use gputrace_timeline::event::{Call, CallEnd};
use serde_json::Value;

use support::{gputrace, record, release};

const VIEW: &str = "SELECT type, level, agent_type, address, size, stack_id, pid, tid, start, \"end\" FROM memory_allocations \
                    ORDER BY stack_id";

/// Records a program that makes copies.
fn record_copies(release: &Release, place: &Path, options: &[&str]) {
    let workload = WORKLOADS.iter().find(|workload| workload.title == "copies");
    let workload = workload.expect("the workload that copies");
    record_for_rocpd(
        &release.program(workload, workload.arguments),
        place,
        "",
        options,
    );
}

/// Records a program with an output that has rocpd's views.
fn record_for_rocpd(program: &Command, place: &Path, settings: &str, options: &[&str]) {
    record(
        program,
        place,
        settings,
        &[&["-f", "rocpd"], options].concat(),
    );
}

/// The rows returned by a query.
fn rows(place: &Path, sql: &str) -> Vec<Value> {
    let answer = Command::new(gputrace())
        .arg("query")
        .arg(place.join("out/run.gtcap"))
        .args([sql, "--format", "json"])
        .output()
        .expect("an answer");
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    serde_json::from_slice(&answer.stdout).expect("an array of objects")
}

fn number(row: &Value, column: &str) -> u64 {
    let value = row.get(column).and_then(Value::as_i64);
    value
        .unwrap_or_else(|| panic!("no {column} in {row}"))
        .cast_unsigned()
}

fn word<'a>(row: &'a Value, column: &str) -> &'a str {
    row.get(column).and_then(Value::as_str).unwrap_or("-")
}

fn succeeded(call: &&Call) -> bool {
    matches!(call.how, CallEnd::Returned(status) if status as u32 == 0)
}

/// The expected row for an HSA call: type, level, address and size.
fn expected(trace: &Trace, call: &Call) -> Option<(&'static str, &'static str, u64, u64)> {
    let [first, size, ..] = call.args;
    Some(match allocation(trace.name(call))? {
        Allocation::Allocate(at) => ("ALLOC", "REAL", call.stored(at)?, size),
        Allocation::VmemAllocate(at) => ("ALLOC", "VIRTUAL", call.stored(at)?, size),
        Allocation::Free if first != 0 => ("FREE", "REAL", first, 0),
        Allocation::VmemFree if first != 0 => ("FREE", "VIRTUAL", first, 0),
        Allocation::Free | Allocation::VmemFree => return None,
    })
}

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    record_copies(&release, place.path(), &["-s", "--memory-allocation-trace"]);
    let trace = Trace::read(&place.path().join("out/run.gtcap"));
    trace.assert_lossless();
    let found = rows(place.path(), VIEW);

    // Each HSA call, and nothing else.
    let mut calls: BTreeMap<u64, _> = BTreeMap::new();
    for call in trace.calls.iter().filter(succeeded) {
        if let Some(expected) = expected(&trace, call) {
            calls.insert(call.correlation, (expected, call));
        }
    }
    assert_eq!(found.len(), calls.len(), "ROCm {name}");
    for (row, (correlation, (expected, call))) in found.iter().zip(&calls) {
        assert_eq!(number(row, "stack_id"), *correlation);
        let is = (
            word(row, "type"),
            word(row, "level"),
            number(row, "address"),
            number(row, "size"),
        );
        assert_eq!(is, *expected, "ROCm {name}: {row}");
        let when = ["pid", "tid", "start", "end"].map(|column| number(row, column));
        assert_eq!(
            when,
            [call.pid.into(), call.tid.into(), call.begin, call.end]
        );
        assert_eq!(
            word(row, "agent_type") == "-",
            word(row, "type") == "FREE",
            "{row}"
        );
    }

    // What the program requested from HIP is on the GPU, and is freed.
    let asked: Vec<&Call> = trace.calls_of("hipMalloc").filter(succeeded).collect();
    assert!(!asked.is_empty(), "the program allocates nothing");
    for call in asked {
        let address = call.stored(0).expect("hipMalloc's pointer");
        let of = |kind: &str| {
            let mut of = found.iter().filter(|row| word(row, "type") == kind);
            of.find(|row| number(row, "address") == address).cloned()
        };
        let row = of("ALLOC")
            .unwrap_or_else(|| panic!("ROCm {name}: nothing was allocated at {address:#x}"));
        assert_eq!(word(&row, "agent_type"), "GPU", "{row}");
        assert!(number(&row, "size") >= call.args[1], "{row}");
        assert!(of("FREE").is_some(), "ROCm {name}: not freed: {row}");
    }
}

#[test]
fn on_rocm_5_2_3() {
    on("5.2.3");
}

#[test]
fn on_rocm_6_4_3() {
    on("6.4.3");
}

#[test]
fn on_rocm_7_2_4() {
    on("7.2.4");
}

#[test]
fn agents_are_known_without_their_kernels() {
    let Some(release) = release("5.2.3") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    record_copies(&release, place.path(), &["--memory-allocation-trace"]);
    let unknown = rows(
        place.path(),
        "SELECT * FROM memory_allocations WHERE type = 'ALLOC' AND agent_type IS NULL",
    );
    assert!(unknown.is_empty(), "{unknown:?}");
    let known = rows(
        place.path(),
        "SELECT DISTINCT agent_type FROM memory_allocations WHERE type = 'ALLOC'",
    );
    assert_eq!(known.len(), 2, "of the CPU and of the GPU: {known:?}");
}

/// The effect of a HIP call on memory: whether it frees, the address, and the size if it is among
/// the arguments.
type Done = (bool, u64, Option<u64>);

/// The effect of a call, if it succeeded.
fn hip_call(trace: &Trace, call: &Call) -> Option<Done> {
    let [first, second, ..] = call.args;
    Some(match trace.name(call) {
        "hipMalloc"
        | "hipMallocManaged"
        | "hipHostMalloc"
        | "hipMallocAsync"
        | "hipMallocFromPoolAsync" => (false, call.stored(0)?, Some(second)),
        "hipMallocPitch" => (false, call.stored(0)?, Some(call.stored(1)? * call.args[3])),
        "hipHostRegister" => (false, first, Some(second)),
        "hipFree" | "hipFreeAsync" | "hipHostFree" | "hipHostUnregister" if first != 0 => {
            (true, first, None)
        }
        _ => return None,
    })
}

/// Checks that the ledger of HIP allocations matches the program's calls, and is balanced at the
/// end.
fn hip_ledger(
    name: &str,
    program: &'static str,
    arguments: &'static [&'static str],
    functions: &[&str],
) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let command = support::program(&release, program, arguments);
    let options = ["--hip-trace", "--memory-allocation-trace"];
    record_for_rocpd(&command, place.path(), "", &options);
    let trace = Trace::read(&place.path().join("out/run.gtcap"));
    trace.assert_lossless();
    for function in functions {
        assert!(
            trace.calls_of(function).next().is_some(),
            "{program} calls no {function}"
        );
    }
    let calls = trace.calls.iter().filter(succeeded);
    let mut expected: Vec<(u64, Done)> = calls
        .filter_map(|call| Some((call.correlation, hip_call(&trace, call)?)))
        .collect();
    expected.sort_by_key(|(correlation, _)| *correlation);
    let found = rows(
        place.path(),
        "SELECT name, fields, gpu_id FROM gputrace_observation WHERE domain = 'HIP_MEMORY'",
    );
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seen: Vec<(u64, Done)> = Vec::new();
    for row in &found {
        let fields: Value = serde_json::from_str(word(row, "fields")).expect("fields");
        let address = fields
            .get("address")
            .and_then(Value::as_str)
            .expect("an address");
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("hex");
        let bytes = number(&fields, "bytes");
        let frees = word(row, "name").contains("Free") || word(row, "name") == "hipHostUnregister";
        if frees {
            assert_eq!(live.remove(&address), Some(bytes), "ROCm {name}: {row}");
        } else {
            live.insert(address, bytes);
        }
        // The GPU is known for allocations seen through HSA.
        if word(row, "name") == "hipMalloc" {
            assert_ne!(number(row, "gpu_id"), 0, "ROCm {name}: {row}");
        }
        seen.push((
            number(&fields, "correlation_id"),
            (frees, address, (!frees).then_some(bytes)),
        ));
    }
    seen.sort_by_key(|(correlation, _)| *correlation);
    assert_eq!(seen, expected, "ROCm {name}");
    assert!(live.is_empty(), "the program frees everything: {live:?}");
    let said = |text: &str| {
        trace
            .notices
            .iter()
            .any(|notice| notice.text.contains(text))
    };
    assert!(said("Memory requested from HIP"), "{:?}", trace.notices);
}

#[test]
fn pools_are_in_the_ledger_of_hip() {
    let pools = [
        "hipHostMalloc",
        "hipMallocAsync",
        "hipMallocFromPoolAsync",
        "hipFreeAsync",
    ];
    // Older ones have pools only if asked for.
    let mut with_pools = rocm::selected();
    with_pools.retain(|name| *name >= "6.4.3");
    if with_pools.is_empty() {
        return skipped("no selected release has pools");
    }
    for name in with_pools {
        hip_ledger(name, "pools", &[], &pools);
    }
}

#[test]
fn all_kinds_of_memory_are_in_the_ledger_of_hip() {
    let kinds = [
        "hipMalloc",
        "hipMallocManaged",
        "hipMallocPitch",
        "hipHostRegister",
        "hipFree",
    ];
    for name in rocm::selected() {
        hip_ledger(name, "features", &["{objects}/module.hsaco"], &kinds);
    }
}

/// The program's log: handle and bytes of each allocation. It released the first two, in reverse
/// order.
fn handles(place: &Path) -> Vec<(u64, u64)> {
    let said = said::read(&place.join("said")).expect("what the program said");
    let lines = said.into_iter().map(|said| match said {
        Said::Handle { handle, bytes } => (handle, bytes),
        other => panic!("{other:?}"),
    });
    lines.collect()
}

#[test]
fn pages_without_addresses_are_allocations() {
    let Some(release) = release("6.4.3") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let command = support::program(&release, "hsa_vmem", &[]);
    // ROCr supports them from this version on.
    let settings = "kfd_minor = 15\n";
    record_for_rocpd(&command, place, settings, &["--memory-allocation-trace"]);
    let said = handles(place);
    let [first, second, third] = said[..] else {
        panic!("{said:?}")
    };
    let found: Vec<_> = rows(place, VIEW)
        .iter()
        .filter(|row| word(row, "level") == "VIRTUAL")
        .map(|row| {
            let frees = word(row, "type") == "FREE";
            assert_eq!(word(row, "agent_type") == "GPU", !frees, "{row}");
            (frees, number(row, "address"), number(row, "size"))
        })
        .collect();
    let expected = [
        (false, first.0, first.1),
        (false, second.0, second.1),
        (false, third.0, third.1),
        (true, second.0, 0),
        (true, first.0, 0),
    ];
    assert_eq!(found, expected);
    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();
    let told = |notice: &&Notice| notice.text.contains("hsa_amd_vmem_handle_create");
    let notices = &trace.notices;
    let told = notices
        .iter()
        .find(told)
        .unwrap_or_else(|| panic!("{notices:?}"));
    assert!(told.text.contains("6.29 MB in 1 allocation"), "{told:?}");
}
