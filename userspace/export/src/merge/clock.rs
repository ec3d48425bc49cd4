//! Clocks of hosts, and how they relate.

use std::fmt;

use gputrace_capture::meta::{ClockSnapshot, Recording};

use gputrace_text::tables::duration;

/// Captures of older versions do not identify their boot. Two of them count as the same boot if the
/// host names are equal and the times of day at boot differ by less than this, ns. NTP changes that
/// by seconds at most; a reboot takes longer.
const SAME_BOOT: u64 = 2_000_000_000;

/// Maximum drift in ns per ms of a clock that is only being adjusted: the kernel slews by at most
/// 500 ppm, and corrects the frequency by as much. A clock that moved faster was set.
const FASTEST: u64 = 1_000;

/// The relation between `CLOCK_BOOTTIME` and `CLOCK_REALTIME` according to a host's captures.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// In order of boottime: (boottime, realtime minus boottime), ns.
    points: Vec<(u64, i128)>,
    /// The largest time between the readings of one snapshot, ns.
    uncertainty: u64,
    /// The maximum error of the host's time of day, as its kernel reported it; `None` if a snapshot
    /// lacks it.
    error: Option<u64>,
}

impl Clock {
    pub(super) fn take(&mut self, snapshot: &ClockSnapshot) {
        if snapshot.realtime == 0 {
            return;
        }
        let offset = i128::from(snapshot.realtime) - i128::from(snapshot.boottime);
        self.error = match (self.points.is_empty(), self.error, snapshot.realtime_error) {
            (true, _, error) => error,
            (false, Some(before), Some(error)) => Some(before.max(error)),
            _ => None,
        };
        self.uncertainty = self.uncertainty.max(snapshot.uncertainty);
        let at = self
            .points
            .partition_point(|(time, _)| *time <= snapshot.boottime);
        self.points.insert(at, (snapshot.boottime, offset));
    }

    /// When the host booted, ns since the Unix epoch; `None` if unknown.
    pub(super) fn boot(&self) -> Option<i128> {
        self.points.first().map(|(_, offset)| *offset)
    }

    pub(super) fn is_known(&self) -> bool {
        !self.points.is_empty()
    }

    /// By how much the time of day was set during the recording: the largest jump, ns; 0 if it was
    /// not.
    fn jump(&self) -> u64 {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        let jumps = pairs.filter_map(|((time, offset), (later, changed))| {
            let moved = u64::try_from((changed - offset).unsigned_abs()).unwrap_or(u64::MAX);
            let adjusted = (later - time) / 1_000_000 * FASTEST + 2 * self.uncertainty + FASTEST;
            (moved > adjusted).then_some(moved)
        });
        jumps.max().unwrap_or(0)
    }

    /// Realtime minus boottime at `boottime`, ns: interpolated between snapshots, constant beyond
    /// them.
    fn offset(&self, boottime: u64) -> Option<i128> {
        let after = self.points.partition_point(|(time, _)| *time < boottime);
        let (later, earlier) = (
            self.points.get(after),
            after
                .checked_sub(1)
                .and_then(|before| self.points.get(before)),
        );
        match (earlier, later) {
            (Some((time, offset)), Some((next, changed))) if next > time => {
                let share = i128::from(boottime - time);
                Some(offset + (changed - offset) * share / i128::from(next - time))
            }
            (earlier, later) => later.or(earlier).map(|(_, offset)| *offset),
        }
    }

    /// How to convert times of this clock to those of `reference`; `None` if either is unknown.
    pub(super) fn aligned_to(&self, reference: &Self) -> Option<Alignment> {
        let (own, theirs) = (self.points.first()?.1, reference.points.first()?.1);
        let jump = self.jump().max(reference.jump());
        // A clock that was set cannot be interpolated, so only the first snapshots count.
        let points = if jump > 0 {
            vec![(0, own - theirs)]
        } else {
            self.points
                .iter()
                .map(|(time, offset)| {
                    let realtime = i128::from(*time) + offset;
                    let guess = u64::try_from(realtime - theirs).unwrap_or(0);
                    Some((*time, offset - reference.offset(guess)?))
                })
                .collect::<Option<_>>()?
        };
        Some(Alignment {
            shift: Self {
                points,
                ..Self::default()
            },
            readings: self.uncertainty + reference.uncertainty,
            jump,
            synchronised: self
                .error
                .zip(reference.error)
                .map(|(own, theirs)| own.saturating_add(theirs)),
        })
    }
}

/// Whether two captures are of the same boot of the same machine.
pub(super) fn same_boot(one: (&Recording, &Clock), other: (&Recording, &Clock)) -> bool {
    let ((first, first_clock), (second, second_clock)) = (one, other);
    if !first.boot_id.is_empty() && !second.boot_id.is_empty() {
        return first.boot_id == second.boot_id;
    }
    let (Some((_, offset)), Some((_, changed))) =
        (first_clock.points.first(), second_clock.points.first())
    else {
        return false;
    };
    first.hostname == second.hostname && (offset - changed).unsigned_abs() < u128::from(SAME_BOOT)
}

