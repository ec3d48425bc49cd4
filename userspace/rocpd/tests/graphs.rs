//! Launches of graphs in databases: numbers of graphs, and which work belongs to which launch.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{export, number, open, text};
use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{ArgSlot, Function, Parameter, ValueKind};
use gputrace_export::{
    synthetic::{self, START, between, dispatch, exact},
    testing::check_by_reader,
};
use gputrace_timeline::{
    event::{Call, CallEnd, Event, FunctionInfo, Lifetime, LifetimeChange},
    gpu::{Copy, Dispatch, Quality},
    synthetic::call,
    values::{Pointee, PointeeData},
};
use rusqlite::Connection;

const CREATE: u32 = 10;
const LAUNCH: u32 = 11;
const DESTROY: u32 = 12;

fn function(id: u32, name: &str, c_type: &str) -> Event {
    Event::Function(Box::new(FunctionInfo {
        function: Function {
            id,
            name: name.to_owned(),
            domain: Domain::HipRuntime.id(),
            parameters: Some(vec![Parameter {
                name: "graphExec".to_owned(),
                c_type: c_type.to_owned(),
                kind: ValueKind::Pointer,
                at: ArgSlot::Register(0),
                ..Parameter::default()
            }]),
            returns: ValueKind::HipError,
            ..Function::default()
        },
        domain: Some(Domain::HipRuntime),
        library: String::new(),
        build_id: String::new(),
        range: None,
    }))
}

/// A call about the graph with this handle.
fn about(function: u32, id: u64, handle: u64) -> Call {
    let pointee = Pointee {
        word: 0,
        at_return: true,
        data: PointeeData::Bytes(handle.to_le_bytes().to_vec()),
    };
    let creates = function == CREATE;
    Call {
        function,
        how: CallEnd::Returned(0),
        args: [if creates { 0x5000 } else { handle }, 0, 0, 0, 0, 0],
        pointees: creates.then_some(pointee).into_iter().collect(),
        ..call(id, START + id * 1000, START + id * 1000 + 500)
    }
}

/// A kernel that a call submitted `after` µs after the start.
fn launched(id: u64, caller: u64, after: u64) -> Dispatch {
    let at = START + after * 1000;
    let mut work = dispatch(id, at, exact(at + 1000, at + 2000));
    work.origin.caller = caller;
    work
}

/// A recording with these calls, kernels and copies, after all others.
fn recording(calls: Vec<Call>, kernels: Vec<Dispatch>, copies: Vec<Copy>) -> Vec<Event> {
    let mut events = synthetic::events();
    events.retain(|event| !matches!(event, Event::Dispatch(_) | Event::Copy(_)));
    let end = events.split_off(events.len() - 2);
    events.extend([
        function(CREATE, "hipGraphInstantiateWithFlags", "hipGraphExec_t *"),
        function(LAUNCH, "hipGraphLaunch", "hipGraphExec_t"),
        function(DESTROY, "hipGraphExecDestroy", "hipGraphExec_t"),
    ]);
    // Work comes before the calls that submitted it.
    events.extend(
        kernels
            .into_iter()
            .map(|one| Event::Dispatch(Box::new(one))),
    );
    events.extend(copies.into_iter().map(|one| Event::Copy(Box::new(one))));
    events.extend(calls.into_iter().map(Event::Call));
    events.extend(end);
    events
}

fn database(events: &[Event]) -> Connection {
    let directory = tempfile::tempdir().unwrap();
    let path = export(events, directory.path());
    check_by_reader("rocpd_check.py", &path);
    open(&path)
}

