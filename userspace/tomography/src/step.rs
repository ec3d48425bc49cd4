//! Finds the step width in which a queue's read index is reported.

use std::collections::VecDeque;

/// Number of changes remembered.
const REMEMBERED: usize = 64;

/// Number of changes needed.
const ENOUGH: usize = 8;

/// The largest step considered.
const GREATEST: u64 = 128;

/// How many of twenty changes must be whole steps. A queue that runs empty between two looks
/// reports whatever it has.
const WHOLE: usize = 17;

/// Finds the step from changes of the read index.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    changes: VecDeque<u64>,
    since: usize,
    step: Option<u64>,
}

impl Steps {
    /// Adds a change of the read index. The queue must not have been empty at the end of the
    /// change.
    pub(crate) fn take(&mut self, change: u64) {
        if change == 0 {
            return;
        }
        self.changes.push_back(change);
        if self.changes.len() > REMEMBERED {
            self.changes.pop_front();
        }
        self.since += 1;
        let is_due = self.step.is_none() || self.since >= REMEMBERED / 2;
        if is_due && self.changes.len() >= ENOUGH {
            self.since = 0;
            self.step = Some(self.find());
        }
    }

    /// The step, once enough changes have been seen.
    pub(crate) fn step(&self) -> Option<u64> {
        self.step
    }

    fn find(&self) -> u64 {
        let is_step = |step: &u64| {
            let whole = self
                .changes
                .iter()
                .filter(|change| change.is_multiple_of(*step));
            whole.count() * 20 >= self.changes.len() * WHOLE
        };
        (1..=GREATEST).rev().find(is_step).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(changes: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut steps = Steps::default();
        changes.into_iter().for_each(|change| steps.take(change));
        steps.step()
    }

    #[test]
    fn the_greatest_common_step_is_found() {
        assert_eq!(found([16; 7]), None, "too few");
        assert_eq!(found([1, 2, 3, 1, 4, 1, 2, 9]), Some(1));
        assert_eq!(found([16, 32, 16, 48, 16, 16, 32, 16, 16, 16]), Some(16));
        let dry = (0..64).map(|number| {
            if number % 10 == 5 {
                7
            } else {
                16 * (number % 3 + 1)
            }
        });
        assert_eq!(found(dry), Some(16), "a tenth ran dry");
    }
}
