//! Leaves out samples that provide no new information.
//!
//! A clock that runs evenly is known from two samples. Samples between them are left out if the
//! line between the two passes them within the existing uncertainty. The maximum distance is stored
//! in the later sample ([`ClockSample::off_ns`]), so that whatever all samples proved is still
//! proven.

use super::{ClockSample, segments::line_off};

/// Maximum number of samples that are kept of one GPU: 27 minutes at ten per second, for a GPU that
/// is never idle.
pub const MAX_SAMPLES: usize = 1 << 14;

/// Replaces all samples between `first` and `last` by a new `last`, if the line between the two
/// passes each of them within `tolerance` times the uncertainty of the line and of the sample.
/// `None` if a sample provides new information.
#[must_use]
pub fn in_place_of(
    first: &ClockSample,
    between: &[ClockSample],
    last: &ClockSample,
    tolerance: u64,
) -> Option<ClockSample> {
    if between.is_empty() {
        return Some(*last);
    }
    let known = first.uncertainty_ns.max(last.uncertainty_ns);
    // Maximum distance of the samples from the line, and of the truth from the samples. A sample
    // that stands for others includes their distances from its own line, and no point of that line
    // is farther from this line than its ends.
    let (mut away, mut own, mut step, mut before) = (0, last.off_ns, 0, first);
    for sample in between {
        let here = line_off(first, sample, last)?;
        let unknown = known.saturating_add(sample.uncertainty_ns);
        if here > unknown.saturating_mul(tolerance) {
            return None;
        }
        away = away.max(here);
        own = own.max(sample.uncertainty_ns).max(sample.off_ns);
        step = step.max(sample.step_from(before));
        before = sample;
    }
    Some(ClockSample {
        off_ns: away.saturating_add(own).max(1),
        step_ns: step.max(last.step_from(before)),
        ..*last
    })
}

/// Thins samples on their way to the capture: the last one of each window suffices, if the others
/// provide no new information.
#[derive(Debug)]
pub struct Thinner {
    window_ns: u64,
    /// The last sample that was returned.
    first: Option<ClockSample>,
    waiting: Vec<ClockSample>,
}

impl Thinner {
    /// Makes a thinner with windows of `window_ns` nanoseconds; 0 keeps every sample.
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        Self {
            window_ns,
            first: None,
            waiting: Vec::new(),
        }
    }

    /// Adds a sample, and returns the samples to keep now.
    pub fn push(&mut self, sample: ClockSample) -> Vec<ClockSample> {
        self.waiting.push(sample);
        match &self.first {
            Some(first)
                if sample.boottime_ns.saturating_sub(first.boottime_ns) < self.window_ns =>
            {
                Vec::new()
            }
            _ => self.flush(),
        }
    }

    /// Returns the samples that are still waiting.
    pub fn flush(&mut self) -> Vec<ClockSample> {
        let waiting = std::mem::take(&mut self.waiting);
        let Some((last, between)) = waiting.split_last() else {
            return Vec::new();
        };
        let thinned = self
            .first
            .and_then(|first| in_place_of(&first, between, last, 1));
        self.first = Some(*last);
        thinned.map_or(waiting, |kept| vec![kept])
    }
}

/// The samples of one GPU's clock, at most [`MAX_SAMPLES`].
#[derive(Clone, Debug, Default)]
pub struct ClockSamples {
    samples: Vec<ClockSample>,
    /// Number of times that the tolerance was doubled.
    doublings: u32,
}

impl ClockSamples {
    /// Adds a sample. Samples come in approximate order of time.
    pub fn push(&mut self, sample: ClockSample) {
        self.samples.push(sample);
        while self.samples.len() >= MAX_SAMPLES {
            self.thin();
        }
    }

    /// The samples kept, in order of arrival.
    #[must_use]
    pub fn as_slice(&self) -> &[ClockSample] {
        &self.samples
    }

