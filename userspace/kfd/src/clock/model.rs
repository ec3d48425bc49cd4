//! Conversion between GPU ticks and `CLOCK_BOOTTIME`, based on a list of samples.

use thiserror::Error;

use super::{
    ClockSample,
    arithmetic::{clamped, scaled, unsigned},
    segments::{Rate, Segment, segments, usual_rate},
};

/// Assumed maximum change of a clock's rate without a reading, parts per million.
///
/// Crystals change by less than one ppm with temperature; NTP and PTP daemons steer the host's
/// clock in steps of some ten.
pub const RATE_CHANGE_PPM: u64 = 50;

/// Knowledge about a moment from other sources, `CLOCK_BOOTTIME` in ns: for example, it is not
/// before the doorbell and not after the stamp was found. The default excludes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Earliest possible time.
    pub not_before: u64,
    /// Latest possible time.
    pub not_after: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            not_before: 0,
            not_after: u64::MAX,
        }
    }
}

impl Window {
    /// The window that begins at a time, such as the doorbell's.
    #[must_use]
    pub fn from(not_before: u64) -> Self {
        Self {
            not_before,
            ..Self::default()
        }
    }
}

/// The host time of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTime {
    /// `CLOCK_BOOTTIME`, ns.
    pub boottime_ns: u64,
    /// Maximum error of the time, before or after, ns.
    pub uncertainty_ns: u64,
    /// Whether the time is before the first sample, after the last one, or beside a leap, where
    /// nothing confirms the line.
    pub extrapolated: bool,
    /// Whether the count also fits another segment, or the time is between the last sample before a
    /// leap and the first one after it, where the counter may have leapt more than once. Of several
    /// segments that fit the window, the earliest one was chosen.
    pub ambiguous: bool,
    /// Segment (run of the counter) that it belongs to, from 0. Differences across segments have no
    /// meaning.
    pub segment: usize,
}

/// The count at a host time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuTime {
    /// Counter value, ticks.
    pub gpu_tick: u64,
    /// Maximum time before or after, ns, at which the counter had this value.
    pub uncertainty_ns: u64,
    /// As in [`HostTime`].
    pub extrapolated: bool,
    /// Whether the counter leapt near the time, so that the count may belong to another segment.
    pub ambiguous: bool,
    /// As in [`HostTime`].
    pub segment: usize,
}

/// Why a count or time cannot be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unresolved {
    /// The GPU's clock was never sampled.
    #[error("the GPU's clock was never sampled")]
    NoSamples,
    /// The GPU's clock was sampled only once, or leapt between most samples, so its rate is not
    /// known.
    #[error(
        "the GPU's clock was sampled once only, or leapt between most samples, so its rate is unknown"
    )]
    NoRate,
    /// The counter did not have this value at any time in the window.
    #[error("no moment in the window has this count")]
    OutsideWindow,
}

/// One GPU's clock over a recording.
#[derive(Clone, Debug, Default)]
pub struct ClockModel {
    segments: Vec<Segment>,
    rate: Option<Rate>,
}

impl ClockModel {
    /// Builds the clock of the GPU `gpu_id` from the samples of that GPU; samples may be in any
    /// order.
    pub fn new(gpu_id: u32, samples: impl IntoIterator<Item = ClockSample>) -> Self {
        let own = samples.into_iter().filter(|sample| sample.gpu_id == gpu_id);
        let mut samples: Vec<ClockSample> = own.collect();
        samples.sort_by_key(|sample| (sample.boottime_ns, sample.uncertainty_ns));
        // Of two samples at one time, the more precise one is kept.
        samples.dedup_by_key(|sample| sample.boottime_ns);
        let rate = usual_rate(&samples);
        Self {
            segments: segments(&samples, rate),
            rate,
        }
    }

    /// Whether there were no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Number of segments: one more than the number of leaps.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Ticks per second of the host's clock, rounded; `None` if there are fewer than two samples.
    #[must_use]
    pub fn frequency_hz(&self) -> Option<u64> {
        let rate = self.rate?;
        u64::try_from(scaled(1_000_000_000, rate.ticks, rate.ns)).ok()
    }

    /// The time at which the counter had this value.
    ///
    /// If the counter had it more than once, the earliest such time in the window is returned and
    /// marked ambiguous, as are times beside a leap.
    ///
    /// # Errors
    ///
    /// [`Unresolved`].
    pub fn to_boottime(&self, gpu_tick: u64, window: Window) -> Result<HostTime, Unresolved> {
        if self.segments.is_empty() {
            return Err(Unresolved::NoSamples);
        }
        let mut found: Option<HostTime> = None;
        let mut rated = false;
        for (index, segment) in self.segments.iter().enumerate() {
            let Some(on_line) = segment.moment(segment.ticks(gpu_tick), self.rate) else {
                continue;
            };
            rated = true;
            let (ns, uncertainty) = (on_line.value, on_line.uncertainty);
            let earliest = segment
                .after
                .unwrap_or(i128::MIN)
                .max(window.not_before.into());
            let latest = segment
                .before
                .unwrap_or(i128::MAX)
                .min(window.not_after.into());
            if ns.saturating_add(uncertainty) < earliest || ns.saturating_sub(uncertainty) > latest
            {
                continue;
            }
            match &mut found {
                Some(first) => first.ambiguous = true,
                None => {
                    found = Some(HostTime {
                        boottime_ns: unsigned(ns),
                        uncertainty_ns: unsigned(uncertainty),
                        extrapolated: on_line.extrapolated,
                        ambiguous: segment.is_beside_leap(ns),
                        segment: index,
                    });
                }
            }
        }
        found.ok_or(if rated {
            Unresolved::OutsideWindow
        } else {
            Unresolved::NoRate
        })
    }

    /// The counter's value at a time of `CLOCK_BOOTTIME` (ns).
    ///
    /// Between the last sample before a leap and the first one after it, the nearer one's segment
    /// is used, and the result is marked ambiguous.
    ///
    /// # Errors
    ///
    /// [`Unresolved::NoSamples`] and [`Unresolved::NoRate`].
    pub fn to_tick(&self, boottime_ns: u64) -> Result<GpuTime, Unresolved> {
        let ns = i128::from(boottime_ns);
        let distance = |segment: &Segment| segment.distance(ns);
        let nearest = self
            .segments
            .iter()
            .enumerate()
            .min_by_key(|(index, segment)| (distance(segment), *index));
        let (index, segment) = nearest.ok_or(Unresolved::NoSamples)?;
        let on_line = segment.count(ns, self.rate).ok_or(Unresolved::NoRate)?;
        Ok(GpuTime {
            gpu_tick: segment.base.wrapping_add_signed(clamped(on_line.value)),
            uncertainty_ns: unsigned(on_line.uncertainty),
            extrapolated: on_line.extrapolated,
            ambiguous: segment.is_beside_leap(ns),
            segment: index,
        })
    }
}
