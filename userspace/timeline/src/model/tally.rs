//! Counts of what was read from the capture, to compare with the recorder's account.

use gputrace_abi::domain::DOMAINS;
use gputrace_capture::ledger::Ledger;
use gputrace_text::tables::plural;

use crate::model::raw::MAX_CPUS;

/// Calls of one domain that began on one CPU. For domains of the GPU's work: records made on that
/// CPU, all of them finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    /// Finished calls.
    pub finished: u64,
    /// Calls that had not returned.
    pub unfinished: u64,
}

/// Counts of everything that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Indexed by CPU, then domain.
    calls: Vec<[CallCount; DOMAINS]>,
    /// Process and thread events.
    pub tasks: u64,
    /// Records of a kind unknown to this version.
    pub unknown_records: u64,
    /// Records of a known kind with an invalid size or content.
    pub malformed_records: u64,
    /// Blocks unknown to this version.
    pub unknown_blocks: u64,
    /// Calls whose recorded end lay before their begin and was set to the begin. The kernel's clock
    /// may differ by some nanoseconds between CPUs while it is being adjusted.
    pub adjusted_ends: u64,
    /// Packets that another record had already described: programs write a packet twice where two
    /// threads ring the same doorbell. Known when the timeline has ended.
    pub duplicate_packets: u64,
    /// Texts, annotations and results behind pointers of calls that could not be read.
    pub unreadable_values: u64,
    /// The message to show if only regions selected by programs are shown and no program has
    /// selected any. Known when the timeline has ended.
    pub nothing_selected: Option<String>,
    /// The messages about calls that returned errors, one for each API. Known when the timeline has
    /// ended.
    pub failed_calls: Vec<String>,
    /// The messages about kernels and about copies that are not drawn, if there are any. Known when
    /// the timeline has ended.
    pub undrawn: Vec<String>,
}

impl Tally {
    /// Calls, or records, of `domain` on `cpu`.
    #[must_use]
    pub fn calls(&self, domain: u8, cpu: u32) -> CallCount {
        let row = usize::try_from(cpu)
            .ok()
            .and_then(|cpu| self.calls.get(cpu));
        row.and_then(|row| row.get(usize::from(domain)))
            .copied()
            .unwrap_or_default()
    }

    /// Sum over all domains and CPUs.
    #[must_use]
    pub fn total(&self) -> CallCount {
        let mut sum = CallCount::default();
        for count in self.calls.iter().flatten() {
            sum.finished += count.finished;
            sum.unfinished += count.unfinished;
        }
        sum
    }

    /// Whether the capture holds exactly the calls and records that a complete `ledger` counts as
    /// written.
    #[must_use]
    pub fn agrees(&self, ledger: &Ledger) -> bool {
        let total = self.total();
        let said = ledger.total();
        let rows_agree = ledger.rows.iter().all(|row| {
            self.calls(row.domain, row.cpu)
                == CallCount {
                    finished: row.written,
                    unfinished: row.unfinished,
                }
        });
        rows_agree && (total.finished, total.unfinished) == (said.written, said.unfinished)
    }

    /// Adds the counts of another capture, whose CPU numbers begin at `first_cpu` here.
    pub fn absorb(&mut self, other: &Self, first_cpu: u32) {
        for (cpu, row) in (first_cpu..MAX_CPUS).zip(&other.calls) {
            if self.calls.len() <= cpu as usize {
                self.calls
                    .resize(cpu as usize + 1, [CallCount::default(); DOMAINS]);
            }
            let Some(sums) = self.calls.get_mut(cpu as usize) else {
                continue;
            };
            for (sum, count) in sums.iter_mut().zip(row) {
                sum.finished += count.finished;
                sum.unfinished += count.unfinished;
            }
        }
        self.tasks += other.tasks;
        self.unknown_records += other.unknown_records;
        self.malformed_records += other.malformed_records;
        self.unknown_blocks += other.unknown_blocks;
        self.adjusted_ends += other.adjusted_ends;
        self.duplicate_packets += other.duplicate_packets;
        self.failed_calls.extend_from_slice(&other.failed_calls);
        self.undrawn.extend_from_slice(&other.undrawn);
    }

    /// What could not be read, or not as it was; `forgotten` values of arguments are without their
    /// calls.
    pub(crate) fn remarks(&self, forgotten: u64) -> impl Iterator<Item = String> {
        [
            (
                forgotten,
                "value of an argument was",
                "values of arguments were",
                "left out, because too many calls were lost, with those that had them",
            ),
            (
                self.unreadable_values,
                "text or result of a call",
                "texts or results of calls",
                "could not be read, because there was no memory at the address, which is shown \
                 instead",
            ),
            (
                self.malformed_records,
                "record that made no sense was",
                "records that made no sense were",
                "left out; please report this",
            ),
            (
                self.unknown_records,
                "record is",
                "records are",
                "of a kind that this version does not know; upgrade gputrace to see them",
            ),
            (
                self.unknown_blocks,
                "block is",
                "blocks are",
                "of a kind that this version does not know; upgrade gputrace to see them",
            ),
            (
                self.adjusted_ends,
                "call is",
                "calls are",
                "shown with length 0, because by clocks of different CPUs the end was some \
                 nanoseconds before the begin",
            ),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many, what)| format!("{} {what}.", plural(count, one, many)))
    }

    pub(crate) fn count_call(&mut self, domain: u8, cpu: u32, finished: bool) {
        let cpu = cpu.min(MAX_CPUS - 1) as usize;
        if self.calls.len() <= cpu {
            self.calls.resize(cpu + 1, [CallCount::default(); DOMAINS]);
        }
        if let Some(count) = self
            .calls
            .get_mut(cpu)
            .and_then(|row| row.get_mut(usize::from(domain)))
        {
            if finished {
                count.finished += 1;
            } else {
                count.unfinished += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_capture::ledger::LedgerRow;

    use super::*;

    #[test]
    fn agreement_is_exact() {
        let mut tally = Tally::default();
        tally.count_call(2, 5, true);
        tally.count_call(2, 5, false);
        tally.count_call(0, 0, true);
        let row = |domain, cpu, written, unfinished| LedgerRow {
            domain,
            cpu,
            written,
            unfinished,
            ..LedgerRow::default()
        };
        let mut ledger = Ledger {
            rows: vec![row(0, 0, 1, 0), row(2, 5, 1, 1)],
            complete: true,
            ..Ledger::default()
        };
        assert!(tally.agrees(&ledger));
        ledger.rows.pop();
        assert!(
            !tally.agrees(&ledger),
            "a call that the account does not have"
        );
        ledger.rows.push(row(2, 4, 1, 1));
        assert!(!tally.agrees(&ledger), "the right number on the wrong CPU");
        assert_eq!(
            tally.total(),
            CallCount {
                finished: 2,
                unfinished: 1
            }
        );
    }
}
