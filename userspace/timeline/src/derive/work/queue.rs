//! The packets of one queue, and what they prove about each other.
//!
//! A queue takes its packets in order. A packet with the barrier bit begins after all packets
//! before it have ended; packets without it may overlap. Therefore:
//!
//! * No packet begins before the first doorbell with its index or a higher one. If the record of
//!   such a doorbell may have been lost, only the packet's header tells: while the header was still
//!   valid, the packet had not been taken.
//! * A packet that had been taken when that doorbell rang was announced by an earlier one, which
//!   was not seen: the program stored it by itself. So had all packets before it.
//! * Packets are taken in order, so a packet begins after the last time at which an earlier packet
//!   was seen not yet taken.
//! * A packet with the barrier bit begins after the earliest possible ends of all packets before
//!   it.
//! * A read index past a packet proves that the packet has begun. A read index that has not moved
//!   proves nothing, because the hardware may report it late.
//! * A packet ended before any later packet with the barrier bit began.

use std::{collections::VecDeque, mem};

use gputrace_abi::gpu::{POLL_SPREAD, Packet, packet_flags};

use crate::{
    derive::work::{
        evidence::{Bound, Evidence, Exact, estimated},
        gaps::Gaps,
        packet::{Aql, Kind},
        slots::Slots,
        witness::Took,
    },
    model::gpu::{GpuTime, Origin, QueueInfo},
};

/// How long to wait for the own doorbell of a packet that was read before it rang, ns. The doorbell
/// rings as soon as its thread runs again.
const GRACE: u64 = 100_000_000;

/// Number of read index changes remembered for packets whose records come late.
const SAMPLES: usize = 1024;

/// Maximum time between two threads' doorbells for neighbouring packets, ns. This is all that is
/// known of a packet that was taken before its own doorbell while records of others are missing.
const HURRY: u64 = 1_000_000_000;

/// Number of packets whose memory is kept for reuse: as many as become due at a time.
const SPARE: usize = 1 << 12;

/// How many neighbouring packets to consult when checking that a packet's timestamps are plausible.
const NEIGHBOURS: usize = 8;

/// What was seen this long before the last record, ns, counts as seen at the end of the recording:
/// the recorder's last look takes time.
pub(crate) const LAST_LOOK: u64 = 2_000_000_000;

/// A packet is stuck if the read index has not passed it for this long after its doorbell, ns.
/// Hardware that reports late is not late by seconds.
const STUCK: u64 = 1_000_000_000;

/// A packet about which more may still become known.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) origin: Origin,
    pub(crate) aql: Aql,
    pub(crate) kind: Kind,
    pub(crate) barrier: bool,
    pub(crate) read_later: bool,
    /// Number of the dispatch, or 0 for other packets.
    pub(crate) dispatch: u64,
    /// Whether its signal may still provide information.
    pub(crate) open: bool,
    pub(crate) evidence: Evidence,
    /// How long it ran, if the GPU's status register showed that.
    pub(crate) took: Option<Took>,
    /// When it was last seen not yet taken, i.e. with a valid header.
    untaken: Option<u64>,
    /// Whether its own doorbell may still ring. If it never does, the packet was either announced
    /// together with others, or the record of its doorbell was lost.
    pub(crate) before_doorbell: bool,
    /// Whether records of packets were lost at about that time.
    losses: bool,
    /// The time of the doorbell of its record, ns, if the packet had been taken before.
    overtaken: Option<u64>,
    /// Whether the doorbell of its record may be another call's: not all in its batch are known.
    pub(crate) is_doubtful: bool,
}

impl Slot {
    fn begun(&self, followed: Option<Bound>) -> Option<Bound> {
        self.evidence.begun(self.kind != Kind::Other, followed)
    }
}

/// A packet about which nothing more can become known.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) index: u64,
    /// The time range in which its own doorbell must have rung, if there was one whose record was
    /// lost, ns.
    pub(crate) silent: Option<(u64, u64)>,
    pub(crate) slot: Box<Slot>,
    pub(crate) time: GpuTime,
    /// When the next packet was submitted, ns, if it waits for this one.
    pub(crate) next: Option<u64>,
    /// The earliest begin by the stamps of kernels behind it, ns, whether those leave the queue now
    /// or not; `u64::MAX` if nothing behind it has stamps.
    pub(crate) stamped: u64,
}

