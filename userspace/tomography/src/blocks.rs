//! How far the solution really differs from one span of time to the next, judging by what the
//! equations of each span pull it to.
//!
//! The variances of equations come from a model: durations of a class are taken to differ at random
//! around one mean, by the same share in all classes. If a class has two lengths, or if durations
//! grow, the model does not hold, and its standard errors are too small. Therefore the equations
//! are also added up by *blocks* of time. The sum of a block's weighted residuals at the solution
//! would be zero if the block were alone, and the difference from zero is what the block really
//! says. This gives the sandwich estimate of the covariance (Huber 1967, White 1980; by clusters:
//! Liang and Zeger 1986).

use std::collections::VecDeque;

/// Maximum number of blocks kept.
const MOST: usize = 32;

/// Number of standard errors beyond which a difference between the halves counts as a trend.
const TREND: f64 = 1.0;

/// Fewer blocks do not suffice for an estimate.
const FEWEST: usize = 8;

#[derive(Clone, Debug, Default)]
struct Block {
    /// Sums of factor times residual divided by variance, by column.
    scores: Vec<f64>,
    /// The solution from which the residuals were taken.
    at: Vec<f64>,
    rows: usize,
}

/// The blocks, newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    blocks: VecDeque<Block>,
    /// The solution from which residuals are currently taken.
    at: Vec<f64>,
}

impl Blocks {
    /// Starts another block, whose residuals are taken from this solution.
    pub(crate) fn begin(&mut self, solution: &[f64]) {
        self.at.clear();
        self.at.extend_from_slice(solution);
        if self.blocks.back().is_some_and(|block| block.rows == 0) {
            self.blocks.pop_back();
        }
        if self.blocks.len() >= MOST {
            self.blocks.pop_front();
        }
        self.blocks.push_back(Block {
            scores: vec![0.0; solution.len()],
            at: self.at.clone(),
            rows: 0,
        });
    }

    /// Whether the current block has no equation yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.blocks.back().is_none_or(|block| block.rows == 0)
    }

    /// Adds an equation with all its factors by column, its value and its weight.
    pub(crate) fn add(&mut self, row: &[f64], value: f64, weight: f64) {
        let Some(block) = self.blocks.back_mut() else {
            return;
        };
        let expected: f64 = row
            .iter()
            .zip(&block.at)
            .map(|(factor, value)| factor * value)
            .sum();
        let pull = (value - expected) * weight;
        block.scores.resize(block.scores.len().max(row.len()), 0.0);
        for (score, factor) in block.scores.iter_mut().zip(row) {
            *score += factor * pull;
        }
        block.rows += 1;
    }

    /// Variances of the solution's values; `None` if there are too few blocks. `solve` solves the
    /// equations for a right-hand side, and `unknowns` is the number of unknowns that they
    /// determine.
    pub(crate) fn variances(
        &self,
        solution: &[f64],
        unknowns: usize,
        solve: impl Fn(&[f64]) -> Vec<f64>,
    ) -> Option<Vec<f64>> {
        let rows: usize = self.blocks.iter().map(|block| block.rows).sum();
        let blocks: Vec<&Block> = self.blocks.iter().filter(|block| block.rows > 0).collect();
        if blocks.len() < FEWEST || rows <= unknowns {
            return None;
        }
        let mut sums = vec![0.0; solution.len()];
        // How far the first half is off, and the second.
        let mut halves = vec![0.0; solution.len()];
        for (number, block) in blocks.iter().enumerate() {
            let side = if number * 2 < blocks.len() { 1.0 } else { -1.0 };
            let mut scores = block.scores.clone();
            scores.resize(solution.len(), 0.0);
            let share = block.rows as f64 / rows as f64;
            let pulled = solve(&scores);
            let places = sums.iter_mut().zip(&mut halves).zip(pulled).zip(solution);
            for (at, (((sum, half), pulled), value)) in places.enumerate() {
                // The residuals were taken from another solution.
                let moved = block.at.get(at).map_or(0.0, |before| value - before);
                let off = pulled - share * moved;
                *sum += off * off;
                *half += side * off;
            }
        }
        // Correct for the fact that the solution is fitted to these equations.
        let count = blocks.len() as f64;
        let factor = count / (count - 1.0) * rows as f64 / (rows - unknowns) as f64;
        for (sum, half) in sums.iter_mut().zip(halves) {
            *sum *= factor;
            // Half of the difference between the halves has the same variance, unless there is a
            // trend. A trend is not chance, and its effect on the mean is unknown.
            *sum += (half * half - TREND * TREND * *sum).max(0.0);
        }
        Some(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single unknown whose value differs between blocks, which the variances of single equations
    /// do not show.
    #[test]
    fn what_differs_between_blocks_counts() {
        let means = [9.0, 11.0, 8.0, 12.0, 10.0, 9.5, 10.5, 7.0, 13.0, 10.0];
        let mut blocks = Blocks::default();
        for mean in means {
            blocks.begin(&[9.9]);
            for _ in 0..100 {
                blocks.add(&[1.0], mean, 1.0);
            }
        }
        // A thousand equations of weight 1.
        let variances = blocks
            .variances(&[10.0], 1, |right| vec![right[0] / 1000.0])
            .unwrap();
        let expected: f64 = means
            .iter()
            .map(|mean| (mean - 10.0_f64).powi(2))
            .sum::<f64>()
            / 90.0;
        assert!(
            (variances[0] / expected - 1.0).abs() < 0.02,
            "{variances:?} for {expected}"
        );
    }

    #[test]
    fn few_blocks_say_nothing() {
        let mut blocks = Blocks::default();
        blocks.begin(&[1.0]);
        blocks.add(&[1.0], 2.0, 1.0);
        assert_eq!(blocks.variances(&[1.0], 0, <[f64]>::to_vec), None);
    }
}
