//! Computes the level of an activity over time, from intervals that come in no particular order.

use std::collections::BTreeMap;

/// Maximum number of changes that are held before the older half is settled.
const LIMIT: usize = 1 << 17;

/// log2 of the length of a time slice in ns: about 1 ms. Slices keep both the number of changes
/// sorted at a time and the number of tree accesses small.
const SLICE_BITS: u32 = 20;

/// Maximum number of slices whose memory is kept for reuse.
const SPARE: usize = 256;

/// A sum over intervals, e.g. the number of kernels in flight.
///
/// Holds a bounded number of changes. An interval that comes so late that its time is already
/// settled counts from the settled time on, or not at all if it ended before. [`Levels::late`]
/// counts both cases.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Changes with their times by time slice, unordered within a slice.
    pending: BTreeMap<u64, Vec<(u64, i64)>>,
    /// The slices of the last begin and of the last end, with changes that are not in `pending`
    /// yet: the next changes are usually in the same slices.
    recent: [(u64, Vec<(u64, i64)>); 2],
    /// Memory of settled slices, for reuse.
    spare: Vec<Vec<(u64, i64)>>,
    /// Number of changes in all slices.
    count: usize,
    /// Sum of all changes settled.
    level: i64,
    /// Everything before this time is settled.
    settled: u64,
    late: u64,
    limit: usize,
}

impl Default for Levels {
    fn default() -> Self {
        Self::with_limit(LIMIT)
    }
}

impl Levels {
    /// Creates a sum that holds at most `limit` changes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            pending: BTreeMap::new(),
            recent: Default::default(),
            spare: Vec::new(),
            count: 0,
            level: 0,
            settled: 0,
            late: 0,
            limit,
        }
    }

    /// Adds `amount` from `begin` to `end`, ns. Calls `settle` for what becomes settled, in order
    /// of time: a time, and the level from then on.
    pub fn add(&mut self, begin: u64, end: u64, amount: i64, settle: impl FnMut(u64, i64)) {
        if begin >= end {
            return;
        }
        self.late += u64::from(begin < self.settled);
        let (begin, end) = (begin.max(self.settled), end.max(self.settled));
        if begin < end {
            let [begins, ends] = &mut self.recent;
            for (recent, time, amount) in [
                (begins, begin, amount),
                (ends, end, amount.saturating_neg()),
            ] {
                let slice = time >> SLICE_BITS;
                if recent.0 != slice {
                    move_to_pending(recent, &mut self.pending, &mut self.spare);
                    recent.0 = slice;
                }
                recent.1.push((time, amount));
            }
            self.count += 2;
        }
        if self.count > self.limit {
            self.settle(self.limit / 2, settle);
        }
    }

    /// Settles everything.
    pub fn finish(&mut self, settle: impl FnMut(u64, i64)) {
        self.settle(0, settle);
    }

    /// Number of intervals that came too late to count in full.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Settles the earliest changes until at most `keep` are left.
    fn settle(&mut self, keep: usize, mut settle: impl FnMut(u64, i64)) {
        for recent in &mut self.recent {
            move_to_pending(recent, &mut self.pending, &mut self.spare);
        }
        while self.count > keep
            && let Some((slice, mut changes)) = self.pending.pop_first()
        {
            changes.sort_unstable_by_key(|(time, _)| *time);
            let mut settled = 0;
            for moment in changes.chunk_by(|(one, _), (other, _)| one == other) {
                if self.count <= keep {
                    break;
                }
                settled += moment.len();
                self.count -= moment.len();
                self.settled = moment.first().map_or(self.settled, |(time, _)| *time);
                let change = moment
                    .iter()
                    .fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
                if change != 0 {
                    self.level = self.level.saturating_add(change);
                    settle(self.settled, self.level);
                }
            }
            changes.drain(..settled);
            if !changes.is_empty() {
                self.pending.insert(slice, changes);
            } else if self.spare.len() < SPARE {
                self.spare.push(changes);
            }
        }
    }
}

/// Moves changes of a slice into `pending`.
fn move_to_pending(
    (slice, changes): &mut (u64, Vec<(u64, i64)>),
    pending: &mut BTreeMap<u64, Vec<(u64, i64)>>,
    spare: &mut Vec<Vec<(u64, i64)>>,
) {
    if !changes.is_empty() {
        let slice = pending.entry(*slice);
        slice
            .or_insert_with(|| spare.pop().unwrap_or_default())
            .append(changes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn with_room_for_all_the_order_does_not_matter(
            spans in proptest::collection::vec((0_u64..200, 0_u64..30, 1_i64..5), 0..40),
        ) {
            let mut levels = Levels::default();
            for (begin, length, amount) in &spans {
                levels.add(*begin, begin + length, *amount, |_, _| panic!("nothing is settled yet"));
            }
            let mut found = Vec::new();
            levels.finish(|time, level| found.push((time, level)));
            prop_assert!(found.is_sorted_by(|(a, _), (b, _)| a < b));
            prop_assert_eq!(levels.late(), 0);
            for moment in 0..240 {
                let at = |(begin, length, _): &&(u64, u64, i64)| (*begin..begin + length).contains(&moment);
                let truth: i64 = spans.iter().filter(at).map(|(_, _, amount)| amount).sum();
                let known = found.iter().rfind(|(time, _)| *time <= moment).map_or(0, |(_, level)| *level);
                prop_assert_eq!(known, truth);
            }
        }

        #[test]
        fn with_little_room_it_is_still_in_order_and_ends_at_0(
            spans in proptest::collection::vec((0_u64..200, 0_u64..30), 0..60),
        ) {
            let mut levels = Levels::with_limit(4);
            let mut found = Vec::new();
            for (begin, length) in &spans {
                levels.add(*begin, begin + length, 1, |time, level| found.push((time, level)));
            }
            levels.finish(|time, level| found.push((time, level)));
            prop_assert!(found.is_sorted_by_key(|(time, _)| *time));
            prop_assert!(found.iter().all(|(_, level)| *level >= 0));
            prop_assert_eq!(found.last().map_or(0, |(_, level)| *level), 0);
        }
    }
}
