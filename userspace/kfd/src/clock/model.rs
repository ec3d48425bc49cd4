//! Conversion between GPU ticks and `CLOCK_BOOTTIME` from a list of samples.
//!
//! All arithmetic is on 128-bit integers: ticks and nanoseconds have up to 64 bits, and products of two
//! differences must not lose any.

use std::cmp::Reverse;

use thiserror::Error;

use super::ClockSample;

/// By how much a clock's rate is taken to change while nobody looks, parts per million.
///
/// Crystals change by less than one with temperature; NTP and PTP daemons steer the host's clock in
/// steps of some ten.
pub const RATE_CHANGE_PPM: u64 = 50;

/// The rate beyond the samples is measured over at least this time, if there is so much, ns.
const BASE_NS: i128 = 1_000_000_000;

/// Samples on either side that are searched for a rate to compare an interval with.
const NEIGHBOURS: usize = 256;

/// An interval whose rate differs by more than this part from the usual one holds a leap.
const LEAP_DIVISOR: i128 = 1_000;

/// An interval that is longer, ns, is one in which the GPU was idle, and may have been asleep.
const LONG_NS: i128 = 10_000_000_000;

/// Such an interval holds a leap if its rate differs from the usual one by more, parts per million: the clock
/// may have stood still for a part of it.
const LONG_LEAP_PPM: u64 = 4 * RATE_CHANGE_PPM;

/// What is known about a moment from elsewhere, `CLOCK_BOOTTIME` in ns: it is not before the doorbell and not
/// after the stamp was found. The default knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Not before.
    pub not_before: u64,
    /// Not after.
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
    /// Not before a moment, such as the doorbell's.
    #[must_use]
    pub fn from(not_before: u64) -> Self {
        Self {
            not_before,
            ..Self::default()
        }
    }
}

/// A count as a moment of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTime {
    /// `CLOCK_BOOTTIME`, ns.
    pub boottime_ns: u64,
    /// The moment lies at most so far before or after, ns.
    pub uncertainty_ns: u64,
    /// Whether it lies before the first, after the last sample, or beside a leap, where nothing
    /// confirms the line.
    pub extrapolated: bool,
    /// Whether the count also fits another segment. The earliest one that fits the window was chosen.
    pub ambiguous: bool,
    /// Which run of the counter it belongs to, from 0. Differences across segments mean nothing.
    pub segment: usize,
}

/// A moment of the host as a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuTime {
    /// The count, ticks.
    pub gpu_tick: u64,
    /// The count was reached at most so far before or after, ns.
    pub uncertainty_ns: u64,
    /// As for [`HostTime`].
    pub extrapolated: bool,
    /// Whether the counter leapt near the moment, so that the count may be another segment's.
    pub ambiguous: bool,
    /// As for [`HostTime`].
    pub segment: usize,
}

/// Why a count or moment has no counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unresolved {
    /// The GPU's clock was never sampled.
    #[error("the GPU's clock was never sampled")]
    NoSamples,
    /// One sample only: the rate is not known.
    #[error("the GPU's clock was sampled once only, so its rate is unknown")]
    NoRate,
    /// No moment in the window has this count.
    #[error("no moment in the window has this count")]
    OutsideWindow,
}

/// One GPU's clock over a recording.
#[derive(Clone, Debug, Default)]
pub struct ClockModel {
    segments: Vec<Segment>,
    rate: Option<Rate>,
}

/// Ticks and the nanoseconds they take, both positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    ticks: i128,
    ns: i128,
    /// What is not known about the nanoseconds.
    noise: i128,
}

/// What is not known about an interval between two points.
#[derive(Clone, Copy, Debug, Default)]
struct Residual {
    /// By how much the line may be off anywhere in it, ns.
    bend: i128,
    /// How far it was off at samples that were left out, ns.
    off: i128,
    /// By how much it is longer or shorter than the usual rate lets expect, ns.
    unusual: i128,
}

