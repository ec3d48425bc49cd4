//! What all queues of an agent share (the equations, their solution, the noise), and whether the
//! result is good enough to be reported.

use crate::{
    Lengths, Told,
    balance::Balance,
    column,
    lengths::Histogram,
    noise::Noise,
    normal::{Normal, Solution},
};

/// Relative standard error up to which a mean is told.
const TOLD: f64 = 0.1;

/// A mean is reported only if at least this share of the class's packets contributed to it, and at
/// least this many packets.
const FAIR: f64 = 0.25;
const FEWEST: u32 = 5;

/// A mean is reported only if there are at least this many equations per class. With fewer, some
/// means were consistent with the equations and still wrong, without their errors showing it.
const DETERMINED: usize = 12;

/// Nothing is reported if the squared innovations exceed their expectation by more than this
/// factor, or if single durations spread by more than this share of their mean. Then the model does
/// not fit.
const MISFIT: f64 = 6.0;
const WIDEST: f64 = 0.8;

/// A column counts as quiet only if at most one in this many packets was seen to wait.
const QUIET: u32 = 64;

/// What all queues share: the equations, their solution, and the noise.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) normal: Normal,
    pub(crate) solution: Solution,
    pub(crate) noise: Noise,
    /// Whether the means are known well enough to judge by them which cells the looks hit.
    pub(crate) is_mature: bool,
    /// By column: packets after one of this column, and how many of them were seen to wait for it.
    pub(crate) quiet: Vec<(u32, u32)>,
    /// Matrix cells that may be processed per us of the looks' time, or `None` without a limit.
    /// `left` is the remaining allowance, and the time is when it was last updated, us.
    pub(crate) limit: Option<f64>,
    pub(crate) left: f64,
    pub(crate) counted: f64,
    /// By column: packets that were passed, and how many of them had durations that counted.
    pub(crate) passed: Vec<(u32, u32)>,
    /// By column: single durations with the gaps behind them, as far as they are bounded closely.
    pub(crate) durations: Vec<Histogram>,
    pub(crate) balance: Balance,
}

/// Counts an event in the place of `column`.
fn count(places: &mut Vec<(u32, u32)>, column: usize, also: bool) {
    if places.len() <= column {
        places.resize(column + 1, (0, 0));
    }
    if let Some((all, some)) = places.get_mut(column) {
        *all = all.saturating_add(1);
        *some = some.saturating_add(u32::from(also));
    }
}

impl Model {
    /// Counts a packet after one of this column, and whether it was seen to wait for it.
    pub(crate) fn note_quiet(&mut self, column: usize, is_busy: bool) {
        count(&mut self.quiet, column, is_busy);
    }

    /// Counts a packet that was passed, and whether its duration counted.
    pub(crate) fn note_passed(&mut self, column: usize, is_used: bool) {
        count(&mut self.passed, column, is_used);
    }

    /// Takes the bounds of a single duration with the gap behind it, us.
    pub(crate) fn note_duration(&mut self, column: usize, least: f64, most: f64) {
        if self.durations.len() <= column {
            self.durations.resize_with(column + 1, Histogram::default);
        }
        if let Some(durations) = self.durations.get_mut(column) {
            durations.take(least, most);
        }
    }

    /// The two lengths of a class whose mean is told, if it has two.
    pub(crate) fn lengths(&self, column: usize) -> Option<Lengths> {
        let gap = self.solution.value(column::GAP);
        self.durations
            .get(column)?
            .lengths(self.solution.value(column), gap)
    }

    /// Whether a look at this time, us, may be made use of, by the limit on what that costs.
    pub(crate) fn affords(&mut self, time: f64) -> bool {
        let Some(limit) = self.limit else {
            return true;
        };
        let elapsed = (time - self.counted).max(0.0);
        self.counted = self.counted.max(time);
        // Never accumulate more than the allowance of a hundredth of a second.
        self.left = (self.left + elapsed * limit).min(limit * 10_000.0);
        if self.left < 0.0 {
            return false;
        }
        self.left -= self.normal.cells() as f64;
        true
    }

    /// What can be reported of a class.
    pub(crate) fn told(&self, column: usize) -> Told {
        let (all, used) = self.passed.get(column).copied().unwrap_or_default();
        // If few packets counted, they may be the long ones. If the model fits this badly, its
        // results mean nothing.
        let is_fair = f64::from(used) >= f64::from(all) * FAIR && used >= FEWEST;
        let is_fit = self.noise.scale() <= MISFIT && self.noise.spread() <= WIDEST;
        if !(is_fair && is_fit && self.is_determined()) {
            return Told::Unseen;
        }
        self.solution.told(column, TOLD)
    }

    /// Whether there are enough equations for the classes that matter, and they were processed with
    /// known means.
    pub(crate) fn is_determined(&self) -> bool {
        let classes = self.passed.iter().skip(column::CLASSES);
        let classes = classes.filter(|(all, _)| *all >= FEWEST).count();
        self.is_mature && self.normal.rows() >= DETERMINED * classes
    }

    /// Whether packets after one of this column are not seen to wait for it, although some must
    /// have been if they did.
    pub(crate) fn is_quiet(&self, column: usize) -> bool {
        self.quiet
            .get(column)
            .is_some_and(|(all, busy)| *all >= QUIET && busy * QUIET <= *all)
    }
}
