//! The loss ledger: `seen = written + dropped(by reason)`, per domain and CPU.

use std::borrow::Cow;

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
        self.dropped
            .iter()
            .fold(0, |sum, lost| sum.saturating_add(*lost))
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

    /// Adds the counts of another row. Saturates: the numbers may come from a file that anyone could have written.
    pub fn add(&mut self, other: &Self) {
        self.seen = self.seen.saturating_add(other.seen);
        self.written = self.written.saturating_add(other.written);
        self.unfinished = self.unfinished.saturating_add(other.unfinished);
        if self.dropped.len() < other.dropped.len() {
            self.dropped.resize(other.dropped.len(), 0);
        }
        for (mine, theirs) in self.dropped.iter_mut().zip(&other.dropped) {
            *mine = mine.saturating_add(*theirs);
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
    /// Process and thread events seen.
    pub task_events: u64,
    /// Of these, lost because their ring was full.
    pub task_events_lost: u64,
    /// Child processes of traced ones that are not traced, because there was no room for them. Nothing that they did was
    /// seen.
    #[serde(default)]
    pub untraced_processes: u64,
    /// Number and cost of looks at read indices of queues; only in the last ledger of a recording that follows GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<Looks>,
}

/// Looks at the read indices of queues, which tell of dispatches without completion signals, and what they cost. The cost
/// is that of the recorder: its watching thread and the helper process that reads for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// What they were allowed to cost, millionths of a core; 0: no looks.
    pub budget: u32,
    /// How many there were. One look is at all queues in which packets are.
    pub looks: u64,
    /// What they took of processors' time, ns.
    pub cpu: u64,
    /// For how long there could have been looks, ns.
    pub time: u64,
    /// The most that they took within a second, ns of a processor's time.
    pub busiest: u64,
    /// From one look to the next while packets are in a queue, ns: the median, exact within a sixteenth; 0 if none
    /// followed another.
    pub period: u64,
}

impl Looks {
    /// The figures by name, for outputs that hold numbers only.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("look_budget_millionths", self.budget as u64),
            ("looks", self.looks),
            ("look_cpu_ns", self.cpu),
            ("look_time_ns", self.time),
            ("look_busiest_second_ns", self.busiest),
            ("look_period_ns", self.period),
        ]
    }

    /// What they took of one core, 0 to 1; 0 of no time.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.cpu as f64 / self.time.max(1) as f64
    }

    /// Adds those of another recording. The period is that of the one with more looks, the budget the larger one.
    pub fn add(&mut self, other: &Self) {
        if other.looks > self.looks {
            self.period = other.period;
        }
        self.budget = self.budget.max(other.budget);
        self.looks = self.looks.saturating_add(other.looks);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.time = self.time.saturating_add(other.time);
        self.busiest = self.busiest.max(other.busiest);
    }
}

impl Ledger {
    /// Rows added up over CPUs, one per domain, in order of domain.
    #[must_use]
    pub fn by_domain(&self) -> Vec<LedgerRow> {
        let mut sums: Vec<LedgerRow> = Vec::new();
        for row in &self.rows {
            match sums.iter_mut().find(|sum| sum.domain == row.domain) {
                Some(sum) => sum.add(row),
                None => sums.push(LedgerRow {
                    cpu: 0,
                    ..row.clone()
                }),
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

    /// Calls and the GPU's work added up, without what is only about them: values of arguments.
    #[must_use]
    pub fn without_values(&self) -> LedgerRow {
        let mut sum = LedgerRow::default();
        let values = Domain::ArgumentData.id();
        for row in self.rows.iter().filter(|row| row.domain != values) {
            sum.add(row);
        }
        sum
    }

    /// Display name of a row's domain; a number that this version does not know is shown as such.
    #[must_use]
    pub fn domain_name(domain: u8) -> Cow<'static, str> {
        Domain::from_id(domain).map_or_else(
            || Cow::Owned(format!("domain {domain}")),
            |known| Cow::Borrowed(known.name()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cpu: u32, domain: u8, seen: u64, dropped: Vec<u64>) -> LedgerRow {
        LedgerRow {
            cpu,
            domain,
            seen,
            written: 10,
            unfinished: 1,
            dropped,
        }
    }

    #[test]
    fn looks_add_up() {
        let one = Looks {
            budget: 20_000,
            looks: 100,
            cpu: 3_000_000,
            time: 200_000_000,
            busiest: 2_000_000,
            period: 500_000,
        };
        let mut sum = one;
        sum.add(&Looks {
            looks: 300,
            period: 250_000,
            ..one
        });
        assert_eq!(
            (sum.looks, sum.period, sum.busiest),
            (400, 250_000, 2_000_000)
        );
        assert!((sum.share() - 0.015).abs() < 1e-9);
        assert!(Looks::default().share().abs() < 1e-9);
    }

    #[test]
    fn rows_add_up() {
        let ledger = Ledger {
            rows: vec![
                row(0, 2, 13, vec![2]),
                row(0, 0, 11, vec![]),
                row(1, 2, 18, vec![3, 0, 0, 4]),
            ],
            ..Ledger::default()
        };
        let by_domain = ledger.by_domain();
        assert_eq!(
            by_domain
                .iter()
                .map(|row| (row.domain, row.seen))
                .collect::<Vec<_>>(),
            [(0, 11), (2, 31)]
        );
        assert_eq!(by_domain[1].dropped, [5, 0, 0, 4]);
        assert_eq!(by_domain[1].dropped_for(DropReason::LostReturn), 4);
        assert_eq!(by_domain[1].dropped_for(DropReason::CaptureWrite), 0);
        let total = ledger.total();
        assert_eq!(
            (total.seen, total.written, total.unfinished, total.lost()),
            (42, 30, 3, 9)
        );
        assert_eq!(total.imbalance(), 0);
        assert_eq!(row(0, 0, 5, vec![]).imbalance(), -6);
    }

    #[test]
    fn absurd_numbers_do_not_panic() {
        let ledger = Ledger {
            rows: vec![row(0, 0, u64::MAX, vec![u64::MAX, u64::MAX]); 2],
            ..Ledger::default()
        };
        assert_eq!(ledger.total().seen, u64::MAX);
        assert_eq!(ledger.by_domain()[0].lost(), u64::MAX);
        let _ = ledger.total().imbalance();
    }

    #[test]
    fn unknown_domains_have_a_name() {
        assert_eq!(Ledger::domain_name(0), "HIP_RUNTIME_API");
        assert_eq!(Ledger::domain_name(99), "domain 99");
    }
}
