//! What the discarded blocks contained, in numbers.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_capture::{
    ledger::{Accounted, Ledger, LedgerRow},
    records,
};

/// Counts of one CPU and domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    written: u64,
    unfinished: u64,
}

/// Numbers of records by CPU and domain, as accounts count them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    rows: HashMap<(u32, u8), Row, RandomState>,
}

impl Counts {
    /// The records of a run.
    pub(crate) fn of(run: &[u8]) -> Self {
        let mut counts = Self::default();
        for record in records::split(run).flatten() {
            let Some(accounted) = Accounted::of(record.header.kind) else {
                continue;
            };
            let place = (record.header.cpu, record.header.domain);
            let row = counts.rows.entry(place).or_default();
            match accounted {
                Accounted::Written => row.written += 1,
                Accounted::Unfinished => row.unfinished += 1,
            }
        }
        counts
    }

    /// Adds other numbers.
    pub(crate) fn add(&mut self, other: &Self) {
        for (place, row) in &other.rows {
            let mine = self.rows.entry(*place).or_default();
            mine.written += row.written;
            mine.unfinished += row.unfinished;
        }
    }

    fn of_row(&self, row: &LedgerRow) -> Row {
        let place = (row.cpu, row.domain);
        self.rows.get(&place).copied().unwrap_or_default()
    }
}

/// Accounts without what was discarded. `counts` are the discarded records; `earlier` is the last
/// of the discarded accounts: what was lost up to it is not part of what is kept.
///
/// The numbers are differences, so an account that does not balance still does not. Numbers that
/// would be negative, which only a defect can cause, become 0, and the account is wrong.
pub(crate) fn without(ledger: &Ledger, counts: &Counts, earlier: Option<&Ledger>) -> Ledger {
    let nothing = Ledger::default();
    let earlier = earlier.unwrap_or(&nothing);
    let rows = ledger.rows.iter().map(|row| {
        let gone = counts.of_row(row);
        let before = earlier
            .rows
            .iter()
            .find(|other| (other.cpu, other.domain) == (row.cpu, row.domain));
        let lost_before = |reason: usize| {
            let lost = before.and_then(|before| before.dropped.get(reason));
            lost.copied().unwrap_or(0)
        };
        let lost: u64 = before.map_or(0, LedgerRow::lost);
        LedgerRow {
            cpu: row.cpu,
            domain: row.domain,
            seen: row
                .seen
                .saturating_sub(gone.written + gone.unfinished + lost),
            written: row.written.saturating_sub(gone.written),
            unfinished: row.unfinished.saturating_sub(gone.unfinished),
            dropped: (0..)
                .zip(&row.dropped)
                .map(|(reason, lost)| lost.saturating_sub(lost_before(reason)))
                .collect(),
        }
    });
    let rows = rows
        .filter(|row| row.seen != 0 || row.written != 0 || row.unfinished != 0 || row.lost() != 0);
    Ledger {
        rows: rows.collect(),
        unmatched_returns: ledger
            .unmatched_returns
            .saturating_sub(earlier.unmatched_returns),
        unreadable_args: ledger
            .unreadable_args
            .saturating_sub(earlier.unreadable_args),
        task_events: ledger.task_events.saturating_sub(earlier.task_events),
        task_events_lost: ledger
            .task_events_lost
            .saturating_sub(earlier.task_events_lost),
        ..ledger.clone()
    }
}

/// Adds records to an account that no program has counted, as seen and written.
pub(crate) fn further(ledger: &mut Ledger, run: &[u8]) {
    for ((cpu, domain), added) in Counts::of(run).rows {
        let place = |row: &LedgerRow| (row.domain, row.cpu);
        let at = ledger
            .rows
            .partition_point(|row| place(row) < (domain, cpu));
        if ledger.rows.get(at).map(place) != Some((domain, cpu)) {
            let row = LedgerRow {
                cpu,
                domain,
                ..LedgerRow::default()
            };
            ledger.rows.insert(at, row);
        }
        if let Some(row) = ledger.rows.get_mut(at) {
            row.seen += added.written + added.unfinished;
            row.written += added.written;
            row.unfinished += added.unfinished;
        }
    }
}