/// The effect of inserting a packet's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The packet is new.
    New,
    /// The packet was known. At most, its thread and calls are now known better.
    Known,
}

/// Which packets [`Queue::settle`] settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// Packets about which nothing more can become known.
    Ripe,
    /// At least this many packets, oldest first.
    AtLeast(usize),
    /// All packets, because the recording ended. The value is the time of its last record.
    All(u64),
}

/// A queue from its first packet to its destruction.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) info: QueueInfo,
    /// When the queue was destroyed or replaced.
    pub(crate) retired: Option<u64>,
    slots: Slots<Slot>,
    /// Memory of settled packets, kept for reuse.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Vec<Box<Slot>>,
    seen: Gaps,
    /// Read indices higher than all earlier ones, with their times.
    samples: VecDeque<(u64, u64)>,
    /// When the read index was last read, by anyone.
    observed: u64,
    /// The recorder's last look at the queue: the time, and the read index.
    last_look: Option<(u64, u64)>,
    /// A time before all packets: [`HURRY`] before the first packet's record.
    pub(crate) since: u64,
    /// A time at which the queue did not exist, or the recording had not begun, ns.
    created_after: u64,
    /// Whether the queue's very first packet is known or may have been lost. In either case the
    /// queue is not reported as older than the recording.
    pub(crate) from_first: bool,
    /// Looks before this time may have been at an earlier queue at the same address.
    looks_from: u64,
    /// Packets below this index are settled. Not all of them ended before `floor`.
    settled: u64,
    floor: u64,
    /// When the last settled packet was seen not yet taken.
    untaken: u64,
    /// When the last doorbell known to belong to a settled packet rang.
    rung: u64,
}

impl Queue {
    /// A queue whose first packet was submitted at `first`, and which did not exist, or was not
    /// recorded, at `created_after`. `reuses` says whether there was another queue at its address
    /// before.
    pub(crate) fn new(info: QueueInfo, created_after: u64, first: u64, reuses: bool) -> Self {
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
            created_after: created_after.min(first),
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

    /// Number of packets that are not settled.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(index)
    }