/// A run of the counter without leaps.
#[derive(Clone, Debug)]
struct Segment {
    /// Count of the first sample. Others are distances from it, so that a counter may wrap.
    base: u64,
    points: Vec<Point>,
    /// For each point and the next.
    residuals: Vec<Residual>,
    /// The last sample before it and the first after it: the segment ends within.
    after: Option<i128>,
    before: Option<i128>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    /// Ticks since the segment's base.
    ticks: i128,
    /// `CLOCK_BOOTTIME`.
    ns: i128,
    uncertainty: i128,
    /// As in [`ClockSample`], about the interval before it.
    off: i128,
    /// As in [`ClockSample`], about the interval before it.
    step: i128,
}

/// A coordinate on the line, with everything else about it.
struct OnLine {
    value: i128,
    uncertainty: i128,
    extrapolated: bool,
}

impl ClockModel {
    /// The clock of the GPU `gpu_id` from those of the samples that are its own, in any order.
    pub fn new(gpu_id: u32, samples: impl IntoIterator<Item = ClockSample>) -> Self {
        let own = samples.into_iter().filter(|sample| sample.gpu_id == gpu_id);
        let mut samples: Vec<ClockSample> = own.collect();
        samples.sort_by_key(|sample| (sample.boottime_ns, sample.uncertainty_ns));
        // Two at one moment: the sharper one says it.
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

    /// How many runs of the counter there are: 1 and the number of leaps.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Ticks per second of the host's clock, rounded; `None` if there are less than two samples.
    #[must_use]
    pub fn frequency_hz(&self) -> Option<u64> {
        let rate = self.rate?;
        u64::try_from(scaled(1_000_000_000, rate.ticks, rate.ns)).ok()
    }

    /// The moment at which the counter had this value.
    ///
    /// If the counter had it more than once, the earliest such moment in the window is taken and marked ambiguous.
    ///
    /// # Errors
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
                        ambiguous: false,
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

    /// The value that the counter had at a moment of `CLOCK_BOOTTIME` (ns).
    ///
    /// Between the last sample before a leap and the first one after it, the nearer one's segment is taken, and the
    /// result marked ambiguous.
    ///
    /// # Errors
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
        let first = segment.points.first().is_some_and(|first| ns < first.ns);
        let last = segment.points.last().is_some_and(|last| ns > last.ns);
        Ok(GpuTime {
            gpu_tick: segment.base.wrapping_add_signed(clamped(on_line.value)),
            uncertainty_ns: unsigned(on_line.uncertainty),
            extrapolated: on_line.extrapolated,
            ambiguous: first && segment.after.is_some() || last && segment.before.is_some(),
            segment: index,
        })
    }
}

/// The rate that most intervals have, `None` without any.
fn usual_rate(samples: &[ClockSample]) -> Option<Rate> {
    let intervals = samples.windows(2).filter_map(|pair| match pair {
        [first, second] => {
            let rate = Rate {
                ticks: distance(first.gpu_tick, second.gpu_tick),
                ns: i128::from(second.boottime_ns.checked_sub(first.boottime_ns)?),
                noise: noise(first, second),
            };
            (rate.ticks > 0 && rate.ns > 0).then_some(rate)
        }
        _ => None,
    });
    let mut intervals: Vec<Rate> = intervals.collect();
    // Intervals that are long enough for a rate, if there are such.
    let is_long = |rate: &Rate| rate.ns > rate.noise.saturating_mul(LEAP_DIVISOR);
    if intervals.iter().any(is_long) {
        intervals.retain(is_long);
    }
    // Nanoseconds per tick, most first: of two, the one that does not hold a leap forwards is in the middle.
    intervals.sort_by_cached_key(|rate| Reverse(scaled(1 << 40, rate.ns, rate.ticks)));
    let middle = intervals.len().saturating_sub(1) / 2;
    intervals.get(middle).copied()
}

