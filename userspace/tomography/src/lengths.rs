//! Whether the kernels of a class have two lengths, as they do where an argument decides what they
//! do.
//!
//! A mean says little of such a class: no dispatch is near it. Where looks follow each other closely
//! enough to bound the duration of a single dispatch, that duration goes into a histogram of its
//! class. A class has two lengths if the histogram falls into two heaps with nothing in between.
//!
//! Close looks see short dispatches more often than long ones, so the heaps do not say how many
//! dispatches have each length. The mean does: it is estimated from all dispatches.

/// Bins for each doubling of the duration.
const PER_OCTAVE: f64 = 4.0;
/// From 1 us to about 17 minutes.
const BINS: usize = 120;
/// Bounds of a duration are close enough if they differ by this part of it.
const CLOSE: f64 = 0.3;
/// Durations that each heap must have, and the part of all that it must have.
const FEWEST: f64 = 5.0;
const LEAST_PART: f64 = 0.04;
/// How far the heaps are apart at least, as a logarithm to base 2, and in standard deviations of
/// the durations within them.
const APART: f64 = 0.6;
const DEVIATIONS: f64 = 4.0;
/// How many durations may lie in the middle between the heaps, as a part of the smaller heap.
const BETWEEN: f64 = 0.1;

/// Two lengths of the kernels of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// Mean of the shorter ones, ns.
    pub shorter: f64,
    /// Mean of the longer ones, ns.
    pub longer: f64,
    /// The share of dispatches that are longer, between 0 and 1.
    pub longer_share: f64,
}

/// Durations of single dispatches of a class, by the logarithm of their length.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// By bin: how many, and their sum, us.
    bins: Vec<(f64, f64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            bins: vec![(0.0, 0.0); BINS],
        }
    }
}

/// A heap: durations, mean of their logarithms, variance of these, and mean duration, us.
#[derive(Clone, Copy, Debug)]
struct Heap {
    count: f64,
    log: f64,
    variance: f64,
    mean: f64,
}

impl Heap {
    fn of(bins: &[(f64, f64)], first: usize) -> Option<Self> {
        let logs = || {
            let numbered = bins.iter().zip(first..);
            numbered.map(|((count, _), at)| (*count, (at as f64 + 0.5) / PER_OCTAVE))
        };
        let count: f64 = bins.iter().map(|(count, _)| count).sum();
        if count <= 0.0 {
            return None;
        }
        let log = logs().map(|(count, log)| count * log).sum::<f64>() / count;
        let squares = logs().map(|(count, at)| count * (at - log) * (at - log));
        Some(Self {
            count,
            log,
            variance: squares.sum::<f64>() / count,
            mean: bins.iter().map(|(_, sum)| sum).sum::<f64>() / count,
        })
    }
}

impl Histogram {
    /// Takes a duration with the gap behind it that lies between these bounds, us, if they are
    /// close.
    pub(crate) fn take(&mut self, least: f64, most: f64) {
        let middle = f64::midpoint(least, most);
        if !(middle >= 1.0 && most - least <= CLOSE * middle) {
            return;
        }
        let at = (middle.log2() * PER_OCTAVE) as usize;
        if let Some((count, sum)) = self.bins.get_mut(at) {
            *count += 1.0;
            *sum += middle;
        }
    }

