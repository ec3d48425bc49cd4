//! Compares a recording with what the program and the runtime report.
//!
//! Three things are known about a dispatch without gputrace:
//!
//! * the program's own clock: the GPU cannot have begun before the doorbell, nor have ended after
//!   the program saw it complete;
//! * the runtime's times, for dispatches with a completion signal in a queue with stamps;
//! * the GPU's clock as read by the kernel itself at its begin and end.
//!
//! The first is certain. The second and third are checked against it before they are trusted.

mod copies;
mod dispatches;
mod estimates;
mod evidence;
mod queue;
mod register;
mod times;

use gputrace_abi::counters::DropReason;
use gputrace_capture::ledger::Ledger;

use self::evidence::Evidence;
use crate::{
    capture::Recording,
    log::Said,
    record::Mode,
    report::{NOT_RUN, Row, Status},
};

/// Advice on how to report an error.
const ISSUE: &str = "open an issue with the file that --output writes";

/// All rows about a recording.
pub(crate) fn rows(mode: Mode, said: &[Said], recording: &Recording) -> Vec<Row> {
    let evidence = Evidence::new(mode, said, recording);
    let mut rows = vec![program(said)];
    if mode != Mode::KernelCopies {
        rows.extend(dispatches::rows(&evidence));
        rows.extend(times::rows(&evidence));
        rows.extend(queue::rows(&evidence));
        rows.push(register::row(&evidence));
        rows.push(scratch(&evidence));
    }
    rows.extend(copies::rows(&evidence));
    rows.push(account(recording));
    rows
}

/// Whether the program did everything.
pub(crate) fn program(said: &[Said]) -> Row {
    const NAME: &str = "program";
    const ALONE: &str = "run `gputrace verify-work`, which runs the program alone: if that fails \
        too, gputrace is not the cause";
    let wrong =
        |found: String, meaning: &str| Row::new(NAME, Status::Wrong, found, meaning).next(ALONE);
    let not_run = |found: String, next: &str| {
        Row::new(NAME, Status::Wrong, found, "there is nothing to verify")
            .next(next)
            .figure(NOT_RUN, 1.0)
    };
    match said.last() {
        Some(Said::Done) => {
            let count = said.iter().filter(|said| matches!(said, Said::Dispatch(_))).count();
            let copies = said.iter().filter(|said| matches!(said, Said::Copy(_))).count();
            Row::new(
                NAME,
                Status::Ok,
                format!("it did {count} dispatches and {copies} copies"),
                "there is something to compare with",
            )
        }
        Some(Said::Stuck { what }) => wrong(
            format!("{what} did not complete within 4 s"),
            "the GPU or the runtime lost it, or it never ended",
        ),
        Some(Said::QueueError { status, .. }) => wrong(
            format!("a queue failed with status {status:#x}"),
            "the GPU refused a packet, or was reset",
        ),
        Some(Said::Failed { what }) => wrong(what.clone(), "the program could not do everything"),
        Some(Said::NoRuntime { detail }) => not_run(
            "the HSA runtime cannot be loaded".to_owned(),
            "install ROCm's libhsa-runtime64 (package hsa-rocr or libhsa-runtime64-1), or name it with --hsa-library",
        )
        .detail(detail.clone()),
        Some(Said::NoGpu) => not_run(
            "the runtime has no GPU".to_owned(),
            "`rocminfo` says what the runtime sees; HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES hide GPUs",
        ),
        Some(Said::NoObject { gfx }) => not_run(
            format!("there are no kernels for {gfx}"),
            "open an issue that names the GPU",
        ),
        _ => wrong(
            "it ended in the middle".to_owned(),
            "it was killed, or the GPU was reset under it",
        ),
    }
}

