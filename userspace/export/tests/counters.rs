//! Numbers that were read now and then: in tables, documents and lines.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, sync::Arc};

use gputrace_capture::counter::Counter;
use gputrace_export::{
    Exporter, OutputDir,
    csv::CsvExporter,
    json::JsonExporter,
    synthetic::{self, START},
    text::TextWriter,
};
use gputrace_timeline::event::{CounterSample, Event};
use serde_json::Value;

/// The made-up recording with a counter of a GPU and one of its process, and one of another process.
fn events() -> Vec<Event> {
    let mut events = synthetic::events();
    let last = events.split_off(events.len() - 2);
    let sample = |name: &str, unit: &str, pid, time, value| {
        Event::Counter(CounterSample {
            counter: Arc::new(Counter {
                name: name.to_owned(),
                unit: unit.to_owned(),
                pid,
                gpu_id: 51234,
                node_id: Some(1),
                ..Counter::default()
            }),
            time: START + time,
            value,
        })
    };
    events.extend([
        sample("power1_average", "W", 0, 10_000, 250.5),
        sample("vram", "B", 100, 20_000, 4096.0),
        sample("vram", "B", 101, 30_000, 8192.0),
        sample("power1_average", "W", 0, 400_000, 97.0),
    ]);
    events.extend(last);
    events
}

fn export(mut exporter: Box<dyn Exporter>) {
    for event in events() {
        exporter.event(&event).unwrap();
    }
    exporter.finish().unwrap();
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

#[test]
fn every_value_is_a_row_and_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let out = || OutputDir::open(directory.path(), None).unwrap();
    export(Box::new(CsvExporter::new(out(), "app")));
    assert_eq!(
        read(directory.path(), "app_counter_trace.csv"),
        "\"Agent_Id\",\"Gpu_Id\",\"Process_Id\",\"Counter_Name\",\"Unit\",\"Cumulative\",\"Timestamp\",\"Counter_Value\"\n\
         \"Agent 1\",51234,0,\"power1_average\",\"W\",\"false\",1000010000,250.5\n\
         \"Agent 1\",51234,100,\"vram\",\"B\",\"false\",1000020000,4096.0\n\
         \"Agent 1\",51234,101,\"vram\",\"B\",\"false\",1000030000,8192.0\n\
         \"Agent 1\",51234,0,\"power1_average\",\"W\",\"false\",1000400000,97.0\n"
    );

    export(Box::new(JsonExporter::new(&out(), "app.json").unwrap()));
    let document: Value = serde_json::from_str(&read(directory.path(), "app.json")).unwrap();
    let processes = document["rocprofiler-sdk-tool"].as_array().unwrap();
    let of = |pid: u64| {
        let mut found = processes
            .iter()
            .filter(|process| process["metadata"]["pid"] == pid);
        found.next().unwrap()["gputrace"]["counters"].clone()
    };
    let values = |counters: Value| -> Vec<f64> {
        let counters = counters.as_array().unwrap();
        counters
            .iter()
            .map(|one| one["value"].as_f64().unwrap())
            .collect()
    };
    assert_eq!(values(of(0)), [250.5, 97.0]);
    assert_eq!(values(of(100)), [4096.0]);

    let mut text = TextWriter::new(Vec::new());
    events().iter().for_each(|event| text.event(event).unwrap());
    let text = String::from_utf8(text.into_inner()).unwrap();
    assert!(text.contains("power1_average = 250.5 W <GPU 51234>"), "{text}");
}