    /// The two lengths, if there are two; `mean` is that of the class, `gap` is in the durations
    /// that came, us.
    pub(crate) fn lengths(&self, mean: f64, gap: f64) -> Option<Lengths> {
        let (shorter, longer) = self.split()?;
        let apart = longer.log - shorter.log;
        let count = shorter.count + longer.count;
        let least = FEWEST.max(LEAST_PART * count);
        let within = (shorter.variance * shorter.count + longer.variance * longer.count) / count;
        // A bin's width is a deviation that is always there.
        let deviation = (within + 1.0 / (12.0 * PER_OCTAVE * PER_OCTAVE)).sqrt();
        let smaller = shorter.count.min(longer.count);
        let bin = |log: f64| (log * PER_OCTAVE) as usize;
        let middle = bin(shorter.log + apart / 3.0)..=bin(longer.log - apart / 3.0);
        let between: f64 = self
            .bins
            .get(middle)
            .unwrap_or_default()
            .iter()
            .map(|(count, _)| count)
            .sum();
        let is_clear = smaller >= least
            && apart >= APART.max(DEVIATIONS * deviation)
            && between <= BETWEEN * smaller;
        let (short, long) = (shorter.mean - gap, longer.mean - gap);
        let is_within = short > 0.0 && short < mean && mean < long;
        (is_clear && is_within).then(|| Lengths {
            shorter: short * 1e3,
            longer: long * 1e3,
            longer_share: (mean - short) / (long - short),
        })
    }

    /// The two heaps that differ most (Otsu's method).
    fn split(&self) -> Option<(Heap, Heap)> {
        let heaps = (1..BINS).filter_map(|at| {
            let (shorter, longer) = self.bins.split_at_checked(at)?;
            let (shorter, longer) = (Heap::of(shorter, 0)?, Heap::of(longer, at)?);
            let apart = longer.log - shorter.log;
            Some((
                shorter.count * longer.count * apart * apart,
                shorter,
                longer,
            ))
        });
        heaps
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .map(|(_, shorter, longer)| (shorter, longer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(durations: impl IntoIterator<Item = f64>) -> Histogram {
        let mut histogram = Histogram::default();
        for duration in durations {
            histogram.take(duration - 1.0, duration + 1.0);
        }
        histogram
    }

    /// Between 0 and 1, evenly.
    fn even(count: u32) -> impl Iterator<Item = f64> + Clone {
        (0..count).map(move |at| (f64::from(at) + 0.5) / f64::from(count))
    }

    #[test]
    fn two_heaps_are_two_lengths() {
        // Seven of ten take 100 us, the others 500 us; close looks saw the long ones less often.
        let short = even(90).map(|part| 100.0 + 10.0 * (part - 0.5));
        let long = even(12).map(|part| 500.0 + 50.0 * (part - 0.5));
        let found = histogram(short.chain(long)).lengths(215.0, 5.0).unwrap();
        assert!((found.shorter / 95e3 - 1.0).abs() < 0.01, "{found:?}");
        assert!((found.longer / 495e3 - 1.0).abs() < 0.01, "{found:?}");
        assert!((found.longer_share - 0.3).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn one_heap_is_one_length_however_wide() {
        assert_eq!(histogram([]).lengths(100.0, 5.0), None);
        assert_eq!(histogram(vec![100.0; 500]).lengths(95.0, 5.0), None);
        for wide in [1.1_f64, 2.0, 10.0, 100.0] {
            let spread = even(500).map(|part| 50.0 * wide.powf(part));
            let mean = spread.clone().sum::<f64>() / 500.0;
            assert_eq!(histogram(spread).lengths(mean - 5.0, 5.0), None, "{wide}");
        }
        // Growing clocks: two heaps that touch.
        let slower = even(200).map(|part| 100.0 + 60.0 * part);
        assert_eq!(histogram(slower).lengths(125.0, 5.0), None);
    }

    #[test]
    fn few_are_no_length() {
        let all = |long: usize| [vec![100.0; 90], vec![500.0; long]].concat();
        assert_eq!(histogram(all(4)).lengths(120.0, 5.0), None);
        assert!(histogram(all(5)).lengths(120.0, 5.0).is_some());
        // A mean outside of both fits neither.
        assert_eq!(histogram(all(30)).lengths(600.0, 5.0), None);
    }

    #[test]
    fn far_bounds_say_nothing() {
        let mut histogram = Histogram::default();
        for _ in 0..100 {
            histogram.take(50.0, 150.0);
            histogram.take(f64::NAN, 3.0);
            histogram.take(-5.0, f64::INFINITY);
            histogram.take(1e12, 1e12);
        }
        assert!(histogram.split().is_none());
    }
}
