//! Decides how often the accounts and the host's clocks are written.
//!
//! During activity they are written every second and every ten seconds. Without activity they would
//! say nothing new, and a recording of days should stay small.

use gputrace_capture::ledger::Ledger;

/// Maximum time between two accounts, ns.
const ACCOUNT: u64 = 3_600_000_000_000;

/// Maximum time between two clock readings, ns. In that time clocks drift against each other by
/// some 100 us.
const CLOCKS: u64 = 300_000_000_000;

/// State of what was written last.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last: Option<Ledger>,
    /// The newest account that equals the last one written.
    passed_over: Option<Ledger>,
    /// Whether the last one was written twice. A reader that follows the recording then knows that
    /// nothing more is to come.
    repeated: bool,
    clocks: Option<u64>,
}

impl Pace {
    /// The accounts to write, given the current one.
    pub(crate) fn ledgers(&mut self, ledger: Ledger) -> Vec<Ledger> {
        let mut due = Vec::new();
        let is_new = self
            .last
            .as_ref()
            .is_none_or(|last| !says_the_same(last, &ledger));
        if is_new {
            // All changes happened after this account.
            due.extend(self.passed_over.take());
            self.repeated = false;
        } else if self.repeated && !self.is_old(ledger.time) {
            self.passed_over = Some(ledger);
            return due;
        } else {
            self.repeated = true;
            self.passed_over = None;
        }
        self.last = Some(ledger.clone());
        due.push(ledger);
        due
    }

    fn is_old(&self, time: u64) -> bool {
        let last = self.last.as_ref().map_or(0, |last| last.time);
        time.saturating_sub(last) >= ACCOUNT
    }

    /// Whether clocks are to be written at `time`.
    pub(crate) fn clocks(&mut self, time: u64) -> bool {
        let is_due = !self.repeated
            || self
                .clocks
                .is_none_or(|last| time.saturating_sub(last) >= CLOCKS);
        if is_due {
            self.clocks = Some(time);
        }
        is_due
    }
}

/// Whether two accounts differ only in their times. Events of processes of the whole node are
/// ignored.
fn says_the_same(one: &Ledger, other: &Ledger) -> bool {
    let numbers = |ledger: &Ledger| {
        (
            ledger.complete,
            ledger.unmatched_returns,
            ledger.unreadable_args,
            ledger.task_events_lost,
        )
    };
    numbers(one) == numbers(other) && one.rows == other.rows
}

#[cfg(test)]
mod tests {
    use gputrace_capture::{CaptureWriter, Meta, ledger::LedgerRow, meta::ClockSnapshot};
    use std::io::Cursor;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const WEEK: u64 = 7 * 24 * 3_600;

    /// The accounts of a node with this many CPUs that has worked before.
    fn ledger_of(cpus: u32, second: u64, seen: u64) -> Ledger {
        let row = |cpu: u32| LedgerRow {
            cpu: cpu / 4,
            domain: (cpu % 4) as u8,
            seen: 1_000_000_000 + seen,
            written: 1_000_000_000 + seen,
            dropped: vec![0; 12],
            ..LedgerRow::default()
        };
        Ledger {
            time: second * SECOND,
            rows: (0..4 * cpus).map(row).collect(),
            task_events: second * 100,
            ..Ledger::default()
        }
    }

    fn ledger(second: u64, seen: u64) -> Ledger {
        ledger_of(1, second, seen)
    }

    fn bytes(count: usize, meta: &Meta) -> u64 {
        let recording = gputrace_capture::meta::Recording::default();
        let mut writer = CaptureWriter::create(Cursor::new(Vec::new()), &recording).unwrap();
        let before = writer.size();
        writer.meta(meta).unwrap();
        (writer.size() - before) * count as u64
    }

    /// What the collector writes during a week without activity, by its clock, on 256 CPUs.
    #[test]
    fn a_week_in_which_nothing_happens_is_small() {
        let mut pace = Pace::default();
        let (mut clocks, mut ledgers) = (0, 0);
        for second in 0..WEEK {
            ledgers += pace.ledgers(ledger(second, 0)).len();
            if second % 10 == 0 {
                clocks += usize::from(pace.clocks(second * SECOND));
            }
        }
        assert!((2_000..2_100).contains(&clocks), "{clocks}");
        assert!((160..180).contains(&ledgers), "{ledgers}");
        let accounts = bytes(ledgers, &ledger_of(256, WEEK, 0).into());
        let snapshot = ClockSnapshot {
            boottime: WEEK * SECOND,
            monotonic: WEEK * SECOND,
            monotonic_raw: WEEK * SECOND,
            realtime: 1_800_000_000 * SECOND,
            uncertainty: 1_000,
            realtime_error: Some(1_000_000),
        };
        let all = accounts + bytes(clocks, &snapshot.into());
        assert!((1 << 20..45 << 20).contains(&all), "{all}");
    }

    #[test]
    fn what_changes_is_written_with_what_stood_before() {
        let mut pace = Pace::default();
        let mut written = Vec::new();
        for second in 0..120 {
            let seen = if second < 100 { 0 } else { 5 };
            let times = pace.ledgers(ledger(second, seen)).into_iter();
            written.extend(times.map(|ledger| ledger.time / SECOND));
        }
        // Written twice, so that a reader that follows knows that no more is to come; then before
        // and after the change.
        assert_eq!(written, [0, 1, 99, 100, 101]);
    }

    #[test]
    fn while_something_happens_every_account_is_written() {
        let mut pace = Pace::default();
        for second in 0..50 {
            assert_eq!(pace.ledgers(ledger(second, second)).len(), 1);
            assert!(pace.clocks(second * SECOND));
        }
    }
}
