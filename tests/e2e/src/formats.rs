//! Compares every output format of a recording with its capture, using independent readers
//! (`tests/readers/same_spans.py` and the programs that it runs).

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_abi::domain::Domain;

use crate::{bench::skipped, trace::Trace};

/// The formats, and the minimum number that must have been read: OTF2's library, or its reader, may
/// be missing.
const FORMATS: &str = "csv,ndjson,pftrace,rocpd,json,parquet,otf2";
const LEAST: usize = 6;

/// Groups of calls for which rocprofv3 has a file. JSON has all others in one array.
const ROCPROFV3S: [&str; 8] = [
    "hip_api",
    "hsa_api",
    "marker_api",
    "rccl_api",
    "rocdecode_api",
    "rocjpeg_api",
    "rocshmem_api",
    "hipfile_api",
];

/// Number of spans by kind, with the names of kinds in `tests/readers/same_spans.py`.
pub type Counts = BTreeMap<String, u64>;

/// The Python that has the readers' modules; prints that the test is skipped if there is none.
#[must_use]
pub fn python() -> Option<OsString> {
    let python = env::var_os("GPUTRACE_TEST_PYTHON");
    if python.is_none() {
        skipped("GPUTRACE_TEST_PYTHON is not set; `cargo xtask test` sets it");
    }
    python
}

/// Exports a capture to every format, has each one read, and compares the contents with those of
/// the capture. Returns the counts.
///
/// # Panics
///
/// When an export fails, a reader finds an error, or a format disagrees with another format or with
/// the capture.
#[expect(
    clippy::must_use_candidate,
    reason = "an assertion; only some tests look at the counts"
)]
pub fn agree(gputrace: &Path, capture: &Path, python: &OsString) -> Counts {
    let expected = of_capture(capture);
    let found = of_formats(gputrace, capture, python);
    assert_eq!(
        found,
        expected,
        "the formats (left) and {}",
        capture.display()
    );
    found
}

/// Counts in the capture.
fn of_capture(capture: &Path) -> Counts {
    let trace = Trace::read(capture);
    let mut counts = Counts::new();
    let mut count = |kind: String| *counts.entry(kind).or_default() += 1;
    for call in &trace.calls {
        let stem = Domain::from_id(call.domain).map(Domain::csv_stem);
        count(
            stem.filter(|stem| ROCPROFV3S.contains(stem))
                .unwrap_or("other_api")
                .to_owned(),
        );
    }
    for one in &trace.observations {
        let domain = Domain::from_id(one.domain);
        if let Some(memory @ (Domain::MemoryAllocation | Domain::ScratchMemory)) = domain {
            count(memory.csv_stem().to_owned());
        }
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
        work("kernel_dispatch", dispatch.time.is_drawn());
    }
    for copy in &trace.gpu.copies {
        work("memory_copy", copy.time.is_drawn());
    }
    counts
}

/// Counts in all formats.
fn of_formats(gputrace: &Path, capture: &Path, python: &OsString) -> Counts {
    let out = tempfile::tempdir().expect("a directory");
    let made = Command::new(gputrace)
        .arg("export")
        .arg(capture)
        .args(["-f", FORMATS, "-o", "run", "-d"])
        .arg(out.path())
        .output()
        .expect("gputrace");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success() || said.contains("libopen-trace-format2"),
        "{said}"
    );
    let readers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../readers");
    let compared = Command::new(python)
        .arg(readers.join("same_spans.py"))
        .arg(out.path())
        .arg("run")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python");
    let counts = String::from_utf8_lossy(&compared.stdout);
    let wrong = String::from_utf8_lossy(&compared.stderr);
    assert!(compared.status.success(), "{wrong}{counts}");
    let counts: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&counts).unwrap_or_else(|error| panic!("{error}: {counts}"));
    let formats = counts.get("formats").and_then(|formats| formats.as_array());
    let formats = formats.expect("a list of formats").len();
    assert!(
        formats >= LEAST,
        "only {formats} formats were compared: {counts:?}"
    );
    counts
        .iter()
        .filter_map(|(kind, count)| Some((kind.clone(), count.as_u64()?)))
        .collect()
}
