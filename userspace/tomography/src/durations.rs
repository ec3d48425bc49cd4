//! Single durations that were seen from begin to end, and their mean.
//!
//! The GPU's status register shows when a kernel begins and ends that runs alone. Where nothing
//! waits after a kernel, nothing else shows its end.

use crate::Mean;

/// Fewer durations have no mean.
const FEWEST: f64 = 8.0;

/// A mean is told only if its standard error is at most this share of it.
const TOLD: f64 = 0.1;

/// There is no mean if more than this share of the durations was too long or too short to be seen
/// like others.
const CUT: f64 = 0.02;

/// By how much all durations can be too long or too short, ns: the register follows kernels with
/// delays that are not known.
const DELAYS: f64 = 3_000.0;

/// Durations of a class of kernels. Their mean is updated as they come (Welford's method).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Durations {
    count: f64,
    mean: f64,
    /// Sum of the squared differences from the mean, ns².
    squares: f64,
    cut: f64,
}

impl Durations {
    /// Adds a duration between `least` and `most`, ns. Durations must have been selected regardless
    /// of how long they are.
    pub fn add(&mut self, least: u64, most: u64) {
        let value = (least as f64 + most as f64) / 2.0;
        self.count += 1.0;
        let difference = value - self.mean;
        self.mean += difference / self.count;
        self.squares += difference * (value - self.mean);
    }

    /// Adds a duration that was too long to be seen whole, or so short that others like it are
    /// missing.
    pub fn add_cut(&mut self) {
        self.cut += 1.0;
    }

    /// The mean, if it is known well enough.
    #[must_use]
    pub fn mean(&self) -> Option<Mean> {
        if self.count < FEWEST || self.cut > CUT * (self.count + self.cut) {
            return None;
        }
        // Few durations show less of the variance than there may be: the variance of Student's t.
        let variance = self.squares / (self.count - 3.0) / self.count;
        let error = variance.sqrt().hypot(DELAYS);
        (error <= TOLD * self.mean).then_some(Mean {
            value: self.mean,
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations between these bounds, ns.
    fn of(bounds: impl IntoIterator<Item = (u64, u64)>) -> Durations {
        let mut durations = Durations::default();
        for (least, most) in bounds {
            durations.add(least, most);
        }
        durations
    }

    #[test]
    fn a_mean_needs_eight_durations_and_a_small_error() {
        let same = |count| of((0..count).map(|_| (99_000, 103_000))).mean();
        assert_eq!(same(7), None);
        let mean = same(8).unwrap();
        assert_eq!((mean.value, mean.error), (101_000.0, DELAYS));
        // Kernels that are not much longer than the delays.
        assert_eq!(of((0..100).map(|_| (20_000, 22_000))).mean(), None);
        // Durations that differ by much need more.
        let mixed =
            |count: u64| of((0..count).map(|at| (at % 2 * 800_000, 200_000 + at % 2 * 800_000)));
        assert_eq!(mixed(8).mean(), None);
        let mean = mixed(200).mean().unwrap();
        assert_eq!(mean.value, 500_000.0);
        assert!((28_000.0..30_000.0).contains(&mean.error), "{mean:?}");
    }

    #[test]
    fn long_ones_that_were_cut_are_no_small_matter() {
        let mut durations = of((0..100).map(|_| (100_000, 102_000)));
        durations.add_cut();
        durations.add_cut();
        assert!(durations.mean().is_some());
        durations.add_cut();
        assert_eq!(durations.mean(), None);
    }
}
