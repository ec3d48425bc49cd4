//! The runs of a GPU's counter without leaps, each a line through samples, and what is not known
//! about the line.

use super::{
    ClockSample, RATE_CHANGE_PPM,
    arithmetic::{distance, ppm, scaled, unsigned},
};

/// Minimum time over which the rate beyond the samples is measured, if the samples cover it, ns.
const BASE_NS: i128 = 1_000_000_000;

/// Maximum number of samples on either side that are searched for a rate to compare an interval
/// with.
const NEIGHBOURS: usize = 256;

/// An interval contains a leap if its rate differs from the usual one by more than one part in this
/// number.
const LEAP_DIVISOR: i128 = 1_000;

/// Intervals longer than this, ns, are ones in which the GPU was idle and may have been asleep.
const LONG_NS: i128 = 10_000_000_000;

/// Such a long interval contains a leap if its rate differs from the usual one by more than this,
/// parts per million: the clock may have stood still for part of it.
const LONG_LEAP_PPM: u64 = 4 * RATE_CHANGE_PPM;

/// A number of ticks and the nanoseconds that they take, both positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) ticks: i128,
    pub(super) ns: i128,
    /// Uncertainty of the nanoseconds.
    noise: i128,
}

/// Uncertainty of an interval between two points.
#[derive(Clone, Copy, Debug, Default)]
struct Residual {
    /// Maximum distance of the line from the truth anywhere in the interval, ns.
    bend: i128,
    /// Maximum distance of the line from samples that were left out, ns.
    off: i128,
    /// Difference between the interval's length and the one expected from the usual rate, ns.
    unusual: i128,
}

/// A run of the counter without leaps.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Count of the first sample. Other counts are stored relative to it, so that the counter may
    /// wrap.
    pub(super) base: u64,
    pub(super) points: Vec<Point>,
    /// One for each pair of neighbouring points.
    residuals: Vec<Residual>,
    /// Times of the last sample before the segment's end and of the first one after it.
    pub(super) after: Option<i128>,
    pub(super) before: Option<i128>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Ticks since the segment's base.
    ticks: i128,
    /// `CLOCK_BOOTTIME`.
    pub(super) ns: i128,
    uncertainty: i128,
    /// As in [`ClockSample`], about the interval before it.
    off: i128,
    /// As in [`ClockSample`], about the interval before it.
    step: i128,
}

/// A coordinate on the line, with its properties.
pub(super) struct OnLine {
    pub(super) value: i128,
    pub(super) uncertainty: i128,
    pub(super) extrapolated: bool,
}

/// The time between two neighbouring samples, as far as it tells the rate.
#[derive(Clone, Copy, Debug)]
struct Interval {
    rate: Rate,
    /// Its rate, and the rates that it allows if it contains no leap; ns per 2⁴⁰ ticks.
    itself: i128,
    least: i128,
    most: i128,
    /// 2 if samples within it were left out, which means that they agreed with it; otherwise 1.
    weight: usize,
}

impl Interval {
    fn between(first: &ClockSample, second: &ClockSample) -> Option<Self> {
        let rate = Rate {
            ticks: distance(first.gpu_tick, second.gpu_tick),
            ns: i128::from(second.boottime_ns.checked_sub(first.boottime_ns)?),
            noise: noise(first, second),
        };
        if rate.ticks <= 0 || rate.ns <= 0 {
            return None;
        }
        let allowed = rate.ns / LEAP_DIVISOR + rate.noise + 2 * tick_ns(rate);
        let scaled = |ns: i128| scaled(1 << 40, ns, rate.ticks);
        Some(Self {
            rate,
            itself: scaled(rate.ns),
            least: scaled(rate.ns - allowed),
            most: scaled(rate.ns + allowed),
            weight: if second.step_ns > 0 { 2 } else { 1 },
        })
    }

    /// Whether it is so long that it tells its rate to one part in [`LEAP_DIVISOR`].
    fn is_long(&self) -> bool {
        self.rate.ns > self.rate.noise.saturating_mul(LEAP_DIVISOR)
    }
}

/// The rate that most intervals allow. `None` if there is no interval, or if there are several and
/// no two agree: then most of them contain a leap.
pub(super) fn usual_rate(samples: &[ClockSample]) -> Option<Rate> {
    let intervals = samples.windows(2).filter_map(|pair| match pair {
        [first, second] => Interval::between(first, second),
        _ => None,
    });
    let mut intervals: Vec<Interval> = intervals.collect();
    let agreeing = agreeing(&intervals);
    let is_single = intervals.len() == 1;
    // Only intervals that are long enough for a precise rate, if there are any.
    if intervals.iter().any(Interval::is_long) {
        intervals.retain(Interval::is_long);
    }
    let most = intervals.iter().map(|one| agreeing(one.itself)).max()?;
    if most < 2 && !is_single {
        return None;
    }
    intervals.retain(|one| agreeing(one.itself) == most);
    // If the same number of intervals allows different rates, the shortest interval decides: it is
    // the least likely to contain a leap.
    let shortest = *intervals.iter().min_by_key(|one| one.rate.ns)?;
    intervals.retain(|one| (shortest.least..=shortest.most).contains(&one.itself));
    intervals.sort_by_key(|one| one.itself);
    let middle = intervals.len().saturating_sub(1) / 2;
    intervals.get(middle).map(|one| one.rate)
}

