//! Code objects that have been read before.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{
    contents::Contents,
    elf::{ElfError, Layout},
    hash::ContentHash,
    source::FileState,
};

/// Contents of code objects by origin, shared by all processes of a recording: the ranks of a
/// parallel program load the same libraries. Contents that no process uses any more are forgotten.
#[derive(Debug, Default)]
pub struct Cache {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_bytes: Shelf<(ContentHash, Layout)>,
    by_file: Shelf<FileState>,
}

impl Cache {
    /// The contents of a code object with these bytes, which are parsed only if they are new.
    ///
    /// # Errors
    ///
    /// [`ElfError`].
    pub fn contents(&self, bytes: &[u8], layout: Layout) -> Result<Arc<Contents>, ElfError> {
        let hash = ContentHash::of(bytes);
        let known = self.with(|known| known.by_bytes.get(&(hash, layout)));
        if let Some(contents) = known {
            return Ok(contents);
        }
        let contents = Arc::new(Contents::parse_hashed(bytes, layout, hash)?);
        self.with(|known| known.by_bytes.insert((hash, layout), &contents));
        Ok(contents)
    }

    pub(crate) fn of_file(&self, state: &FileState) -> Option<Arc<Contents>> {
        self.with(|known| known.by_file.get(state))
    }

    pub(crate) fn is_file(&self, state: FileState, contents: &Arc<Contents>) {
        self.with(|known| known.by_file.insert(state, contents));
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Known) -> T) -> T {
        // The map stays valid even if a thread panicked while holding the lock.
        use_it(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Weak references. Dead ones are removed when they may have become the majority.
#[derive(Debug)]
struct Shelf<K> {
    entries: HashMap<K, Weak<Contents>>,
    /// Number of entries at which dead ones are removed.
    full: usize,
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            full: 64,
        }
    }
}

impl<K: Hash + Eq> Shelf<K> {
    fn get(&self, key: &K) -> Option<Arc<Contents>> {
        self.entries.get(key)?.upgrade()
    }

    fn insert(&mut self, key: K, contents: &Arc<Contents>) {
        if self.entries.len() >= self.full {
            self.entries
                .retain(|_, contents| contents.strong_count() > 0);
            self.full = (2 * self.entries.len()).max(64);
        }
        self.entries.insert(key, Arc::downgrade(contents));
    }
}
