//! The loss ledger: `seen = written + dropped(by reason)`, per domain and CPU.

use gputrace_abi::{counters::DropReason, domain::Domain};
use serde::{Deserialize, Serialize};

/// What became of the calls of one domain that began on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// CPU on which the calls began.
    pub cpu: u32,
    /// Number of the domain.
    pub domain: u8,
    /// Calls that began while the probes were on, as counted in the kernel.
    pub seen: u64,
    /// Finished calls in the capture, as counted by the collector.
    pub written: u64,
    /// Unfinished calls in the capture, as counted by the collector.
    pub unfinished: u64,
    /// Lost calls by [`DropReason`] (index = its number).
    pub dropped: Vec<u64>,
}

impl LedgerRow {
    /// Lost calls for one reason.
    #[must_use]
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped.get(reason as usize).copied().unwrap_or(0)
    }

    /// Lost calls for any reason.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// `seen - written - unfinished - dropped`: calls open right now in a running recording, 0 in a
    /// finished one. Anything else is a defect of gputrace and is reported as such.
    #[must_use]
    pub fn imbalance(&self) -> i64 {
        (self.seen as i64)
            .wrapping_sub(self.written as i64)
            .wrapping_sub(self.unfinished as i64)
            .wrapping_sub(self.lost() as i64)
    }

    fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.written += other.written;
        self.unfinished += other.unfinished;
        if self.dropped.len() < other.dropped.len() {
            self.dropped.resize(other.dropped.len(), 0);
        }
        for (mine, theirs) in self.dropped.iter_mut().zip(&other.dropped) {
            *mine += theirs;
        }
    }
}

/// State of the accounts at one moment. Captures hold one now and then, and a final one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// When the counters were read, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// True in the last ledger of a recording that was stopped in order: every row then balances.
    pub complete: bool,
    /// Rows in which anything was counted, ordered by domain, then CPU.
    pub rows: Vec<LedgerRow>,
    /// Returns without a known beginning: calls in progress when the probes were attached.
    pub unmatched_returns: u64,
    /// Written calls whose stack arguments could not be read.
    pub unreadable_args: u64,
    /// Process and thread events seen, and lost because their ring was full.
    pub task_events: u64,
    /// Process and thread events lost.
    pub task_events_lost: u64,
}

impl Ledger {
    /// Rows added up over CPUs, one per domain, in order of domain.
    #[must_use]
    pub fn by_domain(&self) -> Vec<LedgerRow> {
        let mut sums: Vec<LedgerRow> = Vec::new();
        for row in &self.rows {
            match sums.iter_mut().find(|sum| sum.domain == row.domain) {
                Some(sum) => sum.add(row),
                None => sums.push(LedgerRow { cpu: 0, ..row.clone() }),
            }
        }
        sums.sort_by_key(|row| row.domain);
        sums
    }

    /// Everything added up.
    #[must_use]
    pub fn total(&self) -> LedgerRow {
        let mut sum = LedgerRow::default();
        for row in &self.rows {
            sum.add(row);
        }
        sum
    }

    /// Display name of a row's domain; a number that this version does not know is shown as such.
    #[must_use]
    pub fn domain_name(domain: u8) -> String {
        Domain::from_id(domain).map_or_else(|| format!("domain {domain}"), |known| known.name().to_owned())
    }
}
