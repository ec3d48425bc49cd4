//! What all queues of an agent have in common: the equations, their solution, the noise; and what they allow to be told.

use crate::{
    Told, column,
    noise::Noise,
    normal::{Normal, Solution},
};

/// Relative standard error up to which a mean is told.
const TOLD: f64 = 0.2;

/// A mean is told only if at least this share of the class's packets contributed to it, and this many.
const FAIR: f64 = 0.25;
const FEWEST: u32 = 5;

/// A mean is told only if there are at least this many equations for each class. With fewer, some means agreed with the
/// equations and were still wrong, and their errors did not show it.
const DETERMINED: usize = 12;

/// Nothing is told if the squared innovations are larger than expected by more than this factor, or single durations spread
/// by more than this share of their mean: the model does not fit then.
const MISFIT: f64 = 6.0;
const WIDEST: f64 = 0.8;

/// Of so many packets one may have been seen to wait, if they are said not to.
const QUIET: u32 = 64;

/// What all queues have in common: the equations, their solution, the noise.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) normal: Normal,
    pub(crate) solution: Solution,
    pub(crate) noise: Noise,
    /// Whether the means are known well enough to judge by them which cells the looks met.
    pub(crate) is_mature: bool,
    /// By column: packets behind one of it, and of these, those that were seen to wait for it.
    pub(crate) quiet: Vec<(u32, u32)>,
    /// Cells of the equations that may be worked on, us of the looks' time for each; none if that does not matter. With what is
    /// left of them, and the time up to which they were counted, us.
    pub(crate) limit: Option<f64>,
    pub(crate) left: f64,
    pub(crate) counted: f64,
    /// By column: packets that were passed, and of these, those whose durations counted.
    pub(crate) passed: Vec<(u32, u32)>,
}

/// Counts in one of the places.
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
    /// Takes note of a packet behind one of a column's, and whether it was seen to wait for it.
    pub(crate) fn note_quiet(&mut self, column: usize, is_busy: bool) {
        count(&mut self.quiet, column, is_busy);
    }

    /// Takes note of a packet that was passed, and whether its duration counted.
    pub(crate) fn note_passed(&mut self, column: usize, is_used: bool) {
        count(&mut self.passed, column, is_used);
    }

    /// Whether a look at this time, us, may be made use of, by the limit on what that costs.
    pub(crate) fn affords(&mut self, time: f64) -> bool {
        let Some(limit) = self.limit else {
            return true;
        };
        let elapsed = (time - self.counted).max(0.0);
        self.counted = self.counted.max(time);
        // Not more at once than of a hundredth of a second.
        self.left = (self.left + elapsed * limit).min(limit * 10_000.0);
        if self.left < 0.0 {
            return false;
        }
        self.left -= self.normal.cells() as f64;
        true
    }

    /// What can be told of a class.
    pub(crate) fn told(&self, column: usize) -> Told {
        let (all, used) = self.passed.get(column).copied().unwrap_or_default();
        // If few counted, they may have been those that took long. And what fits so badly is not what the model says.
        let is_fair = f64::from(used) >= f64::from(all) * FAIR && used >= FEWEST;
        let is_fit = self.noise.scale() <= MISFIT && self.noise.spread() <= WIDEST;
        if !(is_fair && is_fit && self.is_determined()) {
            return Told::Unseen;
        }
        self.solution.told(column, TOLD)
    }

    /// Whether there are equations enough for the classes that matter, and they have been gone through with means that are known.
    pub(crate) fn is_determined(&self) -> bool {
        let classes = self.passed.iter().skip(column::CLASSES);
        let classes = classes.filter(|(all, _)| *all >= FEWEST).count();
        self.is_mature && self.normal.rows() >= DETERMINED * classes
    }

    /// Whether packets behind one of this column's are not seen to wait for it, though some must have been if they did.
    pub(crate) fn is_quiet(&self, column: usize) -> bool {
        self.quiet
            .get(column)
            .is_some_and(|(all, busy)| *all >= QUIET && busy * QUIET <= *all)
    }
}
