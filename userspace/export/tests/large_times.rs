//! Times that a double cannot hold exactly: from 2^53 ns on, after 104 days without a restart.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use gputrace_export::{
    Exporter, OutputDir,
    csv::CsvExporter,
    json::JsonExporter,
    ndjson::NdjsonExporter,
    synthetic::{self, dispatch, exact},
};
use gputrace_timeline::{
    event::{Call, Event},
    gpu::Copy,
    synthetic::call,
};
use proptest::prelude::*;
use serde_json::Value;

/// Times, ns, around which digits may be lost.
const PLACES: [u64; 5] = [1 << 53, 1 << 54, 1 << 60, 1 << 63, u64::MAX - 2000];

/// A call, a kernel and a copy, each from `begin` to `end`.
fn events(begin: u64, end: u64) -> Vec<Event> {
    let mut events = synthetic::events();
    let copy = events.iter().find_map(|event| match event {
        Event::Copy(copy) => Some(**copy),
        _ => None,
    });
    events.retain(|event| !matches!(event, Event::Call(_) | Event::Dispatch(_) | Event::Copy(_)));
    let last = events.split_off(events.len() - 2);
    events.extend([
        Event::Call(Call {
            function: 0,
            ..call(1, begin, end)
        }),
        Event::Dispatch(Box::new(dispatch(1, begin, exact(begin, end)))),
        Event::Copy(Box::new(Copy {
            time: exact(begin, end),
            ..copy.unwrap()
        })),
    ]);
    events.extend(last);
    events
}

fn export(events: &[Event], directory: &Path) {
    let out = OutputDir::open(directory, None).unwrap();
    let exporters: [Box<dyn Exporter>; 3] = [
        Box::new(JsonExporter::new(&out, "run.json").unwrap()),
        Box::new(NdjsonExporter::new(&out, "run.ndjson").unwrap()),
        Box::new(CsvExporter::new(out, "run")),
    ];
    for mut exporter in exporters {
        for event in events {
            exporter.event(event).unwrap();
        }
        exporter.finish().unwrap();
    }
}

fn times(record: &Value, [begin, end]: [&str; 2]) -> (u64, u64) {
    let time = |name: &str| record[name].as_u64().unwrap();
    (time(begin), time(end))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn they_are_exact_in_every_text(
        place in prop::sample::select(PLACES.to_vec()),
        before in 0_u64..1000,
        length in 1_u64..2000,
    ) {
        let (begin, end) = (place - before, place - before + length);
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        export(&events(begin, end), directory.path());

        let document: Value = serde_json::from_slice(&fs::read(at("run.json")).unwrap()).unwrap();
        let records = &document["rocprofiler-sdk-tool"][0]["buffer_records"];
        for kind in ["hip_api", "kernel_dispatch", "memory_copy"] {
            let stamps = ["start_timestamp", "end_timestamp"];
            prop_assert_eq!(times(&records[kind][0], stamps), (begin, end), "{}", kind);
        }
        let lines = fs::read_to_string(at("run.ndjson")).unwrap();
        let mut found = 0;
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            if ["call", "dispatch", "copy"].iter().any(|kind| line["type"] == *kind) {
                prop_assert_eq!(times(&line, ["begin", "end"]), (begin, end), "{}", line);
                found += 1;
            }
        }
        prop_assert_eq!(found, 3);
        for table in ["hip_api", "kernel", "memory_copy"] {
            let mut rows = csv::Reader::from_path(at(&format!("run_{table}_trace.csv"))).unwrap();
            let row: BTreeMap<String, String> = rows.deserialize().next().unwrap().unwrap();
            let time = |name: &str| row[name].parse::<u64>().unwrap();
            let found = (time("Start_Timestamp"), time("End_Timestamp"));
            prop_assert_eq!(found, (begin, end), "{}", table);
        }
    }
}
