//! Estimates how much single durations differ from the means of their classes, as observations
//! arrive.
//!
//! The standard deviation of a duration is modelled as a fraction of the mean, the *spread*, plus a
//! small constant. The spread follows the gradient of the likelihood of the innovations. In
//! addition each class has a spread of its own, because durations that depend on arguments differ
//! more than others.

/// The constant part, us: gaps and latencies vary too.
const ALWAYS: f64 = 0.3;

/// Bounds for the logarithm of the squared spread: 0.2 % and 150 %.
const BOUNDS: (f64, f64) = (-12.4, 0.8);

/// Decay of the gradient's weight per observation.
const REMEMBERED: f64 = 0.995;

/// Maximum of squared normalised innovations, so that a few outliers do not dominate.
pub(crate) const OUTLIER: f64 = 16.0;

/// Assumed value of durations that are not known yet, us.
const TYPICAL: f64 = 50.0;

/// Weight of the assumption that a class's own spread is like the others'.
const ALIKE: f64 = 2.0;

/// Maximum distance of the logarithm of a class's squared spread from the others', and the maximum
/// change at once.
const FARTHEST: f64 = 8.0;
const AT_ONCE: f64 = 0.7;

#[derive(Clone, Copy, Debug, Default)]
struct Own {
    /// Logarithm of the squared spread, relative to the common one.
    log: f64,
    /// Derivatives of the likelihood with respect to `log` since its last change.
    gradient: f64,
    curvature: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Noise {
    /// Logarithm of the squared spread.
    log: f64,
    /// Curvature of the likelihood with respect to `log`.
    curvature: f64,
    /// Squared slopes and curvatures, which should be equal on average.
    seen: (f64, f64),
    /// Variance of the latency, us².
    latency: f64,
    latencies: f64,
    /// Classes' own spreads, by column.
    own: Vec<Own>,
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            log: (0.3_f64 * 0.3).ln(),
            curvature: 4.0,
            seen: (0.0, 0.0),
            latency: 60.0 * 60.0,
            latencies: 0.0,
            own: Vec::new(),
        }
    }
}

/// What an observation says about the phase, and how the phase depends on the logarithm of the
/// squared spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score {
    /// Derivative of the logarithm of the observation's probability with respect to the phase,
    /// 1/us.
    pub(crate) slope: f64,
    /// Its negative second derivative, 1/us².
    pub(crate) curvature: f64,
    /// Derivative of the expected phase.
    pub(crate) phase_slope: f64,
    /// Derivative of the phase's variance.
    pub(crate) variance_slope: f64,
}

impl Noise {
    /// The spread as a fraction of the mean.
    pub(crate) fn spread(&self) -> f64 {
        (self.log / 2.0).exp()
    }

    /// Variance of the duration of a packet of this column whose mean is `mean` us, and the part of
    /// it that is due to the spread, us².
    pub(crate) fn variance(&self, column: usize, mean: Option<f64>) -> (f64, f64) {
        let mean = mean.unwrap_or(TYPICAL);
        let own = self.own.get(column).map_or(0.0, |own| own.log);
        let spread = (self.log + own).clamp(BOUNDS.0, BOUNDS.1).exp() * mean * mean;
        (spread + ALWAYS * ALWAYS, spread)
    }

    /// Variance of the latency, us².
    pub(crate) fn latency(&self) -> f64 {
        self.latency
    }

    /// The factor by which the variances of innovations exceed their expectation.
    pub(crate) fn scale(&self) -> f64 {
        let (squares, curvatures) = self.seen;
        if curvatures > 0.0 {
            (squares / curvatures).clamp(0.5, 1e6)
        } else {
            1.0
        }
    }

    /// Learns from an observation about the spreads of the classes that contributed to the phase's
    /// variance, which is `variance` in total, us².
    pub(crate) fn learn_own(
        &mut self,
        one: &Score,
        variance: f64,
        parts: impl Iterator<Item = (usize, f64)>,
    ) {
        let square = (one.slope * one.slope).min(OUTLIER * one.curvature);
        if !square.is_finite() {
            return;
        }
        let most = (variance * one.curvature).clamp(1e-3, 1.0);
        for (column, part) in parts {
            if self.own.len() <= column {
                self.own.resize(column + 1, Own::default());
            }
            if let Some(own) = self.own.get_mut(column) {
                own.gradient += 0.5 * part * (square - one.curvature);
                // Shared by all classes of an observation, so that each one does not take the whole
                // of it.
                own.curvature += 0.5 * part * one.curvature * most;
            }
        }
    }

    /// Applies what was learned to the classes' own spreads.
    pub(crate) fn settle(&mut self) {
        for own in &mut self.own {
            let gradient = own.gradient - ALIKE * own.log;
            let step = (gradient / (own.curvature + ALIKE)).clamp(-AT_ONCE, AT_ONCE);
            own.log = (own.log + step).clamp(-FARTHEST, FARTHEST);
            (own.gradient, own.curvature) = (0.0, 0.0);
        }
    }

    /// Learns from an observation.
    pub(crate) fn learn(&mut self, one: &Score) {
        let square = (one.slope * one.slope).min(OUTLIER * one.curvature);
        let slope = square.sqrt().copysign(one.slope);
        if !(square.is_finite() && one.curvature > 0.0) {
            return;
        }
        // Observations that say little have little weight.
        let weight = (self.seen.1 * 0.997 + one.curvature).max(f64::MIN_POSITIVE);
        self.seen = (self.seen.0 * 0.997 + square, weight);
        let gradient =
            0.5 * one.variance_slope * (square - one.curvature) + slope * one.phase_slope;
        let relative = one.variance_slope * one.curvature;
        let curvature =
            0.5 * relative * relative + one.phase_slope * one.phase_slope * one.curvature;
        self.curvature = self.curvature * REMEMBERED + curvature;
        let step = (gradient / self.curvature.max(4.0)).clamp(-0.2, 0.2);
        if step.is_finite() {
            self.log = (self.log + step).clamp(BOUNDS.0, BOUNDS.1);
        }
    }

    /// Adds an innovation of a packet submitted into an empty queue. `known` is the part of its
    /// variance that is not due to the latency, us².
    pub(crate) fn latency_seen(&mut self, innovation: f64, known: f64) {
        if innovation.is_finite() {
            self.latencies = (self.latencies + 1.0).min(200.0);
            let seen = (innovation * innovation - known).clamp(0.0, 1e8);
            self.latency += (seen - self.latency) / (self.latencies + 4.0);
            self.latency = self.latency.max(1.0);
        }
    }
}
