use zerocopy::FromZeros as _;

use super::*;
use crate::{derive::work::evidence::Stamp, model::gpu::Quality};

const MS: u64 = 1_000_000;

/// A dispatch with the barrier bit; consumed or not, with or without a signal.
fn packet(index: u64, time: u64, signal: u64) -> Packet {
    let mut packet = Packet::new_zeroed();
    (packet.index, packet.time) = (index, time);
    packet.packet = [
        2 | 1 << 8 | 1 << 16 | 64 << 32 | 1 << 48,
        1 | 64 << 32,
        1 | 1 << 32,
        0,
        64,
        0,
        0,
        signal,
    ];
    packet
}

fn insert(queue: &mut Queue, packet: &Packet) -> Inserted {
    let origin = Origin {
        time: packet.time,
        ..Origin::default()
    };
    queue.insert(packet, origin, false)
}

fn queue() -> Queue {
    Queue::new(QueueInfo::default(), 0, 0, false)
}

fn settle(queue: &mut Queue, now: u64, how: Settle) -> Vec<(u64, GpuTime)> {
    let mut settled = Vec::new();
    queue.settle(now, how, &mut settled);
    settled
        .iter()
        .map(|settled| (settled.index, settled.time))
        .collect()
}

fn stamp(queue: &mut Queue, index: u64, begin: u64, end: u64) {
    let stamp = |time| Stamp {
        time,
        uncertainty: 10,
    };
    let slot = queue.slot_mut(index).unwrap();
    slot.open = false;
    slot.evidence.exact = Some(Exact {
        begin: stamp(begin),
        end: stamp(end),
    });
}

#[test]
fn packets_wait_for_what_may_still_tell_more() {
    let mut queue = queue();
    insert(&mut queue, &packet(0, MS, 0));
    insert(&mut queue, &packet(1, 2 * MS, 8));
    insert(&mut queue, &packet(2, 3 * MS, 0));
    queue.sample(3, 10 * MS, 0);
    assert_eq!(
        settle(&mut queue, 20 * MS, Settle::Ripe),
        [],
        "packet 1 may say when packet 0 ended"
    );
    stamp(&mut queue, 1, 4 * MS, 5 * MS);
    let settled = settle(&mut queue, 20 * MS, Settle::Ripe);
    let [(0, first), (1, second)] = settled[..] else {
        unreachable!("{settled:?}")
    };
    assert_eq!(
        (first.quality, first.begin, first.end),
        (Quality::Bounded, MS, 4 * MS + 10)
    );
    assert_eq!(second.quality, Quality::Exact);
    let settled = settle(&mut queue, 20 * MS, Settle::All(20 * MS));
    let [(2, third)] = settled[..] else {
        unreachable!("{settled:?}")
    };
    assert_eq!(
        (third.quality, third.begin),
        (Quality::Submitted, 5 * MS - 10)
    );
    assert_eq!(third.begin_window.latest, Some(10 * MS));
}

#[test]
fn packets_know_the_stamps_of_those_behind_that_stay() {
    let mut queue = queue();
    for index in 0..50 {
        insert(&mut queue, &packet(index, MS, 0));
    }
    let mut last = packet(50, MS, 8);
    last.flags = packet_flags::BEFORE_DOORBELL;
    insert(&mut queue, &last);
    stamp(&mut queue, 50, 4 * MS, 5 * MS);
    // The read index was seen beyond all of them just when the last one began, by the clock's
    // uncertainty.
    queue.sample(51, 4 * MS + 5, 4 * MS - 50);
    let mut settled = Vec::new();
    queue.settle(20 * MS, Settle::Ripe, &mut settled);
    assert_eq!(
        (settled.len(), queue.len()),
        (50, 1),
        "its own doorbell may still ring"
    );
    assert!(settled.iter().all(|one| one.stamped == 4 * MS));
}

#[test]
fn the_oldest_can_be_forced_out_and_late_ones_say_little() {
    let mut queue = queue();
    for index in [5, 7, 8] {
        insert(&mut queue, &packet(index, index * MS, 8));
    }
    assert_eq!(settle(&mut queue, 20 * MS, Settle::AtLeast(2)).len(), 2);
    assert_eq!(queue.len(), 1);
    assert_eq!(insert(&mut queue, &packet(5, 5 * MS, 8)), Inserted::Known);
    assert_eq!(insert(&mut queue, &packet(6, 6 * MS, 8)), Inserted::New);
    let settled = settle(&mut queue, 20 * MS, Settle::All(20 * MS));
    let indices: Vec<u64> = settled.iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, [6, 8]);
}

