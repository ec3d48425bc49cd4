//! Statistics of durations, e.g. of the calls of one function.

use hdrhistogram::Histogram;

/// Significant digits of the histogram: a percentile is at most 1 % too high. A histogram of two
/// digits takes a few KiB for short calls and 60 KiB at worst, so memory is bounded by the number
/// of functions.
const DIGITS: u8 = 2;

/// Exact sums and extremes, and approximate percentiles. All in ns.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    pub(crate) calls: u64,
    pub(crate) total: u128,
    pub(crate) min: u64,
    pub(crate) max: u64,
    /// Whether the durations include the single-stepping of an instruction.
    pub(crate) stepped: bool,
    histogram: Option<Histogram<u64>>,
}

impl Durations {
    pub(crate) fn new(stepped: bool) -> Self {
        Self {
            stepped,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, ns: u64) {
        self.min = if self.calls == 0 {
            ns
        } else {
            self.min.min(ns)
        };
        self.max = self.max.max(ns);
        self.calls += 1;
        self.total += u128::from(ns);
        if self.histogram.is_none() {
            self.histogram = Histogram::new(DIGITS).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            // The histogram grows as needed, and can hold any `u64`.
            let _ = histogram.record(ns);
        }
    }

    /// Mean duration, ns; 0 if there are no calls.
    pub(crate) fn average(&self) -> f64 {
        if self.calls == 0 {
            0.0
        } else {
            self.total as f64 / self.calls as f64
        }
    }

    /// Number of durations in each non-empty bucket; bucket n begins at 10^(n / `per_decade`) ns.
    pub(crate) fn buckets(&self, per_decade: f64) -> Vec<(u32, u64)> {
        let mut buckets: Vec<(u32, u64)> = Vec::new();
        for recorded in self.histogram.iter().flat_map(Histogram::iter_recorded) {
            let ns = recorded
                .value_iterated_to()
                .clamp(self.min.max(1), self.max.max(1));
            let bucket = ((ns as f64).log10() * per_decade).floor() as u32;
            match buckets.last_mut() {
                Some((last, count)) if *last == bucket => *count += recorded.count_at_value(),
                _ => buckets.push((bucket, recorded.count_at_value())),
            }
        }
        buckets
    }

    /// The duration that `percent` of the calls do not exceed, accurate to 1 %.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let value = self
            .histogram
            .as_ref()
            .map_or(0, |histogram| histogram.value_at_percentile(percent));
        value.clamp(self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_percent() {
        let mut durations = Durations::default();
        for ns in (1..=10_000u64).rev() {
            durations.add(ns * 1000);
        }
        assert_eq!(
            (durations.calls, durations.min, durations.max),
            (10_000, 1000, 10_000_000)
        );
        assert_eq!(durations.average(), 5_000_500.0);
        for (percent, exact) in [
            (50.0, 5_000_000.0),
            (95.0, 9_500_000.0),
            (99.0, 9_900_000.0),
        ] {
            let found = durations.percentile(percent) as f64;
            assert!((found / exact - 1.0).abs() < 0.01, "p{percent}: {found}");
        }
    }

    #[test]
    fn every_duration_is_in_a_bucket() {
        let mut durations = Durations::default();
        for ns in [0, 1, 9, 10, 11, 99, 1_000_000] {
            durations.add(ns);
        }
        assert_eq!(durations.buckets(1.0), [(0, 3), (1, 3), (6, 1)]);
        assert_eq!(Durations::default().buckets(8.0), []);
    }

    #[test]
    fn extremes_are_exact_and_absurd_values_do_not_panic() {
        let mut durations = Durations::default();
        durations.add(0);
        durations.add(u64::MAX);
        durations.add(u64::MAX);
        assert_eq!((durations.min, durations.max), (0, u64::MAX));
        assert_eq!(durations.total, u128::from(u64::MAX) * 2);
        assert!(durations.percentile(99.0) > u64::MAX / 100 * 99);
        assert_eq!(Durations::default().percentile(50.0), 0);
    }
}
