//! The normal equations of weighted least squares, and their solution.

use crate::{Mean, Told, blocks::Blocks, column};

/// Number of rows added at once: a pass over the matrix costs the same for all of them as for one.
const AT_ONCE: usize = 4;

/// Prior assumptions about the gap and the latency, us: mean and standard deviation.
///
/// Only exact times separate a gap from the duration before it. The software GPU waits 7 us between
/// packets of one stream, and 11 us with four streams that overlap.
const GAP: (f64, f64) = (6.0, 3.5);
const LATENCY: (f64, f64) = (20.0, 60.0);
const BARRIER: (f64, f64) = (2.0, 10.0);
const STAMPED_GAP: (f64, f64) = (6.0, 10.0);

/// Prior assumption about a class: only that it is not absurdly long. This keeps the equations
/// solvable.
const CLASS: (f64, f64) = (0.0, 20_000.0);

/// A weight that fixes a value.
const HELD: f64 = 1e9;

/// Maximum number of solutions, each of which fixes one more negative mean at zero.
const ROUNDS: usize = 6;

/// A square matrix of which only the lower triangle is used, in rows of `stride`.
#[derive(Clone, Debug, Default)]
struct Lower {
    size: usize,
    stride: usize,
    cells: Vec<f64>,
}

impl Lower {
    fn new(size: usize) -> Self {
        let stride = size.next_multiple_of(32);
        Self {
            size,
            stride,
            cells: vec![0.0; stride * size],
        }
    }

