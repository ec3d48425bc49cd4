//! Completion signals of a process that stay open: the collector reads them itself.
//!
//! Most signals are read by the eBPF programs when the runtime uses them again. Signals that the
//! runtime does not touch for long are read here.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gputrace_abi::{
    domain::Domain,
    gpu::{COMPLETION_SIZE, Completion, POLL_SPREAD, SDMA_UNKNOWN, SIGNAL_MARK, completion_reason},
    record::kind,
};
use gputrace_codeobj::memory::Memory;
use zerocopy::FromBytes as _;

use crate::header::header;

/// How long a signal is open before it is read from time to time.
const OPEN_FOR: Duration = Duration::from_millis(50);

/// Maximum number of signals of one process that are read in one go.
const PER_LOOK: usize = 256;

/// Maximum number of signals of one process that are waited for. A correct program has some hundred
/// open at a time.
pub(crate) const MOST: usize = 1 << 16;

/// Maximum number of attempts to read a signal at the end of a recording, when readings take too
/// long.
const TRIES: usize = 8;

/// The open signals of a process.
#[derive(Debug, Default)]
pub(crate) struct OpenSignals {
    /// Signals, with the time of their last known use.
    since: BTreeMap<u64, Instant>,
    /// The signal at which the next round of readings begins.
    next: u64,
    /// Number of signals that are not waited for because there are too many.
    refused: u64,
}

impl OpenSignals {
    /// Whether no signal is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Number of signals that were not waited for because [`MOST`] were open.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Notes the use of a signal.
    pub(crate) fn used(&mut self, signal: u64, now: Instant) {
        if self.since.len() < MOST || self.since.contains_key(&signal) {
            self.since.insert(signal, now);
        } else {
            self.refused += 1;
        }
    }

    /// Notes that a signal was read elsewhere.
    pub(crate) fn read(&mut self, signal: u64) {
        self.since.remove(&signal);
    }

    /// Reads some of the signals of process `pid` that have been open for long, and calls `found`
    /// with those that are complete. If `last` is set, reads all signals, and passes on incomplete
    /// ones as well. `clock` is `CLOCK_BOOTTIME`, ns.
    pub(crate) fn look(
        &mut self,
        (pid, memory): (u32, &impl Memory),
        now: Instant,
        last: bool,
        clock: impl Fn() -> u64,
        mut found: impl FnMut(&Completion),
    ) {
        let most = if last { usize::MAX } else { PER_LOOK };
        let (before, after) = (self.since.range(..self.next), self.since.range(self.next..));
        let chosen: Vec<u64> = after
            .chain(before)
            .filter(|(_, since)| last || now.duration_since(**since) > OPEN_FOR)
            .map(|(signal, _)| *signal)
            .take(most)
            .collect();
        self.next = chosen.last().map_or(0, |signal| signal.saturating_add(1));
        let tries = if last { TRIES } else { 1 };
        for signal in chosen {
            let mut reads = (0..tries).map(|_| poll((pid, memory), signal, &clock));
            match reads.find(|read| !matches!(read, Poll::Slow)) {
                Some(Poll::Done(completion)) if completion.value <= 0 || last => {
                    self.since.remove(&signal);
                    found(&completion);
                }
                Some(Poll::Gone) => {
                    self.since.remove(&signal);
                }
                // The signal is not complete, or is read again later.
                _ => {}
            }
        }
    }

    /// Readings of all open signals of process `pid`, complete or not. They stay open.
    pub(crate) fn peek(
        &self,
        (pid, memory): (u32, &impl Memory),
        clock: impl Fn() -> u64,
        mut found: impl FnMut(&Completion),
    ) {
        for signal in self.since.keys() {
            let mut reads = (0..TRIES).map(|_| poll((pid, memory), *signal, &clock));
            if let Some(Poll::Done(completion)) = reads.find(|read| !matches!(read, Poll::Slow)) {
                found(&completion);
            }
        }
    }
}

