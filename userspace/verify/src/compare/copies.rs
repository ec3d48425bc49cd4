//! Checks copies.

use gputrace_timeline::gpu::{Copy as RecordedCopy, Direction as Recorded, Quality};

use super::{ISSUE, difference, evidence::Evidence, percentile, time};
use crate::{
    log::{Copy, Direction, Said},
    record::Mode,
    report::{Row, Status},
};

/// Maximum error of the runtime's conversion, as for dispatches.
const CONVERSION_NS: i64 = 100_000;

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let said: Vec<&Copy> = evidence
        .said
        .iter()
        .filter_map(|said| match said {
            Said::Copy(copy) => Some(copy),
            _ => None,
        })
        .collect();
    if said.is_empty() {
        return Vec::new();
    }
    let name = if evidence.mode == Mode::KernelCopies {
        "copies by kernels"
    } else {
        "copies"
    };
    let recorded = &evidence.recording.copies;
    // The program makes one at a time, so both lists have the same order.
    let mut pairs: Vec<_> = recorded.iter().collect();
    pairs.sort_by_key(|copy| copy.origin.time);
    let wrong = said
        .iter()
        .zip(&pairs)
        .filter(|(said, copy)| said.bytes != copy.bytes || !is_same(said.direction, copy.direction))
        .count();
    if pairs.len() != said.len() || wrong > 0 {
        return vec![
            Row::new(
                name,
                Status::Wrong,
                format!(
                    "{} recorded of {}, {wrong} with other bytes or direction",
                    pairs.len(),
                    said.len()
                ),
                "calls that copy are missed or misread",
            )
            .next(ISSUE)
            .figure("required", said.len() as f64)
            .figure("recorded", pairs.len() as f64),
        ];
    }
    vec![Times::of(&said, &pairs).row(name)]
}

/// What the times of copies are like.
struct Times {
    all: usize,
    /// Copies of which the runtime tells the times.
    timed: usize,
    /// Those of them whose times are exact.
    exact: usize,
    /// Copies that have times when they cannot have run.
    outside: usize,
    /// How far an exact one is from what the runtime tells, at most, ns.
    worst: Option<i64>,
}

impl Times {
    fn of(said: &[&Copy], recorded: &[&RecordedCopy]) -> Self {
        let (mut timed, mut exact, mut outside) = (0_usize, 0_usize, 0_usize);
        let mut off = Vec::new();
        for (said, copy) in said.iter().zip(recorded) {
            let Some(seen) = said.seen_ns else { continue };
            let late = copy.time.begin_window.earliest > seen;
            let early = copy
                .time
                .end_window
                .latest
                .is_some_and(|latest| latest < said.asked_ns);
            outside += usize::from(late || early);
            if let Some([begin, end]) = said.runtime_ns {
                timed += 1;
                if copy.time.quality == Quality::Exact {
                    exact += 1;
                    off.push(
                        difference(copy.time.begin, begin)
                            .saturating_abs()
                            .max(difference(copy.time.end, end).saturating_abs()),
                    );
                }
            }
        }
        Self {
            all: said.len(),
            timed,
            exact,
            outside,
            worst: percentile(&mut off, 100),
        }
    }

    /// The verdict.
    fn row(&self, name: &'static str) -> Row {
        let Self {
            all,
            timed,
            exact,
            outside,
            worst,
        } = *self;
        let found = format!(
            "{all} of {all}; the runtime reports the times of {timed}, {exact} of these are exact{}",
            worst.map_or_else(String::new, |worst| format!(", within {}", time(worst)))
        );
        let row = if outside > 0 {
            Row::new(
                name,
                Status::Wrong,
                format!("{found}; {outside} have impossible times"),
                "stamps of copies are misread",
            )
            .next(ISSUE)
        } else if worst.is_some_and(|worst| worst > CONVERSION_NS) {
            Row::new(
                name,
                Status::Wrong,
                found,
                "times of copies differ from the runtime's",
            )
            .next(ISSUE)
        } else if timed == 0 {
            Row::new(
                name,
                Status::Warning,
                found,
                "only number, bytes and bounds can be checked",
            )
        } else if exact * 100 < timed * 95 {
            Row::new(
                name,
                Status::Wrong,
                found,
                "stamps of copies are not found or not accepted",
            )
            .next(ISSUE)
        } else {
            Row::new(
                name,
                Status::Ok,
                found,
                "bytes, directions and times are right",
            )
        };
        row.figure("required", all as f64)
            .figure("timed", timed as f64)
            .figure("exact", exact as f64)
            .figure("off_max_ns", worst.map_or(f64::NAN, |ns| ns as f64))
    }
}

const fn is_same(said: Direction, recorded: Recorded) -> bool {
    matches!(
        (said, recorded),
        (Direction::ToDevice, Recorded::HostToDevice)
            | (Direction::ToHost, Recorded::DeviceToHost)
            | (Direction::Within, Recorded::DeviceToDevice)
    )
}