    /// The part of each row in the lower triangle.
    fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let rows = self.cells.chunks_exact_mut(self.stride);
        rows.enumerate().filter_map(|(at, row)| row.get_mut(..=at))
    }

    fn row(&self, at: usize) -> &[f64] {
        self.cells
            .get(at * self.stride..at * self.stride + at + 1)
            .unwrap_or_default()
    }

    fn grow(&mut self, size: usize) {
        if size <= self.size {
            return;
        }
        if size > self.stride {
            let mut grown = Self::new(size);
            for at in 0..self.size {
                if let Some(row) = grown
                    .cells
                    .get_mut(at * grown.stride..at * grown.stride + at + 1)
                {
                    row.copy_from_slice(self.row(at));
                }
            }
            *self = grown;
        } else {
            self.cells.resize(self.stride * size, 0.0);
            self.size = size;
        }
    }

    fn diagonal(&self, at: usize) -> f64 {
        self.row(at).last().copied().unwrap_or(0.0)
    }

    fn add_to_diagonal(&mut self, at: usize, value: f64) {
        if let Some(cell) = self.cells.get_mut(at * self.stride + at) {
            *cell += value;
        }
    }

    /// The Cholesky factor. A diagonal element that is not positive, which rounding can cause, is
    /// fixed.
    fn factor(&self) -> Self {
        let mut factor = self.clone();
        for at in 0..factor.size {
            let (above, rest) = factor.cells.split_at_mut(at * factor.stride);
            let Some(row) = rest.get_mut(..=at) else {
                break;
            };
            for (column, upper) in above.chunks_exact(factor.stride).enumerate() {
                let (Some((left, [cell, ..])), Some((left_above, [pivot, ..]))) = (
                    row.split_at_mut_checked(column),
                    upper.split_at_checked(column),
                ) else {
                    break;
                };
                let sum = dot(left, left_above);
                *cell = (*cell - sum) / pivot;
            }
            if let Some((last, left)) = row.split_last_mut() {
                let whole = *last;
                let pivot = whole - dot(left, left);
                *last = if pivot > whole.abs() * 1e-12 && pivot > 0.0 {
                    pivot.sqrt()
                } else {
                    HELD.sqrt()
                };
            }
        }
        factor
    }

    /// Solves with the Cholesky factor.
    fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut solution = Vec::with_capacity(self.size);
        for (at, value) in right.iter().enumerate().take(self.size) {
            let row = self.row(at);
            let sum = dot(row, &solution);
            solution.push((value - sum) / row.last().copied().unwrap_or(1.0));
        }
        for at in (0..solution.len()).rev() {
            let row = self.row(at);
            let Some((left, [value, ..])) = solution.split_at_mut_checked(at) else {
                break;
            };
            *value /= row.last().copied().unwrap_or(1.0);
            for (left, factor) in left.iter_mut().zip(row) {
                *left -= factor * *value;
            }
        }
        solution
    }

    /// The diagonal of the inverse of the factored matrix: the sums of squares of the columns of
    /// the factor's inverse.
    fn inverse_diagonal(&self) -> Vec<f64> {
        let mut inverse = Self::new(self.size);
        let mut sums = vec![0.0; self.size];
        for at in 0..self.size {
            let row = self.row(at);
            let Some((pivot, left)) = row.split_last() else {
                break;
            };
            let mut made = vec![0.0; at + 1];
            for (factor, done) in left.iter().zip(inverse.cells.chunks_exact(self.stride)) {
                if *factor != 0.0 {
                    for (cell, value) in made.iter_mut().zip(done) {
                        *cell -= factor * value;
                    }
                }
            }
            if let Some(last) = made.last_mut() {
                *last = 1.0;
            }
            for (cell, sum) in made.iter_mut().zip(&mut sums) {
                *cell /= pivot;
                *sum += *cell * *cell;
            }
            if let Some(row) = inverse
                .cells
                .get_mut(at * self.stride..at * self.stride + at + 1)
            {
                row.copy_from_slice(&made);
            }
        }
        sums
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    // Four separate sums, so that the compiler can use vector instructions.
    let mut sums = [0.0; 4];
    let (one, other) = (
        one.get(..other.len()).unwrap_or(one),
        other.get(..one.len()).unwrap_or(other),
    );
    let (chunks, others) = (one.chunks_exact(4), other.chunks_exact(4));
    let rest: f64 = chunks
        .remainder()
        .iter()
        .zip(others.remainder())
        .map(|(one, other)| one * other)
        .sum();
    for (one, other) in chunks.zip(others) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Accumulated equations. All in us.
#[derive(Debug)]
pub(crate) struct Normal {
    matrix: Lower,
    right: Vec<f64>,
    /// Rows not yet added, each with its weight and right-hand side.
    waiting: [Vec<f64>; AT_ONCE],
    weights: [(f64, f64); AT_ONCE],
    count: usize,
    rows: usize,
    blocks: Blocks,
}

impl Normal {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            matrix: Lower::new(size),
            right: vec![0.0; size],
            waiting: std::array::from_fn(|_| vec![0.0; size]),
            weights: [(0.0, 0.0); AT_ONCE],
            count: 0,
            rows: 0,
            blocks: Blocks::default(),
        }
    }

    /// Starts another block of time, near this solution.
    pub(crate) fn begin_block(&mut self, solution: &Solution) {
        self.blocks.begin(&solution.values);
    }

    /// Whether no equation was added since the current block began.
    pub(crate) fn is_fresh(&self) -> bool {
        self.blocks.is_fresh()
    }

    /// Number of matrix cells touched by two equations.
    pub(crate) fn cells(&self) -> usize {
        self.matrix.size * self.matrix.size
    }

    /// Number of equations added.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn grow(&mut self, size: usize) {
        if size > self.matrix.size {
            self.matrix.grow(size);
            self.right.resize(size, 0.0);
            for row in &mut self.waiting {
                row.resize(size, 0.0);
            }
        }
    }

    /// Adds an equation: the sum of `row` (column and factor) is `value`, with this variance.
    pub(crate) fn add(
        &mut self,
        row: impl Iterator<Item = (usize, f64)>,
        value: f64,
        variance: f64,
    ) {
        if !(value.is_finite() && variance.is_finite() && variance > 0.0) {
            return;
        }
        let (Some(waiting), Some(weight)) = (
            self.waiting.get_mut(self.count),
            self.weights.get_mut(self.count),
        ) else {
            return;
        };
        for (column, factor) in row {
            if let Some(cell) = waiting.get_mut(column) {
                *cell += factor;
            }
        }
        *weight = (1.0 / variance, value);
        self.blocks.add(waiting, value, 1.0 / variance);
        self.count += 1;
        self.rows += 1;
        if self.count == AT_ONCE {
            self.use_waiting();
        }
    }

    fn use_waiting(&mut self) {
        let [first, second, third, fourth] = &self.waiting;
        let weights = self.weights;
        let factors = first.iter().zip(second).zip(third).zip(fourth);
        let targets = self.matrix.rows_mut().zip(&mut self.right);
        for ((row, right), (((one, two), three), four)) in targets.zip(factors) {
            if *one == 0.0 && *two == 0.0 && *three == 0.0 && *four == 0.0 {
                continue;
            }
            let [a, b, c, d] = [
                one * weights[0].0,
                two * weights[1].0,
                three * weights[2].0,
                four * weights[3].0,
            ];
            *right += a * weights[0].1 + b * weights[1].1 + c * weights[2].1 + d * weights[3].1;
            let others = first.iter().zip(second).zip(third).zip(fourth);
            for (cell, (((one, two), three), four)) in row.iter_mut().zip(others) {
                *cell += a * one + b * two + c * three + d * four;
            }
        }
        for row in &mut self.waiting {
            row.fill(0.0);
        }
        self.weights = [(0.0, 0.0); AT_ONCE];
        self.count = 0;
    }

    /// Reduces the weight of what is known.
    pub(crate) fn forget(&mut self, factor: f64) {
        self.use_waiting();
        for value in self.matrix.cells.iter_mut().chain(&mut self.right) {
            *value *= factor;
        }
    }

    /// Solves the equations. Variances are `scale` times as large as stated.
    pub(crate) fn solve(&mut self, scale: f64) -> Solution {
        self.use_waiting();
        let mut gap = GAP;
        let mut solution = self.solve_with(gap, scale);
        // No gap is longer than the shortest packet with its gap.
        let with_gap = (column::CLASSES..self.matrix.size).filter_map(|column| {
            let evidence = self.matrix.diagonal(column);
            let (value, error) = (
                solution.value(column) + solution.value(column::GAP),
                solution.step_error(column),
            );
            (evidence > 0.0 && error < 5.0).then_some(value.max(0.0) + error)
        });
        let most = with_gap.fold(f64::INFINITY, f64::min);
        if most < GAP.0 + 1.7 * GAP.1 {
            gap = (most / 2.0, (most / 12.0_f64.sqrt()).max(0.05));
            solution = self.solve_with(gap, scale);
        }
        solution
    }

    fn solve_with(&self, gap: (f64, f64), scale: f64) -> Solution {
        let size = self.matrix.size;
        let (mut values, factor) = self.not_negative(gap, scale);
        let free = &self.matrix;
        let mut errors = factor.inverse_diagonal();
        let steps = step_errors(&factor, &errors, scale);
        for (at, error) in errors.iter_mut().enumerate() {
            let is_held = values.get(at).is_none_or(|value| value.abs() < 1e-6);
            let (_, deviation) = prior(at, gap);
            let alone = 1.0 / (free.diagonal(at) + scale / (deviation * deviation));
            *error = (if is_held { error.max(alone) } else { *error } * scale).sqrt();
        }
        let alone = (0..size)
            .map(|at| (scale / free.diagonal(at)).sqrt())
            .collect();
        // Combine how far the blocks of time differ, whatever the reason, with how far they should
        // differ.
        let unknowns = (column::CLASSES..size)
            .filter(|at| free.diagonal(*at) > 0.0)
            .count();
        let by_blocks = self
            .blocks
            .variances(&values, unknowns, |scores| factor.solve(scores));
        let stated = errors.iter().enumerate().map(|(at, error)| {
            let variance = by_blocks.as_ref().and_then(|variances| variances.get(at));
            variance.map_or(*error, |variance| variance.sqrt().max(*error))
        });
        let mut stated: Vec<f64> = stated.collect();
        for (value, error) in values.iter_mut().zip(&errors) {
            *value = if value.is_finite() {
                value.max(0.0)
            } else {
                0.0
            };
            // Nothing is negative, so the true value is more likely larger than so small an
            // estimate.
            if *value < *error {
                *value = value.max(0.5 * error.min(20.0));
            }
        }
        for error in errors.iter_mut().chain(&mut stated) {
            *error = if error.is_finite() { *error } else { f64::MAX };
        }
        let steps = steps.into_iter().zip(&errors);
        let steps = steps.map(|(step, error)| if step.is_finite() { step } else { *error });
        Solution {
            values,
            steps: steps.collect(),
            errors,
            alone,
            stated,
        }
    }

    /// Solves the equations with the prior assumptions. Means that would be negative are fixed at
    /// zero. Also returns the factor of the equations that were solved last.
    fn not_negative(&self, gap: (f64, f64), scale: f64) -> (Vec<f64>, Lower) {
        let mut matrix = self.matrix.clone();
        let mut right = self.right.clone();
        for (column, right) in right.iter_mut().enumerate() {
            let (mean, deviation) = prior(column, gap);
            // Do not scale the prior's variance with that of the innovations.
            let weight = scale / (deviation * deviation);
            matrix.add_to_diagonal(column, weight);
            *right += mean * weight;
        }
        let mut factor = matrix.factor();
        let mut values = factor.solve(&right);
        for _ in 0..ROUNDS {
            let negative: Vec<usize> = (0..self.matrix.size)
                .filter(|at| values.get(*at).is_some_and(|value| *value < 0.0))
                .collect();
            if negative.is_empty() {
                break;
            }
            for at in negative {
                matrix.add_to_diagonal(at, HELD * (1.0 + matrix.diagonal(at)));
            }
            factor = matrix.factor();
            values = factor.solve(&right);
        }
        (values, factor)
    }
}