#[test]
fn stamps_that_may_be_a_missing_packet_s_are_nobody_s() {
    let exact = |begin, end| Exact {
        begin: Stamp {
            time: begin,
            uncertainty: 10,
        },
        end: Stamp {
            time: end,
            uncertainty: 10,
        },
    };
    let mut queue = queue();
    insert(&mut queue, &packet(0, MS, 8));
    insert(&mut queue, &packet(1, 2 * MS, 0));
    assert!(queue.can_be(0, &exact(3 * MS, 4 * MS), false));
    assert!(
        !queue.can_be(0, &exact(3 * MS, 4 * MS), true),
        "maybe packet 2's"
    );
    insert(&mut queue, &packet(3, 5 * MS, 8));
    assert!(
        !queue.can_be(0, &exact(3 * MS, 4 * MS), false),
        "packet 2's record is missing"
    );
    assert!(
        queue.can_be(0, &exact(MS, 4 * MS), false),
        "packet 2 came later"
    );
    queue.sample(1, 6 * MS, 0);
    assert!(
        !queue.can_be(0, &exact(7 * MS, 8 * MS), false),
        "it had begun before"
    );
}

#[test]
fn a_queue_that_stands_still_is_stuck() {
    let mut queue = queue();
    for index in 0..4 {
        insert(&mut queue, &packet(index, (index + 1) * MS, 0));
    }
    insert(&mut queue, &packet(4, 2_999 * MS, 0));
    queue.look(2, 3_000 * MS, 0);
    let settled = settle(&mut queue, 3_000 * MS, Settle::All(3_000 * MS));
    let unfinished: Vec<bool> = settled.iter().map(|(_, time)| time.unfinished).collect();
    assert_eq!(
        unfinished,
        [false, true, true, true, true],
        "1 was taken and 2 waits for it; all others wait in turn"
    );
}

/// One doorbell for packets 1 to 4, of which it is the first that is seen.
fn overtaken(taken: &[u64]) -> Vec<Settled> {
    let mut queue = Queue::new(QueueInfo::default(), 7, 5_000 * MS, false);
    insert(&mut queue, &packet(0, 5_000 * MS, 0));
    let mut found = Vec::new();
    for index in [3, 4, 1, 2] {
        let mut packet = packet(index, 5_010 * MS, 0);
        if index != 4 {
            packet.flags = packet_flags::BEFORE_DOORBELL;
        }
        if taken.contains(&index) {
            packet.flags |= packet_flags::READ_LATER | packet_flags::OVERTAKEN;
            packet.packet[0] = packet.packet[0] & !0xffff | 1;
        }
        insert(&mut queue, &packet);
    }
    queue.settle(6_000 * MS, Settle::All(6_000 * MS), &mut found);
    found
}

#[test]
fn what_was_taken_before_the_doorbell_began_before_it() {
    let earliest = |settled: &[Settled]| -> Vec<u64> {
        let windows = settled.iter().map(|one| one.time.begin_window.earliest);
        windows.map(|earliest| earliest / MS).collect()
    };
    let doubtful = |settled: &[Settled]| -> Vec<bool> {
        settled.iter().map(|one| one.slot.is_doubtful).collect()
    };
    let all = overtaken(&[]);
    assert_eq!(earliest(&all), [5_000, 5_010, 5_010, 5_010, 5_010]);
    assert_eq!(doubtful(&all), [false; 5]);
    // Packet 3 was still valid.
    let some = overtaken(&[1, 2]);
    assert_eq!(earliest(&some), [5_000, 5_000, 5_000, 5_010, 5_010]);
    assert_eq!(doubtful(&some), [false, true, true, true, false]);
}

#[test]
fn nothing_before_the_first_doorbell_bounds_what_was_taken() {
    let mut queue = Queue::new(QueueInfo::default(), 7, 5_000 * MS, false);
    let first = packet(1, 5_000 * MS, 0);
    let mut earlier = packet(0, 5_000 * MS, 0);
    earlier.flags =
        packet_flags::BEFORE_DOORBELL | packet_flags::READ_LATER | packet_flags::OVERTAKEN;
    earlier.packet[0] = earlier.packet[0] & !0xffff | 1;
    insert(&mut queue, &first);
    insert(&mut queue, &earlier);
    let settled = settle(&mut queue, 6_000 * MS, Settle::All(6_000 * MS));
    let [(0, zero), (1, one)] = settled[..] else {
        unreachable!("{settled:?}")
    };
    assert_eq!(zero.begin_window.earliest, 7, "when the program began");
    assert_eq!(one.begin_window.earliest, 5_000 * MS);
}
