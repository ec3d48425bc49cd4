//! Puts records about the GPU into order of time.

use std::collections::BTreeMap;

use crate::model::item::Item;

/// Log2 of the width of a time slice in ns. A slice is 8 ms, a fraction of the time that records
/// wait.
const SLICE_BITS: u32 = 23;

/// Number of slices whose memory is kept for reuse.
const SPARE: usize = 4;

/// Records waiting for records that were made before them, grouped into slices of time, so that
/// records that wait longer are not sorted and moved again each time that something is due.
#[derive(Debug, Default)]
pub(crate) struct Records {
    slices: BTreeMap<u64, Vec<Item>>,
    count: usize,
    /// Memory of finished slices and of their orders, kept for reuse.
    spare: Vec<Vec<Item>>,
    spare_orders: Vec<Vec<(u64, u32)>>,
}

/// Records of a slice in order of time and, for equal times, of the capture. Only their positions
/// are sorted; the records do not move.
#[derive(Debug, Default)]
pub(crate) struct Due {
    items: Vec<Item>,
    /// Times, and positions in `items`.
    order: Vec<(u64, u32)>,
    /// Whether later records of the same slice were left behind.
    is_part: bool,
}

impl Due {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether later records of the same slice were left behind.
    pub(crate) fn is_part(&self) -> bool {
        self.is_part
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Item> {
        let places = self.order.iter();
        places.filter_map(|(_, place)| self.items.get(*place as usize))
    }
}

impl Records {
    #[inline(always)]
    pub(crate) fn push(&mut self, item: Item) {
        let slice = item.time() >> SLICE_BITS;
        let items = match self.slices.get_mut(&slice) {
            Some(items) => items,
            None => self.begin(slice),
        };
        items.push(item);
        self.count += 1;
    }

    #[cold]
    fn begin(&mut self, slice: u64) -> &mut Vec<Item> {
        let spare = self.spare.pop().unwrap_or_default();
        self.slices.entry(slice).or_insert(spare)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Takes out the records of the first slice that were made at or before `until`; `None` if the
    /// slice is later. If they are only part of the slice, no more records are due.
    pub(crate) fn due(&mut self, until: u64) -> Option<Due> {
        let first = self.slices.first_key_value()?;
        (*first.0 <= until >> SLICE_BITS)
            .then(|| self.take(|order| order.partition_point(|(time, _)| *time <= until)))?
    }

    /// Takes out the oldest records of the first slice, at most `count`; `None` if there are none,
    /// or `count` is 0.
    pub(crate) fn oldest(&mut self, count: usize) -> Option<Due> {
        (count > 0).then(|| self.take(|order| order.len().min(count)))?
    }

    /// Takes as many records out of the first slice as `count` returns for their order.
    fn take(&mut self, count: impl FnOnce(&[(u64, u32)]) -> usize) -> Option<Due> {
        let (number, items) = self.slices.pop_first()?;
        let mut order = self.spare_orders.pop().unwrap_or_default();
        // A slice has far fewer than 2³² records.
        order.extend(items.iter().map(Item::time).zip(0..));
        order.sort_unstable();
        let count = count(&order).min(order.len());
        let rest = order.get(count..).unwrap_or_default();
        let is_part = !rest.is_empty();
        if is_part {
            let rest = rest
                .iter()
                .filter_map(|(_, place)| items.get(*place as usize));
            // The rest is in order, so records that arrive later for this slice come after it.
            let mut left = self.spare.pop().unwrap_or_default();
            left.extend(rest.copied());
            self.slices.insert(number, left);
        }
        order.truncate(count);
        self.count -= count;
        Some(Due {
            items,
            order,
            is_part,
        })
    }

    /// Keeps the memory for reuse.
    pub(crate) fn recycle(&mut self, mut due: Due) {
        if self.spare.len() < SPARE {
            due.items.clear();
            self.spare.push(due.items);
        }
        if self.spare_orders.len() < SPARE {
            due.order.clear();
            self.spare_orders.push(due.order);
        }
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
            // A simple reference implementation: sorts everything each time, with a stable sort.
            let mut simple: Vec<Item> = Vec::new();
            let mut pid = 0;
            for (times, action, amount) in steps {
                for time in times {
                    pid += 1;
                    // Many records with the same time.
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
                        while let Some(some) = records.due(until) {
                            due.extend(some.iter().copied());
                            let is_part = some.is_part();
                            records.recycle(some);
                            if is_part {
                                break;
                            }
                        }
                        (due, simple.partition_point(|item| item.time() <= until))
                    }
                    _ => {
                        let count = usize::from(amount % 40);
                        let mut oldest = Vec::new();
                        while let Some(some) = records.oldest(count - oldest.len()) {
                            oldest.extend(some.iter().copied());
                            records.recycle(some);
                        }
                        (oldest, count.min(simple.len()))
                    }
                };
                prop_assert_eq!(taken, simple.drain(..end).collect::<Vec<_>>());
                prop_assert_eq!(records.len(), simple.len());
            }
            let mut rest = Vec::new();
            while let Some(some) = records.due(u64::MAX) {
                rest.extend(some.iter().copied());
            }
            prop_assert_eq!(rest, simple);
        }
    }
}
