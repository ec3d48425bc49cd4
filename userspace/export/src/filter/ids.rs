//! A set of correlation ids.

use std::collections::HashMap;

/// Number of ids in one page.
const PAGE: u64 = 512;

/// A set of numbers that lie close together, as correlation ids do: it takes little more than one
/// bit per number. Numbers far apart take about a hundred bytes each, no more than the records they
/// come from.
#[derive(Debug, Default)]
pub(super) struct IdSet {
    pages: HashMap<u64, [u64; (PAGE / 64) as usize]>,
}

impl IdSet {
    pub(super) fn insert(&mut self, id: u64) {
        let page = self.pages.entry(id / PAGE).or_default();
        if let Some(word) = page.get_mut((id % PAGE / 64) as usize) {
            *word |= 1 << (id % 64);
        }
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        let word = self
            .pages
            .get(&(id / PAGE))
            .and_then(|page| page.get((id % PAGE / 64) as usize));
        word.is_some_and(|word| word & (1 << (id % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(ids in proptest::collection::vec(prop_oneof![0..2000_u64, any::<u64>()], 0..200), probes in proptest::collection::vec(0..2000_u64, 50)) {
            let mut set = IdSet::default();
            let expected: HashSet<u64> = ids.iter().copied().collect();
            ids.iter().for_each(|id| set.insert(*id));
            for id in ids.iter().chain(&probes) {
                prop_assert_eq!(set.contains(*id), expected.contains(id));
            }
        }
    }
}