    /// Removes all but the newest `count` samples.
    pub fn keep_newest(&mut self, count: usize) {
        self.samples
            .drain(..self.samples.len().saturating_sub(count));
    }

    /// The samples kept.
    #[must_use]
    pub fn into_vec(self) -> Vec<ClockSample> {
        self.samples
    }

    /// Removes every second sample that provides no new information.
    fn thin(&mut self) {
        self.samples
            .sort_by_key(|sample| (sample.boottime_ns, sample.uncertainty_ns));
        let tolerance = 1_u64.checked_shl(self.doublings).unwrap_or(u64::MAX);
        let mut kept: Vec<ClockSample> = Vec::with_capacity(MAX_SAMPLES);
        let mut rest = self.samples.iter();
        while let Some(sample) = rest.next() {
            let (Some(first), Some(last)) = (kept.last(), rest.as_slice().first()) else {
                kept.push(*sample);
                continue;
            };
            match in_place_of(first, std::slice::from_ref(sample), last, tolerance) {
                Some(last) => {
                    kept.push(last);
                    rest.next();
                }
                // Ends the doubling in any case.
                None if self.doublings >= u64::BITS => {}
                None => kept.push(*sample),
            }
        }
        // There were leaps, or the clock does not run evenly: accuracy is reduced, and the samples
        // record by how much.
        if kept.len() > MAX_SAMPLES / 4 * 3 {
            self.doublings += 1;
        }
        self.samples = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sample(ns: u64, off: i64) -> ClockSample {
        ClockSample {
            gpu_id: 1,
            gpu_tick: ns / 10,
            boottime_ns: ns.saturating_add_signed(off),
            uncertainty_ns: 400,
            ..ClockSample::default()
        }
    }

    #[test]
    fn of_an_even_clock_the_last_of_a_window_is_kept() {
        let mut thinner = Thinner::new(1_000 * MS);
        let mut kept = Vec::new();
        for index in 0..=100_u64 {
            kept.extend(thinner.push(sample(index * 100 * MS, (index % 3) as i64 * 100)));
        }
        assert!((10..=11).contains(&kept.len()), "{}", kept.len());
        for one in &kept[1..] {
            assert!((400..=1_200).contains(&one.off_ns), "{one:?}");
            assert!((100 * MS..101 * MS).contains(&one.step_ns), "{one:?}");
        }
        assert!(thinner.flush().len() <= 1 && thinner.flush().is_empty());
    }

    #[test]
    fn a_clock_that_bends_keeps_all_of_the_window() {
        let mut thinner = Thinner::new(1_000 * MS);
        let mut kept = Vec::new();
        for index in 0..=20_i64 {
            let bend = if index > 5 { (index - 5) * 5_000 } else { 0 };
            kept.extend(thinner.push(sample(index as u64 * 100 * MS, bend)));
        }
        // The first, all ten samples of the window with the bend, and one for the next window.
        assert_eq!(kept.len(), 12);
    }

    #[test]
    fn without_a_window_nothing_is_left_out() {
        let mut thinner = Thinner::new(0);
        let kept: usize = (0..50)
            .map(|index| thinner.push(sample(index * MS, 0)).len())
            .sum();
        assert_eq!(kept, 50);
    }

    #[test]
    fn any_number_of_samples_is_bounded() {
        for noise in [0, 10_000_000_000_000_u64] {
            let mut samples = ClockSamples::default();
            for index in 0..1_000_000_u64 {
                let mut one = sample(index * 100 * MS, 0);
                one.gpu_tick ^= index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (noise + 1);
                samples.push(one);
                assert!(samples.samples.len() < MAX_SAMPLES);
            }
            let kept = samples.into_vec();
            assert!(kept.len() > MAX_SAMPLES / 8, "{}", kept.len());
            if noise == 0 {
                // Off by the effect of two roundings.
                assert!(
                    kept.iter().all(|one| one.off_ns <= 410),
                    "{:?}",
                    kept.last()
                );
            }
        }
    }
}
