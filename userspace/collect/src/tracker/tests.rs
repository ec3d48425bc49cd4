use std::{cell::RefCell, sync::mpsc::channel};

use gputrace_abi::{gpu::PACKET_RECORD_SIZE, record::RecordHeader};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::*;
use crate::late::{self, Late};

/// Ends a round, and reads the missing packets.
fn round(tracker: &mut GpuTracker, all: bool) -> Vec<Late> {
    let missing = tracker.round(all);
    let mut late: Vec<Late> = (0..missing.gone).map(|_| Late::Gone).collect();
    for (pid, due) in missing.due {
        late::read(pid, &due, &mut late);
    }
    late
}

/// A tracker without a watcher.
fn tracker(agents: Vec<(u32, AgentKind)>) -> GpuTracker {
    GpuTracker::new(agents, true, true, channel().0)
}

fn packet(index: u64, signal: u64) -> Packet {
    let mut packet = Packet::new_zeroed();
    packet.header = RecordHeader {
        size: PACKET_RECORD_SIZE as u16,
        kind: kind::PACKET,
        domain: Domain::KernelDispatch.id(),
        cpu: 0,
    };
    packet.pid = std::process::id();
    packet.queue = 0x1000;
    packet.index = index;
    packet.ring_packets = 64;
    packet.packet = [2 | 1 << 16 | 64 << 32, 64 << 32, 0, 0, 0xbeef, 0, 0, signal];
    packet
}

fn take(tracker: &mut GpuTracker, packet: &Packet) -> usize {
    let told = RefCell::new(0);
    tracker.take(kind::PACKET, packet.as_bytes(), &|_| {
        *told.borrow_mut() += 1;
    });
    told.into_inner()
}

#[test]
fn what_is_new_is_told_once() {
    let mut tracker = tracker(Vec::new());
    assert_eq!(take(&mut tracker, &packet(5, 0)), 1, "a kernel");
    assert_eq!(take(&mut tracker, &packet(6, 0)), 0);
}

