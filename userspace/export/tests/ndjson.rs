//! NDJSON of synthetic recordings: every line is checked against the published schema.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeMap, fs, sync::Arc};

use gputrace_capture::{
    counter::Counter,
    identity::Identity,
    meta::{ClockSnapshot, Notice},
};
use gputrace_export::{
    Exporter, OutputDir,
    ndjson::{NdjsonExporter, NdjsonWriter},
    synthetic,
};
use gputrace_timeline::{
    event::{CounterSample, Event, Lifetime, LifetimeChange, ProcessInfo, ThreadInfo},
    observation::{FieldValue, Observation, ObservedField, Whose},
};
use serde_json::{Value, json};

/// Every member that an identity can have.
fn identity() -> Identity {
    serde_json::from_value(json!({
        "title": "python train.py",
        "uid": 1000,
        "user": "alice",
        "namespace_pid": 7,
        "cgroup": "/a",
        "container": {"runtime": "docker", "id": "abc"},
        "pod": {"uid": "1-2", "namespace": "ml", "name": "train", "container": "main"},
        "slurm": {"job": 123, "array": "100_3", "step": "0", "task": 1},
        "rank": {"launcher": "torchrun", "rank": 1, "size": 8, "local": 1},
    }))
    .unwrap()
}

fn events() -> Vec<Event> {
    let mut events = synthetic::events();
    let last = events.split_off(events.len() - 2);
    let lifetime = |what| {
        Event::Lifetime(Lifetime {
            time: 5,
            pid: 100,
            tid: 100,
            what,
        })
    };
    events.extend([
        lifetime(LifetimeChange::ProcessStarted { parent: 1 }),
        lifetime(LifetimeChange::Renamed {
            name: "two\nlines".to_owned(),
        }),
        Event::Thread(ThreadInfo::default()),
        Event::Process(Box::new(ProcessInfo {
            pid: 102,
            identity: identity(),
            ..ProcessInfo::default()
        })),
        Event::Observation(Box::new(Observation {
            domain: 21,
            name: "sleeping".into(),
            whose: Whose {
                pid: 100,
                tid: 101,
                gpu_id: 0,
            },
            begin: 5,
            end: 6,
            is_open: false,
            fields: vec![ObservedField {
                name: "waker".into(),
                value: FieldValue::Number(7),
            }],
        })),
        Event::Counter(CounterSample {
            counter: Arc::new(Counter {
                name: "gpu_busy_percent".to_owned(),
                unit: "%".to_owned(),
                gpu_id: 51234,
                ..Counter::default()
            }),
            time: 7,
            value: 97.5,
        }),
        Event::CodeObject(Box::default()),
        Event::KernelClass(Box::default()),
        Event::Clocks(ClockSnapshot::default()),
        Event::Notice(Notice::default()),
    ]);
    events.extend(last);
    events
}

/// Validates against the subset of JSON Schema that the schema uses.
fn fits(value: &Value, schema: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} in the schema"),
    };
    let typed = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    };
    let listed = schema["enum"]
        .as_array()
        .is_none_or(|list| list.contains(value));
    let constant = schema.get("const").is_none_or(|only| only == value);
    let items = value
        .as_array()
        .filter(|_| !schema["items"].is_null())
        .is_none_or(|items| items.iter().all(|item| fits(item, &schema["items"])));
    let required = schema["required"].as_array().is_none_or(|names| {
        names
            .iter()
            .all(|name| value.get(name.as_str().unwrap()).is_some())
    });
    // The schema allows unknown members, but every member that is written must be described.
    let members = match (value.as_object(), schema["properties"].as_object()) {
        (Some(members), Some(known)) => members
            .iter()
            .all(|(name, value)| known.get(name).is_some_and(|schema| fits(value, schema))),
        _ => true,
    };
    typed && listed && constant && items && required && members
}

#[test]
fn every_line_is_as_the_schema_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ndjson.schema.json");
    let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let kinds = schema["oneOf"].as_array().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let mut exporter = Box::new(NdjsonExporter::new(&out, "app_results.ndjson").unwrap());
    let events = events();
    for event in &events {
        exporter.event(event).unwrap();
    }
    exporter.finish().unwrap();
    let text = fs::read_to_string(directory.path().join("app_results.ndjson")).unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let matching = kinds.iter().filter(|kind| fits(&value, kind)).count();
        assert_eq!(matching, 1, "{line}");
        *counts
            .entry(value["type"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    assert_eq!(text.lines().count(), events.len());
    let identities: Vec<Value> = text
        .lines()
        .filter_map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            line.get_mut("identity").map(Value::take)
        })
        .collect();
    assert_eq!(identities, [json!(identity())]);
    assert_eq!(counts.len(), kinds.len(), "{counts:?}");
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["type"], &first["format"]),
        (&"recording".into(), &2.into())
    );
    let calls = events
        .iter()
        .filter(|event| matches!(event, Event::Call(_)));
    assert_eq!(counts["call"], calls.count());
    let dispatches = events
        .iter()
        .filter(|event| matches!(event, Event::Dispatch(_)));
    assert_eq!(counts["dispatch"], dispatches.count());
}

#[test]
fn a_reader_that_goes_away_is_an_error() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut lines = NdjsonWriter::new(Closed);
    let error = lines.event(&Event::Notice(Notice::default())).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}
