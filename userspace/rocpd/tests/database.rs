//! Databases of synthetic recordings, read by SQLite here and by Python's `sqlite3`
//! (`tests/readers`).

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{fs, io::Cursor, ops::ControlFlow, path::Path};

use common::{export, number, open, text};
use gputrace_abi::{domain::Domain, record::task_op};
use gputrace_capture::{
    CaptureReader, Meta,
    identity::Identity,
    meta::{ArgSlot, Function, Library, Parameter, Process, Recording, ValueKind},
};
use gputrace_export::{
    ExportError, Exporter, OutputDir, OutputError, run, synthetic,
    testing::{check_by_reader, names, on_full_disk},
};
use gputrace_rocpd::RocpdExporter;
use gputrace_timeline::{
    Timeline,
    event::{CallEnd, Event},
    gpu::{KernelInfo, Renamed},
    observation::{FieldValue, Observation, ObservedField, Whose},
    synthetic::{Synthetic, call, gpu, ledger},
};

#[test]
fn gpu_work_is_where_rocpd_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let events = synthetic::events();
    let path = export(&events, directory.path());
    assert_eq!(names(directory.path()), ["app_results.db"]);
    // It runs every view.
    check_by_reader("rocpd_check.py", &path);
    let database = open(&path);

    let count =
        |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count() as i64;
    let dispatches = count(|event| matches!(event, Event::Dispatch(_)));
    let drawn = count(|event| matches!(event, Event::Dispatch(work) if work.time.is_drawn()));
    assert!(0 < drawn && drawn < dispatches);
    assert_eq!(number(&database, "SELECT count(*) FROM kernels"), drawn);
    assert_eq!(
        number(&database, "SELECT count(*) FROM gputrace_dispatch"),
        dispatches
    );
    let drawn_copies = count(|event| matches!(event, Event::Copy(work) if work.time.is_drawn()));
    assert_eq!(
        number(&database, "SELECT count(*) FROM memory_copies"),
        drawn_copies
    );
    assert_eq!(
        number(&database, "SELECT count(*) FROM gputrace_copy"),
        count(|event| matches!(event, Event::Copy(_)))
    );
    let calls = count(|event| matches!(event, Event::Call(_)));
    assert_eq!(number(&database, "SELECT count(*) FROM regions"), calls);
    assert_eq!(
        text(
            &database,
            "SELECT reason FROM gputrace_unfinished_call JOIN regions USING (id) WHERE name = 'hipDeviceSynchronize'"
        ),
        "recording_stopped"
    );

    let kernel = "FROM kernels WHERE dispatch_id = 1";
    assert_eq!(
        text(&database, &format!("SELECT name {kernel}")),
        "add(float*, float*)"
    );
    assert_eq!(
        text(&database, &format!("SELECT queue {kernel}")),
        "Queue 1"
    );
    assert_eq!(
        text(&database, &format!("SELECT category {kernel}")),
        "KERNEL_DISPATCH"
    );
    assert_eq!(
        number(&database, &format!("SELECT duration {kernel}")),
        20_000
    );
    assert_eq!(number(&database, &format!("SELECT grid_x {kernel}")), 1024);
    // The call that submitted it.
    assert_eq!(
        text(
            &database,
            "SELECT r.name FROM kernels AS k JOIN regions AS r USING (stack_id) WHERE dispatch_id = 1"
        ),
        "hsa_signal_store_relaxed"
    );
    assert_eq!(
        text(
            &database,
            "SELECT extdata FROM rocpd_kernel_dispatch WHERE id = 1"
        ),
        r#"{"quality":"exact","start_uncertainty":300,"end_uncertainty":300}"#
    );
    // The kernel that was not found, and the agent of a queue other than the first.
    assert_eq!(
        text(&database, "SELECT name FROM kernels WHERE kernel_id < 0"),
        "(unknown kernel 0x7f001000)"
    );
    assert_eq!(
        number(
            &database,
            "SELECT agent_abs_index FROM kernels WHERE dispatch_id = 7"
        ),
        2
    );
    assert_eq!(
        text(
            &database,
            "SELECT dst_device || '<' || src_device FROM memory_copies WHERE id = 1"
        ),
        "gfx90a<AMD EPYC, \"7713\""
    );
    assert_eq!(
        number(
            &database,
            "SELECT total_calls FROM top WHERE name = 'MEMORY_COPY_HOST_TO_DEVICE'"
        ),
        1
    );
    assert_eq!(number(&database, "SELECT sum(lost) FROM gputrace_loss"), 0);
}

