//! What looks of one kind cost, and what was spent on them in the last second.

use std::collections::VecDeque;

/// The sliding window of the budget, ns, and the steps in which it slides.
pub(crate) const WINDOW: u64 = 1_000_000_000;
pub(super) const PART: u64 = WINDOW / 32;

/// Cost of one kind of look.
#[derive(Debug)]
pub(crate) struct Account {
    /// Cost of one look or one spell, ns of processor time: a mean in which the most recent ones
    /// weigh most; 0 before the first.
    pub(crate) cost: f64,
    spent: VecDeque<(u64, u64)>,
    pub(crate) in_window: u64,
}

impl Account {
    pub(crate) fn new(cost: f64) -> Self {
        Self {
            cost,
            spent: VecDeque::new(),
            in_window: 0,
        }
    }

    pub(crate) fn spend(&mut self, now: u64, cost: u64) {
        self.forget(now);
        let part = now / PART;
        match self.spent.back_mut() {
            Some((last, sum)) if *last == part => *sum += cost,
            _ => self.spent.push_back((part, cost)),
        }
        self.in_window += cost;
    }

    /// Forgets what was spent before the window.
    pub(crate) fn forget(&mut self, now: u64) {
        while let Some((part, cost)) = self.spent.front().copied()
            && (part * PART).saturating_add(WINDOW + PART) <= now
        {
            self.in_window = self.in_window.saturating_sub(cost);
            self.spent.pop_front();
        }
    }

    /// Updates the mean by the cost of `count` looks or spells; `is_first` if there were none
    /// before.
    pub(crate) fn learn(&mut self, cost: u64, count: u64, is_first: bool) {
        let each = cost as f64 / count.max(1) as f64;
        if is_first {
            self.cost = each;
        } else {
            self.cost += (each - self.cost) / 16.0 * (count as f64).min(8.0);
        }
        self.cost = self.cost.max(1.0);
    }

    /// The oldest part of the window in which something was spent.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.spent.front().map(|(part, _)| *part)
    }
}