/// What is not known about the time between two samples.
fn noise(first: &ClockSample, second: &ClockSample) -> i128 {
    i128::from(first.uncertainty_ns) + i128::from(second.uncertainty_ns)
}

fn segments(samples: &[ClockSample], rate: Option<Rate>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut last: Option<ClockSample> = None;
    for sample in samples {
        let ns = i128::from(sample.boottime_ns);
        let uncertainty = i128::from(sample.uncertainty_ns);
        match (last, segments.last_mut()) {
            (Some(previous), Some(segment)) if continues(&previous, sample, rate) => {
                // Two samples within a tick: the line needs only one of them.
                if sample.gpu_tick == previous.gpu_tick {
                    continue;
                }
                segment.points.push(Point {
                    ticks: segment.ticks(sample.gpu_tick),
                    ns,
                    uncertainty,
                    off: sample.off_ns.into(),
                    step: sample.step_ns.into(),
                });
            }
            (_, current) => {
                let after = current.and_then(|segment| {
                    segment.before = Some(ns.saturating_add(uncertainty));
                    let last = segment.points.last()?;
                    Some(last.ns.saturating_sub(last.uncertainty))
                });
                let first = Point {
                    ticks: 0,
                    ns,
                    uncertainty,
                    off: 0,
                    step: 0,
                };
                segments.push(Segment {
                    base: sample.gpu_tick,
                    points: vec![first],
                    residuals: Vec::new(),
                    after,
                    before: None,
                });
            }
        }
        last = Some(*sample);
    }
    for segment in &mut segments {
        segment.residuals = residuals(&segment.points, rate);
    }
    segments
}

/// Whether the counter ran from one sample to the next without a leap.
fn continues(first: &ClockSample, second: &ClockSample, rate: Option<Rate>) -> bool {
    let ticks = distance(first.gpu_tick, second.gpu_tick);
    let ns = i128::from(second.boottime_ns.saturating_sub(first.boottime_ns));
    let Some(rate) = rate.filter(|_| ticks >= 0) else {
        return false;
    };
    let expected = scaled(ticks, rate.ns, rate.ticks);
    let longer = expected.max(ns);
    let allowed = if longer > LONG_NS {
        ppm(longer, LONG_LEAP_PPM)
    } else {
        longer / LEAP_DIVISOR
    };
    let allowed =
        allowed + noise(first, second) + scaled(expected, rate.noise, rate.ns) + 2 * tick_ns(rate);
    (expected - ns).abs() <= allowed
}

/// By how much the line may be off between each point and the next.
fn residuals(points: &[Point], rate: Option<Rate>) -> Vec<Residual> {
    let mut residuals = Vec::with_capacity(points.len());
    for (index, pair) in points.windows(2).enumerate() {
        let [first, second] = pair else { continue };
        let (ticks, ns) = (second.ticks - first.ticks, second.ns - first.ns);
        // What the rates before and after let expect, each measured over as long a time: a shorter one
        // would be mostly noise.
        let before = points.get(..index).unwrap_or_default().iter().rev();
        let before = before
            .take(NEIGHBOURS)
            .map(|point| between(point, first))
            .find(|rate| rate.ns >= ns);
        let after = points.get(index + 2..).unwrap_or_default().iter();
        let after = after
            .take(NEIGHBOURS)
            .map(|point| between(second, point))
            .find(|rate| rate.ns >= ns);
        let expected = |rate: Rate| scaled(ticks, rate.ns, rate.ticks);
        let bend = match (before.map(expected), after.map(expected)) {
            // The samples that were left out have been compared with the line already.
            _ if second.step > 0 => ppm(second.step, RATE_CHANGE_PPM) / 4,
            // A rate that changes from one to the other on the way bends the line by a quarter of the difference.
            (Some(one), Some(other)) => outside(ns, one, other) + (one - other).abs() / 4,
            (Some(one), None) | (None, Some(one)) => (ns - one).abs(),
            (None, None) => ppm(ns, RATE_CHANGE_PPM) / 4,
        };
        residuals.push(Residual {
            bend,
            off: second.off,
            unusual: rate.map_or(0, |rate| {
                (expected(rate) - ns).abs() + scaled(ns, rate.noise, rate.ns)
            }),
        });
    }
    residuals
}