/// Prior assumption about an unknown, us: mean and standard deviation.
fn prior(column: usize, gap: (f64, f64)) -> (f64, f64) {
    match column {
        column::GAP => gap,
        column::LATENCY => LATENCY,
        column::BARRIER => BARRIER,
        column::STAMPED_GAP => STAMPED_GAP,
        _ => CLASS,
    }
}

/// Standard errors of packets with their gaps, us, from the factor of the equations and the
/// diagonal of their inverse.
fn step_errors(factor: &Lower, inverse: &[f64], scale: f64) -> Vec<f64> {
    let mut unit = vec![0.0; inverse.len()];
    if let Some(cell) = unit.get_mut(column::GAP) {
        *cell = 1.0;
    }
    let with_gap = factor.solve(&unit);
    let of_gap = with_gap.first().copied().unwrap_or(0.0);
    let steps = inverse.iter().zip(&with_gap).enumerate();
    let steps = steps.map(|(at, (own, both))| match at {
        column::GAP => 0.0,
        // These are not followed by a gap.
        column::LATENCY | column::STAMPED_GAP => (own * scale).sqrt(),
        _ => ((own + 2.0 * both + of_gap).max(0.0) * scale).sqrt(),
    });
    steps.collect()
}

/// Values of the unknowns, us.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    values: Vec<f64>,
    errors: Vec<f64>,
    /// Standard errors of packets with their gaps, whose sum is known better than either; 0 for the
    /// gap itself.
    steps: Vec<f64>,
    /// Standard errors if all other unknowns were known.
    alone: Vec<f64>,
    /// Standard errors to report: at least as large as the differences between blocks of time.
    stated: Vec<f64>,
}