fn scratch(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "scratch memory";
    let expected = evidence.of_scratch();
    let recorded = expected
        .iter()
        .filter(|one| one.recorded.private_size >= 1024)
        .count();
    let [given, lost] = evidence.recording.scratch;
    let row = |status, meaning: &str| {
        let found = format!(
            "{recorded} of {} dispatches with private memory, {given} times given to a queue, {lost} times taken back",
            expected.len()
        );
        Row::new(NAME, status, found, meaning)
            .figure("given_times", given as f64)
            .figure("taken_times", lost as f64)
    };
    if expected.is_empty() {
        return Row::new(
            NAME,
            Status::Warning,
            "no dispatch with private memory was recorded",
            "gputrace could not check scratch memory",
        );
    }
    if recorded < expected.len() {
        return row(Status::Wrong, "the size of private memory is wrong").next(ISSUE);
    }
    // A queue that had it before the recorder attached does not get it again.
    if given == 0 && !evidence.mode.comes_late() {
        return row(
            Status::Warning,
            "the runtime gave it for less time than between two looks, or in an unknown way",
        )
        .next(ISSUE);
    }
    row(
        Status::Ok,
        "it is seen when queues are given scratch memory",
    )
}

/// Checks that seen = written + unfinished + lost, and that nothing was lost.
fn account(recording: &Recording) -> Row {
    const NAME: &str = "account";
    let wrong = |found: String| {
        Row::new(
            NAME,
            Status::Wrong,
            found,
            "the recording does not account for what it saw",
        )
        .next(ISSUE)
    };
    let Some(ledger) = recording.ledger.as_ref().filter(|ledger| ledger.complete) else {
        return wrong("there is no final account".to_owned());
    };
    if !recording.whole {
        return wrong("the capture is damaged or has no end".to_owned());
    }
    let unbalanced: Vec<_> = ledger
        .rows
        .iter()
        .filter(|row| row.imbalance() != 0)
        .map(|row| Ledger::domain_name(row.domain))
        .collect();
    if !unbalanced.is_empty() {
        return wrong(format!("it does not balance: {}", unbalanced.join(", ")));
    }
    let total = ledger.total();
    let (seen, lost) = (total.seen, total.lost());
    let unreadable = total.dropped_for(DropReason::MemoryUnreadable);
    let found = format!("{seen} seen, {lost} lost");
    let row = match lost {
        0 => Row::new(
            NAME,
            Status::Ok,
            found,
            "everything that was seen is in the recording",
        ),
        _ if lost == unreadable => Row::new(
            NAME,
            Status::Warning,
            found,
            "memory that the kernel was just moving could not be read",
        ),
        _ => Row::new(
            NAME,
            Status::Wrong,
            found,
            "a small program must not lose anything",
        )
        .next(ISSUE),
    };
    row.figure("seen", seen as f64).figure("lost", lost as f64)
}

/// A percentile of the values, which are sorted for it; `None` if there are none.
fn percentile(values: &mut [i64], percent: usize) -> Option<i64> {
    values.sort_unstable();
    let at = values.len().checked_sub(1)? * percent / 100;
    values.get(at).copied()
}

/// A time in ns, formatted for people.
fn time(ns: i64) -> String {
    match ns.unsigned_abs() {
        0..1_000 => format!("{ns} ns"),
        1_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// `one - other`, ns.
fn difference(one: u64, other: u64) -> i64 {
    i64::try_from(i128::from(one) - i128::from(other)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_times() {
        assert_eq!(percentile(&mut [], 50), None);
        assert_eq!(percentile(&mut [3, 1, 2], 50), Some(2));
        assert_eq!(percentile(&mut [3, 1, 2], 100), Some(3));
        assert_eq!(
            (time(-5), time(1500), time(25_000_000)),
            ("-5 ns".into(), "1.5 us".into(), "25.0 ms".into())
        );
        assert_eq!((difference(1, 3), difference(3, 1)), (-2, 2));
    }

    #[test]
    fn a_program_that_stops_is_told_of() {
        let stuck = Said::Stuck {
            what: "the first dispatch".to_owned(),
        };
        assert_eq!(program(&[Said::Ready, stuck]).status, Status::Wrong);
        assert_eq!(program(&[]).status, Status::Wrong);
        assert_eq!(program(&[Said::Done]).status, Status::Ok);
    }
}
