//! The account of losses as a table.
//!
//! There is one row per domain and CPU on which calls began, then one per domain (`Cpu` is `all`),
//! then the total (`Domain` is `TOTAL`). In each row `Seen = Written + Unfinished + Lost +
//! Unaccounted`, and `Lost` is the sum of the `Dropped_…` columns. `Unaccounted` is 0 in a complete
//! account. In that of a killed recorder it counts the calls that were open, or on their way to the
//! capture, when the account was written.

use gputrace_abi::{counters::DropReason, domain::Domain};
use gputrace_capture::ledger::{Ledger, LedgerRow};

/// What the account counts, in the singular: `call`, or `record` if not all of them are calls.
#[must_use]
pub fn noun(ledger: &Ledger) -> &'static str {
    let is_api = |row: &LedgerRow| {
        Domain::from_id(row.domain)
            .is_none_or(|domain| domain.is_api() || domain == Domain::ArgumentData)
    };
    if ledger.rows.iter().all(is_api) {
        "call"
    } else {
        "record"
    }
}

/// The column names.
pub(crate) fn columns() -> Vec<String> {
    let reasons = DropReason::ALL
        .iter()
        .map(|reason| format!("Dropped_{}", reason.name()));
    let mut columns = ["Domain", "Cpu", "Seen", "Written", "Unfinished"]
        .map(str::to_owned)
        .to_vec();
    columns.extend(reasons);
    columns.extend(["Lost", "Unaccounted", "Complete"].map(str::to_owned));
    columns
}

/// The rows; every domain in `asked` has at least its total. No rows if the capture has no account.
pub(crate) fn rows(ledger: Option<&Ledger>, asked: &[Domain]) -> Vec<Vec<String>> {
    let Some(ledger) = ledger else {
        return Vec::new();
    };
    let mut sums = ledger.by_domain();
    for domain in asked {
        if !sums.iter().any(|row| row.domain == domain.id()) {
            sums.push(LedgerRow {
                domain: domain.id(),
                ..LedgerRow::default()
            });
        }
    }
    sums.sort_by_key(|row| row.domain);
    let of_cpus = ledger.rows.iter().map(|row| {
        (
            Ledger::domain_name(row.domain),
            row.cpu.to_string(),
            row.clone(),
        )
    });
    let of_domains = sums
        .into_iter()
        .map(|row| (Ledger::domain_name(row.domain), "all".to_owned(), row));
    let total = ("TOTAL".into(), "all".to_owned(), ledger.total());
    of_cpus
        .chain(of_domains)
        .chain([total])
        .map(|(domain, cpu, row)| {
            let mut fields = vec![domain.into_owned(), cpu];
            fields.extend([row.seen, row.written, row.unfinished].map(|count| count.to_string()));
            fields.extend(
                DropReason::ALL
                    .iter()
                    .map(|reason| row.dropped_for(*reason).to_string()),
            );
            fields.extend([
                row.lost().to_string(),
                row.imbalance().to_string(),
                ledger.complete.to_string(),
            ]);
            fields
        })
        .collect()
}
