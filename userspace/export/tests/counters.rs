//! Counter readings in tables, documents and lines.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, io::Cursor, path::Path, sync::Arc};

use gputrace_capture::{CaptureReader, counter::Counter};
use gputrace_export::{
    Exporter, Output, OutputDir,
    csv::CsvExporter,
    json::JsonExporter,
    synthetic::{self, START},
    testing::check_by_reader,
    text::TextWriter,
};
use gputrace_timeline::{
    Timeline,
    event::{CounterSample, Event},
    synthetic::gpu,
};
use serde_json::Value;

/// The synthetic recording with a counter of a GPU, one of its process, and one of another process.
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

fn export(exporter: Box<dyn Exporter>) {
    export_these(&events(), exporter);
}

fn export_these(events: &[Event], mut exporter: Box<dyn Exporter>) -> Vec<Output> {
    for event in events {
        exporter.event(event).unwrap();
    }
    exporter.finish().unwrap()
}

/// The events of [`gpu::counted`].
fn counted() -> Vec<Event> {
    let reader = CaptureReader::new(Cursor::new(gpu::counted().bytes())).unwrap();
    Timeline::new(reader)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
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
    assert!(
        text.contains("power1_average = 250.5 W <GPU 51234>"),
        "{text}"
    );
}

#[test]
fn what_was_read_while_a_kernel_ran_is_in_rocprofv3_s_table_and_document() {
    // Dispatch; for each counter its name, value and number of readings.
    type Found<'a> = (u64, Vec<(&'a str, f64, u64)>);
    let directory = tempfile::tempdir().unwrap();
    let out = || OutputDir::open(directory.path(), None).unwrap();
    let outputs = export_these(&counted(), Box::new(CsvExporter::new(out(), "app")));
    let said = "counters that were read while 2 of 3 kernels ran; --counters=HZ reads more often";
    assert!(
        outputs.iter().any(|output| output.content == said),
        "{outputs:?}"
    );
    assert_eq!(
        read(directory.path(), "app_counter_collection.csv"),
        "\"Correlation_Id\",\"Dispatch_Id\",\"Agent_Id\",\"Queue_Id\",\"Process_Id\",\"Thread_Id\",\"Grid_Size\",\"Kernel_Id\",\
         \"Kernel_Name\",\"Workgroup_Size\",\"LDS_Block_Size\",\"Scratch_Size\",\"VGPR_Count\",\"Accum_VGPR_Count\",\
         \"SGPR_Count\",\"Counter_Name\",\"Counter_Value\",\"Start_Timestamp\",\"End_Timestamp\"\n\
         0,1,\"Agent 1\",1,100,100,640,1,\"void scale<float>(float*, int)\",64,512,16,0,0,0,\"power1_average\",115.000000,11000000,52000000\n\
         0,1,\"Agent 1\",1,100,100,640,1,\"void scale<float>(float*, int)\",64,512,16,0,0,0,\"energy\",600.000000,11000000,52000000\n\
         0,1,\"Agent 1\",1,100,100,640,1,\"void scale<float>(float*, int)\",64,512,16,0,0,0,\"cu_occupancy\",64.000000,11000000,52000000\n\
         0,3,\"Agent 1\",1,100,100,640,1,\"void scale<float>(float*, int)\",64,512,16,0,0,0,\"power1_average\",90.000000,56000000,64000000\n"
    );

    export_these(
        &counted(),
        Box::new(JsonExporter::new(&out(), "app.json").unwrap()),
    );
    check_by_reader("json_check.py", &directory.path().join("app.json"));
    let document: Value = serde_json::from_str(&read(directory.path(), "app.json")).unwrap();
    let mut processes = document["rocprofiler-sdk-tool"].as_array().unwrap().iter();
    let process = processes
        .find(|process| process["metadata"]["pid"] == gpu::PID)
        .unwrap();
    assert_eq!(process["metadata"]["config"]["counter_collection"], true);
    let name = |id: &Value| {
        let mut counters = process["counters"].as_array().unwrap().iter();
        let counter = counters
            .find(|counter| counter["id"]["handle"] == *id)
            .unwrap();
        let mut agents = process["agents"].as_array().unwrap().iter();
        let agent = agents
            .find(|agent| agent["id"] == counter["agent_id"])
            .unwrap();
        assert_eq!(agent["node_id"], gpu::GPU_NODE);
        counter["name"].as_str().unwrap()
    };
    let collection = process["callback_records"]["counter_collection"]
        .as_array()
        .unwrap();
    let found: Vec<Found<'_>> = collection
        .iter()
        .map(|record| {
            let records = record["records"].as_array().unwrap().iter();
            let values = records.map(|one| {
                (
                    name(&one["counter_id"]["handle"]),
                    one["value"].as_f64().unwrap(),
                    one["gputrace"]["readings"].as_u64().unwrap(),
                )
            });
            let dispatch = &record["dispatch_data"]["dispatch_info"]["dispatch_id"];
            (dispatch.as_u64().unwrap(), values.collect())
        })
        .collect();
    assert_eq!(
        found,
        [
            (
                1,
                vec![
                    ("power1_average", 115.0, 4),
                    ("energy", 600.0, 4),
                    ("cu_occupancy", 64.0, 1)
                ]
            ),
            (3, vec![("power1_average", 90.0, 1)])
        ]
    );
    let first = &collection[0];
    assert_eq!(first["lds_block_size_v"], 512);
    assert_eq!(first["thread_id"], gpu::PID);
    assert_eq!(
        first["dispatch_data"]["dispatch_info"]["grid_size"]["x"],
        640
    );
    assert_eq!(first["dispatch_data"]["end_timestamp"], 52_000_000);
}

#[test]
fn without_counters_there_is_no_table_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    // Values of an older capture, which does not say when they were read.
    export(Box::new(CsvExporter::new(out, "app")));
    assert!(directory.path().join("app_counter_trace.csv").exists());
    assert!(!directory.path().join("app_counter_collection.csv").exists());
}
