//! Synthetic launches, and dispatches of some of them.

use super::*;
use crate::{
    model::{
        gpu::{Dispatch, Origin},
        values::{Pointee, PointeeData},
    },
    synthetic::call,
};

const NAMES: [&str; 19] = [
    "hipLaunchKernel",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
    "hipStreamQuery",
    "hipEventQuery",
    "hipMemcpy",
    "hipStreamBeginCapture",
    "hipStreamEndCapture",
    "hipSetDevice",
    "hipGraphLaunch",
    "hipEventRecord",
    "hipEventSynchronize",
    "hsa_memory_copy",
    "hsa_amd_memory_fill",
    "hipGraphInstantiate",
    "hipGraphExecDestroy",
    "hipGraphNodeSetEnabled",
    "hipGraphCreate",
    "hipGraphAddKernelNode",
];

/// Words of a launch of one block of 64 work-items.
const LAUNCH: [u64; 6] = [7, 1 << 32 | 1, 1, 1 << 32 | 64, 1, 0];

fn unseen() -> Unseen {
    let mut unseen = Unseen::default();
    for (id, name) in (0..).zip(NAMES) {
        let domain = if name.starts_with("hsa") {
            Domain::HsaCore
        } else {
            Domain::HipRuntime
        };
        unseen.function(&FunctionInfo::named(id, name, Some(domain)));
    }
    unseen
}

fn made(number: u64, name: &str, args: [u64; 6]) -> Call {
    let mut made = call(number, number * 10, number * 10 + 5);
    made.function = NAMES.iter().position(|known| *known == name).unwrap() as u32;
    made.args = args;
    made
}

/// Calls of a process, one after another.
fn calls(unseen: &mut Unseen, calls: &[(&str, [u64; 6])]) {
    for (number, (name, args)) in (1..).zip(calls) {
        unseen.seen(&Event::Call(made(number, name, *args)));
    }
}

fn dispatched(unseen: &mut Unseen, count: usize) {
    let dispatch = Dispatch {
        origin: Origin {
            pid: call(1, 1, 2).pid,
            ..Origin::default()
        },
        ..Dispatch::default()
    };
    for _ in 0..count {
        unseen.seen(&Event::Dispatch(Box::new(dispatch.clone())));
    }
}

fn remarks(unseen: &Unseen) -> Vec<String> {
    let domains = [Domain::KernelDispatch, Domain::MemoryCopy].map(|one| one.name().to_owned());
    unseen.remarks(&domains, None)
}

/// What is said of launches followed by these calls, of which `seen` have dispatches.
fn said(seen: usize, after: &[(&str, [u64; 6])]) -> Vec<String> {
    let mut unseen = unseen();
    let launches = [("hipLaunchKernel", LAUNCH); 10];
    calls(&mut unseen, &[&launches, after].concat());
    dispatched(&mut unseen, seen);
    remarks(&unseen)
}

const WAIT: (&str, [u64; 6]) = ("hipDeviceSynchronize", [0; 6]);

#[test]
fn launches_without_dispatches_are_said_once() {
    let said_of = |seen| said(seen, &[WAIT]);
    let remarks = said_of(3);
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].starts_with(WORK_NOT_SEEN), "{remarks:?}");
    for part in ["process 100 made 10 calls", " 3 dispatches could be seen"] {
        assert!(remarks[0].contains(part), "{remarks:?}");
    }
    assert_eq!(said_of(0).len(), 1);
    assert_eq!(said_of(10), Vec::<String>::new());
    assert_eq!(said_of(11), Vec::<String>::new(), "kernels of graphs");
}

#[test]
fn one_missing_in_a_hundred_is_said() {
    let said_of = |launches: usize| {
        let mut unseen = unseen();
        calls(
            &mut unseen,
            &[&vec![("hipLaunchKernel", LAUNCH); launches][..], &[WAIT]].concat(),
        );
        dispatched(&mut unseen, launches - 1);
        remarks(&unseen).len()
    };
    assert_eq!((said_of(100), said_of(101)), (1, 0));
}