#[test]
fn the_runtimes_own_clock_requests_are_samples_where_there_are_no_others() {
    let mut request = ShortIoctl::new_zeroed();
    request.ioctl.header.kind = kind::IOCTL;
    request.ioctl.request = 0xc028_4b05;
    request.ioctl.data = 40;
    (request.ioctl.begin, request.ioctl.end) = (1_000, 3_000);
    for (word, value) in [(0, 777_u64), (2, 2_000), (4, 31_000)] {
        request.after[word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    let with = GpuTracker::new(Vec::new(), true, false, channel().0);
    assert!(with.clock(request.as_bytes()).is_none());
    let without = GpuTracker::new(Vec::new(), false, false, channel().0);
    let Some(Meta::GpuClock(clock)) = without.clock(request.as_bytes()) else {
        panic!("a sample")
    };
    assert_eq!((clock.gpu_id, clock.tick), (31_000, 777));
    assert_eq!((clock.boottime, clock.uncertainty), (1_500, 500));
    request.ioctl.result = -1;
    assert!(without.clock(request.as_bytes()).is_none());
    (request.ioctl.result, request.ioctl.header.kind) = (0, kind::IOCTL_UNFINISHED);
    assert!(without.clock(request.as_bytes()).is_none());
}

#[test]
fn agents_are_nodes_of_their_kind() {
    let mut tracker = tracker(vec![(0, AgentKind::Cpu), (1, AgentKind::Gpu)]);
    let mut seen = Described::new_zeroed();
    seen.agent = 0x5000;
    // A pointer at the place where another release has the node, then node 1, a GPU.
    seen.words = [0x7fff_1234_5678, 1];
    let Some(Meta::AgentHandle(handle)) = tracker.described(seen.as_bytes()) else {
        panic!("an agent")
    };
    assert_eq!((handle.handle, handle.node_id), (0x5000, 1));
    seen.queue = 0x1000;
    seen.words = [7, 0x7fff_1234_5678];
    let Some(Meta::Queue(queue)) = tracker.described(seen.as_bytes()) else {
        panic!("a queue")
    };
    assert_eq!((queue.address, queue.node_id), (0x1000, None));
}

#[test]
fn layouts_that_are_not_known_are_told_once() {
    let mut tracker = tracker(vec![(0, AgentKind::Cpu), (1, AgentKind::Gpu)]);
    let mut seen = Described::new_zeroed();
    seen.pid = 42;
    // An agent with the expected layout, and a queue of it.
    (seen.agent, seen.words) = (0x5000, [0, 1]);
    tracker.described(seen.as_bytes());
    let mut done = Completion::new_zeroed();
    (done.pid, done.reason) = (42, completion_reason::REARM);
    tracker.take(kind::COMPLETION, done.as_bytes(), &|_| {});
    // A signal that no longer existed says nothing about layouts.
    done.sdma_start = SDMA_UNKNOWN;
    for reason in [completion_reason::EXIT, completion_reason::POLL] {
        done.reason = reason;
        tracker.take(kind::COMPLETION, done.as_bytes(), &|_| {});
    }
    assert!(tracker.remarks().is_empty());
    for _ in 0..3 {
        seen.words = [0x7fff_1234_5678, 0x7fff_1234_5678];
        assert!(tracker.described(seen.as_bytes()).is_none());
        let queue = Described {
            agent: 0,
            queue: 0x1000,
            ..seen
        };
        assert!(tracker.described(queue.as_bytes()).is_some());
        done.reason = completion_reason::REARM;
        tracker.take(kind::COMPLETION, done.as_bytes(), &|_| {});
    }
    let remarks = tracker.remarks();
    assert_eq!(remarks.len(), 3);
    for what in ["signals", "queues", "agents"] {
        let layout = format!("lays out {what} in").replace("out signals", "out completion signals");
        assert!(
            remarks.iter().any(|text| text.contains(&layout)),
            "{remarks:?}"
        );
    }
    assert!(
        remarks
            .iter()
            .all(|text| text.contains("42") && text.contains("bounds"))
    );
    assert!(tracker.remarks().is_empty());
}

#[test]
fn missing_packets_are_waited_for_and_then_read() {
    let ring: Vec<u64> = (0..64u64).flat_map(|_| packet(0, 9).packet).collect();
    // The write index is 15.
    let mut descriptor = vec![0u64; 32];
    descriptor[7] = 15;
    let mut tracker = tracker(Vec::new());
    let at = |index| {
        let mut packet = packet(index, 0);
        packet.ring = ring.as_ptr() as u64;
        packet.queue = descriptor.as_ptr() as u64;
        packet
    };
    take(&mut tracker, &at(10));
    take(&mut tracker, &at(14));
    take(&mut tracker, &at(12));
    assert!(round(&mut tracker, false).is_empty());
    assert!(round(&mut tracker, false).is_empty());
    let late = round(&mut tracker, false);
    let indices: Vec<u64> = late
        .iter()
        .map(|late| match late {
            Late::Found(packet) => {
                assert_eq!(packet.packet[7], 9);
                assert_eq!(packet.header.domain, Domain::KernelDispatch.id());
                packet.index
            }
            Late::Gone => 0,
        })
        .collect();
    assert_eq!(indices, [11, 13]);
    assert!(round(&mut tracker, true).is_empty());
}

#[test]
fn packets_of_a_pause_are_not_looked_for() {
    let mut tracker = tracker(Vec::new());
    take(&mut tracker, &packet(10, 0));
    tracker.passed_over();
    take(&mut tracker, &packet(20, 0));
    assert!(round(&mut tracker, true).is_empty());
    take(&mut tracker, &packet(22, 0));
    assert_eq!(
        round(&mut tracker, true).len(),
        1,
        "the one behind the pause"
    );
}

#[test]
fn packets_that_have_been_overwritten_are_gone() {
    let mut tracker = tracker(Vec::new());
    take(&mut tracker, &packet(10, 0));
    take(&mut tracker, &packet(200, 0));
    let late = round(&mut tracker, true);
    assert_eq!(late.len(), 189);
    assert!(late.iter().all(|late| matches!(late, Late::Gone)));
}

/// A program that moves from one processor to another leaves records in the rings of both, which
/// are read one after the other.
#[test]
fn packets_in_a_ring_that_is_read_later_are_not_gone() {
    let mut tracker = tracker(Vec::new());
    take(&mut tracker, &packet(10, 0));
    take(&mut tracker, &packet(2_000, 0));
    assert!(tracker.is_behind(), "rings are read once more");
    for index in 11..2_000 {
        take(&mut tracker, &packet(index, 0));
    }
    assert!(round(&mut tracker, false).is_empty());
    assert!(!tracker.is_behind());
    // The same with the end of the process, which one ring reports before the other one reports the
    // packets.
    take(&mut tracker, &packet(2_003, 0));
    tracker.ended(std::process::id());
    take(&mut tracker, &packet(2_001, 0));
    assert!(round(&mut tracker, false).is_empty());
    assert_eq!(
        round(&mut tracker, false),
        [Late::Gone],
        "the one that nobody tells of"
    );
    assert!(tracker.queues.is_empty());
}

#[test]
fn a_queue_that_lies_costs_little() {
    let mut tracker = tracker(Vec::new());
    let at = |index| {
        let mut packet = packet(index, 0);
        packet.ring_packets = 1 << 16;
        packet
    };
    take(&mut tracker, &at(0));
    let (mut due, mut refused) = (0, 0);
    for doorbell in 1..=10 {
        take(&mut tracker, &at(doorbell << 16));
        let missing = tracker.round(true);
        due += missing.due.iter().map(|(_, due)| due.len()).sum::<usize>();
        refused += missing.refused;
    }
    assert!(due < 100_000, "{due} packets would be read");
    assert_eq!(due as u64 + refused, 10 * 65_535, "each is in the account");
    assert!(!tracker.limits.take_refused().is_empty());
}

#[test]
fn queues_and_kernels_of_a_process_are_bounded() {
    let mut tracker = tracker(Vec::new());
    let mut told = 0;
    for number in 0..100_000 {
        let mut packet = packet(0, 8 + number * 64);
        packet.queue = 0x1000 + number * 0x1000;
        packet.packet[4] = number;
        told += take(&mut tracker, &packet);
    }
    assert!(tracker.queues.len() <= 1 << 12);
    assert!(told < 70_000 && tracker.kernels.len() == told, "{told}");
    let mut other = packet(0, 0);
    other.pid += 1;
    assert_eq!(take(&mut tracker, &other), 1, "another process");
    assert_eq!(tracker.limits.take_refused().len(), 2);
}

/// The indices of missing packets, each with whether it was overtaken, after the records of
/// `valid` packets and of the doorbell at `rung`.
fn overtaken(valid: std::ops::Range<u64>, rung: u64, read_index: u64) -> Vec<(u64, bool)> {
    let mut tracker = tracker(Vec::new());
    take(&mut tracker, &packet(0, 0));
    for index in valid.chain([rung]) {
        let mut packet = packet(index, 0);
        (packet.time, packet.read_index) = (50, read_index);
        packet.ring_packets = 1024;
        if index != rung {
            packet.flags = packet_flags::BEFORE_DOORBELL;
        }
        take(&mut tracker, &packet);
    }
    let due = tracker.round(true).due;
    let flag = |packet: &Packet| packet.flags & packet_flags::OVERTAKEN != 0;
    let due = due.iter().flat_map(|(_, due)| due);
    due.map(|(index, behind)| (*index, flag(behind))).collect()
}

#[test]
fn packets_that_were_not_valid_any_more_were_announced_before() {
    assert_eq!(
        overtaken(3..6, 6, 0),
        [(1, true), (2, true)],
        "a program looked at them"
    );
    let not_read: Vec<_> = (1..45).map(|index| (index, false)).collect();
    assert_eq!(overtaken(45..300, 300, 0), not_read, "one doorbell for 300");
    let taken: Vec<_> = (1..46).map(|index| (index, true)).collect();
    assert_eq!(overtaken(46..300, 300, 0), taken, "45 had been taken");
    let partly: Vec<_> = (1..45).map(|index| (index, index < 8)).collect();
    assert_eq!(overtaken(45..300, 300, 8), partly, "the read index tells");
}
