//! The collector's counts, and the ledger made from them and from the eBPF programs' counters.

use gputrace_abi::{
    counters::{CpuCounters, DropReason, TaskCounters},
    domain::{DOMAINS, Domain},
    record::RecordHeader,
};
use gputrace_capture::{
    ledger::{Accounted, Ledger, LedgerRow, is_counted},
    records,
};

/// Counts of one CPU and domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    written: u64,
    unfinished: u64,
    malformed: u64,
    capture_write: u64,
    /// Events that only the collector saw, in addition to those that the programs count.
    seen: u64,
    unreadable: u64,
    /// Events refused because of the limits for one process.
    refused: u64,
}

/// The collector's side of the accounts.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Rows by CPU, then by domain.
    rows: Vec<[Row; DOMAINS]>,
    late_processes: u64,
}

impl Accounts {
    /// Empty accounts for `cpus` possible CPUs.
    #[must_use]
    pub fn new(cpus: u32) -> Self {
        Self {
            rows: vec![[Row::default(); DOMAINS]; cpus.max(1) as usize],
            late_processes: 0,
        }
    }

    /// The row of a CPU and domain. Numbers out of range can only come from a damaged record; they
    /// are counted under the last CPU or domain, so that no record goes uncounted.
    fn row(&mut self, cpu: u32, domain: u8) -> Option<&mut Row> {
        let last = self.rows.len().saturating_sub(1);
        let cpu = usize::try_from(cpu).unwrap_or(last).min(last);
        self.rows
            .get_mut(cpu)?
            .get_mut(usize::from(domain).min(DOMAINS - 1))
    }

    /// Counts a record that was accepted for the capture.
    pub fn written(&mut self, header: &RecordHeader) {
        let accounted = Accounted::of(header.kind);
        if let Some(row) = self.row(header.cpu, header.domain) {
            row.written += u64::from(accounted == Some(Accounted::Written));
            row.unfinished += u64::from(accounted == Some(Accounted::Unfinished));
        }
    }

    /// Counts an event that the collector itself saw; no program has counted it.
    pub fn seen_here(&mut self, header: &RecordHeader) {
        if Accounted::of(header.kind).is_some()
            && let Some(row) = self.row(header.cpu, header.domain)
        {
            row.seen += 1;
        }
    }

    /// Counts a process whose first calls may be missing.
    pub fn late_process(&mut self) {
        self.late_processes += 1;
    }

    /// Counts events as seen and lost, because nobody could read them in time.
    pub fn unreadable(&mut self, domain: u8, count: u64) {
        if let Some(row) = self.row(0, domain) {
            row.seen += count;
            row.unreadable += count;
        }
    }

    /// Counts events as seen and lost, because they exceed the limits for one process.
    pub fn refused_here(&mut self, domain: u8, count: u64) {
        if let Some(row) = self.row(0, domain) {
            row.seen += count;
            row.refused += count;
        }
    }

    /// Counts a record as refused, because it exceeds the limits for one process. The program that
    /// made it has counted it as seen.
    pub fn refused(&mut self, header: &RecordHeader) {
        if Accounted::of(header.kind).is_some()
            && let Some(row) = self.row(header.cpu, header.domain)
        {
            row.refused += 1;
        }
    }

    /// Counts a malformed record from a ring.
    pub fn malformed(&mut self, cpu: u32, domain: u8) {
        if let Some(row) = self.row(cpu, domain) {
            row.malformed += 1;
        }
    }

    /// Moves records from written to lost, because they did not reach the file.
    pub fn lost(&mut self, run: &[u8]) {
        for record in records::split(run).flatten() {
            let header = record.header;
            let Some(row) = self.row(header.cpu, header.domain) else {
                continue;
            };
            let counted = match Accounted::of(header.kind) {
                Some(Accounted::Written) => &mut row.written,
                Some(Accounted::Unfinished) => &mut row.unfinished,
                None => continue,
            };
            *counted = counted.saturating_sub(1);
            row.capture_write += 1;
        }
    }

    /// Number of events in the capture so far, including unfinished ones: see [`is_counted`].
    #[must_use]
    pub fn events(&self) -> u64 {
        let rows = self.rows.iter().flat_map(|rows| (0..).zip(rows));
        rows.filter(|(id, _)| Domain::from_id(*id).is_some_and(is_counted))
            .map(|(_, row)| row.written + row.unfinished)
            .sum()
    }

