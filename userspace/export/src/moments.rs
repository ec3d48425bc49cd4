//! Statistics over the durations of one name, with rocprofv3's figures.

/// Durations of one name, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    /// Number of durations.
    pub calls: u64,
    /// Their sum.
    pub total: u128,
    squares: f64,
    /// The shortest; 0 if there are none.
    pub min: u64,
    /// The longest; 0 if there are none.
    pub max: u64,
}

impl Moments {
    /// Adds a duration, ns.
    pub fn add(&mut self, ns: u64) {
        self.min = if self.calls == 0 {
            ns
        } else {
            self.min.min(ns)
        };
        self.max = self.max.max(ns);
        self.calls += 1;
        self.total += u128::from(ns);
        self.squares += (ns as f64).powi(2);
    }

    /// Adds the durations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.min = if self.calls == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.calls += other.calls;
        self.total += other.total;
        self.squares += other.squares;
    }

    /// The sum of the squares, ns².
    #[must_use]
    pub fn squares(&self) -> f64 {
        self.squares
    }

    /// Their mean, ns; 0 if there are none.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.total as f64 / (self.calls.max(1)) as f64
    }

    /// Standard deviation of a sample, as rocprofv3 computes it; 0 for a single duration.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.variance().sqrt()
    }

    /// The square of [`Moments::deviation`], ns².
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.calls < 2 {
            return 0.0;
        }
        let total = self.total as f64;
        let variance = (self.squares - total * total / self.calls as f64) / (self.calls - 1) as f64;
        variance.abs()
    }
}

/// rocprofv3's name in its statistics for a group of domains (see [`crate::functions::group`]).
#[must_use]
pub fn domain(group: &str) -> String {
    match group {
        "kernel" => "KERNEL_DISPATCH".to_owned(),
        _ => group.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let mut moments = Moments::default();
        moments.add(7);
        assert_eq!(moments.deviation(), 0.0);
        for ns in [2, 4, 4, 4, 5, 5, 9] {
            moments.add(ns);
        }
        assert!((moments.deviation() - 2.138_089_935).abs() < 1e-8);
        assert_eq!((moments.min, moments.max, moments.calls), (2, 9, 8));
        assert_eq!(moments.average(), 5.0);
    }
}
