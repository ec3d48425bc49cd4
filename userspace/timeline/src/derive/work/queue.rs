//! The packets of one queue, and what they prove about each other.
//!
//! A queue takes its packets in order. A packet with the barrier bit begins after all packets before it have
//! ended; without it, packets overlap as they like. So:
//!
//! * No packet begins before a doorbell with its index or a higher one rang. Where the record of such a doorbell
//!   may have been lost, only the packet's header tells: one that was still valid had not been taken.
//! * Packets are taken in order, so one does not begin before another before it was seen not to be taken.
//! * A packet with the barrier bit begins after the earliest possible ends of all packets before it.
//! * A read index beyond a packet proves that it has begun. One that has not moved proves nothing: hardware may
//!   report it late.
//! * A packet ended before any later packet with the barrier bit began.

use std::collections::VecDeque;

use gputrace_abi::gpu::{POLL_SPREAD, Packet, packet_flags};

use crate::{
    derive::work::{
        evidence::{Bound, Evidence, Exact, estimated},
        gaps::Gaps,
        packet::{Aql, Kind},
        slots::Slots,
    },
    model::gpu::{GpuTime, Origin, QueueInfo},
};

/// For how long the own doorbell of a packet that was read before it is waited for, ns. It rings as soon as
/// its thread runs again.
const GRACE: u64 = 100_000_000;

/// Changes of the read index that are remembered for packets whose records come late.
const SAMPLES: usize = 1024;

/// The longest time between two threads' doorbells for neighbouring packets, ns; what is known of a packet that
/// had been taken before its own doorbell while records of others are missing.
const HURRY: u64 = 1_000_000_000;

/// Packets whose memory is kept for those to come: what becomes due at a time.
const SPARE: usize = 1 << 12;

/// Packets behind one whose begins are asked whether its stamps can be true.
const NEIGHBOURS: usize = 8;

/// What is seen this long before the last record of a recording is seen at its end, ns: the recorder's last
/// look takes its time.
pub(crate) const LAST_LOOK: u64 = 2_000_000_000;

/// A packet that the read index has not passed for this long after its doorbell is stuck, ns. Hardware that
/// reports late does not do so by seconds.
const STUCK: u64 = 1_000_000_000;

/// A packet that may still become better known.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) origin: Origin,
    pub(crate) aql: Aql,
    pub(crate) kind: Kind,
    pub(crate) barrier: bool,
    pub(crate) read_later: bool,
    /// Number of the dispatch; 0 for other packets.
    pub(crate) dispatch: u64,
    /// Whether its signal may still tell something.
    pub(crate) open: bool,
    pub(crate) evidence: Evidence,
    /// When it was last seen that it had not been taken: its header was valid.
    untaken: Option<u64>,
    /// Whether its own doorbell may still ring. If it never does, either it was announced with others, or its own doorbell
    /// was lost.
    pub(crate) before_doorbell: bool,
    /// Whether records of packets were lost about then.
    losses: bool,
}

impl Slot {
    fn begun(&self, followed: Option<Bound>) -> Option<Bound> {
        self.evidence.begun(self.kind != Kind::Other, followed)
    }
}

/// A packet of which all is known that ever will be.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) index: u64,
    /// Between these times its own doorbell must have rung, if it had one and that was lost; ns.
    pub(crate) silent: Option<(u64, u64)>,
    pub(crate) slot: Box<Slot>,
    pub(crate) time: GpuTime,
    /// When the packet behind it was submitted, ns, if that waits for it.
    pub(crate) next: Option<u64>,
    /// The earliest begin by the stamps of kernels behind it, ns, whether those leave the queue now
    /// or not; `u64::MAX` if nothing behind it has stamps.
    pub(crate) stamped: u64,
}

/// What became of a packet's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The packet is new.
    New,
    /// It was known; at most, its thread and calls are now known better.
    Known,
}

/// How much [`Queue::settle`] has to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// Packets of which nothing more can be learned.
    Ripe,
    /// At least so many, oldest first.
    AtLeast(usize),
    /// All, because the recording ended; its last record was made at this time.
    All(u64),
}

