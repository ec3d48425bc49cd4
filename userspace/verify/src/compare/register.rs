//! Checks that the GPU's status register shows when kernels run, by the clock that the kernels
//! themselves read.

use super::{difference, evidence::Evidence, percentile, time};
use crate::{
    capture::Reading,
    report::{Row, Status},
};

const NAME: &str = "status register";

/// Two readings further apart than this, ns, do not show when the register changed.
const CLOSE_NS: u64 = 30_000;

/// A change further from any kernel than this, ns, is not a kernel's.
const NEAR_NS: i64 = 200_000;

/// Minimum number of begins, and of ends, for any conclusion.
const ENOUGH: usize = 6;

/// Readings this near a kernel's begin or end, ns, may be before or after it.
const MARGIN_NS: u64 = 20_000;

/// A register that is idle in a larger share of the readings within kernels does not follow them.
const IDLE_SHARE: f64 = 0.02;

/// Durations from the register are taken to be off by at most this, ns, whatever their number: two
/// of the standard errors that gputrace assumes.
const KNOWN_NS: i64 = 6_000;

pub(super) fn row(evidence: &Evidence<'_>) -> Row {
    let clocked = evidence
        .matched
        .iter()
        .filter(|_| evidence.trusts_clock)
        .filter_map(|one| one.clock);
    let kernels = clocked.map(|[begin, end]| (begin.0, end.0)).collect();
    verdict(Behaviour::new(kernels, &evidence.recording.readings))
}

/// What the readings show of the register.
#[derive(Debug, Default)]
struct Behaviour {
    /// From a kernel's begin to the change of the register, and from its end, ns.
    rises: Vec<i64>,
    falls: Vec<i64>,
    /// Readings while a kernel certainly ran, and how many of them found the GPU idle.
    inside: u64,
    idle_inside: u64,
}

impl Behaviour {
    /// `kernels` are begins and ends in any order, `readings` are in order of time; ns.
    fn new(mut kernels: Vec<(u64, u64)>, readings: &[Reading]) -> Self {
        let mut all = Self::default();
        kernels.sort_unstable();
        let begins: Vec<u64> = kernels.iter().map(|(begin, _)| *begin).collect();
        let mut ends: Vec<u64> = kernels.iter().map(|(_, end)| *end).collect();
        ends.sort_unstable();
        for pair in readings.windows(2) {
            let [one, other] = pair else { continue };
            let width = other.after.saturating_sub(one.before);
            if one.is_active == other.is_active || width > CLOSE_NS {
                continue;
            }
            let moment = one.before + width / 2;
            let (times, delays) = if other.is_active {
                (&begins, &mut all.rises)
            } else {
                (&ends, &mut all.falls)
            };
            delays.extend(nearest(times, moment).filter(|delay| delay.abs() <= NEAR_NS));
        }
        for reading in readings {
            let before = begins.partition_point(|begin| begin + MARGIN_NS <= reading.before);
            // The programs' kernels of one queue run one after the other.
            let ran = before.checked_sub(1).and_then(|at| kernels.get(at));
            if ran.is_some_and(|(_, end)| reading.after + MARGIN_NS <= *end) {
                all.inside += 1;
                all.idle_inside += u64::from(!reading.is_active);
            }
        }
        all
    }
}

/// `moment` minus the time that is nearest to it.
fn nearest(times: &[u64], moment: u64) -> Option<i64> {
    let at = times.partition_point(|time| *time <= moment);
    let around = [at.checked_sub(1), Some(at)].into_iter().flatten();
    let delays = around.filter_map(|at| Some(difference(moment, *times.get(at)?)));
    delays.min_by_key(|delay| delay.abs())
}

