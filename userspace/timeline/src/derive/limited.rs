//! Data about calls that is forgotten before it becomes too much.

use std::collections::VecDeque;

use foldhash::HashMap;

/// Maximum number of calls. Work comes soon after its call or soon before it.
pub(crate) const MOST: usize = 1 << 16;

/// A map that forgets what was added first.
#[derive(Debug)]
pub(crate) struct Limited<T> {
    pub(crate) values: HashMap<u64, T>,
    pub(crate) order: VecDeque<u64>,
}

impl<T> Default for Limited<T> {
    fn default() -> Self {
        Self {
            values: HashMap::default(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Limited<T> {
    /// Adds `value`; returns a value that is forgotten for it.
    pub(crate) fn add(&mut self, key: u64, value: T) -> Option<T> {
        // Keys that have been removed are still in the order.
        while self.order.len() >= MOST {
            let oldest = self.order.pop_front()?;
            if let Some(forgotten) = self.values.remove(&oldest) {
                self.order.push_back(key);
                self.values.insert(key, value);
                return Some(forgotten);
            }
        }
        self.order.push_back(key);
        self.values.insert(key, value);
        None
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let value = self.values.remove(&key);
        if self.values.is_empty() {
            self.order.clear();
        }
        value
    }
}