/// A queue from its first packet to its destruction.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) info: QueueInfo,
    /// When it was destroyed or replaced.
    pub(crate) retired: Option<u64>,
    slots: Slots<Slot>,
    /// Memory of packets that were settled, for those to come.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Vec<Box<Slot>>,
    seen: Gaps,
    /// Read indices that were higher than all before, with when.
    samples: VecDeque<(u64, u64)>,
    /// When the read index was last read by anybody.
    observed: u64,
    /// The last look at the queue by the recorder: when, and the read index.
    last_look: Option<(u64, u64)>,
    /// A time before all packets: [`HURRY`] before the first record of one.
    pub(crate) since: u64,
    /// Whether its very first packet is known, or may have been lost: then nothing of it is said to be older than the
    /// recording.
    pub(crate) from_first: bool,
    /// Looks before this may have been at the queue that had the address before.
    looks_from: u64,
    /// Packets below have been settled, and did not all end before `floor`.
    settled: u64,
    floor: u64,
    /// When the last of them was seen that had not been taken.
    untaken: u64,
    /// When the last doorbell rang that is known to be of one of them.
    rung: u64,
}

impl Queue {
    /// A queue whose first packet was submitted at `first`; `reuses` says whether another queue was at its
    /// address before.
    pub(crate) fn new(info: QueueInfo, first: u64, reuses: bool) -> Self {
        let since = first.saturating_sub(HURRY);
        Self {
            info,
            retired: None,
            slots: Slots::default(),
            spare: Vec::new(),
            seen: Gaps::default(),
            samples: VecDeque::new(),
            observed: 0,
            last_look: None,
            since,
            from_first: false,
            looks_from: if reuses {
                first.saturating_add(POLL_SPREAD)
            } else {
                0
            },
            settled: 0,
            floor: 0,
            untaken: since,
            rung: since,
        }
    }

