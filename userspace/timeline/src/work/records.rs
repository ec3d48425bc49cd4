//! Records about the GPU on their way into the order of time.

use std::collections::BTreeMap;

use gputrace_abi::gpu::{Completion, Copy, Packet, QueueState, ScratchState};

/// A record, or something else that has its place in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item {
    Packet(Packet),
    Completion(Completion),
    Copy(Copy),
    Queue(QueueState),
    Scratch(ScratchState),
    /// The driver has made a queue.
    Ring(Ring),
    /// The process is another program from now on, or the id is another process's.
    Restart {
        time: u64,
        pid: u32,
    },
    /// The process's main thread ended.
    Exit {
        time: u64,
        pid: u32,
    },
}

impl Item {
    /// When it was made, ns.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Self::Packet(packet) => packet.time,
            Self::Completion(reading) => reading.time,
            Self::Copy(copy) => copy.time,
            Self::Queue(state) => state.time,
            Self::Scratch(state) => state.time,
            Self::Ring(ring) => ring.time,
            Self::Restart { time, .. } | Self::Exit { time, .. } => *time,
        }
    }
}

/// A queue that the driver has made (`AMDKFD_IOC_CREATE_QUEUE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) time: u64,
    pub(crate) pid: u32,
    /// Address of the packets: what it has in common with HSA's queue.
    pub(crate) address: u64,
    pub(crate) queue: KfdQueue,
}

/// A queue as the driver numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KfdQueue {
    pub(crate) id: u32,
    pub(crate) gpu_id: u32,
}

/// Bits of the time, in ns, within one slice: 8 ms, a fraction of the time that records wait.
const SLICE_BITS: u32 = 23;

/// Slices whose memory is kept.
const SPARE: usize = 4;

/// Records that wait for those made before them, by slices of time: what waits longer is not sorted and moved again
/// each time that something is due.
#[derive(Debug, Default)]
pub(crate) struct Records {
    slices: BTreeMap<u64, Vec<Item>>,
    count: usize,
    /// Memory of slices that are over, for those to come.
    spare: Vec<Vec<Item>>,
}

impl Records {
    pub(crate) fn push(&mut self, item: Item) {
        let slice = item.time() >> SLICE_BITS;
        let items = self.slices.entry(slice);
        items
            .or_insert_with(|| self.spare.pop().unwrap_or_default())
            .push(item);
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Takes out what was made at or before `until` and puts it behind `due`, in order of time, then of the capture.
    pub(crate) fn due(&mut self, until: u64, due: &mut Vec<Item>) {
        while let Some(slice) = self.slices.first_entry()
            && *slice.key() <= until >> SLICE_BITS
        {
            let order = Order::of(slice.get());
            let end = order.0.partition_point(|(time, _)| *time <= until);
            if self.take(end, &order, due) {
                // It is the last slice that is due, and in order; what comes into it later stands behind.
                break;
            }
        }
    }

    /// Takes out the oldest `count` and puts them behind `oldest`, which is empty.
    pub(crate) fn oldest(&mut self, count: usize, oldest: &mut Vec<Item>) {
        while oldest.len() < count
            && let Some(slice) = self.slices.first_entry()
        {
            let order = Order::of(slice.get());
            self.take(count - oldest.len(), &order, oldest);
        }
    }

    /// Moves the first `count` of the first slice, whose order this is, behind `taken`. Whether any are left, which are in
    /// order then.
    fn take(&mut self, count: usize, order: &Order, taken: &mut Vec<Item>) -> bool {
        let Some((number, mut items)) = self.slices.pop_first() else {
            return false;
        };
        let (due, rest) = order.0.split_at(count.min(order.0.len()));
        let item = |(_, index): &(u64, u32)| items.get(*index as usize).copied();
        taken.extend(due.iter().filter_map(item));
        self.count -= due.len();
        let rest: Vec<Item> = rest.iter().filter_map(item).collect();
        let is_over = rest.is_empty();
        if !is_over {
            self.slices.insert(number, rest);
        }
        if self.spare.len() < SPARE {
            items.clear();
            self.spare.push(items);
        }
        !is_over
    }
}

/// Times of items and their places among each other, in order of time, then of their places: far fewer bytes are sorted
/// than the items have.
struct Order(Vec<(u64, u32)>);

impl Order {
    /// Of items that are far fewer than 2³².
    fn of(items: &[Item]) -> Self {
        let mut order: Vec<(u64, u32)> = items.iter().map(Item::time).zip(0..).collect();
        order.sort_unstable();
        Self(order)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_come_in_order_of_time_then_of_the_capture(
            steps in proptest::collection::vec(
                (proptest::collection::vec(0..60_000_000_u64, 0..20), 0..3_u8, any::<u16>()),
                1..20,
            ),
        ) {
            let mut records = Records::default();
            // The same, done simply: all sorted each time, by a sort that keeps the order of equals.
            let mut simple: Vec<Item> = Vec::new();
            let mut pid = 0;
            for (times, action, amount) in steps {
                for time in times {
                    pid += 1;
                    // Many at the same moment.
                    let item = Item::Exit { time: time / 1_000_000 * 1_000_000, pid };
                    records.push(item);
                    simple.push(item);
                }
                simple.sort_by_key(Item::time);
                let (taken, end) = match action {
                    0 => continue,
                    1 => {
                        let until = u64::from(amount) * 1_000;
                        let mut due = Vec::new();
                        records.due(until, &mut due);
                        (due, simple.partition_point(|item| item.time() <= until))
                    }
                    _ => {
                        let count = usize::from(amount % 40);
                        let mut oldest = Vec::new();
                        records.oldest(count, &mut oldest);
                        (oldest, count.min(simple.len()))
                    }
                };
                prop_assert_eq!(taken, simple.drain(..end).collect::<Vec<_>>());
                prop_assert_eq!(records.len(), simple.len());
            }
            let mut rest = Vec::new();
            records.due(u64::MAX, &mut rest);
            prop_assert_eq!(rest, simple);
        }
    }
}