/// Result of an attempt to read a signal.
enum Poll {
    Done(Completion),
    /// The memory does not exist any more.
    Gone,
    /// Too much time passed between the reading and the next look at the clock. Meanwhile the
    /// signal may have been prepared for another use, about which the reading says nothing.
    Slow,
}

fn poll((pid, memory): (u32, &impl Memory), signal: u64, clock: &impl Fn() -> u64) -> Poll {
    let before = clock();
    // `amd_signal_t`, followed by ROCr's own words.
    let words = memory.array::<104>(signal).ok();
    let words = words.and_then(|bytes| <[u64; 13]>::read_from_bytes(&bytes).ok());
    // Read after the value: a complete signal proves that the work had ended by this time.
    let time = clock();
    let Some(
        [
            _,
            value,
            _,
            _,
            start,
            end,
            _,
            _,
            sdma_start,
            _,
            mark,
            _,
            sdma_end,
        ],
    ) = words
    else {
        return Poll::Gone;
    };
    if time.saturating_sub(before) > POLL_SPREAD {
        return Poll::Slow;
    }
    let (sdma_start, sdma_end) = if mark == SIGNAL_MARK {
        (sdma_start, sdma_end)
    } else {
        (SDMA_UNKNOWN, 0)
    };
    Poll::Done(Completion {
        header: header(COMPLETION_SIZE, kind::COMPLETION, Domain::Completion.id()),
        pid,
        reason: completion_reason::POLL,
        time,
        signal,
        value: value.cast_signed(),
        start,
        end,
        sdma_start,
        sdma_end,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use gputrace_codeobj::memory::MemoryError;

    use super::*;

    /// A process with a signal whose value is the clock's time. Each reading advances the clock by
    /// `takes` ns.
    struct Process<'a> {
        clock: &'a Cell<u64>,
        takes: Vec<u64>,
        readings: Cell<usize>,
    }

    impl Memory for Process<'_> {
        fn read_some(&self, _: u64, buffer: &mut [u8]) -> Result<usize, MemoryError> {
            buffer.fill(0);
            let reading = self.readings.replace(self.readings.get() + 1);
            self.clock.set(self.clock.get() + self.takes[reading]);
            Ok(buffer.len())
        }
    }

    /// The times of the readings that were recorded, and whether the signal is still waited for.
    fn looked(takes: &[u64], last: bool) -> (Vec<u64>, bool) {
        let clock = Cell::new(1_000);
        let process = Process {
            clock: &clock,
            takes: takes.to_vec(),
            readings: Cell::new(0),
        };
        let mut signals = OpenSignals::default();
        let now = Instant::now();
        signals.used(0x1000, now);
        let mut times = Vec::new();
        signals.look(
            (7, &process),
            now + 2 * OPEN_FOR,
            last,
            || clock.get(),
            |done| times.push(done.time),
        );
        (times, !signals.is_empty())
    }

    /// A reading made long before its record's time may be about an earlier use of the signal: it
    /// would prove the end of work that has just begun.
    #[test]
    fn slow_readings_prove_nothing() {
        assert_eq!(
            looked(&[POLL_SPREAD], false),
            (vec![1_000 + POLL_SPREAD], false)
        );
        assert_eq!(looked(&[POLL_SPREAD + 1], false), (vec![], true));
        // At the end there is no later attempt, so the signal is read again at once.
        assert_eq!(
            looked(&[POLL_SPREAD + 1, 5], true),
            (vec![1_000 + POLL_SPREAD + 6], false)
        );
        assert_eq!(looked(&[POLL_SPREAD + 1; TRIES], true), (vec![], true));
    }

    #[test]
    fn more_than_the_most_are_refused_and_counted() {
        let mut signals = OpenSignals::default();
        let now = Instant::now();
        (0..MOST as u64 + 3).for_each(|signal| signals.used(signal, now));
        signals.used(0, now);
        assert_eq!((signals.since.len(), signals.refused()), (MOST, 3));
        signals.read(0);
        signals.used(MOST as u64, now);
        assert_eq!((signals.since.len(), signals.refused()), (MOST, 3));
    }
}