/// A function that tells how many of the intervals allow a rate.
fn agreeing(intervals: &[Interval]) -> impl Fn(i128) -> usize + use<> {
    let bounds = |bound: fn(&Interval) -> i128| {
        let mut bounds: Vec<i128> = intervals
            .iter()
            .flat_map(|one| std::iter::repeat_n(bound(one), one.weight))
            .collect();
        bounds.sort_unstable();
        bounds
    };
    let (least, most) = (bounds(|one| one.least), bounds(|one| one.most));
    move |rate| {
        let begun = least.partition_point(|least| *least <= rate);
        begun.saturating_sub(most.partition_point(|most| *most < rate))
    }
}

/// Uncertainty of the time between two samples.
fn noise(first: &ClockSample, second: &ClockSample) -> i128 {
    i128::from(first.uncertainty_ns) + i128::from(second.uncertainty_ns)
}

pub(super) fn segments(samples: &[ClockSample], rate: Option<Rate>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut last: Option<ClockSample> = None;
    for sample in samples {
        let ns = i128::from(sample.boottime_ns);
        let uncertainty = i128::from(sample.uncertainty_ns);
        match (last, segments.last_mut()) {
            (Some(previous), Some(segment)) if continues(&previous, sample, rate) => {
                // Two samples within one tick: the line needs only one of them.
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

/// Maximum distance of the line from the truth between each point and the next.
fn residuals(points: &[Point], rate: Option<Rate>) -> Vec<Residual> {
    let mut residuals = Vec::with_capacity(points.len());
    for (index, pair) in points.windows(2).enumerate() {
        let [first, second] = pair else { continue };
        let (ticks, ns) = (second.ticks - first.ticks, second.ns - first.ns);
        // The lengths expected from the rates before and after, each measured over as long a time:
        // a shorter one would be mostly noise.
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
            // A rate that changes from one value to the other within the interval bends the line by
            // a quarter of the difference.
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

/// Distance of a value from the range between two others.
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
    pub(super) fn ticks(&self, gpu_tick: u64) -> i128 {
        distance(self.base, gpu_tick)
    }

    /// Distance of a time from the samples.
    pub(super) fn distance(&self, ns: i128) -> i128 {
        match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) => outside(ns, first.ns, last.ns),
            _ => i128::MAX,
        }
    }

    /// Whether a time is between the last sample before a leap and the first one after it. The
    /// counter may have leapt there more than once, so neither segment tells its value.
    pub(super) fn is_beside_leap(&self, ns: i128) -> bool {
        let before_first = self.points.first().is_some_and(|first| ns < first.ns);
        let after_last = self.points.last().is_some_and(|last| ns > last.ns);
        before_first && self.after.is_some() || after_last && self.before.is_some()
    }

    /// The time of a count.
    pub(super) fn moment(&self, ticks: i128, rate: Option<Rate>) -> Option<OnLine> {
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

    /// The count at a time, relative to the base.
    pub(super) fn count(&self, ns: i128, rate: Option<Rate>) -> Option<OnLine> {
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

    /// The points around a place, given the number of points before it; `None` if it is outside the
    /// samples.
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
            // The usual rate, from the clock's other segments; the hardware is the same.
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
    /// Uncertainty at a distance of `away` ns from the line's point.
    fn uncertainty(&self, away: i128) -> i128 {
        let away = away.saturating_abs();
        let measured = scaled(away, self.rate.noise, self.rate.ns);
        (self.through.uncertainty + tick_ns(self.rate))
            .saturating_add(measured)
            .saturating_add(ppm(away, RATE_CHANGE_PPM))
    }
}

/// Uncertainty at a time between two samples.
fn inside(first: &Point, second: &Point, residual: Residual, ns: i128) -> i128 {
    let ends = first.uncertainty.max(second.uncertainty).max(residual.off);
    let distance = (ns - first.ns).min(second.ns - ns).max(0);
    // From the nearer sample, the clock ran at about the usual rate, from which the line's rate is
    // known to differ by this much.
    let lean = scaled(distance, residual.unusual, (second.ns - first.ns).max(1));
    let near = ppm(distance, RATE_CHANGE_PPM).saturating_add(lean);
    ends + residual.bend.min(near) + tick_ns(between(first, second))
}

/// Distance, in ns, at which the line between two samples passes another one; `None` if the two do
/// not define a line.
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

/// Length of a tick, rounded up to whole nanoseconds, plus one for the rounding of the result.
fn tick_ns(rate: Rate) -> i128 {
    match (i64::try_from(rate.ns), i64::try_from(rate.ticks)) {
        // As in `scaled`, a division of small numbers is faster. Both are positive.
        (Ok(ns), Ok(ticks)) => i128::from(ns.checked_div(ticks).unwrap_or(0)) + 2,
        _ => rate.ns.checked_div(rate.ticks).unwrap_or(0) + 2,
    }
}
