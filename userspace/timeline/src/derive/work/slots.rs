//! The unsettled packets of a queue, by index.

use std::collections::VecDeque;

/// Packets in order of their indices. Nearly always packets are added at the end and removed at the
/// front, and no index is missing, so the position follows from the index.
///
/// Boxed, because inserting a late packet moves those after it.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: VecDeque<(u64, Box<T>)>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: VecDeque::new(),
        }
    }
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The position of the packet with this index, or else where it would be inserted.
    #[inline]
    fn place(&self, index: u64) -> Result<usize, usize> {
        let Some((last, _)) = self.slots.back() else {
            return Err(0);
        };
        if index > *last {
            return Err(self.slots.len());
        }
        let from_last = usize::try_from(last - index).ok();
        let guess = from_last.and_then(|distance| (self.slots.len() - 1).checked_sub(distance));
        match guess {
            Some(guess)
                if self
                    .slots
                    .get(guess)
                    .is_some_and(|(found, _)| *found == index) =>
            {
                Ok(guess)
            }
            _ => self.slots.binary_search_by_key(&index, |(found, _)| *found),
        }
    }

    /// Number of packets with a lower index.
    #[inline]
    fn below(&self, index: u64) -> usize {
        let (Ok(below) | Err(below)) = self.place(index);
        below
    }

    #[inline]
    pub(super) fn get(&self, index: u64) -> Option<&T> {
        let place = self.place(index).ok()?;
        self.slots.get(place).map(|(_, slot)| &**slot)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut T> {
        let place = self.place(index).ok()?;
        self.slots.get_mut(place).map(|(_, slot)| &mut **slot)
    }

    /// Adds a packet whose index is not present.
    pub(super) fn insert(&mut self, index: u64, slot: Box<T>) {
        let place = self.below(index);
        if place == self.slots.len() {
            self.slots.push_back((index, slot));
        } else {
            self.slots.insert(place, (index, slot));
        }
    }

    /// The packet with the lowest index.
    pub(super) fn first(&self) -> Option<(u64, &T)> {
        self.slots.front().map(|(index, slot)| (*index, &**slot))
    }

    /// Removes the packet with the lowest index.
    pub(super) fn pop_first(&mut self) -> Option<(u64, Box<T>)> {
        self.slots.pop_front()
    }

    /// All packets, by index.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.slots.iter().map(|(_, slot)| &**slot)
    }

    /// All packets, by index.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|(_, slot)| &mut **slot)
    }

    /// The packets from this index on.
    #[inline]
    pub(super) fn from(&self, index: u64) -> impl Iterator<Item = &T> {
        self.slots
            .range(self.below(index)..)
            .map(|(_, slot)| &**slot)
    }

    /// The packets below this index with their indices, nearest first.
    #[inline]
    pub(super) fn before(&self, index: u64) -> impl Iterator<Item = (u64, &T)> {
        let slots = self.slots.range(..self.below(index)).rev();
        slots.map(|(index, slot)| (*index, &**slot))
    }

    /// The packets below this index, nearest first.
    #[inline]
    pub(super) fn before_mut(&mut self, index: u64) -> impl Iterator<Item = &mut T> {
        let below = self.below(index);
        self.slots
            .range_mut(..below)
            .rev()
            .map(|(_, slot)| &mut **slot)
    }

    /// The packets with indices in `from..to`, with their indices.
    pub(super) fn between_mut(
        &mut self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, &mut T)> {
        let (from, to) = (self.below(from), self.below(to));
        let slots = self.slots.range_mut(from.min(to)..to);
        slots.map(|(index, slot)| (*index, &mut **slot))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_found_as_in_a_tree(
            steps in proptest::collection::vec((0..60_u64, 0..4_u8), 0..80),
            (low, high) in (0..70_u64, 0..70_u64),
        ) {
            let mut slots = Slots::default();
            let mut tree = BTreeMap::new();
            for (number, (index, action)) in (1..).zip(steps) {
                if action == 0 {
                    let popped = slots.pop_first().map(|(index, slot)| (index, *slot));
                    prop_assert_eq!(popped, tree.pop_first());
                } else if let std::collections::btree_map::Entry::Vacant(entry) = tree.entry(index) {
                    entry.insert(number);
                    slots.insert(index, Box::new(number));
                }
            }
            prop_assert_eq!(slots.len(), tree.len());
            prop_assert!(slots.iter().copied().eq(tree.values().copied()));
            prop_assert!(slots.iter_mut().map(|slot| *slot).eq(tree.values().copied()));
            prop_assert_eq!(
                slots.first().map(|(index, slot)| (index, *slot)),
                tree.first_key_value().map(|(index, number)| (*index, *number))
            );
            for index in 0..70 {
                prop_assert_eq!(slots.get(index).copied(), tree.get(&index).copied());
                prop_assert_eq!(slots.get_mut(index).map(|slot| *slot), tree.get(&index).copied());
            }
            prop_assert!(slots.from(low).copied().eq(tree.range(low..).map(|(_, number)| *number)));
            let before = || tree.range(..low).rev().map(|(index, number)| (*index, *number));
            prop_assert!(slots.before(low).map(|(index, slot)| (index, *slot)).eq(before()));
            prop_assert!(slots.before_mut(low).map(|slot| *slot).eq(before().map(|(_, number)| number)));
            let (low, high) = (low.min(high), low.max(high));
            let between = tree.range(low..high).map(|(index, number)| (*index, *number));
            prop_assert!(slots.between_mut(low, high).map(|(index, slot)| (index, *slot)).eq(between));
        }
    }
}