#[test]
fn only_what_was_waited_for_must_have_been_submitted() {
    assert_eq!(said(0, &[]), Vec::<String>::new());
    assert_eq!(said(0, &[("hipStreamSynchronize", [0; 6])]).len(), 1);
    let other = ("hipStreamSynchronize", [0x50; 6]);
    assert_eq!(said(0, &[other]), Vec::<String>::new());
    // Copies to the host wait; others return earlier.
    assert_eq!(said(0, &[("hipMemcpy", [1, 2, 3, TO_HOST, 0, 0])]).len(), 1);
    // Of no bytes: nothing is said of the copy itself.
    let to_device = ("hipMemcpy", [1, 2, 0, 1, 0, 0]);
    assert_eq!(said(0, &[to_device]), Vec::<String>::new());
    let event = [
        ("hipEventRecord", [0xe, 0, 0, 0, 0, 0]),
        ("hipEventSynchronize", [0xe; 6]),
    ];
    assert_eq!(said(0, &event).len(), 1);
    assert_eq!(said(0, &event[1..]), Vec::<String>::new());
    // Polling until it succeeds is waiting, too.
    assert_eq!(said(0, &[("hipStreamQuery", [0; 6])]).len(), 1);
    assert_eq!(said(0, &[event[0], ("hipEventQuery", [0xe; 6])]).len(), 1);
    // A capture that began before the recording.
    let captured = [("hipStreamEndCapture", [0x50; 6]), WAIT];
    assert_eq!(said(0, &captured), Vec::<String>::new());
    // Another device.
    let elsewhere = [("hipSetDevice", [1; 6]), WAIT];
    assert_eq!(said(0, &elsewhere), Vec::<String>::new());
}

#[test]
fn launches_that_make_no_dispatch_are_not_counted() {
    let mut unseen = unseen();
    let mut failed = made(1, "hipLaunchKernel", LAUNCH);
    failed.how = CallEnd::Returned(719);
    unseen.seen(&Event::Call(failed));
    let mut empty = LAUNCH;
    empty[1] = 1 << 32;
    calls(
        &mut unseen,
        &[
            ("hipLaunchKernel", empty),
            ("hipStreamBeginCapture", [0x50; 6]),
            ("hipLaunchKernel", LAUNCH),
            ("hipStreamEndCapture", [0x50; 6]),
            ("hipGraphLaunch", [0x60; 6]),
            WAIT,
        ],
    );
    assert_eq!(remarks(&unseen), Vec::<String>::new());
}

/// A call that stores a handle through the pointer in an argument word.
fn stores(mut call: Call, word: u8, handle: u64) -> Call {
    call.pointees.push(Pointee {
        word,
        at_return: true,
        data: PointeeData::Bytes(handle.to_le_bytes().to_vec()),
    });
    call
}

/// What is said of a graph of three kernels that is instantiated, after which these calls are made,
/// and of which `seen` dispatches are there.
fn said_of_graph(seen: usize, after: &[(&str, [u64; 6])]) -> Vec<String> {
    const STREAM: u64 = 0x50;
    let mut unseen = unseen();
    let mut take = |call: Call| unseen.seen(&Event::Call(call));
    take(made(1, "hipStreamBeginCapture", [STREAM; 6]));
    for number in 2..5 {
        let mut launch = made(number, "hipLaunchKernel", LAUNCH);
        launch.stack[1] = STREAM;
        take(launch);
    }
    // Another stream may take no part.
    take(made(5, "hipLaunchKernel", LAUNCH));
    take(stores(made(6, "hipStreamEndCapture", [STREAM; 6]), 1, 0x60));
    take(stores(
        made(7, "hipGraphInstantiate", [0, 0x60, 0, 0, 0, 0]),
        0,
        0x70,
    ));
    for (number, (name, args)) in (8..).zip(after) {
        take(made(number, name, *args));
    }
    dispatched(&mut unseen, seen);
    remarks(&unseen)
}

