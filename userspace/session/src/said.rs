//! Remembers what has been said, so that nothing is said twice.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use gputrace_capture::{Meta, meta::Notice};
use gputrace_collect::clocks;

/// Maximum number of remembered remarks. On a node with thousands of processes, remarks differ only
/// by their numbers, and nobody reads so many.
const MOST: usize = 4096;

/// A bounded set of texts, stored as hashes.
#[derive(Debug, Default)]
pub(crate) struct Said {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl Said {
    /// Whether `text` is new and there is room to remember it. Only such texts are to be said.
    pub(crate) fn is_new(&mut self, text: &str) -> bool {
        self.hashes.len() < MOST && self.hashes.insert(self.hasher.hash_one(text))
    }

    /// Whether the remark just made was the last one for which there is room.
    pub(crate) fn is_full(&self) -> bool {
        self.hashes.len() >= MOST
    }
}

/// Text that follows the last remark.
pub(crate) const NO_MORE: &str = "further remarks of this kind are left out: there were thousands";

/// A remark, made now, in the form of the capture.
pub(crate) fn notice(text: String) -> Meta {
    Notice {
        time: clocks::now(),
        text,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_not_too_many() {
        let mut said = Said::default();
        assert!(said.is_new("one"));
        assert!(!said.is_new("one"));
        let more = (0..2 * MOST)
            .filter(|number| said.is_new(&number.to_string()))
            .count();
        assert_eq!(more, MOST - 1);
        assert!(said.is_full());
    }
}
