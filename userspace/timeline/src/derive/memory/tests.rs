//! Allocations by synthetic calls.

use gputrace_capture::gpu::Agent;

use super::*;
use crate::model::{
    gpu::AgentInfo,
    values::{Pointee, PointeeData},
};

const NAMES: [&str; 4] = [
    "hsa_amd_memory_pool_allocate",
    "hsa_amd_memory_pool_free",
    "hipMalloc",
    "hsa_memory_allocate",
];

fn memory() -> Memory {
    let domains =
        [Domain::MemoryAllocation, Domain::HipRuntime].map(|domain| domain.name().to_owned());
    let mut memory = Memory::new(&domains);
    for (id, name) in (0..).zip(NAMES) {
        memory.function(&FunctionInfo::named(id, name, None));
    }
    for (node_id, kind, gpu_id) in [(0, AgentKind::Cpu, 0), (1, AgentKind::Gpu, 77)] {
        memory.agent(&Event::Agent(Box::new(AgentInfo {
            agent: Agent {
                node_id,
                kind,
                gpu_id,
                ..Agent::default()
            },
            ..AgentInfo::default()
        })));
    }
    memory
}

fn call(function: u32, correlation: u64, args: [u64; 6]) -> Call {
    let domain = if function == 2 {
        Domain::HipRuntime
    } else {
        Domain::HsaAmdExt
    };
    Call {
        function,
        domain: domain.id(),
        correlation,
        args,
        how: CallEnd::Returned(0),
        ..crate::synthetic::call(correlation, 10 * correlation, 10 * correlation + 1)
    }
}

/// An allocation from a pool of the agent whose words, from byte 24 on, are these.
fn allocate(correlation: u64, (address, bytes): (u64, u64), agent: [u64; 4]) -> Call {
    let mut call = call(0, correlation, [0x5000, bytes, 0, 0x7000, 0, 0]);
    let mut words: Vec<u8> = agent.iter().flat_map(|word| word.to_le_bytes()).collect();
    words.truncate(31);
    call.pointees = vec![
        Pointee {
            word: 0,
            at_return: false,
            data: PointeeData::Bytes(words),
        },
        Pointee {
            word: 3,
            at_return: true,
            data: PointeeData::Bytes(address.to_le_bytes().to_vec()),
        },
    ];
    call
}

fn seen(events: &[Event]) -> Vec<(String, u32, String)> {
    let one = |event: &Event| match event {
        Event::Observation(one) => {
            let fields: Vec<String> = one
                .fields
                .iter()
                .map(|field| format!("{}={}", field.name, field.value))
                .collect();
            (one.name.to_string(), one.whose.gpu_id, fields.join(" "))
        }
        other => panic!("{other:?}"),
    };
    events.iter().map(one).collect()
}

#[test]
fn allocations_have_agents_and_sums() {
    let (mut memory, mut events) = (memory(), Vec::new());
    // Up to ROCm 6.2 the first word holds the node; later the fourth does, and the first is a
    // pointer.
    let (old, new) = ([1, 9, 9, 9], [0x7fff_1234_5678, 9, 9, 1]);
    let cpu = [1 << 32, 9, 9, 9];
    for call in [
        allocate(1, (0x1000, 100), old),
        allocate(2, (0x2000, 50), new),
        allocate(3, (0x3000, 7), cpu),
        call(1, 4, [0x1000, 0, 0, 0, 0, 0]),
        call(1, 5, [0; 6]),
    ] {
        assert!(!memory.call(&call, &mut events), "HSA was not asked for");
    }
    let row = |name: &str, gpu: u32, fields: &str| (name.to_owned(), gpu, fields.to_owned());
    let (alloc, free) = ("MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_FREE");
    assert_eq!(
        seen(&events),
        [
            row(
                alloc,
                77,
                "bytes=100 address=0x1000 correlation_id=1 node=1 live_bytes=100"
            ),
            row(
                alloc,
                77,
                "bytes=50 address=0x2000 correlation_id=2 node=1 live_bytes=150"
            ),
            row(
                alloc,
                0,
                "bytes=7 address=0x3000 correlation_id=3 node=0 live_bytes=7"
            ),
            row(
                free,
                77,
                "bytes=100 address=0x1000 correlation_id=4 node=1 live_bytes=50"
            ),
        ]
    );
}

#[test]
fn what_is_left_is_told_with_who_asked_for_it() {
    let (mut memory, mut events) = (memory(), Vec::new());
    let gpu = [1, 9, 9, 9];
    let mut inner = allocate(1, (0x1000, 100), gpu);
    inner.parent = 9;
    memory.call(&inner, &mut events);
    // The enclosing call ends later.
    assert!(memory.call(&call(2, 9, [0; 6]), &mut events));
    // Or it comes before the inner call.
    let mut inner = allocate(4, (0x4000, 10), gpu);
    inner.parent = 9;
    memory.call(&inner, &mut events);
    memory.call(&allocate(2, (0x2000, 50), gpu), &mut events);
    let mut failed = allocate(3, (0x3000, 1000), gpu);
    failed.how = CallEnd::Returned(0x1008);
    memory.call(&failed, &mut events);
    assert_eq!(events.len(), 3);
    memory.ended(failed.pid);
    assert_eq!(
        memory.remarks(),
        [
            "Memory of node 1 that was allocated while recording: 160 B at its peak. Not freed by \
             its end: 50 B in 1 allocation within hsa_amd_memory_pool_allocate. Not freed by its \
             end: 110 B in 2 allocations within hipMalloc."
        ]
    );
    assert!(memory.callers.is_empty() && memory.live.is_empty());
}

#[test]
fn memory_that_was_there_before_is_in_no_figure() {
    let (mut memory, mut events) = (memory(), Vec::new());
    memory.call(&allocate(1, (0x1000, 100), [1, 9, 9, 9]), &mut events);
    // By a program that was attached to: memory that it had allocated before.
    memory.call(&call(1, 2, [0x9000, 0, 0, 0, 0, 0]), &mut events);
    memory.call(&call(1, 3, [0x1000, 0, 0, 0, 0, 0]), &mut events);
    let of_before = &seen(&events)[1];
    assert_eq!(of_before.2, "bytes=0 address=0x9000 correlation_id=2");
    assert_eq!(
        memory.remarks(),
        [
            "Memory of node 1 that was allocated while recording: 100 B at its peak.",
            "1 free by HSA without an allocation in the recording: most likely it was made before. \
             These figures do not include it."
        ]
    );
}

#[test]
fn nothing_is_done_unless_asked_for() {
    let mut memory = Memory::new(&["HSA_AMD_EXT_API".to_owned()]);
    let mut events = Vec::new();
    assert!(memory.call(&allocate(1, (0x1000, 100), [1, 0, 0, 0]), &mut events));
    assert!(events.is_empty() && memory.remarks().is_empty());
}
