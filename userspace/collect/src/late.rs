//! Packets that no eBPF program has read: one doorbell may cover hundreds of packets, of which a
//! program reads only the last few.
//!
//! A doorbell may also have been stored by the program itself, past all functions that are probed.
//!
//! These packets are read from the queue's ring. Their headers have been consumed by then, but
//! their bodies stay until the ring wraps around; that is checked after the reading.

use gputrace_abi::{
    domain::Domain,
    gpu::{PACKET_SIZE, Packet, QUEUE_WRITE_INDEX, is_kernel_dispatch, packet_flags},
};
use gputrace_codeobj::memory::{Memory, ProcessMemory};
use zerocopy::FromBytes as _;

/// Result of looking for a missing packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Late {
    /// Record of the packet.
    Found(Box<Packet>),
    /// The packet's memory could not be read, or holds a later packet.
    Gone,
}

/// Reads missing packets of one queue, in order of index. Each is given with the later packet whose
/// doorbell covered it.
pub(crate) fn read(pid: u32, due: &[(u64, Packet)], late: &mut Vec<Late>) {
    if due.is_empty() {
        return;
    }
    let Ok(memory) = ProcessMemory::open(pid) else {
        return late.extend(due.iter().map(|_| Late::Gone));
    };
    // Neighbours in the ring are read together.
    for run in due.chunk_by(|(index, one), (next, other)| {
        let packets = u64::from(one.ring_packets.max(1));
        index.checked_add(1) == Some(*next) && next % packets != 0 && one.ring == other.ring
    }) {
        read_run(&memory, run, late);
    }
}

fn read_run(memory: &impl Memory, run: &[(u64, Packet)], late: &mut Vec<Late>) {
    let Some((first, behind)) = run.first() else {
        return;
    };
    let bytes = ring_bytes(memory, *first, behind, run.len());
    // If indices have been reserved beyond a whole ring, the packet may have been overwritten.
    let reserved = memory.array(behind.queue.wrapping_add(QUEUE_WRITE_INDEX));
    let reserved = reserved.map_or(u64::MAX, u64::from_le_bytes);
    let mut packets = bytes.chunks_exact(PACKET_SIZE);
    for (index, behind) in run {
        let words = packets
            .next()
            .and_then(|bytes| <[u64; 8]>::read_from_bytes(bytes).ok());
        let is_there = index.saturating_add(u64::from(behind.ring_packets)) >= reserved;
        late.push(match words {
            Some(words) if is_there => Late::Found(Box::new(describe(*index, behind, words))),
            _ => Late::Gone,
        });
    }
}

/// The bytes of `count` packets from index `first` on, which must not cross the ring's end; empty
/// if they cannot be read.
fn ring_bytes(memory: &impl Memory, first: u64, behind: &Packet, count: usize) -> Vec<u8> {
    let packets = u64::from(behind.ring_packets);
    if !packets.is_power_of_two() {
        return Vec::new();
    }
    let limit = packets.saturating_mul(PACKET_SIZE as u64);
    let size = (count as u64).saturating_mul(PACKET_SIZE as u64);
    (first & (packets - 1))
        .checked_mul(PACKET_SIZE as u64)
        .and_then(|offset| behind.ring.checked_add(offset))
        .and_then(|place| memory.bytes(place, size, limit).ok())
        .unwrap_or_default()
}

/// The record of a packet that was read later.
fn describe(index: u64, behind: &Packet, words: [u64; 8]) -> Packet {
    let domain = if is_kernel_dispatch(&words) {
        Domain::KernelDispatch
    } else {
        Domain::QueuePacket
    };
    let mut packet = *behind;
    packet.header.domain = domain.id();
    packet.flags |= packet_flags::BEFORE_DOORBELL | packet_flags::READ_LATER;
    if packet.flags & packet_flags::OVERTAKEN != 0 {
        packet.flags &= !packet_flags::STREAM;
        (packet.tid, packet.stream) = (0, 0);
        (packet.innermost, packet.outermost) = (0, 0);
    }
    packet.index = index;
    packet.packet = words;
    packet
}