#[test]
fn the_range_after_which_a_kernel_is_called_is_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut events = synthetic::events();
    let at = events
        .iter()
        .position(|event| matches!(event, Event::Kernel(_)));
    let own = match &events[at.unwrap()] {
        Event::Kernel(info) => (**info).clone(),
        other => panic!("{other:?}"),
    };
    let id = 1 << 31;
    let renamed = KernelInfo {
        id,
        shown: "solve".to_owned(),
        renamed: Some(Renamed {
            kernel: own.id,
            range: 77,
        }),
        ..own.clone()
    };
    events.insert(at.unwrap() + 1, Event::Kernel(Box::new(renamed)));
    for event in &mut events {
        if let Event::Dispatch(dispatch) = event
            && dispatch.kernel == Some(own.id)
        {
            dispatch.kernel = Some(id);
        }
    }
    let database = open(&export(&events, directory.path()));
    let of_it = format!("FROM kernels WHERE name = '{}' AND region", own.shown);
    assert!(number(&database, &format!("SELECT count(*) {of_it} = 'solve'")) > 0);
    assert_eq!(
        number(&database, &format!("SELECT count(*) {of_it} != 'solve'")),
        0
    );
    let symbols = format!("SELECT count(*) FROM rocpd_info_kernel_symbol WHERE id = {id}");
    assert_eq!(number(&database, &symbols), 0);
}

#[test]
fn calls_have_arguments_results_and_streams() {
    let parameter = |name: &str, c_type: &str, kind, at| Parameter {
        name: name.to_owned(),
        c_type: c_type.to_owned(),
        kind,
        at: ArgSlot::Register(at),
        ..Parameter::default()
    };
    let mut capture = Synthetic::new(&Recording {
        main_pid: Some(100),
        hostname: "node7".to_owned(),
        domains: vec![Domain::HipRuntime.name().to_owned()],
        ..Recording::default()
    });
    capture.meta(Meta::Library(Box::new(Library {
        path: "/opt/rocm/lib/libamdhip64.so.6".to_owned(),
        functions: vec![Function {
            name: "hipMemcpyAsync".to_owned(),
            domain: Domain::HipRuntime.id(),
            parameters: Some(vec![
                parameter("dst", "void *", ValueKind::Pointer, 0),
                parameter("sizeBytes", "size_t", ValueKind::Unsigned(8), 2),
                parameter("stream", "hipStream_t", ValueKind::Pointer, 4),
            ]),
            returns: ValueKind::HipError,
            ..Function::default()
        }],
        ..Library::default()
    })));
    capture.meta(Process {
        pid: 100,
        parent: 1,
        name: "train".to_owned(),
        executable: "/usr/bin/train".to_owned(),
        command: vec!["train".to_owned(), "it's".to_owned()],
        start: 5,
        identity: Identity {
            user: "alice".to_owned(),
            ..Identity::default()
        },
        ..Process::default()
    });
    capture.task(task_op::THREAD, 10, 100, 101, 100, b"worker");
    let mut calls = vec![call(1, 20, 30), call(2, 40, 40)];
    calls[0].how = CallEnd::Returned(1);
    calls[1].tid = 101;
    calls[1].args = [u64::MAX, 0, 7, 0, 0, 0];
    for call in &calls {
        capture.call(call);
    }
    capture.task(task_op::EXIT, 50, 100, 101, 0, b"worker");
    capture.meta(Meta::Ledger(Box::new(ledger(&calls, &[(0, 0, 0, 3)]))));
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let timeline =
        Timeline::new(CaptureReader::new(Cursor::new(capture.bytes())).unwrap()).unwrap();
    let exporter = Box::new(RocpdExporter::new(&out, "app_results.db").unwrap());
    let report = run(timeline, vec![exporter], &mut |_| ControlFlow::Continue(()));
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let path = &report.outputs[0].path;
    check_by_reader("rocpd_check.py", path);
    let database = open(path);
    assert_eq!(
        text(
            &database,
            "SELECT group_concat(type || ' ' || name || '=' || value, ', ') FROM region_args WHERE id = 1"
        ),
        "void * dst=0x1, size_t sizeBytes=3, hipStream_t stream=0x5"
    );
    assert_eq!(
        text(
            &database,
            "SELECT group_concat(arg_value || ':' || stream_name, ', ') FROM stream_args"
        ),
        "0x5:Stream 1, 0x0:Default Stream"
    );
    assert_eq!(
        text(
            &database,
            "SELECT extdata ->> 'name' || ' ' || (extdata -> 'identity') \
             FROM rocpd_info_process WHERE pid = 100"
        ),
        r#"train {"user":"alice"}"#
    );
    assert_eq!(
        text(&database, "SELECT extdata FROM regions WHERE stack_id = 1"),
        r#"{"returned":"1 hipErrorInvalidValue"}"#
    );
    assert_eq!(
        number(&database, "SELECT duration FROM regions WHERE stack_id = 2"),
        0
    );
    assert_eq!(
        text(
            &database,
            "SELECT name || ' ' || start || '-' || \"end\" FROM threads WHERE tid = 101"
        ),
        "worker 10-50"
    );
    assert_eq!(
        text(&database, "SELECT command FROM processes"),
        "train it's"
    );
    assert_eq!(number(&database, "SELECT sum(lost) FROM gputrace_loss"), 3);
    assert_eq!(
        text(
            &database,
            "SELECT value FROM gputrace_recording WHERE tag = 'end_reason'"
        ),
        "the capture was cut off"
    );
}

