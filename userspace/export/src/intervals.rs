//! Sets of intervals of time that come in no particular order.
//!
//! Dispatches and copies become known when they become known, so who draws them, or asks how long a GPU
//! was busy, gets them out of order. Sorting a whole recording would take memory in proportion to it.
//! What has come nearly in order leaves few intervals here, because neighbours that touch become one; the
//! owner bounds the rest with [`Intervals::coarsen`] or [`Intervals::pop_first`].

use std::collections::BTreeMap;

/// Disjoint half-open intervals `begin..end`, of which no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// End by begin.
    spans: BTreeMap<u64, u64>,
}

impl Intervals {
    /// How many intervals there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether no part of `begin..end` is in the set. An empty interval is where its begin is.
    #[must_use]
    pub fn is_free(&self, begin: u64, end: u64) -> bool {
        let end = end.max(begin.saturating_add(1));
        let last_before = self.spans.range(..end).next_back();
        last_before.is_none_or(|(_, occupied_until)| *occupied_until <= begin)
    }

    /// Adds `begin..end`; nothing if it is empty.
    pub fn insert(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let (mut begin, mut end) = (begin, end);
        while let Some((other_begin, other_end)) = self.touching(begin, end) {
            self.spans.remove(&other_begin);
            begin = begin.min(other_begin);
            end = end.max(other_end);
        }
        self.spans.insert(begin, end);
    }

    /// An interval that overlaps or touches `begin..end`.
    fn touching(&self, begin: u64, end: u64) -> Option<(u64, u64)> {
        let (other_begin, other_end) = self.spans.range(..=end).next_back()?;
        (*other_end >= begin).then_some((*other_begin, *other_end))
    }

    /// Makes one interval of the two that are farthest from `near`, and of the gap between them: the set
    /// says then that more is taken than is, but never less.
    pub fn coarsen(&mut self, near: u64) {
        let (Some((first, _)), Some((last, _))) = (self.spans.first_key_value(), self.spans.last_key_value())
        else {
            return;
        };
        let from_below = near.saturating_sub(*first) >= last.saturating_sub(near);
        let mut ends = self.spans.iter();
        let pair = if from_below {
            ends.next().zip(ends.next())
        } else {
            let upper = ends.next_back();
            ends.next_back().zip(upper)
        };
        if let Some(((lower, _), (_, upper_end))) = pair {
            let (lower, upper_end) = (*lower, *upper_end);
            self.insert(lower, upper_end);
        }
    }

    /// The earliest interval.
    #[must_use]
    pub fn first(&self) -> Option<(u64, u64)> {
        self.spans.first_key_value().map(|(begin, end)| (*begin, *end))
    }

    /// Takes the earliest interval out.
    pub fn pop_first(&mut self) -> Option<(u64, u64)> {
        self.spans.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_exactly_what_was_put_in(
            spans in proptest::collection::vec((0_u64..200, 0_u64..20), 0..40),
            probe in (0_u64..220, 1_u64..20),
        ) {
            let mut set = Intervals::default();
            let mut taken = [false; 256];
            for (begin, length) in &spans {
                set.insert(*begin, begin + length);
                taken[*begin as usize..(begin + length) as usize].fill(true);
            }
            let (begin, end) = (probe.0, probe.0 + probe.1);
            let free = !taken[begin as usize..end as usize].contains(&true);
            prop_assert_eq!(set.is_free(begin, end), free);
            let mut found = [false; 256];
            let mut last = None;
            while let Some((begin, end)) = set.pop_first() {
                prop_assert!(last.is_none_or(|last| last < begin) && begin < end);
                last = Some(end);
                found[begin as usize..end as usize].fill(true);
            }
            prop_assert_eq!(found, taken);
        }

        #[test]
        fn coarsening_frees_nothing(
            spans in proptest::collection::vec((0_u64..1000, 1_u64..20), 2..60),
            near in 0_u64..1000,
        ) {
            let mut set = Intervals::default();
            for (begin, length) in &spans {
                set.insert(*begin, begin + length);
            }
            let before = set.len();
            set.coarsen(near);
            prop_assert_eq!(set.len(), before.max(2) - 1);
            for (begin, length) in &spans {
                prop_assert!(!set.is_free(*begin, begin + length));
            }
        }
    }

    #[test]
    fn the_far_end_is_coarsened() {
        let of = |spans: &[(u64, u64)]| {
            let mut set = Intervals::default();
            spans.iter().for_each(|(begin, end)| set.insert(*begin, *end));
            set
        };
        let mut set = of(&[(0, 1), (10, 11), (20, 21)]);
        set.coarsen(20);
        assert_eq!(set, of(&[(0, 11), (20, 21)]));
        let mut set = of(&[(0, 1), (10, 11), (20, 21)]);
        set.coarsen(0);
        assert_eq!(set, of(&[(0, 1), (10, 21)]));
        set.insert(u64::MAX - 1, u64::MAX);
        assert!(!set.is_free(u64::MAX - 1, u64::MAX));
    }
}