impl Solution {
    /// A solution in which nothing is known.
    pub(crate) fn unknown(size: usize) -> Self {
        let mut solution = Self {
            values: vec![GAP.0, LATENCY.0, BARRIER.0, STAMPED_GAP.0],
            errors: vec![GAP.1, LATENCY.1, BARRIER.1, STAMPED_GAP.1],
            steps: vec![0.0, LATENCY.1, BARRIER.1, STAMPED_GAP.1],
            alone: vec![f64::INFINITY; column::CLASSES],
            stated: vec![GAP.1, LATENCY.1, BARRIER.1, STAMPED_GAP.1],
        };
        solution.grow(size);
        solution
    }

    pub(crate) fn grow(&mut self, size: usize) {
        self.values.resize(size, 0.0);
        self.errors.resize(size, f64::MAX);
        self.steps.resize(size, f64::MAX);
        self.alone.resize(size, f64::INFINITY);
        self.stated.resize(size, f64::MAX);
    }

    pub(crate) fn value(&self, column: usize) -> f64 {
        self.values.get(column).copied().unwrap_or(0.0)
    }

    pub(crate) fn error(&self, column: usize) -> f64 {
        self.errors.get(column).copied().unwrap_or(f64::MAX)
    }

    /// Standard error of a packet with its gap, us; 0 for the gap itself. Add these up over
    /// everything that a packet adds to a row.
    pub(crate) fn step_error(&self, column: usize) -> f64 {
        self.steps.get(column).copied().unwrap_or(f64::MAX)
    }

