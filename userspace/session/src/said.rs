//! What has been said already, so that it is said once.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use gputrace_capture::{Meta, meta::Notice};
use gputrace_collect::clocks;

/// Remarks that are remembered. Those of a node with thousands of processes differ by their numbers, and nobody reads so
/// many.
const MOST: usize = 4096;

/// A set of texts of bounded size, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct Said {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl Said {
    /// Whether `text` is to be said: it was not before, and there is room to remember that it was.
    pub(crate) fn is_new(&mut self, text: &str) -> bool {
        self.hashes.len() < MOST && self.hashes.insert(self.hasher.hash_one(text))
    }

    /// Whether the remark that was just said was the last.
    pub(crate) fn is_full(&self) -> bool {
        self.hashes.len() >= MOST
    }
}

/// What is said after the last remark.
pub(crate) const NO_MORE: &str = "further remarks of this kind are left out: there were thousands";

/// A remark as the capture holds it, made now.
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