#[test]
fn kernels_of_graphs_must_have_dispatches() {
    let launch = ("hipGraphLaunch", [0x70, 0x50, 0, 0, 0, 0]);
    let wait = ("hipStreamSynchronize", [0x50; 6]);
    let said = said_of_graph(1, &[launch, launch, wait]);
    assert_eq!(said.len(), 1);
    for part in [
        WORK_NOT_SEEN,
        "graphs with at least 6 kernels",
        " 1 dispatch ",
    ] {
        assert!(said[0].contains(part), "{part} is not in {said:?}");
    }
    let none = Vec::<String>::new();
    assert_eq!(said_of_graph(6, &[launch, launch, wait]), none);
    assert_eq!(said_of_graph(0, &[launch, launch]), none, "not waited for");
    // A node may be off, or the graph another one.
    for gone in ["hipGraphNodeSetEnabled", "hipGraphExecDestroy"] {
        let calls = [(gone, [0x70, 1, 0, 0, 0, 0]), launch, wait];
        assert_eq!(said_of_graph(0, &calls), none, "{gone}");
    }
}

#[test]
fn nodes_that_are_added_to_a_graph_are_kernels_of_it() {
    let mut unseen = unseen();
    let mut take = |call: Call| unseen.seen(&Event::Call(call));
    take(stores(made(1, "hipGraphCreate", [0; 6]), 0, 0x60));
    take(made(2, "hipGraphAddKernelNode", [0, 0x60, 0, 0, 0, 0]));
    take(stores(
        made(3, "hipGraphInstantiate", [0, 0x60, 0, 0, 0, 0]),
        0,
        0x70,
    ));
    take(made(4, "hipGraphAddKernelNode", [0, 0x60, 0, 0, 0, 0]));
    take(made(5, "hipGraphLaunch", [0x70, 0, 0, 0, 0, 0]));
    take(made(6, "hipDeviceSynchronize", [0; 6]));
    let said = remarks(&unseen);
    assert!(said[0].contains("at least 1 kernel,"), "{said:?}");
}

#[test]
fn what_the_recorder_did_not_record_is_not_unseen() {
    let mut unseen = unseen();
    calls(&mut unseen, &[("hipLaunchKernel", LAUNCH), WAIT]);
    assert_eq!(remarks(&unseen).len(), 1);
    let none: [String; 0] = [];
    assert_eq!(unseen.remarks(&none, None), Vec::<String>::new());
    let domains = [Domain::KernelDispatch.name().to_owned()];
    let ledger = Ledger {
        rows: vec![LedgerRow {
            domain: Domain::KernelDispatch.id(),
            seen: 1,
            dropped: vec![1],
            ..LedgerRow::default()
        }],
        ..Ledger::default()
    };
    let lost = unseen.remarks(&domains, Some(&ledger));
    assert_eq!(lost, Vec::<String>::new());
    unseen.notice(&Notice {
        time: 0,
        text: format!("{COLLECTION_PERIOD} 1 begins."),
    });
    assert_eq!(remarks(&unseen), Vec::<String>::new());
}

#[test]
fn what_rocr_does_by_itself_is_said() {
    let mut unseen = unseen();
    let mut inner = made(9, "hsa_memory_copy", [1, 2, 64, 0, 0, 0]);
    inner.parent = 8;
    unseen.seen(&Event::Call(inner));
    calls(&mut unseen, &[("hsa_memory_copy", [1, 2, 0, 0, 0, 0])]);
    assert_eq!(remarks(&unseen), Vec::<String>::new());
    let copies = [
        ("hsa_memory_copy", [1, 2, 64, 0, 0, 0]),
        ("hsa_amd_memory_fill", [1, 0, 16, 0, 0, 0]),
    ];
    calls(&mut unseen, &copies);
    let said = remarks(&unseen);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("hsa_amd_memory_fill 2 times"), "{said:?}");
    assert!(!said[0].starts_with(WORK_NOT_SEEN), "{said:?}");
}
