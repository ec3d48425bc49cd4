//! Every format holds the spans of the capture, for recordings of programs on real runtimes, by readers that are not ours.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

mod support;

use std::{collections::BTreeMap, env, ffi::OsString, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use gputrace_abi::domain::Domain;
use gputrace_e2e::{Trace, bench::skipped};
use gputrace_fidelity::{
    run::launched,
    scenario::{Clock, Mode, ReadIndex, Scenario, WORKLOADS},
};

use support::{gputrace, release};

/// Spans by kind, as `tests/readers/same_spans.py` calls the kinds.
type Counts = BTreeMap<String, u64>;

/// What the capture holds.
fn of_capture(capture: &Path) -> Result<Counts> {
    let trace = Trace::try_read(capture)?;
    let mut counts = Counts::new();
    let mut count = |kind: String| *counts.entry(kind).or_default() += 1;
    for call in &trace.calls {
        let domain = Domain::from_id(call.domain).filter(|domain| domain.is_api());
        count(domain.map_or("other_api", Domain::csv_stem).to_owned());
    }
    let mut work = |kind: &str, is_drawn: bool| {
        if is_drawn {
            count(kind.to_owned());
        } else {
            count(format!("untimed {kind}"));
            count("untimed".to_owned());
        }
    };
    for dispatch in &trace.gpu.dispatches {
        work("kernel_dispatch", dispatch.time.quality.is_drawn());
    }
    for copy in &trace.gpu.copies {
        work("memory_copy", copy.time.quality.is_drawn());
    }
    Ok(counts)
}

/// What all formats hold; fails where two differ.
fn of_formats(capture: &Path, python: &OsString) -> Result<Counts> {
    let out = tempfile::tempdir()?;
    // OTF2's library may not be there; its format is left out then.
    let made = Command::new(gputrace())
        .arg("export")
        .arg(capture)
        .args(["-f", "csv,ndjson,pftrace,rocpd,json,otf2", "-o", "run", "-d"])
        .arg(out.path())
        .output()?;
    let said = String::from_utf8_lossy(&made.stderr);
    ensure!(
        made.status.success() || said.contains("libopen-trace-format2"),
        "{said}"
    );
    let compared = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../readers/same_spans.py"))
        .arg(out.path())
        .arg("run")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()?;
    let counts = String::from_utf8_lossy(&compared.stdout);
    let wrong = String::from_utf8_lossy(&compared.stderr);
    ensure!(compared.status.success(), "{wrong}{counts}");
    let counts: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&counts)?;
    let formats = counts.get("formats").and_then(|formats| formats.as_array());
    let formats = formats.context("no list of formats")?.len();
    ensure!(formats >= 5, "only {formats} formats were compared: {counts:?}");
    Ok(counts
        .iter()
        .filter_map(|(kind, count)| Some((kind.clone(), count.as_u64()?)))
        .collect())
}

/// Runs the workloads with these titles, and compares.
fn all_agree(name: &str, titles: &[&str]) {
    let Some(python) = env::var_os("GPUTRACE_TEST_PYTHON") else {
        return skipped("GPUTRACE_TEST_PYTHON is not set; `cargo xtask test` sets it");
    };
    let Some(release) = release(name) else { return };
    for title in titles {
        let Some(workload) = WORKLOADS.iter().find(|workload| workload.title == *title) else {
            panic!("there is no workload {title}");
        };
        let scenario = Scenario {
            workload,
            mode: Mode::Launch,
            clock: Clock::Drift,
            read_index: ReadIndex::Late,
        };
        let counts = launched(&scenario, &release, &gputrace(), |capture| {
            Ok((of_capture(capture)?, of_formats(capture, &python)?))
        });
        let (expected, found) = match counts {
            Ok(counts) => counts,
            Err(error) => panic!("ROCm {name}, {scenario}: {error:#}"),
        };
        eprintln!("ROCm {name}, {scenario}: {found:?}");
        assert_eq!(found, expected, "ROCm {name}, {scenario}");
        let work = |kinds: [&str; 2]| kinds.iter().filter_map(|kind| found.get(*kind)).sum::<u64>();
        assert!(
            work(["kernel_dispatch", "untimed kernel_dispatch"])
                + work(["memory_copy", "untimed memory_copy"])
                > 0,
            "nothing to compare"
        );
    }
}

#[test]
fn on_rocm_5_2_3() {
    all_agree("5.2.3", &["HSA only, many packets a doorbell"]);
}

#[test]
fn on_rocm_5_7_1() {
    all_agree("5.7.1", &["four streams"]);
}

#[test]
fn on_rocm_6_4_3() {
    all_agree(
        "6.4.3",
        &["graph, captured and replayed", "copies", "two processes"],
    );
}
