//! Streams on real runtimes that give new streams the handles of old ones. The size of a kernel
//! tells its stream.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use gputrace_e2e::Trace;
use serde_json::Value;

use support::{program, record, release};

/// Streams of the program other than the null stream, whose kernel is the largest.
const STREAMS: u64 = 15;

/// The stream in which each dispatch ran, by a format's numbers.
type Numbers = BTreeMap<u64, u64>;

fn csv(place: &Path) -> Numbers {
    let text = fs::read_to_string(place.join("out/run_kernel_trace_quality.csv"));
    let text = text.expect("the kernels");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let column = |name: &str| {
        let name = format!("\"{name}\"");
        header.iter().position(|column| *column == name)
    };
    let (dispatch, stream) = (column("Dispatch_Id"), column("Stream_Id"));
    let numbers = lines.map(|line| {
        let number = |at: Option<usize>| line.get(at?)?.parse().ok();
        let numbers = number(dispatch).zip(number(stream));
        numbers.unwrap_or_else(|| panic!("{line:?}"))
    });
    numbers.collect()
}

fn ndjson(place: &Path) -> Numbers {
    let text = fs::read_to_string(place.join("out/run_results.ndjson")).expect("the events");
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let dispatches = events.filter(|event| event.get("type") == Some(&"dispatch".into()));
    let numbers = dispatches.map(|event| {
        let number = |name: &str| event.get(name).and_then(Value::as_u64);
        let numbers = number("dispatch_id").zip(number("stream_id"));
        numbers.expect("both numbers")
    });
    numbers.collect()
}

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let options = ["-r", "-f", "csv,ndjson"];
    record(&program(&release, "reused", &[]), place, "", &options);
    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();

    let numbers = csv(place);
    assert_eq!(ndjson(place), numbers, "ROCm {name}");
    let of = |number: u64| {
        let dispatches = trace.gpu.dispatches.iter();
        let of_size = dispatches.filter(|one| u64::from(one.grid[0]) == 64 * number);
        let found: BTreeSet<u64> = of_size
            .filter_map(|one| numbers.get(&one.id).copied())
            .collect();
        assert_eq!(found.len(), 1, "ROCm {name}: kernels {number}: {found:?}");
        found.into_iter().sum()
    };
    let streams: BTreeSet<u64> = (1..=STREAMS).map(of).collect();
    assert_eq!(streams, (1..=STREAMS).collect(), "ROCm {name}");
    assert_eq!(of(STREAMS + 1), 0, "ROCm {name}: the null stream");
    assert_eq!(trace.gpu.streams.len() as u64, STREAMS, "ROCm {name}");
    // Otherwise this tests nothing.
    let handles = trace.gpu.streams.iter().map(|stream| stream.key.handle);
    let handles: BTreeSet<u64> = handles.collect();
    assert!((handles.len() as u64) < STREAMS, "ROCm {name}: {handles:?}");
}

gputrace_releases::on_each_release!(on);