/// How to convert times of one host's clock to another's, and how accurate that is. `Display`
/// describes it as a clause.
#[derive(Clone, Debug, Default)]
pub struct Alignment {
    /// The offset to add; none if it has no points.
    shift: Clock,
    /// Error from reading the clocks one after the other, ns.
    readings: u64,
    /// By how much either clock was set during its recording, ns; 0 if neither was.
    jump: u64,
    /// Maximum difference between the hosts' times of day according to their kernels; `None` if one
    /// of them is not synchronised or does not report it.
    synchronised: Option<u64>,
}

impl Alignment {
    /// Converts a time of this clock to the other clock, ns.
    #[must_use]
    pub fn apply(&self, time: u64) -> u64 {
        match self.shift.offset(time) {
            None => time,
            Some(shift) => u64::try_from(i128::from(time) + shift).unwrap_or(0),
        }
    }

    /// Maximum error of aligned times, ns; `None` if it has no bound.
    #[must_use]
    pub fn uncertainty(&self) -> Option<u64> {
        let sum = self.synchronised?.saturating_add(self.readings);
        Some(sum.saturating_add(self.jump))
    }
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |ns: u64| duration(ns as f64);
        f.write_str("is aligned by the time of day, ")?;
        match self.uncertainty() {
            Some(ns) => write!(f, "within {}", shown(ns))?,
            None => write!(
                f,
                "which is only as good as the agreement of the two hosts' clocks: the captures do \
                 not say that both were synchronised (reading the clocks alone is uncertain by {})",
                shown(self.readings)
            )?,
        }
        if self.jump > 0 {
            write!(
                f,
                "; a clock was set by {} during a recording",
                shown(self.jump)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clock(points: &[(u64, u64)], error: Option<u64>) -> Clock {
        let mut clock = Clock::default();
        for (boottime, realtime) in points {
            clock.take(&ClockSnapshot {
                boottime: *boottime,
                realtime: *realtime,
                uncertainty: 100,
                realtime_error: error,
                ..ClockSnapshot::default()
            });
        }
        clock
    }

    const DAY: u64 = 1_700_000_000_000_000_000;

    #[test]
    fn the_same_time_of_day_is_the_same_moment() {
        let reference = clock(
            &[(1_000, DAY + 1_000), (2_000_001_000, DAY + 2_000_001_000)],
            Some(5_000),
        );
        // Booted a million seconds earlier, and is slow by 1000 ns in the two seconds.
        let other = clock(
            &[
                (1_000_000_000_000_000, DAY + 1_000),
                (1_000_002_000_000_000, DAY + 2_000_002_000),
            ],
            Some(7_000),
        );
        let alignment = other.aligned_to(&reference).unwrap();
        assert_eq!(alignment.apply(1_000_000_000_000_000), 1_000);
        assert_eq!(alignment.apply(1_000_001_000_000_000), 1_000_001_500);
        assert_eq!(alignment.apply(1_000_002_000_000_000), 2_000_002_000);
        assert_eq!(alignment.uncertainty(), Some(12_200));
        assert!(
            alignment.to_string().contains("within 12.2 us"),
            "{alignment}"
        );
    }

    #[test]
    fn a_clock_that_was_set_is_told() {
        let reference = clock(&[(0, DAY)], None);
        let other = clock(&[(0, DAY), (1_000_000, DAY + 5_000_000_000)], None);
        let alignment = other.aligned_to(&reference).unwrap();
        assert_eq!(alignment.apply(7), 7);
        assert_eq!(alignment.uncertainty(), None);
        let text = alignment.to_string();
        assert!(
            text.contains("was set by 5.00 s") && text.contains("do not say"),
            "{text}"
        );
    }

    #[test]
    fn without_a_time_of_day_nothing_is_aligned() {
        let known = clock(&[(5, DAY)], Some(1));
        let unknown = clock(&[(5, 0)], Some(1));
        assert!(!unknown.is_known());
        assert!(known.aligned_to(&unknown).is_none() && unknown.aligned_to(&known).is_none());
        assert_eq!(Alignment::default().apply(77), 77);
    }

    #[test]
    fn boots_are_told_apart() {
        let recording = |boot: &str| Recording {
            hostname: "a".to_owned(),
            boot_id: boot.to_owned(),
            ..Recording::default()
        };
        let (early, late) = (
            clock(&[(0, DAY)], None),
            clock(&[(0, DAY + 60_000_000_000)], None),
        );
        let same = |one: (&str, &Clock), other: (&str, &Clock)| {
            same_boot((&recording(one.0), one.1), (&recording(other.0), other.1))
        };
        assert!(same(("x", &early), ("x", &late)));
        assert!(!same(("x", &early), ("y", &early)));
        assert!(same(("", &early), ("x", &early)));
        assert!(!same(("", &early), ("", &late)));
        assert!(!same(("", &Clock::default()), ("", &Clock::default())));
    }

    proptest! {
        #[test]
        fn order_is_kept_and_nothing_panics(
            own in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..6),
            reference in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..6),
            times in (any::<u64>(), any::<u64>()),
        ) {
            if let Some(alignment) = clock(&own, None).aligned_to(&clock(&reference, None)) {
                let (first, second) = (times.0.min(times.1), times.0.max(times.1));
                prop_assert!(alignment.apply(first) <= alignment.apply(second) || alignment.apply(second) == 0);
            }
        }
    }
}