#[test]
fn the_same_recording_has_the_same_identity() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = directories
        .each_ref()
        .map(|directory| fs::read(export(&synthetic::events(), directory.path())).unwrap());
    assert!(first == second);
}

#[test]
fn a_recording_without_events_is_a_database_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = export(&[], directory.path());
    check_by_reader("rocpd_check.py", &path);
    assert_eq!(number(&open(&path), "SELECT count(*) FROM regions"), 0);
}

#[test]
fn an_exporter_that_is_dropped_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let mut exporter = RocpdExporter::new(&out, "app_results.db").unwrap();
    for event in synthetic::events() {
        exporter.event(&event).unwrap();
    }
    drop(exporter);
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_full_disk_leaves_no_partial_file_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    on_full_disk("a_full_disk", 2048, directory.path(), fill);
}

fn fill(directory: &Path) {
    let out = OutputDir::open(directory, None).unwrap();
    let mut exporter = Box::new(RocpdExporter::new(&out, "app_results.db").unwrap());
    let result = (1..200_000)
        .try_for_each(|number| exporter.event(&Event::Call(call(number, number, number + 1))))
        .and_then(|()| exporter.finish().map(drop));
    let error = result.unwrap_err();
    assert!(
        matches!(&error, ExportError::Output(OutputError::Full { path, .. }) if path.ends_with("app_results.db")),
        "{error:?}"
    );
}

#[test]
fn what_the_kernel_did_and_what_was_read_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = export(&synthetic::observed(), directory.path());
    check_by_reader("rocpd_check.py", &path);
    let database = open(&path);
    assert_eq!(
        number(&database, "SELECT count(*) FROM gputrace_observation"),
        4
    );
    let row = "FROM gputrace_observation WHERE domain = 'KFD_EVENT' ORDER BY start LIMIT 1";
    assert_eq!(
        text(
            &database,
            &format!("SELECT name || ' ' || json_extract(fields, '$.trigger') {row}")
        ),
        "queues evicted TTM"
    );
    assert_eq!(
        number(&database, &format!("SELECT \"end\" - start {row}")),
        40
    );
    assert_eq!(
        number(&database, "SELECT count(*) FROM gputrace_counter"),
        3
    );
    let values = "SELECT group_concat(value || unit || ' ' || value_type || ' ' || gpu_id || ' ' || pid || ' ' || agent_id, ', ') \
                  FROM (SELECT * FROM gputrace_counter ORDER BY timestamp)";
    assert_eq!(
        text(&database, values),
        "250.5W ABS 51234 0 1, 7.0W ACCUM 51234 100 1, 97.0W ABS 51234 0 1"
    );
    assert_eq!(
        text(&database, "SELECT name FROM pmc_info WHERE id = 2"),
        "sdma"
    );
    assert_eq!(
        number(&database, "SELECT count(*) FROM pragma_foreign_key_check"),
        0
    );
}

