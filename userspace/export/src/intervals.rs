//! Sets of time intervals that come in no particular order.
//!
//! Dispatches and copies come when they become known, so code that draws them, or computes how long
//! a GPU was busy, gets them out of order. Sorting a whole recording would take memory proportional
//! to it. Intervals that come nearly in order leave few entries here, because touching neighbours
//! are joined; the owner bounds the rest with [`Intervals::coarsen`] or [`Intervals::pop_first`].

use std::collections::VecDeque;

/// Disjoint half-open intervals `begin..end`, of which no two touch.
///
/// They are kept in a sorted list: intervals that come nearly in order are inserted near its end,
/// which is faster than a tree up to some thousands of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    spans: VecDeque<(u64, u64)>,
}

impl Intervals {
    /// Number of intervals.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether no part of `begin..end` is in the set. An empty interval counts as its begin.
    #[must_use]
    pub fn is_free(&self, begin: u64, end: u64) -> bool {
        let end = end.max(begin.saturating_add(1));
        let last_before = self.beginning_before(end).checked_sub(1);
        let last_before = last_before.and_then(|index| self.spans.get(index));
        last_before.is_none_or(|(_, occupied_until)| *occupied_until <= begin)
    }

    /// Adds `begin..end`; an empty interval adds nothing.
    pub fn insert(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        // Intervals that overlap or touch it are joined with it.
        let behind = self.beginning_before(end.saturating_add(1));
        let mut first = behind;
        let (mut begin, mut end) = (begin, end);
        while let Some(before) = first.checked_sub(1)
            && let Some((other_begin, other_end)) = self.spans.get(before)
            && *other_end >= begin
        {
            begin = begin.min(*other_begin);
            end = end.max(*other_end);
            first = before;
        }
        match self.spans.get_mut(first) {
            Some(span) if first < behind => {
                *span = (begin, end);
                if behind - first > 1 {
                    self.spans.drain(first + 1..behind);
                }
            }
            _ => self.spans.insert(first, (begin, end)),
        }
    }

    /// Adds all intervals of `other`, in time linear in both.
    pub fn join(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let mine = std::mem::take(&mut self.spans);
        let (mut mine, mut others) = (mine.into_iter().peekable(), other.iter().peekable());
        loop {
            let is_mine = match (mine.peek(), others.peek()) {
                (Some(one), Some(other)) => one <= other,
                (one, _) => one.is_some(),
            };
            let next = if is_mine { mine.next() } else { others.next() };
            let Some((begin, end)) = next else { return };
            self.insert(begin, end);
        }
    }

    /// Number of intervals that begin before `time`, which is usually near the end.
    fn beginning_before(&self, time: u64) -> usize {
        match self.spans.back() {
            Some((begin, _)) if *begin >= time => {
                self.spans.partition_point(|(begin, _)| *begin < time)
            }
            _ => self.spans.len(),
        }
    }

    /// Joins the two intervals farthest from `near`, including the gap between them. The set then
    /// covers more than it should, but never less.
    pub fn coarsen(&mut self, near: u64) {
        let (Some((first, _)), Some((last, _))) = (self.spans.front(), self.spans.back()) else {
            return;
        };
        let from_below = near.saturating_sub(*first) >= last.saturating_sub(near);
        if self.spans.len() < 2 {
            return;
        }
        if from_below {
            if let Some((lower, _)) = self.spans.pop_front()
                && let Some((begin, _)) = self.spans.front_mut()
            {
                *begin = lower;
            }
        } else if let Some((_, upper_end)) = self.spans.pop_back()
            && let Some((_, end)) = self.spans.back_mut()
        {
            *end = upper_end;
        }
    }

    /// The earliest interval.
    #[must_use]
    pub fn first(&self) -> Option<(u64, u64)> {
        self.spans.front().copied()
    }

    /// The intervals, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.spans.iter().copied()
    }

    /// Removes and returns the earliest interval.
    pub fn pop_first(&mut self) -> Option<(u64, u64)> {
        self.spans.pop_front()
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
        fn two_sets_join_to_what_either_holds(
            spans in proptest::collection::vec((any::<bool>(), 0_u64..200, 0_u64..20), 0..40),
        ) {
            let [mut one, mut other, mut both] = [(); 3].map(|()| Intervals::default());
            for (is_one, begin, length) in &spans {
                let set = if *is_one { &mut one } else { &mut other };
                set.insert(*begin, begin + length);
                both.insert(*begin, begin + length);
            }
            one.join(&other);
            prop_assert_eq!(one, both);
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
            spans
                .iter()
                .for_each(|(begin, end)| set.insert(*begin, *end));
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
