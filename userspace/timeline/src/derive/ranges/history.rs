//! The history of a value: its changes with their times.

use std::collections::VecDeque;

/// Maximum number of changes that are remembered. Older ones matter only for GPU work that was
/// submitted that long ago and has not ended.
const MOST: usize = 1 << 18;

/// A value that changes over time.
#[derive(Debug)]
pub(super) struct History<T> {
    /// In order of time, ns `CLOCK_BOOTTIME`.
    changes: VecDeque<(u64, T)>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self {
            changes: VecDeque::new(),
        }
    }
}

impl<T> History<T> {
    /// The value is `value` from `time` on.
    pub(super) fn add(&mut self, time: u64, value: T) {
        // Nearly always appended at the end: threads switch for their whole process, and are not
        // ordered among each other.
        let place = match self.changes.back() {
            Some((last, _)) if *last > time => {
                self.changes.partition_point(|(then, _)| *then <= time)
            }
            _ => self.changes.len(),
        };
        self.changes.insert(place, (time, value));
        if self.changes.len() > MOST {
            self.changes.pop_front();
        }
    }

    /// The value at `time`; `None` if it was not set by then.
    pub(super) fn at(&self, time: u64) -> Option<&T> {
        self.latest(time, |_| true)
    }

    /// The latest wanted value set at or before `time`.
    pub(super) fn latest(&self, time: u64, wanted: impl Fn(&T) -> bool) -> Option<&T> {
        let until = match self.changes.back() {
            Some((last, _)) if *last > time => {
                self.changes.partition_point(|(then, _)| *then <= time)
            }
            _ => self.changes.len(),
        };
        let values = self.changes.range(..until).map(|(_, value)| value);
        values.rev().find(|value| wanted(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_hold_until_the_next() {
        let mut history = History::default();
        assert_eq!(history.at(5), None);
        for (time, value) in [(10, 'a'), (20, 'c'), (15, 'b')] {
            history.add(time, value);
        }
        let at = |time| history.at(time).copied();
        assert_eq!(
            [9, 10, 14, 15, 19, 20, 99].map(at),
            [
                None,
                Some('a'),
                Some('a'),
                Some('b'),
                Some('b'),
                Some('c'),
                Some('c')
            ]
        );
        assert_eq!(history.latest(99, |value| *value != 'c'), Some(&'b'));
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        for time in 0..MOST as u64 + 5 {
            history.add(time, time);
        }
        assert_eq!(history.changes.len(), MOST);
        assert_eq!((history.at(4), history.at(5)), (None, Some(&5)));
    }
}
