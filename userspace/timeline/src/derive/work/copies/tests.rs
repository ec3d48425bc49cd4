//! Directions of copies.

use gputrace_abi::domain::Domain;
use gputrace_capture::{Meta, gpu::AgentHandle};
use zerocopy::FromZeros as _;

use super::*;
use crate::{
    derive::work::knowledge::Collected,
    model::{
        event::FunctionInfo,
        item::{Change, PlacementChange, Whose},
    },
    synthetic,
};

const PID: u32 = 7;
/// Handles of the agents: a CPU at node 0, GPUs at nodes 1 and 2; and one that is not known.
const CPU: u64 = 100;
const GPU: u64 = 101;
const PEER: u64 = 102;
const NOBODY: u64 = 999;
/// Addresses in memory of these agents, in pinned memory, and in memory that is not known.
const OF_CPU: u64 = 0x10_0000;
const OF_GPU: u64 = 0x20_0000;
const OF_PEER: u64 = 0x30_0000;
const PINNED: u64 = 0x40_0000;
const ELSEWHERE: u64 = 0x50_0000;

fn knowledge() -> Knowledge {
    let mut collected = Collected::with_two_gpus();
    for node_id in 0..3 {
        collected.take(Meta::AgentHandle(AgentHandle {
            pid: PID,
            handle: CPU + u64::from(node_id),
            node_id,
        }));
    }
    collected.finish().0
}

fn places(knowledge: &Knowledge) -> Places {
    let mut places = Places::default();
    places.are_followed = true;
    let mut change = |what| {
        let (time, pid) = (10, PID);
        places.change(&PlacementChange { time, pid, what }, knowledge);
    };
    let bytes = 0x1_0000;
    for (address, owner) in [
        (OF_CPU, (0, AgentKind::Cpu)),
        (OF_GPU, (1, AgentKind::Gpu)),
        (OF_PEER, (2, AgentKind::Gpu)),
    ] {
        let whose = Whose::Owner([Some(owner), None]);
        change(Change::Mapped {
            address,
            bytes,
            whose,
        });
    }
    let (host, seen_at) = (PINNED, None);
    change(Change::Locked {
        host,
        bytes,
        seen_at,
    });
    places
}

/// The route of a copy between addresses that names these agents.
fn route(
    (source, source_agent): (u64, u64),
    (destination, destination_agent): (u64, u64),
) -> Route {
    let knowledge = knowledge();
    let mut record = gpu::Copy::new_zeroed();
    (record.pid, record.time, record.bytes) = (PID, 20, 4096);
    record.role = role::COPY.into();
    (record.source, record.source_agent) = (source, source_agent);
    (record.destination, record.destination_agent) = (destination, destination_agent);
    Route::of(&record, &places(&knowledge), &knowledge)
}

fn rectangle(source: u64, destination: u64, direction: u32) -> Route {
    let knowledge = knowledge();
    let mut record = gpu::Copy::new_zeroed();
    (record.pid, record.time, record.bytes) = (PID, 20, 4096);
    (record.role, record.direction) = (role::COPY_RECT.into(), direction);
    (record.source, record.destination) = (source, destination);
    record.destination_agent = GPU;
    Route::of(&record, &places(&knowledge), &knowledge)
}

const BY_MEMORY: Option<KnownBy> = Some(KnownBy::Memory);
const BY_AGENTS: Option<KnownBy> = Some(KnownBy::Agents);

#[test]
fn routes_follow_the_memory_whatever_agents_are_named() {
    for (from, to, direction, nodes) in [
        (PINNED, OF_GPU, Direction::HostToDevice, (0, 1)),
        (OF_CPU, OF_GPU, Direction::HostToDevice, (0, 1)),
        (OF_GPU, PINNED, Direction::DeviceToHost, (1, 0)),
        (OF_GPU, OF_CPU, Direction::DeviceToHost, (1, 0)),
        (OF_CPU, PINNED, Direction::HostToHost, (0, 0)),
        (OF_GPU, OF_GPU + 0x8000, Direction::DeviceToDevice, (1, 1)),
        (OF_GPU, OF_PEER, Direction::DeviceToDevice, (1, 2)),
    ] {
        for named in [
            (GPU, GPU),
            (CPU, GPU),
            (GPU, CPU),
            (GPU, PEER),
            (NOBODY, GPU),
        ] {
            let found = route((from, named.0), (to, named.1));
            assert_eq!(found.direction, direction, "{from:#x} {to:#x} {named:?}");
            assert_eq!(found.known_by, BY_MEMORY);
            let nodes = (Some(nodes.0), Some(nodes.1));
            assert_eq!((found.source, found.destination), nodes);
            assert!(!found.by_cpu);
        }
        for direction_named in 0..4 {
            let found = rectangle(from, to, direction_named);
            assert_eq!((found.direction, found.known_by), (direction, BY_MEMORY));
        }
    }
}