    /// Combines both sides of the accounts. `counters` are those of the programs, indexed by CPU.
    #[must_use]
    pub fn ledger(
        &self,
        time: u64,
        complete: bool,
        counters: &[CpuCounters],
        tasks: TaskCounters,
    ) -> Ledger {
        let mut ledger = Ledger {
            time,
            complete,
            task_events: tasks.seen,
            task_events_lost: tasks.ring_full,
            late_processes: self.late_processes,
            ..Ledger::default()
        };
        for one in counters {
            ledger.unmatched_returns += one.unmatched_returns;
            ledger.unreadable_args += one.unreadable_args;
            ledger.untraced_processes += one.untraced_processes;
        }
        for domain in 0..DOMAINS {
            for (cpu, rows) in self.rows.iter().enumerate() {
                let mine = rows.get(domain).copied().unwrap_or_default();
                let kernel = counters.get(cpu);
                let seen = mine.seen
                    + kernel
                        .and_then(|k| k.seen.get(domain))
                        .copied()
                        .unwrap_or(0);
                let dropped: Vec<u64> = DropReason::ALL
                    .iter()
                    .map(|reason| match reason {
                        DropReason::Malformed => mine.malformed,
                        DropReason::CaptureWrite => mine.capture_write,
                        DropReason::ProcessLimit => mine.refused,
                        reason => {
                            let counted = kernel
                                .and_then(|k| k.dropped.get(*reason as usize)?.get(domain))
                                .copied()
                                .unwrap_or(0);
                            let here = *reason == DropReason::MemoryUnreadable;
                            counted + if here { mine.unreadable } else { 0 }
                        }
                    })
                    .collect();
                if seen != 0 || mine != Row::default() || dropped.iter().any(|n| *n != 0) {
                    ledger.rows.push(LedgerRow {
                        // Both are indices that were made from numbers of that width.
                        cpu: cpu as u32,
                        domain: domain as u8,
                        seen,
                        written: mine.written,
                        unfinished: mine.unfinished,
                        dropped,
                    });
                }
            }
        }
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_abi::{counters::KERNEL_REASONS, record::kind};
    use zerocopy::IntoBytes as _;

    fn counters(seen: u64, ring_full: u64) -> CpuCounters {
        let mut counters = CpuCounters {
            sequence: seen,
            unmatched_returns: 1,
            unreadable_args: 0,
            untraced_processes: 0,
            untold_libraries: 0,
            seen: [0; DOMAINS],
            dropped: [[0; DOMAINS]; KERNEL_REASONS],
        };
        counters.seen[2] = seen;
        counters.dropped[DropReason::RingFull as usize][2] = ring_full;
        counters
    }

    fn header(kind: u8, cpu: u32) -> RecordHeader {
        RecordHeader {
            size: 8,
            kind,
            domain: 2,
            cpu,
        }
    }

    #[test]
    fn a_ledger_balances_per_cpu() {
        let mut accounts = Accounts::new(2);
        for _ in 0..3 {
            accounts.written(&header(kind::SPAN, 0));
        }
        accounts.written(&header(kind::UNFINISHED, 1));
        let ledger = accounts.ledger(
            9,
            true,
            &[counters(5, 2), counters(1, 0)],
            TaskCounters::default(),
        );
        assert_eq!(ledger.rows.len(), 2);
        assert!(
            ledger.rows.iter().all(|row| row.imbalance() == 0),
            "{ledger:?}"
        );
        assert_eq!(ledger.unmatched_returns, 2);
        assert_eq!(ledger.rows[0].dropped_for(DropReason::RingFull), 2);
        assert_eq!((ledger.rows[1].written, ledger.rows[1].unfinished), (0, 1));
    }

    #[test]
    fn what_a_full_disk_took_is_counted_once() {
        let mut accounts = Accounts::new(1);
        accounts.written(&header(kind::SPAN, 0));
        accounts.written(&header(kind::SPAN, 0));
        accounts.lost(header(kind::SPAN, 0).as_bytes());
        let ledger = accounts.ledger(9, true, &[counters(2, 0)], TaskCounters::default());
        assert_eq!(ledger.rows[0].written, 1);
        assert_eq!(ledger.rows[0].dropped_for(DropReason::CaptureWrite), 1);
        assert_eq!(ledger.rows[0].imbalance(), 0);
    }

    #[test]
    fn what_is_refused_is_in_the_account() {
        let mut accounts = Accounts::new(1);
        accounts.refused(&header(kind::SPAN, 0));
        accounts.refused(&header(kind::QUEUE, 0));
        accounts.refused_here(3, 5);
        accounts.unreadable(3, 2);
        let mut counters = counters(1, 0);
        counters.untraced_processes = 4;
        let ledger = accounts.ledger(9, true, &[counters], TaskCounters::default());
        assert!(
            ledger.rows.iter().all(|row| row.imbalance() == 0),
            "{ledger:?}"
        );
        let total = ledger.total();
        assert_eq!(total.dropped_for(DropReason::ProcessLimit), 6);
        assert_eq!(total.dropped_for(DropReason::MemoryUnreadable), 2);
        assert_eq!((total.seen, ledger.untraced_processes), (8, 4));
    }

    #[test]
    fn numbers_out_of_range_are_still_counted() {
        let mut accounts = Accounts::new(1);
        accounts.written(&RecordHeader {
            size: 8,
            kind: kind::SPAN,
            domain: 250,
            cpu: 77,
        });
        accounts.malformed(u32::MAX, 250);
        let ledger = accounts.ledger(0, false, &[], TaskCounters::default());
        assert_eq!(ledger.total().written, 1);
        assert_eq!(ledger.total().dropped_for(DropReason::Malformed), 1);
    }

    #[test]
    fn packets_and_readings_of_signals_are_no_events() {
        let mut accounts = Accounts::new(2);
        for (cpu, domain, kind) in [
            (0, Domain::HipRuntime, kind::SPAN),
            (1, Domain::HipRuntime, kind::UNFINISHED),
            (1, Domain::KernelDispatch, kind::PACKET),
            (0, Domain::Sched, kind::OFF_CPU),
            (0, Domain::QueuePacket, kind::PACKET),
        ] {
            accounts.written(&RecordHeader {
                size: 8,
                kind,
                domain: domain.id(),
                cpu,
            });
        }
        assert_eq!(accounts.events(), 4);
        let ledger = accounts.ledger(0, false, &[], TaskCounters::default());
        let parts = [ledger.calls(), ledger.work(), ledger.events()];
        let written = parts.iter().map(|row| row.written + row.unfinished);
        assert_eq!(accounts.events(), written.sum::<u64>());
    }
}