    pub(crate) fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    /// Dispatches whose end is not known.
    pub(crate) fn open_dispatches(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| {
            let evidence = &slot.evidence;
            slot.kind != Kind::Other && evidence.exact.is_none() && evidence.ended_by.is_none()
        })
    }

    /// The packet at `index` did not begin before this time, ns.
    pub(crate) fn earliest(&self, index: u64) -> Option<u64> {
        let slot = self.slots.get(index)?;
        if self.is_announced(index, slot) {
            return Some(slot.evidence.earliest);
        }
        let before = self.slots.before(index).take(NEIGHBOURS);
        let untaken = before.filter_map(|(_, slot)| slot.untaken).next();
        // No hurry of other threads explains a doorbell that was not seen.
        let since = match slot.overtaken {
            Some(_) => self.created_after,
            None => self.since,
        };
        let untaken = untaken.unwrap_or(if index < self.settled || self.untaken == self.since {
            since
        } else {
            self.untaken
        });
        Some(untaken.min(slot.evidence.earliest))
    }

    /// Whether the doorbell that first announced a packet is known for certain. This is its own
    /// doorbell if the packet had not been taken when it rang, or a later packet's if none of those
    /// is missing.
    fn is_announced(&self, index: u64, slot: &Slot) -> bool {
        let above = index.saturating_add(1);
        let all_above =
            || self.seen.after(index).is_none() && self.slots.from(above).next().is_some();
        let is_overtaken = slot.overtaken == Some(slot.evidence.earliest);
        slot.untaken.is_some() || !slot.losses && !is_overtaken && all_above()
    }

    /// Notes that not all packets of the doorbell at `time`, which covered the packet at `index`,
    /// are its own: nobody knows who submitted which.
    fn doubt(&mut self, index: u64, time: u64) {
        let same = |slot: &Slot| slot.before_doorbell && slot.origin.time == time;
        let above = self.slots.between_mut(index.saturating_add(1), u64::MAX);
        for (_, slot) in above.take_while(|(_, slot)| same(slot)) {
            if mem::replace(&mut slot.is_doubtful, true) {
                break;
            }
        }
        for slot in self.slots.before_mut(index).take_while(|slot| same(slot)) {
            if mem::replace(&mut slot.is_doubtful, true) {
                break;
            }
        }
    }

    /// Keeps the memory of a settled packet for reuse.
    pub(crate) fn recycle(&mut self, slot: Box<Slot>) {
        if self.spare.len() < SPARE {
            self.spare.push(slot);
        }
    }

    /// Retires the queue: nothing more will become known of its packets' signals.
    pub(crate) fn abandon(&mut self, time: u64) {
        self.retired.get_or_insert(time);
        for slot in self.slots.iter_mut() {
            slot.open = false;
        }
    }

    /// Adds a packet. `origin` is that of its record. `losses` says whether records were lost at
    /// about that time.
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
                slot.is_doubtful = false;
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
        // A doorbell for a higher index also announces all lower packets.
        let mut earliest = match self.slots.from(index).next() {
            Some(above) => time.min(above.evidence.earliest),
            None => time,
        };
        if index < self.settled {
            // The packets above it are settled and forgotten.
            earliest = earliest.min(self.since);
        }
        for slot in self.slots.before_mut(index) {
            if slot.evidence.earliest <= time {
                break;
            }
            slot.evidence.earliest = time;
        }
        let sample = self.samples.partition_point(|(read, _)| *read <= index);
        let is_overtaken = packet.flags & packet_flags::OVERTAKEN != 0;
        let was_taken = is_overtaken || !before_doorbell && !aql.has_type();
        let slot = Slot {
            origin,
            aql,
            kind: aql.kind(),
            barrier: aql.barrier(),
            read_later: packet.flags & packet_flags::READ_LATER != 0,
            dispatch: 0,
            // The signal may have been used again since.
            open: aql.signal() != 0 && !is_overtaken,
            evidence: Evidence {
                earliest,
                consumed: self.samples.get(sample).map(|(_, time)| *time),
                ..Evidence::default()
            },
            took: None,
            untaken: aql.has_type().then_some(time),
            before_doorbell,
            losses,
            overtaken: was_taken.then_some(time),
            is_doubtful: is_overtaken,
        };
        let slot = match self.spare.pop() {
            Some(mut spare) => {
                *spare = slot;
                spare
            }
            None => Box::new(slot),
        };
        self.slots.insert(index, slot);
        if is_overtaken {
            self.doubt(index, time);
        }
        Inserted::New
    }

    /// The read index was at least `read_index` at `time`, and lower at the previous look at
    /// `looked` (0 if unknown).
    pub(crate) fn sample(&mut self, read_index: u64, time: u64, looked: u64) {
        let looked = looked.max(self.observed);
        self.observed = self.observed.max(time);
        let before = self.samples.back().map_or(0, |(read, _)| *read);
        if read_index <= before {
            return;
        }
        // Assume that the packets began at equal distances since the previous look.
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

    /// Handles a look at the queue by the recorder. Returns `false` if it may have been at another
    /// queue.
    pub(crate) fn look(&mut self, read_index: u64, time: u64, looked: u64) -> bool {
        if time < self.looks_from {
            return false;
        }
        self.sample(read_index, time, looked);
        self.last_look = Some((time, read_index));
        true
    }

    /// Whether stamps can belong to the packet at `index`. Otherwise they belong to a later use of
    /// its signal whose record was lost: they contradict what the queue proves, or could as well
    /// belong to a missing packet. With `losses`, the missing packet may be the one after the last
    /// one seen, or an earlier one that was still running.
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

    /// Removes packets whose times are final, oldest first. `now` is how far the records have been
    /// read.
    pub(crate) fn settle(&mut self, now: u64, how: Settle, settled: &mut Vec<Settled>) {
        // Packets leave in order, so while the first one waits, there is nothing to do.
        let is_waiting = self.slots.first().is_none_or(|(_, slot)| slot.open);
        if is_waiting && how == Settle::Ripe {
            return;
        }
        // Backwards: by when had the following packets begun, and since when may an open packet
        // further back tell more?
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
        // Forwards: which packets are final, and when can those after them have begun?
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

    /// The first packet known to be unfinished because the read index did not move until the end,
    /// and the latest submission time of packets stuck behind it.
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
        // The last packet taken, if the next one waits for it.
        let taken = read_index.checked_sub(1)?;
        let waited_for = next.barrier && self.slots.get(taken).is_some_and(|slot| slot.barrier);
        Some((if waited_for { taken } else { read_index }, until))
    }
}

#[cfg(test)]
mod tests;