#[test]
fn work_has_the_number_of_its_graph_and_its_place_in_the_launch() {
    let mut untimed = launched(4, 20, 103);
    untimed.time = between(Quality::Bounded, START, START + 500_000);
    let mut elsewhere = launched(6, 21, 121);
    elsewhere.node_id = Some(2);
    let mut unlinked = launched(8, 0, 130);
    unlinked.origin.innermost = 0;
    // By a call of HSA on a thread of HIP's.
    let mut indirect = launched(9, 2, 131);
    indirect.origin.outermost = 2;
    let mut copy = synthetic::events()
        .into_iter()
        .find_map(|event| match event {
            Event::Copy(copy) => Some(copy),
            _ => None,
        });
    let copy = copy.as_deref_mut().unwrap();
    copy.origin.caller = 20;
    copy.origin.time = START + 101_000;
    let database = database(&recording(
        vec![
            about(CREATE, 18, 0xe000),
            about(LAUNCH, 20, 0xe000),
            about(LAUNCH, 21, 0xe000),
        ],
        vec![
            launched(3, 20, 102),
            launched(2, 20, 100),
            untimed,
            launched(5, 21, 120),
            elsewhere,
            launched(7, 19, 125),
            unlinked,
            indirect,
        ],
        vec![*copy],
    ));
    let of = "SELECT group_concat(id || ':' || ifnull(graph_exec_id, '-') || '.' || ifnull(graph_node_id, '-'), ' ') FROM";
    let timed = "2:1.0 3:1.2 5:1.0 6:1.1 7:0.0 8:-.- 9:-.-";
    assert_eq!(
        text(
            &database,
            &format!("{of} (SELECT * FROM kernels ORDER BY id)")
        ),
        timed
    );
    assert_eq!(
        text(
            &database,
            &format!("{of} (SELECT * FROM gputrace_dispatch ORDER BY id)")
        ),
        timed.replace(" 5:", " 4:1.3 5:")
    );
    for table in ["memory_copies", "gputrace_copy"] {
        assert_eq!(text(&database, &format!("{of} {table}")), "1:1.1");
    }
    let launches = "SELECT group_concat(id || ' ' || corr_id || ' ' || stack_id || ' ' || graph_exec_id || ' ' || \
                    kernel_dispatch_count || ' ' || ifnull(agent_abs_index, '-') || ' ' || duration || ' ' || name, ', ') \
                    FROM graph_launches";
    assert_eq!(
        text(&database, launches),
        "20 0 20 1 3 1 500 Graph Execution, 21 0 21 1 2 - 500 Graph Execution"
    );
    assert_eq!(
        text(
            &database,
            "SELECT group_concat(DISTINCT category) FROM events_args RIGHT JOIN (SELECT string AS category FROM \
             rocpd_string JOIN rocpd_event ON rocpd_string.id = category_id JOIN rocpd_graph_launch AS g ON \
             g.event_id = rocpd_event.id) USING (category)"
        ),
        "HIP_GRAPH"
    );
}

#[test]
fn a_handle_that_is_used_again_is_another_graph() {
    let mut failed = about(LAUNCH, 24, 0xe000);
    failed.how = CallEnd::Returned(1);
    let mut open = about(LAUNCH, 29, 0xf000);
    open.how = CallEnd::RecordingStopped;
    let mut of_another = about(LAUNCH, 28, 0xf000);
    of_another.pid = 200;
    let executed = Event::Lifetime(Lifetime {
        time: START + 30_500,
        pid: 100,
        tid: 100,
        what: LifetimeChange::Executed {
            name: "next".to_owned(),
        },
    });
    let mut events = recording(
        vec![
            about(CREATE, 20, 0xe000),
            about(LAUNCH, 21, 0xe000),
            about(DESTROY, 22, 0xe000),
            about(CREATE, 23, 0xe000),
            failed,
            about(LAUNCH, 25, 0xe000),
            // Older than the recording.
            about(LAUNCH, 27, 0xf000),
            of_another,
            open,
        ],
        vec![launched(1, 29, 40)],
        Vec::new(),
    );
    let end = events.split_off(events.len() - 2);
    events.push(executed);
    events.push(Event::Call(about(LAUNCH, 31, 0xf000)));
    events.extend(end);
    let database = database(&events);
    assert_eq!(
        text(
            &database,
            "SELECT group_concat(id || ':' || graph_exec_id, ' ') FROM (SELECT * FROM rocpd_graph_launch ORDER BY id)"
        ),
        "21:1 25:2 27:3 28:4 29:3 31:5"
    );
    assert_eq!(
        text(
            &database,
            "SELECT extdata FROM rocpd_graph_launch WHERE id = 29"
        ),
        r#"{"unfinished":"recording_stopped"}"#
    );
    assert_eq!(
        number(
            &database,
            "SELECT kernel_dispatch_count FROM rocpd_graph_launch WHERE id = 29"
        ),
        1
    );
}

#[test]
fn without_calls_of_hip_nobody_knows_what_graphs_launched() {
    let mut events = recording(Vec::new(), vec![launched(1, 2, 10)], Vec::new());
    for event in &mut events {
        if let Event::Recording(recording) = event {
            recording
                .domains
                .retain(|domain| domain != Domain::HipRuntime.name());
        }
    }
    let database = database(&events);
    assert_eq!(number(&database, "SELECT count(*) FROM kernels"), 1);
    assert_eq!(
        number(&database, "SELECT count(graph_exec_id) FROM kernels"),
        0
    );
}