/// How far a value is outside of two others.
fn outside(value: i128, one: i128, other: i128) -> i128 {
    let (low, high) = (one.min(other), one.max(other));
    (low - value).max(value - high).max(0)
}

fn between(first: &Point, second: &Point) -> Rate {
    Rate {
        ticks: (second.ticks - first.ticks).max(1),
        ns: (second.ns - first.ns).max(1),
        noise: first.uncertainty + second.uncertainty,
    }
}

/// A line through a point.
struct Line {
    through: Point,
    rate: Rate,
}

impl Segment {
    /// Distance of a count from the base.
    fn ticks(&self, gpu_tick: u64) -> i128 {
        distance(self.base, gpu_tick)
    }

    /// How far a moment is from the samples.
    fn distance(&self, ns: i128) -> i128 {
        match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) => outside(ns, first.ns, last.ns),
            _ => i128::MAX,
        }
    }

    /// The moment of a count.
    fn moment(&self, ticks: i128, rate: Option<Rate>) -> Option<OnLine> {
        let after = self.points.partition_point(|point| point.ticks <= ticks);
        if let Some((first, second, residual)) = self.interval(after) {
            let within = scaled(
                ticks - first.ticks,
                second.ns - first.ns,
                second.ticks - first.ticks,
            );
            return Some(OnLine {
                value: first.ns + within,
                uncertainty: inside(first, second, residual, first.ns + within),
                extrapolated: false,
            });
        }
        let line = self.line(after == 0, rate)?;
        let away = scaled(ticks - line.through.ticks, line.rate.ns, line.rate.ticks);
        Some(OnLine {
            value: line.through.ns.saturating_add(away),
            uncertainty: line.uncertainty(away),
            extrapolated: away != 0,
        })
    }

    /// The count at a moment, as distance from the base.
    fn count(&self, ns: i128, rate: Option<Rate>) -> Option<OnLine> {
        let after = self.points.partition_point(|point| point.ns <= ns);
        if let Some((first, second, residual)) = self.interval(after) {
            let within = scaled(
                ns - first.ns,
                second.ticks - first.ticks,
                second.ns - first.ns,
            );
            return Some(OnLine {
                value: first.ticks + within,
                uncertainty: inside(first, second, residual, ns),
                extrapolated: false,
            });
        }
        let line = self.line(after == 0, rate)?;
        let away = ns - line.through.ns;
        let ticks = scaled(away, line.rate.ticks, line.rate.ns);
        Some(OnLine {
            value: line.through.ticks.saturating_add(ticks),
            uncertainty: line.uncertainty(away),
            extrapolated: away != 0,
        })
    }

    /// The points around a place, given the number of points before it; `None` if it is outside.
    fn interval(&self, after: usize) -> Option<(&Point, &Point, Residual)> {
        let before = after.checked_sub(1)?;
        let (first, second) = (self.points.get(before)?, self.points.get(after)?);
        Some((first, second, *self.residuals.get(before)?))
    }

    /// The line beyond the first or the last point.
    fn line(&self, beyond_first: bool, rate: Option<Rate>) -> Option<Line> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let (end, other) = if beyond_first {
            let long = |point: &&Point| point.ns - first.ns >= BASE_NS;
            (first, self.points.iter().find(long).unwrap_or(last))
        } else {
            let long = |point: &&Point| last.ns - point.ns >= BASE_NS;
            (last, self.points.iter().rev().find(long).unwrap_or(first))
        };
        let rate = match self.points.len() {
            // The rate of the clock's other runs; the hardware is the same.
            0 | 1 => rate?,
            _ if beyond_first => between(end, other),
            _ => between(other, end),
        };
        Some(Line {
            through: *end,
            rate,
        })
    }
}

