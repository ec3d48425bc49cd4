//! JSON documents of synthetic recordings, read here and by Python's `json` (`tests/readers`).

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    gpu::{CodeObject, Kernel},
    meta::Function,
};
use gputrace_export::{
    ExportError, Exporter, OutputDir, OutputError,
    json::JsonExporter,
    synthetic,
    testing::{check_by_reader, on_full_disk},
};
use gputrace_timeline::{
    event::{Call, Event, FunctionInfo, RangeKind, ThreadInfo},
    gpu::{CodeObjectInfo, GpuTime, KernelInfo, Quality, Renamed},
    observation::{FieldValue, Observation, ObservedField, Whose},
    synthetic::call,
};
use serde_json::{Value, json};

fn export(events: &[Event], directory: &Path) -> (PathBuf, Value) {
    let out = OutputDir::open(directory, None).unwrap();
    let mut exporter = Box::new(JsonExporter::new(&out, "app_results.json").unwrap());
    for event in events {
        exporter.event(event).unwrap();
    }
    let outputs = exporter.finish().unwrap();
    let path = outputs.into_iter().next().unwrap().path;
    let document = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    (path, document)
}

#[test]
fn a_kernel_that_is_called_after_a_range_is_the_one_that_ran() {
    let directory = tempfile::tempdir().unwrap();
    let mut events = synthetic::events();
    let at = events
        .iter()
        .position(|event| matches!(event, Event::Dispatch(_)))
        .unwrap();
    let own = events.iter().find_map(|event| match event {
        Event::Kernel(info) => Some((**info).clone()),
        _ => None,
    });
    let own = own.unwrap();
    let (id, range) = (1 << 31, 77);
    let renamed = KernelInfo {
        id,
        shown: "solve".to_owned(),
        demangled: "solve".to_owned(),
        renamed: Some(Renamed {
            kernel: own.id,
            range,
        }),
        ..own.clone()
    };
    events.insert(at, Event::Kernel(Box::new(renamed)));
    for event in &mut events {
        if let Event::Dispatch(dispatch) = event
            && dispatch.kernel == Some(own.id)
        {
            dispatch.kernel = Some(id);
        }
    }
    let (path, document) = export(&events, directory.path());
    check_by_reader("json_check.py", &path);
    let process = &document["rocprofiler-sdk-tool"][0];
    assert_eq!(
        process["strings"]["correlation_id"]["external"],
        json!([{"key": range, "value": "solve"}])
    );
    let dispatches = process["buffer_records"]["kernel_dispatch"]
        .as_array()
        .unwrap();
    let mut found = 0;
    for dispatch in dispatches {
        if dispatch["correlation_id"]["external"] != range {
            continue;
        }
        let number = dispatch["dispatch_info"]["kernel_id"].as_u64().unwrap() as usize;
        let kernel = &process["kernel_symbols"][number];
        assert_eq!(kernel["formatted_kernel_name"], own.shown);
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn the_document_has_rocprofv3s_shape() {
    let directory = tempfile::tempdir().unwrap();
    let events = synthetic::events();
    let (path, document) = export(&events, directory.path());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    check_by_reader("json_check.py", &path);
    let process = &document["rocprofiler-sdk-tool"][0];
    let length = |value: &Value| value.as_array().unwrap().len();
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
    let records = &process["buffer_records"];
    let untimed = &process["gputrace"]["untimed"];
    assert_eq!(
        length(&records["kernel_dispatch"]) + length(&untimed["kernel_dispatch"]),
        count(|event| matches!(event, Event::Dispatch(_)))
    );
    assert_eq!(
        length(&records["kernel_dispatch"]),
        count(|event| matches!(event, Event::Dispatch(work) if work.time.is_drawn()))
    );
    assert_eq!(
        length(&records["memory_copy"]) + length(&untimed["memory_copy"]),
        count(|event| matches!(event, Event::Copy(_)))
    );
    assert_eq!(length(&records["hip_api"]) + length(&records["hsa_api"]), 3);

    let find = |id: u64| {
        let all = records["kernel_dispatch"].as_array().unwrap();
        all.iter()
            .find(|record| record["dispatch_info"]["dispatch_id"] == id)
            .unwrap()
    };
    let first = find(1);
    assert_eq!(
        first["dispatch_info"]["grid_size"],
        json!({"x": 1024, "y": 4, "z": 1})
    );
    assert_eq!(
        first["correlation_id"],
        json!({"internal": 2, "external": 0})
    );
    assert_eq!(first["gputrace"]["start_uncertainty"], 300);
    let name = |record: &Value| {
        let kind = &process["strings"]["buffer_records"][record["kind"].as_u64().unwrap() as usize];
        let operation = &kind["operations"][record["operation"].as_u64().unwrap() as usize];
        format!(
            "{} {}",
            kind["kind"].as_str().unwrap(),
            operation.as_str().unwrap()
        )
    };
    assert_eq!(name(first), "KERNEL_DISPATCH KERNEL_DISPATCH_COMPLETE");
    assert_eq!(
        name(&records["memory_copy"][0]),
        "MEMORY_COPY MEMORY_COPY_HOST_TO_DEVICE"
    );
    assert_eq!(
        name(&records["hsa_api"][0]),
        "HSA_CORE_API hsa_signal_store_relaxed"
    );
    assert_eq!(
        name(&records["hip_api"][0]),
        "HIP_RUNTIME_API hipLaunchKernel"
    );
    assert_eq!(
        records["hip_api"][1]["gputrace"]["unfinished"],
        "recording_stopped"
    );
    assert!(records["hip_api"][1].get("retval").is_none());
    assert_eq!(process["agents"][1]["type"], 2);
    assert_eq!(
        process["kernel_symbols"][1]["formatted_kernel_name"],
        "add(float*, float*)"
    );
    assert_eq!(process["kernel_symbols"][1]["truncated_kernel_name"], "add");
    assert_eq!(process["metadata"]["config"]["kernel_trace"], true);
    assert_eq!(process["metadata"]["config"]["rccl_api_trace"], false);
    assert_eq!(
        document["rocprofiler-sdk-tool"][0]["gputrace"]["document"]["loss"]["complete"],
        true
    );
}

/// Markers, an allocation and its free are in the document as rocprofv3 writes them, and so are
/// their sums.
#[test]
fn markers_allocations_and_sums_are_as_rocprofv3_writes_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut events = synthetic::events();
    let marker = |id, text: &str, api: &str, kind| {
        Event::Function(Box::new(FunctionInfo {
            function: Function {
                id,
                name: text.to_owned(),
                aliases: vec![api.to_owned()],
                domain: Domain::MarkerCore.id(),
                parameters: Some(Vec::new()),
                ..Function::default()
            },
            domain: Some(Domain::MarkerCore),
            library: "libroctx64.so".to_owned(),
            build_id: String::new(),
            range: Some(kind),
        }))
    };
    events.push(marker(900, "step", "roctxRangePushA", RangeKind::Nested));
    events.push(marker(901, "here", "roctxMarkA", RangeKind::Mark));
    let pid = 100;
    for (correlation, function, took) in [(501, 900, 10), (502, 901, 0), (503, 900, 30)] {
        events.push(Event::Call(Call {
            function,
            domain: Domain::MarkerCore.id(),
            pid,
            ..call(correlation, 1_000, 1_000 + took)
        }));
    }
    for (name, took) in [
        ("MEMORY_ALLOCATION_ALLOCATE", 7),
        ("MEMORY_ALLOCATION_FREE", 5),
    ] {
        events.push(Event::Observation(Box::new(Observation {
            domain: Domain::MemoryAllocation.id(),
            name: name.into(),
            whose: Whose {
                pid,
                ..Whose::default()
            },
            begin: 2_000,
            end: 2_000 + took,
            is_open: false,
            fields: vec![ObservedField::new("address", FieldValue::Hex(0x7f00_1000))],
        })));
    }
    let (path, document) = export(&events, directory.path());
    check_by_reader("json_check.py", &path);
    let processes = document["rocprofiler-sdk-tool"].as_array().unwrap();
    let process = processes
        .iter()
        .find(|process| process["metadata"]["pid"] == pid)
        .unwrap();
    assert_eq!(
        process["strings"]["marker_api"],
        json!([
            {"key": 501, "value": "step"},
            {"key": 502, "value": "here"},
            {"key": 503, "value": "step"},
        ])
    );
    let markers = process["buffer_records"]["marker_api"].as_array().unwrap();
    let kind = markers[0]["kind"].as_u64().unwrap() as usize;
    let operations = &process["strings"]["buffer_records"][kind]["operations"];
    let called = markers.iter().map(|record| {
        operations[record["operation"].as_u64().unwrap() as usize]
            .as_str()
            .unwrap()
    });
    assert!(called.eq(["roctxRangePushA", "roctxMarkA", "roctxRangePushA"]));
    let allocation = &process["buffer_records"]["memory_allocation"][0];
    assert_eq!(allocation["address"], "0x000000007f001000");
    let summary = process["summary"].as_array().unwrap();
    let stats = |domain: &str| {
        let found = summary.iter().find(|entry| entry["domain"] == domain);
        found.unwrap()["stats"].clone()
    };
    let markers = stats("MARKER_API");
    assert_eq!(
        (&markers["count"], &markers["sum"]),
        (&3.into(), &40.into())
    );
    let step = &markers["operations"][1];
    assert_eq!(step["key"], "step");
    for (name, value) in [
        ("count", 2.0),
        ("sum", 40.0),
        ("sqr", 1_000.0),
        ("min", 10.0),
        ("max", 30.0),
        ("mean", 20.0),
        ("stddev", 14.142_135_623_730_951),
        ("variance", 200.0),
    ] {
        let is = step["value"][name].as_f64().unwrap();
        assert!((is - value).abs() < 1e-9, "{name} is {is}");
    }
    assert_eq!(stats("MEMORY_ALLOCATION")["sum"], 12);
    for domain in ["KERNEL_DISPATCH", "MEMORY_COPY", "HIP_API", "HSA_API"] {
        let owners = processes.iter().filter(|process| {
            let summary = process["summary"].as_array().unwrap();
            summary.iter().any(|entry| entry["domain"] == domain)
        });
        assert!(owners.count() > 0, "{domain}");
    }
}

#[test]
fn each_process_has_its_own_records() {
    let directory = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    for number in 1..=30_u64 {
        let mut call = call(number, number, number + 1);
        call.pid = 100 + (number % 3) as u32;
        events.push(Event::Thread(ThreadInfo {
            pid: call.pid,
            tid: call.tid,
            name: "\"quoted\"\u{fffd}".to_owned(),
        }));
        events.push(Event::Call(call));
    }
    let (path, document) = export(&events, directory.path());
    check_by_reader("json_check.py", &path);
    let processes = document["rocprofiler-sdk-tool"].as_array().unwrap();
    assert_eq!(processes.len(), 3);
    for process in processes {
        let calls = process["buffer_records"]["hip_api"].as_array().unwrap();
        assert_eq!(calls.len(), 10);
        let pid = process["metadata"]["pid"].as_u64().unwrap();
        assert!(
            calls
                .iter()
                .all(|call| 100 + call["correlation_id"]["internal"].as_u64().unwrap() % 3 == pid)
        );
    }
    assert_eq!(
        document["rocprofiler-sdk-tool"][0]["gputrace"]["document"]["loss"],
        Value::Null
    );
}

#[test]
fn a_recording_without_events_is_a_document_too() {
    let directory = tempfile::tempdir().unwrap();
    let (path, document) = export(&[], directory.path());
    check_by_reader("json_check.py", &path);
    let processes = document["rocprofiler-sdk-tool"].as_array().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0]["metadata"]["pid"], 0);
}

