//! Whether the means add up to the time during which the queues were seen at work.
//!
//! Equations from close looks weigh most, because they are precise. But close looks see few of the
//! dispatches that are much longer than others of their class, such as those that were held up: the
//! looks are over before such a dispatch is. If there are many of these, the means come out too
//! small, and no equation shows it. The total time between the first and the last look of each
//! chain does: it contains every dispatch in between, however long.

use std::collections::VecDeque;

/// Maximum number of blocks of time kept.
const MOST: usize = 32;

/// Fewer blocks do not suffice for an estimate.
const FEWEST: usize = 8;

/// Number of standard errors by which the sum may differ by chance.
const CHANCE: f64 = 2.0;

#[derive(Clone, Debug, Default)]
struct Block {
    /// Time seen, us.
    elapsed: f64,
    /// By column: how often it was passed in this time.
    counts: Vec<f64>,
}

/// The blocks, newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance {
    blocks: VecDeque<Block>,
}

/// How far the means do not add up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Missing {
    /// The variance of the part of all means by which they are too short or too long together, as a
    /// share of them, beyond chance.
    all: f64,
    /// The variance of the time that the means leave unexplained, for each us that they explain,
    /// us.
    unexplained: f64,
    /// By column: how often it was passed.
    counts: Vec<f64>,
}

impl Missing {
    /// The variance of the mean of a column, us², of which this is the least, and what is to be
    /// added.
    ///
    /// What is unexplained may have happened in the dispatches of any class, most likely in
    /// proportion to the time that they took.
    pub(crate) fn variance(&self, column: usize, mean: f64) -> (f64, f64) {
        let count = self.counts.get(column).copied().unwrap_or(0.0).max(1.0);
        (self.unexplained * mean / count, self.all * mean * mean)
    }
}

impl Balance {
    /// Starts another block.
    pub(crate) fn begin_block(&mut self) {
        if self.blocks.back().is_some_and(|block| block.elapsed == 0.0) {
            return;
        }
        if self.blocks.len() >= MOST {
            self.blocks.pop_front();
        }
        self.blocks.push_back(Block::default());
    }

    /// Adds a time, us, in which the packets of these columns were passed.
    pub(crate) fn add(&mut self, elapsed: f64, passed: impl Iterator<Item = (usize, f64)>) {
        let Some(block) = self.blocks.back_mut().filter(|_| elapsed.is_finite()) else {
            return;
        };
        block.elapsed += elapsed;
        for (column, count) in passed {
            if block.counts.len() <= column {
                block.counts.resize(column + 1, 0.0);
            }
            if let Some(cell) = block.counts.get_mut(column) {
                *cell += count;
            }
        }
    }

    /// How far the means do not add up; `None` if too little was seen. `mean` is the mean of a
    /// column, us.
    pub(crate) fn missing(&self, mean: impl Fn(usize) -> f64) -> Option<Missing> {
        let mut counts: Vec<f64> = Vec::new();
        let mut times = Vec::with_capacity(self.blocks.len());
        for block in self.blocks.iter().filter(|block| block.elapsed > 0.0) {
            counts.resize(counts.len().max(block.counts.len()), 0.0);
            let mut expected = 0.0;
            for (at, (sum, count)) in counts.iter_mut().zip(&block.counts).enumerate() {
                *sum += count;
                expected += count * mean(at);
            }
            times.push((block.elapsed, expected));
        }
        let count = times.len() as f64;
        let (elapsed, expected) = times
            .iter()
            .fold((0.0, 0.0), |sum, time| (sum.0 + time.0, sum.1 + time.1));
        if times.len() < FEWEST || expected <= 0.0 {
            return None;
        }
        let factor = elapsed / expected;
        let squares = times
            .iter()
            .map(|(elapsed, expected)| (elapsed - factor * expected).powi(2));
        let variance = squares.sum::<f64>() * count / (count - 1.0);
        let off = factor - 1.0;
        Some(Missing {
            all: (off * off - CHANCE * CHANCE * variance / (expected * expected)).max(0.0),
            unexplained: variance / expected,
            counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten blocks in which a class was passed a hundred times, with these times, us.
    fn missing(times: [f64; 10]) -> Missing {
        let mut balance = Balance::default();
        for time in times {
            balance.begin_block();
            balance.add(time / 2.0, [(4, 50.0)].into_iter());
            balance.add(time / 2.0, [(4, 50.0)].into_iter());
        }
        balance.missing(|_| 10.0).unwrap()
    }

    #[test]
    fn what_adds_up_lacks_nothing() {
        assert_eq!(missing([1_000.0; 10]).variance(4, 10.0), (0.0, 0.0));
    }

    #[test]
    fn means_that_are_all_too_short_are_told() {
        let (least, more) = missing([1_050.0; 10]).variance(4, 10.0);
        assert!(least < 1e-9 && (more.sqrt() - 0.5).abs() < 1e-9, "{more}");
    }

    #[test]
    fn a_few_that_took_much_longer_are_told() {
        let mut times = [995.0; 10];
        times[3] = 1_045.0;
        let (least, more) = missing(times).variance(4, 10.0);
        // One dispatch of a thousand took 50 us longer.
        assert!((0.04..0.06).contains(&least.sqrt()), "{least}");
        assert!(more < 1e-9, "{more}");
    }

    #[test]
    fn few_blocks_say_nothing() {
        let mut balance = Balance::default();
        balance.add(5.0, std::iter::empty());
        balance.begin_block();
        balance.add(5.0, [(4, 1.0)].into_iter());
        assert_eq!(balance.missing(|_| 1.0), None);
    }
}