fn verdict(mut all: Behaviour) -> Row {
    let (inside, idle) = (all.inside, all.idle_inside);
    if inside >= ENOUGH as u64 && idle as f64 > IDLE_SHARE * inside as f64 {
        return Row::new(
            NAME,
            Status::Warning,
            format!("idle in {idle} of {inside} readings while a kernel ran"),
            "it does not follow kernels on this GPU: mean durations and GPU use from it would be \
             too short",
        )
        .next("record with --look-budget 0, and open an issue that names the GPU")
        .figure("inside", inside as f64)
        .figure("idle_inside", idle as f64);
    }
    let changes = (all.rises.len(), all.falls.len());
    let delays = [&mut all.rises, &mut all.falls].map(|delays| percentile(delays, 50));
    let (Some(rise), Some(fall), true) = (delays[0], delays[1], changes.0.min(changes.1) >= ENOUGH)
    else {
        return Row::new(
            NAME,
            Status::Ok,
            format!("{} begins and {} ends were seen", changes.0, changes.1),
            "too few to judge it; nothing contradicts it",
        )
        .figure("rises", changes.0 as f64)
        .figure("falls", changes.1 as f64);
    };
    let found = format!(
        "active {} after a kernel begins, idle {} after it ends (medians of {} and {})",
        time(rise),
        time(fall),
        changes.0,
        changes.1
    );
    let row = if (fall - rise).abs() <= KNOWN_NS {
        Row::new(
            NAME,
            Status::Ok,
            found,
            "it follows kernels, so that those of programs that launch one now and then have \
             mean durations",
        )
    } else {
        Row::new(
            NAME,
            Status::Warning,
            found,
            "mean durations from it are off by the difference, which is more than gputrace assumes",
        )
        .next("open an issue that names the GPU")
    };
    row.figure("rises", changes.0 as f64)
        .figure("falls", changes.1 as f64)
        .figure("rise_p50_ns", rise as f64)
        .figure("fall_p50_ns", fall as f64)
        .figure("inside", inside as f64)
        .figure("idle_inside", idle as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// The row for ten kernels of 100 us, one each ms. Readings each 10 us of a register that is
    /// `rise` us late at the begin and `fall` us at the end, and idle for the share `dips` of a
    /// kernel.
    fn row_of(rise: u64, fall: u64, dips: u64) -> Row {
        let kernels: Vec<(u64, u64)> = (1..=10)
            .map(|number| (number * 1_000 * US, number * 1_000 * US + 100 * US))
            .collect();
        let readings: Vec<Reading> = (0..1_200)
            .map(|step| {
                let at = step * 10 * US;
                let is_active = kernels.iter().any(|(begin, end)| {
                    let dip = begin + 50 * US..begin + (50 + dips) * US;
                    (begin + rise * US..end + fall * US).contains(&at) && !dip.contains(&at)
                });
                Reading {
                    before: at - at.min(500),
                    after: at + 500,
                    is_active,
                }
            })
            .collect();
        verdict(Behaviour::new(kernels, &readings))
    }

    #[test]
    fn a_register_that_follows_kernels_is_told_from_one_that_does_not() {
        let row = row_of(2, 3, 0);
        assert_eq!(row.status, Status::Ok, "{row:?}");
        // Between two readings that are 10 us apart.
        for name in ["rise_p50_ns", "fall_p50_ns"] {
            assert!((0.0..=10_000.0).contains(&row.figures[name]), "{row:?}");
        }
        assert_eq!((row.figures["rises"], row.figures["falls"]), (10.0, 10.0));
        // It stays active for long after a kernel.
        let row = row_of(0, 60, 0);
        assert_eq!(row.status, Status::Warning);
        assert!(row.found.contains("after it ends"), "{}", row.found);
        // It is idle while kernels run.
        let row = row_of(0, 0, 20);
        assert_eq!(row.status, Status::Warning);
        assert!(row.found.contains("while a kernel ran"), "{}", row.found);
    }

    #[test]
    fn nothing_is_said_without_readings() {
        let row = verdict(Behaviour::new(vec![(1, 2)], &[]));
        assert_eq!(row.status, Status::Ok);
        assert!(row.meaning.contains("too few"), "{}", row.meaning);
        assert_eq!(nearest(&[], 5), None);
        assert_eq!(nearest(&[1, 10], 4), Some(3));
        assert_eq!(nearest(&[1, 10], 8), Some(-2));
    }
}
