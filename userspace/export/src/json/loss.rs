//! The account, for JSON formats.

use gputrace_abi::counters::DropReason;
use gputrace_capture::ledger::Ledger;
use serde_json::{Map, Value, json};

/// The account for JSON formats: in each row, `seen = written + unfinished + lost + unaccounted`.
#[must_use]
pub fn loss(ledger: &Ledger) -> Value {
    let rows: Vec<Value> = ledger
        .rows
        .iter()
        .map(|row| {
            let dropped: Map<String, Value> = DropReason::ALL
                .iter()
                .map(|reason| (reason.name().to_owned(), row.dropped_for(*reason).into()))
                .collect();
            json!({
                "domain": Ledger::domain_name(row.domain),
                "cpu": row.cpu,
                "seen": row.seen,
                "written": row.written,
                "unfinished": row.unfinished,
                "dropped": dropped,
                "lost": row.lost(),
                "unaccounted": row.imbalance(),
            })
        })
        .collect();
    json!({
        "complete": ledger.complete,
        "rows": rows,
        "unmatched_returns": ledger.unmatched_returns,
        "unreadable_args": ledger.unreadable_args,
        "task_events": ledger.task_events,
        "task_events_lost": ledger.task_events_lost,
        "untraced_processes": ledger.untraced_processes,
        "late_processes": ledger.late_processes,
        "looks": ledger.looks,
    })
}