#[test]
fn without_the_memory_the_agents_decide_unless_they_are_one_gpu() {
    let named = |from, to| {
        let found = route((ELSEWHERE, from), (ELSEWHERE, to));
        (found.direction, found.known_by, found.engine)
    };
    assert_eq!(named(CPU, CPU), (Direction::HostToHost, BY_AGENTS, None));
    assert_eq!(
        named(CPU, GPU),
        (Direction::HostToDevice, BY_AGENTS, Some(1))
    );
    assert_eq!(
        named(PEER, CPU),
        (Direction::DeviceToHost, BY_AGENTS, Some(2))
    );
    assert_eq!(
        named(GPU, PEER),
        (Direction::DeviceToDevice, BY_AGENTS, Some(1))
    );
    assert_eq!(named(GPU, GPU), (Direction::Unknown, None, Some(1)));
    assert_eq!(named(GPU, NOBODY), (Direction::Unknown, None, Some(1)));
    assert_eq!(named(NOBODY, GPU), (Direction::Unknown, None, None));
    // One side is known.
    let half = route((OF_GPU, GPU), (ELSEWHERE, GPU));
    assert_eq!((half.direction, half.known_by), (Direction::Unknown, None));
    let half = route((OF_GPU, GPU), (ELSEWHERE, CPU));
    assert_eq!(
        (half.direction, half.known_by),
        (Direction::DeviceToHost, BY_AGENTS)
    );
    // It contradicts what the call says.
    let swapped = route((ELSEWHERE, GPU), (OF_GPU, CPU));
    assert_eq!(
        (swapped.direction, swapped.destination),
        (Direction::Unknown, Some(1))
    );

    let named = rectangle(ELSEWHERE, ELSEWHERE, 1);
    assert_eq!(
        (named.direction, named.known_by, named.engine),
        (Direction::HostToDevice, BY_AGENTS, Some(1))
    );
    assert_eq!((named.destination, named.source), (Some(1), None));
    assert_eq!(rectangle(ELSEWHERE, ELSEWHERE, 2).source, Some(1));
    let undefined = rectangle(ELSEWHERE, ELSEWHERE, 9);
    assert_eq!(undefined.direction, Direction::Unknown);
    assert_eq!(
        rectangle(PINNED, ELSEWHERE, 2).direction,
        Direction::Unknown
    );
}

/// A capture of an older version has no calls that place memory.
#[test]
fn where_no_memory_is_followed_the_agents_decide() {
    let record = gpu::Copy {
        pid: PID,
        destination_agent: GPU,
        source_agent: GPU,
        ..gpu::Copy::new_zeroed()
    };
    let found = Route::of(&record, &Places::default(), &knowledge());
    assert_eq!(
        (found.direction, found.known_by),
        (Direction::DeviceToDevice, BY_AGENTS)
    );
}

#[test]
fn who_copies_depends_on_the_agents_that_are_named() {
    assert!(route((ELSEWHERE, CPU), (ELSEWHERE, CPU)).by_cpu);
    assert!(route((OF_GPU, CPU), (OF_CPU, CPU)).by_cpu);
    let by_gpu = route((OF_CPU, GPU), (PINNED, GPU));
    assert_eq!((by_gpu.by_cpu, by_gpu.engine), (false, Some(1)));
}

