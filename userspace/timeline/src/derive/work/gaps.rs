//! Which indices of a queue have been seen.

use std::collections::BTreeMap;

/// Maximum number of remembered runs of missing indices. A queue with more runs has lost most of
/// its records.
const MAX_RUNS: usize = 1 << 16;

/// The unseen indices below the highest seen one.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// First missing index of each run, and the first index after the run.
    runs: BTreeMap<u64, u64>,
    next: u64,
    /// Whether the highest possible index has been seen, which has no successor.
    last: bool,
}

impl Gaps {
    /// Marks an index as seen. Returns `false` if it was already seen.
    pub(crate) fn take(&mut self, index: u64) -> bool {
        if index == u64::MAX && std::mem::replace(&mut self.last, true) {
            return false;
        }
        if index >= self.next {
            if index > self.next {
                self.runs.insert(self.next, index);
            }
            self.next = index.saturating_add(1);
        } else {
            let Some((&from, &to)) = self
                .runs
                .range(..=index)
                .next_back()
                .filter(|(_, to)| **to > index)
            else {
                return false;
            };
            self.runs.remove(&from);
            if from < index {
                self.runs.insert(from, index);
            }
            if index + 1 < to {
                self.runs.insert(index + 1, to);
            }
        }
        if self.runs.len() > MAX_RUNS {
            self.runs.pop_first();
        }
        true
    }

    /// The first missing index above `index`, which was seen.
    pub(crate) fn after(&self, index: u64) -> Option<u64> {
        self.runs.range(index..).next().map(|(from, _)| *from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_index_is_taken_once(indices in proptest::collection::vec(0u64..40, 0..80)) {
            let mut gaps = Gaps::default();
            let mut seen = BTreeSet::new();
            for index in indices {
                prop_assert_eq!(gaps.take(index), seen.insert(index));
                let top = *seen.last().unwrap();
                let missing = (index..top).find(|index| !seen.contains(index));
                prop_assert_eq!(gaps.after(index), missing);
            }
        }
    }

    #[test]
    fn the_last_index_there_can_be() {
        let mut gaps = Gaps::default();
        assert!(gaps.take(u64::MAX));
        assert!(!gaps.take(u64::MAX));
        assert!(gaps.take(5));
        assert!(!gaps.take(5));
        assert_eq!(gaps.after(5), Some(6));
    }
}