#[cfg(test)]
mod tests {
    use gputrace_abi::gpu::{TYPE_INVALID, TYPE_KERNEL_DISPATCH};
    use zerocopy::FromZeros as _;

    use super::*;

    /// A queue's descriptor followed by a ring of four packets.
    fn queue(reserved: u64) -> Vec<u64> {
        let mut words = vec![0; 32 + 4 * 8];
        words[7] = reserved;
        for index in 0..4 {
            words[32 + index * 8] = TYPE_INVALID | 1 << 16 | 64 << 32;
            words[32 + index * 8 + 1] = 64 << 32;
            words[32 + index * 8 + 4] = 100 + index as u64;
        }
        words
    }

    fn kernels(queue: &[u64], indices: &[u64]) -> Vec<u64> {
        let mut behind = Packet::new_zeroed();
        behind.queue = queue.as_ptr() as u64;
        behind.ring = behind.queue + 256;
        behind.ring_packets = 4;
        let due: Vec<_> = indices.iter().map(|index| (*index, behind)).collect();
        let mut late = Vec::new();
        read(std::process::id(), &due, &mut late);
        late.iter()
            .map(|late| match late {
                Late::Found(packet) => {
                    assert_eq!(packet.header.domain, Domain::KernelDispatch.id());
                    packet.packet[4]
                }
                Late::Gone => 0,
            })
            .collect()
    }

    #[test]
    fn runs_go_round_the_ring() {
        let eight = queue(8);
        assert_eq!(kernels(&eight, &[5, 6, 7]), [101, 102, 103]);
        assert_eq!(kernels(&eight, &[4, 6, 7]), [100, 102, 103]);
        assert_eq!(kernels(&queue(10), &[6, 7, 8, 9]), [102, 103, 100, 101]);
    }

    #[test]
    fn nobody_knows_who_submitted_what_was_overtaken() {
        let four = queue(4);
        let mut behind = Packet::new_zeroed();
        behind.queue = four.as_ptr() as u64;
        (behind.ring, behind.ring_packets) = (behind.queue + 256, 4);
        (behind.tid, behind.innermost, behind.outermost) = (7, 8, 9);
        let mut overtaken = behind;
        overtaken.flags = packet_flags::OVERTAKEN;
        let mut late = Vec::new();
        read(
            std::process::id(),
            &[(1, behind), (2, overtaken)],
            &mut late,
        );
        let callers = late.iter().map(|late| match late {
            Late::Found(packet) => (packet.tid, packet.innermost, packet.outermost),
            Late::Gone => unreachable!("the ring has it"),
        });
        assert_eq!(callers.collect::<Vec<_>>(), [(7, 8, 9), (0, 0, 0)]);
    }

    #[test]
    fn packets_that_may_have_been_overwritten_are_gone() {
        assert_eq!(kernels(&queue(9), &[4, 5]), [0, 101]);
    }

    #[test]
    fn memory_that_cannot_be_read_is_no_packet() {
        let mut behind = Packet::new_zeroed();
        behind.ring_packets = 4;
        behind.queue = 8;
        behind.ring = 8;
        let mut late = Vec::new();
        read(std::process::id(), &[(1, behind)], &mut late);
        read(u32::MAX, &[(1, behind)], &mut late);
        behind.ring_packets = 3;
        read(std::process::id(), &[(1, behind)], &mut late);
        assert_eq!(late, [Late::Gone, Late::Gone, Late::Gone]);
    }

    #[test]
    fn consumed_packets_are_told_by_their_bodies() {
        let dispatch = [
            TYPE_INVALID | 1 << 16 | 64 << 32,
            64 << 32,
            0,
            0,
            0xbeef,
            0,
            0,
            0,
        ];
        assert!(is_kernel_dispatch(&dispatch));
        assert!(is_kernel_dispatch(&[
            TYPE_KERNEL_DISPATCH,
            0,
            0,
            0,
            0,
            0,
            0,
            0
        ]));
        // A barrier-AND packet: header, dependent signals, completion signal.
        let barrier = [TYPE_INVALID | 1 << 8, 0x7000, 0x8000, 0, 0, 0, 0, 0x9000];
        assert!(!is_kernel_dispatch(&barrier));
    }
}
