//! Leaving out samples that say nothing new.
//!
//! A clock that runs evenly is known from two samples. Those between them are left out if the line between
//! the two passes them within what is not known anyway; by how much it does at most stays with the later one
//! ([`ClockSample::off_ns`]), so that what was proven by all of them is still proven.

use super::{ClockSample, model::line_off};

/// Samples of one GPU that are kept at most: of 27 minutes at ten a second, of a GPU that is never idle.
pub const MAX_SAMPLES: usize = 1 << 14;

/// `last` in place of all between `first` and it, if the line between the two passes each of them within
/// `tolerance` times what is not known about the line and about it. `None` if one says something new.
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
    // How far the samples are from the line, and how far the truth may be from them: what they stand for
    // themselves lies within their own bounds of lines that are nowhere farther from this one.
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

/// Samples on their way to the capture: of each window the last one is enough, if the others say nothing new.
#[derive(Debug)]
pub struct Thinner {
    window_ns: u64,
    /// The last sample that was given out.
    first: Option<ClockSample>,
    waiting: Vec<ClockSample>,
}

impl Thinner {
    /// For windows of so many nanoseconds; 0 keeps every sample.
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        Self {
            window_ns,
            first: None,
            waiting: Vec::new(),
        }
    }

    /// Takes a sample, and returns those that are to be kept now.
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

    /// Returns what has been waiting to be kept.
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

/// The samples of one GPU's clock, of which there are never more than [`MAX_SAMPLES`].
#[derive(Clone, Debug, Default)]
pub struct ClockSamples {
    samples: Vec<ClockSample>,
    /// Doublings of what is tolerated.
    doublings: u32,
}

impl ClockSamples {
    /// Adds one. They come in order of time, or nearly so.
    pub fn push(&mut self, sample: ClockSample) {
        self.samples.push(sample);
        while self.samples.len() >= MAX_SAMPLES {
            self.thin();
        }
    }

    /// What was kept, in the order in which it came.
    #[must_use]
    pub fn as_slice(&self) -> &[ClockSample] {
        &self.samples
    }

    /// Forgets all but the newest `count`.
    pub fn keep_newest(&mut self, count: usize) {
        self.samples
            .drain(..self.samples.len().saturating_sub(count));
    }

    /// What was kept.
    #[must_use]
    pub fn into_vec(self) -> Vec<ClockSample> {
        self.samples
    }

    /// Leaves out every second one that says nothing new.
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
                // Whatever it is, it must end.
                None if self.doublings >= u64::BITS => {}
                None => kept.push(*sample),
            }
        }
        // There were leaps, or a clock that does not run evenly: less accuracy then, but not without saying so.
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
        // The first, all ten of the window with the bend, and one for the next.
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
                // Off by what two roundings make of it.
                assert!(
                    kept.iter().all(|one| one.off_ns <= 410),
                    "{:?}",
                    kept.last()
                );
            }
        }
    }
}