#[test]
fn what_was_read_while_a_kernel_ran_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let reader = CaptureReader::new(Cursor::new(gpu::counted().bytes())).unwrap();
    let events = Timeline::new(reader)
        .unwrap()
        .collect::<Result<Vec<_>, _>>();
    let path = export(&events.unwrap(), directory.path());
    check_by_reader("rocpd_check.py", &path);
    let database = open(&path);
    for view in [
        "SELECT dispatch_id, counter_name, counter_value FROM pmc_events",
        "SELECT dispatch_id, counter_name, value FROM counters_collection",
    ] {
        let mut statement = database.prepare(&format!("{view} ORDER BY 1, 3")).unwrap();
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let rows: Vec<(i64, String, f64)> = rows.unwrap().collect::<Result<_, _>>().unwrap();
        let row = |dispatch, name: &str, value| (dispatch, name.to_owned(), value);
        assert_eq!(
            rows,
            [
                row(1, "cu_occupancy", 64.0),
                row(1, "power1_average", 115.0),
                row(1, "energy", 600.0),
                row(3, "power1_average", 90.0)
            ],
            "{view}"
        );
    }
    // Each value that was read once, and no others: there are twelve in the capture.
    assert_eq!(
        number(&database, "SELECT count(*) FROM gputrace_counter"),
        12
    );
    assert_eq!(number(&database, "SELECT count(*) FROM rocpd_info_pmc"), 4);
}

#[test]
fn allocations_are_where_rocpd_has_them() {
    let mut events = synthetic::events();
    let last = events.split_off(events.len() - 2);
    let allocation = |name: &'static str, begin: u64, fields: &[(&'static str, u64)]| {
        let fields = fields.iter().map(|(name, value)| match *name {
            "address" => ObservedField::new(*name, FieldValue::Hex(*value)),
            _ => ObservedField::new(*name, FieldValue::Number(*value)),
        });
        Event::Observation(Box::new(Observation {
            domain: Domain::MemoryAllocation.id(),
            name: name.into(),
            whose: Whose {
                pid: 100,
                // A thread of which nothing else is known.
                tid: 177,
                gpu_id: 0,
            },
            begin: synthetic::START + begin,
            end: synthetic::START + begin + 5,
            is_open: false,
            fields: fields.collect(),
        }))
    };
    let of = |address, bytes, call, live| {
        [
            ("bytes", bytes),
            ("address", address),
            ("correlation_id", call),
            ("node", 1),
            ("live_bytes", live),
        ]
    };
    events.extend([
        allocation(
            "MEMORY_ALLOCATION_ALLOCATE",
            10,
            &of(0x7000, 4096, 41, 4096),
        ),
        // One on an unknown node, and one without a node.
        allocation(
            "MEMORY_ALLOCATION_VMEM_ALLOCATE",
            20,
            &[
                ("bytes", 64),
                ("address", u64::MAX),
                ("correlation_id", 42),
                ("node", 77),
            ],
        ),
        allocation(
            "MEMORY_ALLOCATION_ALLOCATE",
            30,
            &[("bytes", 32), ("address", 0x9000), ("correlation_id", 43)],
        ),
        allocation("MEMORY_ALLOCATION_FREE", 40, &of(0x7000, 4096, 44, 0)),
        allocation(
            "MEMORY_ALLOCATION_VMEM_FREE",
            50,
            &[("bytes", 0), ("address", 0x1), ("correlation_id", 45)],
        ),
    ]);
    events.extend(last);
    let directory = tempfile::tempdir().unwrap();
    let path = export(&events, directory.path());
    check_by_reader("rocpd_check.py", &path);
    let database = open(&path);
    let rows = "SELECT group_concat(type || ' ' || level || ' ' || ifnull(agent_abs_index, '-') || ' ' || address || ' ' || \
                size || ' ' || stack_id || ' ' || duration || ' ' || tid || ' ' || category, ', ') FROM memory_allocations";
    assert_eq!(
        text(&database, rows),
        "ALLOC REAL 1 28672 4096 41 5 177 MEMORY_ALLOCATION, \
         ALLOC VIRTUAL - -1 64 42 5 177 MEMORY_ALLOCATION, \
         ALLOC REAL - 36864 32 43 5 177 MEMORY_ALLOCATION, \
         FREE REAL - 28672 0 44 5 177 MEMORY_ALLOCATION, \
         FREE VIRTUAL - 1 0 45 5 177 MEMORY_ALLOCATION"
    );
    assert_eq!(
        text(
            &database,
            "SELECT group_concat(extdata, ' ') FROM rocpd_memory_allocate"
        ),
        r#"{"live_bytes":4096} {} {} {"freed_bytes":4096,"freed_node":1,"live_bytes":0} {}"#
    );
    assert_eq!(number(&database, "SELECT count(*) FROM scratch_memory"), 0);
    assert_eq!(
        number(&database, "SELECT count(*) FROM pragma_foreign_key_check"),
        0
    );
}