    /// Raises the variances reported, us², by column and mean: to the first value at least, and by
    /// the second.
    pub(crate) fn doubt(&mut self, variance: impl Fn(usize, f64) -> (f64, f64)) {
        let places = self.stated.iter_mut().zip(&self.values).enumerate();
        for (column, (stated, value)) in places.skip(column::CLASSES) {
            let (least, more) = variance(column, *value);
            *stated = ((*stated * *stated).max(least) + more).sqrt();
        }
    }

    /// The standard error to report, us.
    fn stated(&self, column: usize) -> f64 {
        self.stated.get(column).copied().unwrap_or(f64::MAX)
    }

    /// The value, if it is known well enough for predictions.
    pub(crate) fn known(&self, column: usize) -> Option<f64> {
        let (value, error) = (self.value(column), self.error(column));
        (column < column::CLASSES || error < 5_000.0).then_some(value)
    }

    /// The value in ns.
    pub(crate) fn mean(&self, column: usize) -> Mean {
        Mean {
            value: self.value(column) * 1e3,
            error: (self.stated(column) * 1e3).min(1e18),
        }
    }

    /// What can be reported with relative standard errors up to `most`.
    pub(crate) fn told(&self, column: usize, most: f64) -> Told {
        let (value, error) = (self.value(column), self.stated(column));
        let alone = self.alone.get(column).copied().unwrap_or(f64::INFINITY);
        if value > 0.0 && error <= value * most {
            Told::Apart(self.mean(column))
        } else if value > 0.0 && alone <= value * most / 4.0 {
            Told::Mixed
        } else {
            Told::Unseen
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved() {
        let mut normal = Normal::new(column::CLASSES);
        normal.grow(column::CLASSES + 40);
        let truth = |at: usize| 10.0 + at as f64 * 7.0;
        for at in 0..4_000_usize {
            let row = [(at * 7 % 40, 1.0), (at * at % 40, 2.0), (at / 40 % 40, 1.0)];
            let value: f64 = row
                .iter()
                .map(|(class, factor)| truth(*class) * factor)
                .sum();
            normal.add(
                row.into_iter()
                    .map(|(class, factor)| (column::CLASSES + class, factor)),
                value,
                0.01,
            );
        }
        let solution = normal.solve(1.0);
        for class in 0..40 {
            let (value, error) = (
                solution.value(column::CLASSES + class),
                solution.error(column::CLASSES + class),
            );
            assert!(
                (value - truth(class)).abs() < 0.1,
                "{class}: {value} +- {error}"
            );
            assert!(error < 0.05);
        }
    }

    #[test]
    fn what_is_only_seen_together_is_mixed() {
        let mut normal = Normal::new(column::CLASSES + 3);
        for at in 0..1_000 {
            let pair = [(column::CLASSES, 1.0), (column::CLASSES + 1, 1.0)];
            normal.add(pair.into_iter(), 300.0 + f64::from(at % 3), 4.0);
        }
        let solution = normal.solve(1.0);
        assert_eq!(solution.told(column::CLASSES, 0.2), Told::Mixed);
        assert_eq!(solution.told(column::CLASSES + 1, 0.2), Told::Mixed);
        assert_eq!(solution.told(column::CLASSES + 2, 0.2), Told::Unseen);
    }
}