#[test]
fn a_full_disk_leaves_no_partial_file_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    on_full_disk("a_full_disk", 2048, directory.path(), fill);
}

fn fill(directory: &Path) {
    let out = OutputDir::open(directory, None).unwrap();
    // The disk is full while records wait, and while the document is assembled.
    for records in [200_000, 4_000] {
        let mut exporter = Box::new(JsonExporter::new(&out, "app_results.json").unwrap());
        let result = (1..records)
            .try_for_each(|number| exporter.event(&Event::Call(call(number, number, number + 1))))
            .and_then(|()| {
                for number in 0..40_000 {
                    exporter.event(&Event::Thread(ThreadInfo {
                        pid: 100,
                        tid: number,
                        name: "a thread with a name".to_owned(),
                    }))?;
                }
                exporter.finish().map(drop)
            });
        let error = result.unwrap_err();
        assert!(
            matches!(error, ExportError::Output(OutputError::Full { .. })),
            "{error:?}"
        );
    }
}

#[test]
fn kernels_and_code_objects_are_found_by_number_in_each_process() {
    let directory = tempfile::tempdir().unwrap();
    let of = |id: u32, pid: u32, name: &str| {
        let kernel = Kernel {
            name: name.to_owned(),
            ..Kernel::default()
        };
        Event::Kernel(Box::new(KernelInfo {
            id,
            pid,
            code_object: id,
            kernel,
            demangled: gputrace_demangle::demangle(name).unwrap_or_else(|| name.to_owned()),
            ..KernelInfo::default()
        }))
    };
    let object = |id: u32, pid: u32| {
        let code_object = CodeObject {
            pid,
            ..CodeObject::default()
        };
        Event::CodeObject(Box::new(CodeObjectInfo { id, code_object }))
    };
    let launched = |pid: u32, kernel: u32| {
        let mut dispatch = synthetic::dispatch(
            u64::from(kernel),
            10,
            GpuTime {
                quality: Quality::Exact,
                ..GpuTime::default()
            },
        );
        dispatch.origin.pid = pid;
        dispatch.kernel = Some(kernel);
        Event::Dispatch(Box::new(dispatch))
    };
    let (_, document) = export(
        &[
            object(1, 7),
            of(1, 7, "_Z5scalePf"),
            object(2, 8),
            of(2, 8, "small"),
            of(3, 7, "_Z5otherPf"),
            launched(8, 2),
            launched(7, 3),
            launched(7, 9),
        ],
        directory.path(),
    );
    let processes = document["rocprofiler-sdk-tool"].as_array().unwrap();
    let shown: Vec<Vec<(&str, &str, &str)>> = processes
        .iter()
        .map(|process| {
            let kernels = process["kernel_symbols"].as_array().unwrap();
            let dispatches = process["buffer_records"]["kernel_dispatch"]
                .as_array()
                .unwrap();
            let launched = dispatches.iter().map(|dispatch| {
                let id = dispatch["dispatch_info"]["kernel_id"].as_u64().unwrap();
                let kernel = &kernels[id as usize];
                assert_eq!(kernel["kernel_id"], id);
                let object = kernel["code_object_id"].as_u64().unwrap() as usize;
                assert!(process["code_objects"].as_array().unwrap().len() > object);
                [
                    "kernel_name",
                    "demangled_kernel_name",
                    "truncated_kernel_name",
                ]
                .map(|name| kernel[name].as_str().unwrap())
                .into()
            });
            launched.collect()
        })
        .collect();
    assert_eq!(
        shown,
        [
            vec![
                ("_Z5otherPf.kd", "other(float*) [clone .kd]", "other"),
                ("", "", "")
            ],
            vec![("small.kd", "small.kd", "small.kd")],
        ]
    );
}
