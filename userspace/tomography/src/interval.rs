//! A normal distribution restricted to an interval.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The logarithm of the chance of the interval, and its derivatives at the edges. The upper edge
/// bounds the value itself; the lower one bounds a second value, which lies `length` above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chance {
    /// Derivatives with respect to the value that must lie above the lower edge, and to the value
    /// below the upper edge.
    pub(crate) slopes: [f64; 2],
    /// Negative second derivatives: of the first value, mixed, and of the second value.
    pub(crate) curvatures: [f64; 3],
}

impl Chance {
    /// For a normal distribution with this deviation, whose mean lies `above` the lower edge and
    /// `below` the upper one. `None` if the interval is out of reach, or so narrow that it is a
    /// point.
    pub(crate) fn of(above: f64, below: f64, deviation: f64) -> Option<Self> {
        let (lower, upper) = (-above / deviation, below / deviation);
        if !(upper - lower > NARROW && lower < FAR && upper > -FAR) {
            return None;
        }
        let chance = between(lower, upper);
        let (at_lower, at_upper) = (density(lower) / chance, density(upper) / chance);
        let square = deviation * deviation;
        let own = [at_lower * (at_lower - lower), at_upper * (at_upper + upper)];
        let both = -at_lower * at_upper;
        let [first, second] = own.map(|own| {
            if own.is_finite() {
                own.max(0.0) / square
            } else {
                0.0
            }
        });
        let slopes = [at_lower / deviation, -at_upper / deviation];
        (chance > 0.0 && slopes.iter().all(|slope| slope.is_finite())).then_some(Self {
            slopes,
            curvatures: [first, both / square, second],
        })
    }

    /// Derivative with respect to the mean.
    pub(crate) fn slope(&self) -> f64 {
        self.slopes.iter().sum()
    }

    /// Negative second derivative with respect to the mean.
    pub(crate) fn curvature(&self) -> f64 {
        let [first, both, second] = self.curvatures;
        (first + 2.0 * both + second).max(0.0)
    }
}

/// Narrower intervals count as points, in deviations.
const NARROW: f64 = 0.05;

/// Intervals farther away are out of reach, in deviations.
const FAR: f64 = 5.0;

fn density(at: f64) -> f64 {
    if at.is_infinite() {
        return 0.0;
    }
    (-0.5 * at * at).exp() / (2.0 * PI).sqrt()
}

/// The probability of a standard normal distribution between two values.
fn between(lower: f64, upper: f64) -> f64 {
    // Uses the side with the small tail probabilities, for precision.
    let (lower, upper) = if lower + upper < 0.0 {
        (-upper, -lower)
    } else {
        (lower, upper)
    };
    0.5 * (erfc(lower * FRAC_1_SQRT_2) - erfc(upper * FRAC_1_SQRT_2))
}

/// The complementary error function, to a relative error of 1.2e-7 (Numerical Recipes, 6.2).
fn erfc(at: f64) -> f64 {
    if at.is_infinite() {
        return if at > 0.0 { 0.0 } else { 2.0 };
    }
    let t = 1.0 / (1.0 + 0.5 * at.abs());
    const FACTORS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = FACTORS
        .iter()
        .rev()
        .fold(0.0, |sum, factor| sum * t + factor);
    let positive = t * (sum - at * at).exp();
    if at >= 0.0 { positive } else { 2.0 - positive }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_right() {
        for (at, value) in [
            (0.0, 1.0),
            (0.5, 0.479_500_12),
            (1.0, 0.157_299_21),
            (3.0, 2.209_05e-5),
            (-1.0, 1.842_700_79),
        ] {
            assert!((erfc(at) / value - 1.0).abs() < 1e-6, "{at}");
        }
    }

    #[test]
    fn derivatives_are_those_of_the_chance() {
        let logarithm = |above: f64, below: f64| between(-above / 2.0, below / 2.0).ln();
        let step = 1e-2;
        for (above, below) in [
            (1.0, 3.0),
            (-2.0, 5.0),
            (4.0, -2.5),
            (0.3, 0.4),
            (f64::INFINITY, 1.0),
        ] {
            let chance = Chance::of(above, below, 2.0).unwrap();
            // Raising the value that is below the upper edge leaves less room below that edge.
            let first =
                (logarithm(above + step, below) - logarithm(above - step, below)) / (2.0 * step);
            let second =
                (logarithm(above, below - step) - logarithm(above, below + step)) / (2.0 * step);
            for (slope, expected) in chance.slopes.into_iter().zip([first, second]) {
                assert!(
                    (slope - expected).abs() < 1e-3,
                    "{above} {below}: {slope} for {expected}"
                );
            }
            let moved = |by: f64| logarithm(above + by, below - by);
            let curvature = -(moved(step) - 2.0 * moved(0.0) + moved(-step)) / (step * step);
            assert!(
                (chance.curvature() - curvature).abs() < 0.01,
                "{above} {below}"
            );
        }
        assert_eq!(Chance::of(-20.0, 30.0, 2.0), None);
    }
}
