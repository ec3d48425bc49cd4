//! The ledger of losses: `seen = written + unfinished + dropped (by reason)`, per domain and CPU.

use std::borrow::Cow;

use gputrace_abi::{counters::DropReason, domain::Domain, kinds::Kind};
use serde::{Deserialize, Serialize};

/// The calls of one domain that began on one CPU, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// CPU on which the calls began.
    pub cpu: u32,
    /// Number of the domain.
    pub domain: u8,
    /// Number of calls that began while the probes were attached, counted in the kernel.
    pub seen: u64,
    /// Number of finished calls in the capture, counted by the collector.
    pub written: u64,
    /// Number of unfinished calls in the capture, counted by the collector.
    pub unfinished: u64,
    /// Number of lost calls by [`DropReason`] (index = its number).
    pub dropped: Vec<u64>,
}

impl LedgerRow {
    /// Number of calls lost for one reason.
    #[must_use]
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped.get(reason as usize).copied().unwrap_or(0)
    }

    /// Number of calls lost for any reason.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.dropped
            .iter()
            .fold(0, |sum, lost| sum.saturating_add(*lost))
    }

    /// `seen - written - unfinished - dropped`: the number of open calls in a running recording, 0
    /// in a finished one. Any other result is a defect of gputrace and is reported as such.
    #[must_use]
    pub fn imbalance(&self) -> i64 {
        (self.seen as i64)
            .wrapping_sub(self.written as i64)
            .wrapping_sub(self.unfinished as i64)
            .wrapping_sub(self.lost() as i64)
    }

    /// Adds the counts of another row. Saturates, because the numbers may come from an untrusted
    /// file.
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

/// State of the accounts at one moment. Captures contain one at intervals, and a final one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// When the counters were read, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// Whether this is the last ledger of a recording that was stopped properly. Every row then
    /// balances.
    pub complete: bool,
    /// Rows with non-zero counts, ordered by domain, then CPU.
    pub rows: Vec<LedgerRow>,
    /// Number of returns whose entry was not seen: calls in progress when the probes were attached.
    pub unmatched_returns: u64,
    /// Number of written calls whose stack arguments could not be read.
    pub unreadable_args: u64,
    /// Number of process and thread events seen.
    pub task_events: u64,
    /// Number of those events that were lost because their ring was full.
    pub task_events_lost: u64,
    /// Number of children of traced processes that are not traced, because there was no room for
    /// them. None of their calls were seen.
    #[serde(default)]
    pub untraced_processes: u64,
    /// Number of processes whose first calls of a library may be missing, because they went on
    /// before the library had its probes. A notice names each. Such calls were not seen.
    #[serde(default)]
    pub late_processes: u64,
    /// Number and cost of looks at queues' read indices; only in the last ledger of a recording
    /// that follows GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<Looks>,
}

/// Looks at the read indices of queues, which show the progress of dispatches without completion
/// signals, and their cost. The cost is that of the recorder: its watcher thread and the helper
/// process that reads for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// Allowed cost, millionths of a core; 0: no looks.
    pub budget: u32,
    /// Number of looks. One look covers all queues that have packets.
    pub looks: u64,
    /// Processor time used, ns.
    pub cpu: u64,
    /// Time during which looks were possible, ns.
    pub time: u64,
    /// Maximum processor time used within a second, ns.
    pub busiest: u64,
    /// Time from one look to the next while a queue has packets, ns: the median, exact within a
    /// sixteenth; 0 if no look followed another.
    pub period: u64,
}

impl Looks {
    /// The figures by name, for outputs that contain only numbers.
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