/// A copy with this direction, inside a call of HIP that says these kinds.
fn directed(copy: Copy, says: Option<Kinds>) -> Copy {
    let mut work = Work::new(Collected::with_two_gpus(), &mut VecDeque::new());
    let name = match says {
        Some([AgentKind::Cpu, AgentKind::Gpu]) => "hipMemcpyHtoD",
        Some([AgentKind::Gpu, AgentKind::Cpu]) => "hipMemcpyDtoH",
        Some([AgentKind::Gpu, AgentKind::Gpu]) => "hipMemcpyDtoD",
        _ => "hipMemcpy",
    };
    let function = FunctionInfo::named(0, name, Some(Domain::HipRuntime));
    work.asked.function(&function);
    let mut call = synthetic::call(5, 10, 20);
    // `hipMemcpyHostToHost` or `hipMemcpyDefault`, unless the name says it.
    (call.function, call.args[3]) = (0, if says.is_some() { 0 } else { 4 });
    work.asked.call(&call);
    let mut event = Event::Copy(Box::new(copy));
    work.direct(&mut event);
    match event {
        Event::Copy(copy) => *copy,
        other => panic!("{other:?}"),
    }
}

const KINDS: [AgentKind; 2] = [AgentKind::Cpu, AgentKind::Gpu];

#[test]
fn a_call_of_hip_tells_only_what_is_not_known_and_fits_the_memory() {
    let both = KINDS.map(|from| KINDS.map(|to| [from, to]));
    let said = both.as_flattened();
    let known = KINDS.map(Some).into_iter().chain([None]);
    let memories = known
        .clone()
        .flat_map(|from| known.clone().map(move |to| [from, to]));
    for memory_kinds in memories {
        let copy = Copy {
            memory_kinds,
            origin: Origin {
                innermost: 5,
                ..Origin::default()
            },
            ..Copy::default()
        };
        for says in said {
            let found = directed(copy, Some(*says));
            let fits = fit(memory_kinds, *says);
            let expected = match fits {
                true => (direction(*says), Some(KnownBy::Call)),
                false => (Direction::Unknown, None),
            };
            assert_eq!((found.direction, found.known_by), expected, "{copy:?}");
            for known_by in [KnownBy::Memory, KnownBy::Agents] {
                let known = Copy {
                    direction: Direction::HostToHost,
                    known_by: Some(known_by),
                    ..copy
                };
                assert_eq!(directed(known, Some(*says)), known);
            }
        }
        assert_eq!(directed(copy, None), copy, "hipMemcpyDefault");
    }
}

#[test]
fn nodes_fit_what_the_call_of_hip_says() {
    let inside = Origin {
        innermost: 5,
        ..Origin::default()
    };
    // The agents that are named are one GPU.
    let copy = Copy {
        origin: inside,
        source_node: Some(2),
        destination_node: Some(2),
        ..Copy::default()
    };
    let nodes = |says| {
        let found = directed(copy, Some(says));
        (found.source_node, found.destination_node)
    };
    let [cpu, gpu] = KINDS;
    assert_eq!(nodes([gpu, gpu]), (Some(2), Some(2)));
    assert_eq!(nodes([cpu, gpu]), (Some(0), Some(2)));
    assert_eq!(nodes([gpu, cpu]), (Some(2), Some(0)));
    // There are two GPUs, and nobody named one.
    let unnamed = Copy {
        origin: inside,
        ..Copy::default()
    };
    let found = directed(unnamed, Some([cpu, gpu]));
    assert_eq!((found.source_node, found.destination_node), (Some(0), None));
}

#[test]
fn what_is_not_proven_is_counted() {
    let mut unproven = Unproven::default();
    unproven.count(BY_MEMORY);
    assert_eq!(unproven.remark(), None);
    for known_by in [BY_AGENTS, BY_AGENTS, None] {
        unproven.count(known_by);
    }
    let by_call = Some(KnownBy::Call);
    [by_call; 3].into_iter().for_each(|one| unproven.count(one));
    let remark = unproven.remark().unwrap();
    for part in [
        "memory of 6 copies",
        "direction of 2 is that of the agents",
        "direction of 3 is what",
        "direction of 1 is unknown",
    ] {
        assert!(remark.contains(part), "{part} is not in: {remark}");
    }
}