impl Line {
    /// At so many nanoseconds from its point.
    fn uncertainty(&self, away: i128) -> i128 {
        let away = away.saturating_abs();
        let measured = scaled(away, self.rate.noise, self.rate.ns);
        (self.through.uncertainty + tick_ns(self.rate))
            .saturating_add(measured)
            .saturating_add(ppm(away, RATE_CHANGE_PPM))
    }
}

/// At a moment between two samples.
fn inside(first: &Point, second: &Point, residual: Residual, ns: i128) -> i128 {
    let ends = first.uncertainty.max(second.uncertainty).max(residual.off);
    let distance = (ns - first.ns).min(second.ns - ns).max(0);
    // From the nearer sample the clock went on at about the usual rate, from which the line's is known to differ by
    // so much.
    let lean = scaled(distance, residual.unusual, (second.ns - first.ns).max(1));
    let near = ppm(distance, RATE_CHANGE_PPM).saturating_add(lean);
    ends + residual.bend.min(near) + tick_ns(between(first, second))
}

/// By how much the line between two samples passes another, ns; `None` if they are no line.
pub(super) fn line_off(
    first: &ClockSample,
    sample: &ClockSample,
    last: &ClockSample,
) -> Option<u64> {
    let ticks = distance(first.gpu_tick, last.gpu_tick);
    let ns = i128::from(last.boottime_ns.checked_sub(first.boottime_ns)?);
    if ticks <= 0 {
        return None;
    }
    let expected = scaled(distance(first.gpu_tick, sample.gpu_tick), ns, ticks);
    let found = i128::from(sample.boottime_ns) - i128::from(first.boottime_ns);
    Some(unsigned((expected - found).abs()))
}

/// A tick, rounded up to whole nanoseconds, and one for the rounding of the result.
fn tick_ns(rate: Rate) -> i128 {
    match (i64::try_from(rate.ns), i64::try_from(rate.ticks)) {
        // As in `scaled`: a division of small numbers is faster. Both are positive.
        (Ok(ns), Ok(ticks)) => i128::from(ns.checked_div(ticks).unwrap_or(0)) + 2,
        _ => rate.ns.checked_div(rate.ticks).unwrap_or(0) + 2,
    }
}

/// From one count to another, over the wrap if that is shorter.
fn distance(from: u64, to: u64) -> i128 {
    i128::from(to.wrapping_sub(from).cast_signed())
}

/// Farther than any moment or count is from another, so that sums of a few distances do not overflow.
const FAR: i128 = 1 << 100;

/// `value * numerator / denominator`, rounded to nearest, and no more than [`FAR`].
fn scaled(value: i128, numerator: i128, denominator: i128) -> i128 {
    // Most often they are small; a division of 128-bit numbers takes several times as long.
    if let (Ok(value), Ok(numerator), Ok(denominator)) = (
        i64::try_from(value),
        i64::try_from(numerator),
        i64::try_from(denominator),
    ) && let Some(product) = value.checked_mul(numerator)
        && let Some(sum) = product.checked_add(denominator / 2)
        && let Some(quotient) = sum.checked_div_euclid(denominator)
    {
        return quotient.into();
    }
    let product = value.saturating_mul(numerator);
    let half = denominator / 2;
    product
        .saturating_add(half)
        .checked_div_euclid(denominator)
        .unwrap_or(0)
        .clamp(-FAR, FAR)
}

fn ppm(value: i128, parts: u64) -> i128 {
    scaled(value, parts.into(), 1_000_000)
}

/// The nearest that a moment or a duration can be.
fn unsigned(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

fn clamped(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}