    /// Share of one core that was used, 0 to 1; 0 if no time passed.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.cpu as f64 / self.time.max(1) as f64
    }

    /// Adds the figures of another recording. Uses the period of the recording with more looks, and
    /// the larger budget.
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
    /// Sums over all CPUs, one row per domain, in order of domain.
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

    /// The sum of all rows.
    #[must_use]
    pub fn total(&self) -> LedgerRow {
        let mut sum = LedgerRow::default();
        for row in &self.rows {
            sum.add(row);
        }
        sum
    }

    /// Everything added up without what is only about calls: values of arguments.
    #[must_use]
    pub fn without_values(&self) -> LedgerRow {
        self.sum(|domain| domain != Some(Domain::ArgumentData))
    }

    /// Calls of functions and of the driver, added up.
    #[must_use]
    pub fn calls(&self) -> LedgerRow {
        self.sum(|domain| domain.is_some_and(Domain::is_api))
    }

    /// Kernels and copies, added up: without the packets and readings of signals that only say
    /// more about them.
    #[must_use]
    pub fn work(&self) -> LedgerRow {
        self.sum(is_work)
    }

    /// What the scheduler and the driver reported, added up: nobody called that.
    #[must_use]
    pub fn events(&self) -> LedgerRow {
        self.sum(is_event)
    }

    fn sum(&self, counts: impl Fn(Option<Domain>) -> bool) -> LedgerRow {
        let mut sum = LedgerRow::default();
        for row in &self.rows {
            if counts(Domain::from_id(row.domain)) {
                sum.add(row);
            }
        }
        sum
    }

    /// Display name of a row's domain. A number that this version does not know is shown as such.
    #[must_use]
    pub fn domain_name(domain: u8) -> Cow<'static, str> {
        Domain::from_id(domain).map_or_else(
            || Cow::Owned(format!("domain {domain}")),
            |known| Cow::Borrowed(known.name()),
        )
    }
}

/// How a record in a capture is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounted {
    /// In [`LedgerRow::written`].
    Written,
    /// In [`LedgerRow::unfinished`].
    Unfinished,
}

impl Accounted {
    /// How records of this kind ([`gputrace_abi::record::kind`]) are accounted for; `None` if they
    /// are in no account.
    #[must_use]
    pub const fn of(kind: u8) -> Option<Self> {
        match Kind::from_number(kind) {
            Some(kind) if kind.is_unfinished() => Some(Self::Unfinished),
            Some(kind) if kind.is_counted() => Some(Self::Written),
            _ => None,
        }
    }
}

/// Whether the records of a domain count as events of a recording: calls, kernels, copies, and what
/// the scheduler and the driver reported. Those that only say more about them do not.
#[must_use]
pub fn is_counted(domain: Domain) -> bool {
    domain.is_api() || is_work(Some(domain)) || is_event(Some(domain))
}

fn is_work(domain: Option<Domain>) -> bool {
    use Domain::{KernelDispatch, MemoryCopy};
    matches!(domain, Some(KernelDispatch | MemoryCopy))
}

fn is_event(domain: Option<Domain>) -> bool {
    domain.is_some_and(Domain::is_observation)
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
    fn only_calls_are_calls() {
        let row = |domain: Domain, seen| row(0, domain.id(), seen, vec![0, 1]);
        let ledger = Ledger {
            rows: vec![
                row(Domain::HipRuntime, 10),
                row(Domain::HsaCore, 5),
                row(Domain::KernelDispatch, 4),
                row(Domain::MemoryCopy, 2),
                row(Domain::QueuePacket, 30),
                row(Domain::Completion, 40),
                row(Domain::MemoryAllocation, 50),
                row(Domain::ArgumentData, 7),
                row(Domain::Sched, 100),
                row(Domain::KfdEvent, 20),
                row(Domain::Tracepoint, 3),
            ],
            ..Ledger::default()
        };
        let (calls, work, events) = (ledger.calls(), ledger.work(), ledger.events());
        assert_eq!((calls.seen, calls.lost()), (15, 2));
        assert_eq!((work.seen, work.lost()), (6, 2));
        assert_eq!((events.seen, events.lost()), (123, 3));
        assert_eq!(ledger.total().seen, 271);
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
