//! The phase of a queue: when the current packet began, as a linear function of the unknowns.
//!
//! The phase is `constant + row · unknowns + error`, where the error's variance is `variance`.
//! Packets add their class to the row and their variance to the error. An observation is a Kalman
//! filter's update of constant and row, which is the same for any value of the unknowns. Therefore
//! what the observation says about the unknowns can go into the normal equations.

use crate::{
    interval::Chance,
    model::Model,
    noise::Score,
    normal::Solution,
    observe::{Bounds, LONGEST, Point},
};

/// Smaller factors are dropped from a row.
const NOTHING: f64 = 1e-4;

/// The unknowns are known well enough for using the chance of bounds if their part of the variance
/// is at most this multiple of the rest.
const CLEAR: f64 = 1.0;

/// A sparse row of factors by column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    factors: Vec<f64>,
    columns: Vec<usize>,
}

impl Row {
    pub(crate) fn add(&mut self, column: usize, factor: f64) {
        if self.factors.len() <= column {
            self.factors.resize(column + 1, 0.0);
        }
        if let Some(cell) = self.factors.get_mut(column) {
            if *cell == 0.0 {
                if self.columns.contains(&column) {
                    *cell = factor;
                    return;
                }
                self.columns.push(column);
            }
            *cell += factor;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, f64)> {
        self.columns
            .iter()
            .filter_map(|column| Some((*column, *self.factors.get(*column)?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    fn scale(&mut self, by: f64) {
        let Self { factors, columns } = self;
        columns.retain(|column| {
            let Some(cell) = factors.get_mut(*column) else {
                return false;
            };
            *cell *= by;
            let stays = cell.abs() > NOTHING;
            if !stays {
                *cell = 0.0;
            }
            stays
        });
    }

    /// The weighted sum of the current solution.
    fn product(&self, solution: &Solution) -> f64 {
        self.iter()
            .map(|(column, factor)| solution.value(column) * factor)
            .sum()
    }

    /// Variance due to uncertainty of the unknowns, as if they were independent, us².
    pub(crate) fn variance(&self, solution: &Solution) -> f64 {
        let terms = self.iter().map(|(column, factor)| {
            let error = factor * solution.step_error(column);
            error * error
        });
        terms.sum()
    }
}

/// When the current packet began. Times in us.
#[derive(Debug)]
pub(crate) struct Chain {
    constant: f64,
    row: Row,
    variance: f64,
    /// Derivatives with respect to the logarithm of the squared spread.
    phase_slope: f64,
    variance_slope: f64,
    /// The contributions of the classes' spreads to the variance, by column.
    parts: Row,
    /// The phase when it was last observed, and the packets since then.
    observed: Option<f64>,
    passed: Row,
    /// Number of packets since the chain began.
    pub(crate) packets: u32,
}

impl Chain {
    /// A chain whose phase is `constant`, plus an unknown column's value if one is given.
    pub(crate) fn at(constant: f64, column: Option<usize>, variance: f64) -> Self {
        let mut row = Row::default();
        if let Some(column) = column {
            row.add(column, 1.0);
        }
        Self {
            constant,
            row,
            variance,
            phase_slope: 0.0,
            variance_slope: 0.0,
            parts: Row::default(),
            observed: None,
            passed: Row::default(),
            packets: 0,
        }
    }

    /// Moves to the next packet, which begins after the duration of this one and the gap.
    pub(crate) fn advance(&mut self, columns: [usize; 2], model: &Model) {
        let [task, gap] = columns;
        self.row.add(task, 1.0);
        self.row.add(gap, 1.0);
        let (variance, slope) = model.noise.variance(task, model.solution.known(task));
        self.variance += variance;
        self.variance_slope += slope;
        self.parts.add(task, slope);
        self.passed.add(task, 1.0);
        self.passed.add(gap, 1.0);
        self.packets = self.packets.saturating_add(1);
    }

    /// The most likely phase and its variance, including that of the unknowns.
    pub(crate) fn predict(&self, solution: &Solution) -> (f64, f64) {
        let phase = self.constant + self.row.product(solution);
        (phase, self.variance + self.row.variance(solution))
    }

    /// Standard deviation of the phase apart from the unknowns, us.
    pub(crate) fn deviation(&self) -> f64 {
        self.variance.sqrt()
    }

    /// Whether nothing is known but the submission of its first packet.
    fn is_submission(&self) -> bool {
        self.packets == 0 && self.row.columns.as_slice() == [crate::column::LATENCY]
    }

    /// Updates the noise model with the difference between the expected and the observed phase.
    fn learn(&mut self, slope: f64, curvature: f64, kept: f64, model: &mut Model) {
        if self.is_submission() {
            let known =
                (1.0 / curvature - self.variance).max(0.0) + self.row.variance(&model.solution);
            model.noise.latency_seen(slope / curvature, known);
        } else {
            let score = Score {
                slope,
                curvature,
                phase_slope: self.phase_slope,
                variance_slope: self.variance_slope,
            };
            model.noise.learn(&score);
            model
                .noise
                .learn_own(&score, self.variance, self.parts.iter());
        }
        self.phase_slope = kept * (self.phase_slope + self.variance_slope * slope);
    }

    /// Updates the chain with an observed begin of the packet.
    pub(crate) fn observe(&mut self, observed: &Point, model: &mut Model) {
        let extra = &observed.extra;
        let right = observed.value - self.constant;
        let total = self.variance + observed.variance;
        if !(total > 0.0 && right.is_finite()) {
            return;
        }
        let gain = self.variance / total;
        let kept = 1.0 - gain;
        let solution = &model.solution;
        if self.row.variance(solution) + extra.variance(solution) < CLEAR * total {
            let expected = self.row.product(solution) + extra.product(solution);
            self.learn((right - expected) / total, 1.0 / total, kept, model);
        }
        self.variance_slope *= kept * kept;
        self.parts.scale(kept * kept);
        model
            .normal
            .add(self.row.iter().chain(extra.iter()), right, total);
        self.constant += gain * right;
        self.row.scale(kept);
        for (column, factor) in extra.iter() {
            self.row.add(column, -gain * factor);
        }
        self.variance *= kept;
        self.count_time(model);
    }

    /// Updates the chain with bounds for the begin of the packet.
    pub(crate) fn bounded(&mut self, bounds: &Bounds, model: &mut Model) {
        let width = bounds.width();
        let unknown =
            self.row.variance(&model.solution) + bounds.cell.row.variance(&model.solution);
        let is_clear = unknown < CLEAR * self.variance.max(width.min(LONGEST).powi(2) / 12.0);
        let mean = match bounds.cell.mean {
            Some(mean) if is_clear => mean,
            _ => {
                if let Some(point) = Point::middle(bounds) {
                    self.observe(&point, model);
                }
                return;
            }
        };
        let sum = self.row.product(&model.solution);
        let phase = self.constant + sum;
        let (above, below) = match (bounds.from.is_finite(), bounds.until.is_finite()) {
            (true, true) => {
                let middle = (bounds.until + bounds.from - mean) / 2.0;
                (phase - middle + width / 2.0, middle + width / 2.0 - phase)
            }
            (true, false) => (phase + mean - bounds.from, f64::INFINITY),
            (false, _) => (f64::INFINITY, bounds.until - phase),
        };
        let deviation = (self.variance + bounds.cell.variance / 4.0).sqrt();
        let cell = &bounds.cell.row;
        let Some(chance) = Chance::of(above, below, deviation) else {
            // The chance of a cell this narrow is its width. A cell far away pulls as if it were a
            // point.
            if deviation > width {
                count_width(bounds, model);
            }
            let edge = if bounds.from.is_finite() {
                bounds.from
            } else {
                bounds.until
            };
            let point = Point::middle(bounds).unwrap_or_else(|| Point::exact(edge, deviation));
            return self.observe(&point, model);
        };
        if chance.curvature() * self.variance < 1e-4 {
            return;
        }
        // Two equations with the derivatives of the chance.
        let [first, both, second] = chance.curvatures;
        let cell_sum = cell.product(&model.solution);
        let root = first.max(1e-12).sqrt();
        let mixed = both / root;
        let rest = (second - mixed * mixed).max(0.0).sqrt();
        let [slope, other] = chance.slopes;
        let residual = slope / root;
        let row = self
            .row
            .iter()
            .map(|(column, factor)| (column, factor * (root + mixed)));
        let row = row.chain(cell.iter().map(|(column, factor)| (column, factor * root)));
        model
            .normal
            .add(row, sum * (root + mixed) + cell_sum * root + residual, 1.0);
        if rest > 1e-6 {
            let residual = (other - mixed * residual) / rest;
            let row = self
                .row
                .iter()
                .map(|(column, factor)| (column, factor * rest));
            model.normal.add(row, sum * rest + residual, 1.0);
        }
        // The phase, and its dependence on the unknowns.
        let curvature = chance.curvature();
        let kept = (1.0 - self.variance * curvature).clamp(1e-3, 1.0);
        if curvature > 0.0 {
            self.learn(chance.slope(), curvature, kept, model);
        }
        self.variance_slope *= kept * kept;
        self.parts.scale(kept * kept);
        let of_cell = -self.variance * (first + both);
        let moved = phase + self.variance * chance.slope();
        self.row.scale(kept);
        for (column, factor) in cell.iter() {
            self.row.add(column, of_cell * factor);
        }
        self.variance *= kept;
        self.constant = moved - sum * kept - of_cell * cell_sum;
        self.count_time(model);
    }

    /// Counts the time since the last observation and the packets passed in it.
    fn count_time(&mut self, model: &mut Model) {
        let phase = self.constant + self.row.product(&model.solution);
        if let Some(before) = self.observed.replace(phase) {
            model.balance.add(phase - before, self.passed.iter());
        }
        self.passed.scale(0.0);
    }

    /// A chain that starts with bounds; `None` if they are too far apart.
    pub(crate) fn bounded_at_first(bounds: &Bounds, model: &mut Model) -> Option<Self> {
        let point = Point::middle(bounds)?;
        count_width(bounds, model);
        Some(Self::observed(&point))
    }

    /// A chain that starts with an observation.
    pub(crate) fn observed(observed: &Point) -> Self {
        let mut chain = Self::at(observed.value, None, observed.variance);
        for (column, factor) in observed.extra.iter() {
            chain.row.add(column, -factor);
        }
        chain
    }
}

/// Accounts for the fact that the chance of hitting any one cell is its width.
fn count_width(bounds: &Bounds, model: &mut Model) {
    let cell = &bounds.cell.row;
    if cell.len() == 0 || bounds.cell.mean.is_none() {
        return;
    }
    // The width cannot be smaller than its own uncertainty.
    let width = bounds.width().hypot(cell.variance(&model.solution).sqrt());
    let target = cell.product(&model.solution) / width + 1.0;
    model.normal.add(
        cell.iter().map(|(column, factor)| (column, factor / width)),
        target,
        1.0,
    );
}