    /// Packets that are not settled.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(index)
    }

    pub(crate) fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    /// The packet at `index` did not begin before this, ns.
    pub(crate) fn earliest(&self, index: u64) -> Option<u64> {
        let slot = self.slots.get(index)?;
        if self.is_announced(index, slot) {
            return Some(slot.evidence.earliest);
        }
        let before = self.slots.before(index).take(NEIGHBOURS);
        let untaken = before.filter_map(|(_, slot)| slot.untaken).next();
        let untaken = untaken.unwrap_or(if index < self.settled {
            self.since
        } else {
            self.untaken
        });
        Some(untaken.min(slot.evidence.earliest))
    }

    /// Whether the doorbell that first announced a packet is certainly known: its own, at which it had not been
    /// taken, or a later packet's of which none is missing.
    fn is_announced(&self, index: u64, slot: &Slot) -> bool {
        let above = index.saturating_add(1);
        let all_above =
            || self.seen.after(index).is_none() && self.slots.from(above).next().is_some();
        slot.untaken.is_some() || !slot.losses && all_above()
    }

    /// Takes back the memory of a packet that was settled.
    pub(crate) fn recycle(&mut self, slot: Box<Slot>) {
        if self.spare.len() < SPARE {
            self.spare.push(slot);
        }
    }

    /// Nothing will be heard of its signals any more.
    pub(crate) fn abandon(&mut self, time: u64) {
        self.retired.get_or_insert(time);
        for slot in self.slots.iter_mut() {
            slot.open = false;
        }
    }

    /// Adds a packet. `origin` is that of the record; `losses` says whether records were lost about then.
    pub(crate) fn insert(&mut self, packet: &Packet, origin: Origin, losses: bool) -> Inserted {
        let (index, time) = (packet.index, packet.time);
        let before_doorbell = packet.flags & packet_flags::BEFORE_DOORBELL != 0;
        let aql = Aql(packet.packet);
        if !self.seen.take(index) {
            if let Some(slot) = self.slots.get_mut(index)
                && slot.before_doorbell
                && !before_doorbell
            {
                slot.before_doorbell = false;
                slot.origin = origin;
                if aql.has_type() {
                    slot.untaken = slot.untaken.max(Some(time));
                }
                if aql.has_type() && !slot.aql.has_type() {
                    slot.aql = aql;
                    slot.barrier = aql.barrier();
                }
            }
            return Inserted::Known;
        }
        // A higher doorbell announces lower packets, too.
        let mut earliest = match self.slots.from(index).next() {
            Some(above) => time.min(above.evidence.earliest),
            None => time,
        };
        if index < self.settled {
            // Those above it are forgotten.
            earliest = earliest.min(self.since);
        }
        for slot in self.slots.before_mut(index) {
            if slot.evidence.earliest <= time {
                break;
            }
            slot.evidence.earliest = time;
        }
        let sample = self.samples.partition_point(|(read, _)| *read <= index);
        let slot = Slot {
            origin,
            aql,
            kind: aql.kind(),
            barrier: aql.barrier(),
            read_later: packet.flags & packet_flags::READ_LATER != 0,
            dispatch: 0,
            open: aql.signal() != 0,
            evidence: Evidence {
                earliest,
                consumed: self.samples.get(sample).map(|(_, time)| *time),
                ..Evidence::default()
            },
            untaken: aql.has_type().then_some(time),
            before_doorbell,
            losses,
        };
        let slot = match self.spare.pop() {
            Some(mut spare) => {
                *spare = slot;
                spare
            }
            None => Box::new(slot),
        };
        self.slots.insert(index, slot);
        Inserted::New
    }

    /// The read index was at least `read_index` at `time`, and less when it was `looked` at before (0 if nobody says).
    pub(crate) fn sample(&mut self, read_index: u64, time: u64, looked: u64) {
        let looked = looked.max(self.observed);
        self.observed = self.observed.max(time);
        let before = self.samples.back().map_or(0, |(read, _)| *read);
        if read_index <= before {
            return;
        }
        // As if they had begun at equal distances since then.
        let steps = u128::from(read_index - before);
        let width = u128::from(if looked == 0 {
            0
        } else {
            time.saturating_sub(looked)
        });
        for (index, slot) in self.slots.between_mut(before, read_index) {
            let first = slot.evidence.consumed.map_or(time, |known| known.min(time));
            slot.evidence.consumed = Some(first);
            if looked != 0 && slot.evidence.estimate.is_none() {
                let left = u128::from(read_index - 1 - index) * width / steps;
                slot.evidence.estimate = Some(time.saturating_sub(left as u64));
                slot.evidence.looked = Some((looked, before));
            }
        }
        self.samples.push_back((read_index, time));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
    }

    /// The recorder has looked at the queue; false if it may have been another one.
    pub(crate) fn look(&mut self, read_index: u64, time: u64, looked: u64) -> bool {
        if time < self.looks_from {
            return false;
        }
        self.sample(read_index, time, looked);
        self.last_look = Some((time, read_index));
        true
    }

    /// Whether stamps can be those of the packet at `index`, or must be those of a later use of its signal whose
    /// record was lost: they would contradict what the queue proves, or could as well be those of a packet that
    /// is missing. With `losses`, that may be the one behind the last one seen, or one before that still ran.
    pub(crate) fn can_be(&self, index: u64, exact: &Exact, losses: bool) -> bool {
        let Some(slot) = self.slots.get(index) else {
            return false;
        };
        if losses && !slot.barrier {
            return false;
        }
        let begun = slot.evidence.consumed;
        let neighbours = self.slots.from(index.saturating_add(1)).take(NEIGHBOURS);
        let followed = neighbours
            .filter(|slot| slot.barrier)
            .find_map(|slot| slot.begun(None));
        let missing = self.seen.after(index).or(losses.then_some(u64::MAX));
        let missing = missing.and_then(|missing| {
            let (below, _) = self.slots.before(missing).next()?;
            self.earliest(below)
        });
        begun.is_none_or(|begun| exact.begin.low() <= begun)
            && followed.is_none_or(|followed| exact.end.low() <= followed.time)
            && missing.is_none_or(|missing| exact.begin.high() < missing)
    }

    /// Takes out packets whose times are final, oldest first. `now` is how far the records have been read.
    pub(crate) fn settle(&mut self, now: u64, how: Settle, settled: &mut Vec<Settled>) {
        // They come out in order, so while the first one waits, there is nothing to find out.
        let is_waiting = self.slots.first().is_none_or(|(_, slot)| slot.open);
        if is_waiting && how == Settle::Ripe {
            return;
        }
        // Backwards: by when had what follows begun, and since when may an open packet behind tell more?
        let mut behind = Vec::with_capacity(self.slots.len());
        let (mut followed, mut open_since, mut stamped) = (None, None, u64::MAX);
        for slot in self.slots.iter().rev() {
            behind.push((followed, open_since, stamped));
            let begun = slot.begun(followed);
            if slot.barrier {
                followed = Bound::earlier(followed, begun);
            }
            if slot.open {
                open_since = Some(slot.evidence.earliest);
            }
            if let Some(exact) = slot.evidence.exact.filter(|_| slot.kind != Kind::Other) {
                stamped = stamped.min(exact.begin.time);
            }
        }
        let is_over = self.retired.is_some() && open_since.is_none();
        let at_least = match how {
            Settle::Ripe => 0,
            Settle::AtLeast(count) => count,
            Settle::All(_) => usize::MAX,
        };
        let stuck_from = match how {
            Settle::All(stop) => self.stuck_from(stop),
            _ => None,
        };
        let mut waits = false;
        let mut count = 0;
        // Forwards: which are final, and when can those behind them have begun?
        while let Some((index, slot)) = self.slots.first() {
            let (followed, open_since, stamped) = behind.pop().unwrap_or((None, None, u64::MAX));
            let ripe = !slot.open
                && (!slot.before_doorbell || now >= slot.origin.time.saturating_add(GRACE))
                && (slot.evidence.exact.is_some()
                    || slot.evidence.ended(followed).is_some_and(|ended| {
                        ended.time <= now && open_since.is_none_or(|since| since >= ended.time)
                    }));
            if !ripe && !is_over && count >= at_least {
                break;
            }
            let mut earliest = self.earliest(index).unwrap_or(self.since);
            let Some((_, mut slot)) = self.slots.pop_first() else {
                break;
            };
            // A record that came this late says nothing about its neighbours.
            if slot.barrier && index >= self.settled {
                earliest = earliest.max(self.floor);
            }
            if let Settle::All(_) = how {
                let stuck = stuck_from
                    .is_some_and(|(from, until)| index >= from && slot.origin.time <= until);
                slot.evidence.unfinished |= stuck || waits && slot.barrier;
            }
            let next = self.slots.first().filter(|(_, next)| next.barrier);
            let next = next.map(|(_, next)| next.evidence);
            let time = estimated(
                slot.evidence.time(earliest, followed),
                slot.evidence.estimate,
                next.and_then(|next| next.estimate),
            );
            let next = next.map(|next| next.earliest);
            waits |= time.unfinished;
            self.floor = self.floor.max(slot.evidence.ends_after(earliest));
            if let Some(untaken) = slot.untaken.filter(|_| index >= self.settled) {
                self.untaken = self.untaken.max(untaken);
            }
            self.settled = self.settled.max(index.saturating_add(1));
            count += 1;
            let silent = slot.before_doorbell.then(|| {
                let rang = slot.origin.time;
                (self.rung.min(rang), rang.saturating_add(GRACE))
            });
            if silent.is_none() {
                self.rung = self.rung.max(slot.origin.time);
            }
            settled.push(Settled {
                index,
                silent,
                slot,
                time,
                next,
                stamped,
            });
        }
    }

    /// The first packet that is known not to have ended because the read index stood still until the end, and
    /// until when a packet must have been submitted to be stuck behind it.
    fn stuck_from(&self, stop: u64) -> Option<(u64, u64)> {
        let (time, read_index) = self.last_look?;
        if time.saturating_add(LAST_LOOK) < stop {
            return None;
        }
        let until = time.saturating_sub(STUCK);
        let next = self.slots.get(read_index)?;
        if next.origin.time > until {
            return None;
        }
        // One that was taken, and that the next one waits for.
        let taken = read_index.checked_sub(1)?;
        let waited_for = next.barrier && self.slots.get(taken).is_some_and(|slot| slot.barrier);
        Some((if waited_for { taken } else { read_index }, until))
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;
    use crate::{derive::work::evidence::Stamp, model::gpu::Quality};

    const MS: u64 = 1_000_000;

    /// A dispatch with the barrier bit; consumed or not, signalled or not.
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
        Queue::new(QueueInfo::default(), 0, false)
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
}
