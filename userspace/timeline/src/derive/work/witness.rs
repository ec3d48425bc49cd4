//! Finds the kernels that the GPU's status register saw begin and end.
//!
//! In spells of fast readings, the register shows when the GPU begins to work and when it is idle
//! again. If a single dispatch was submitted for that time, to whatever queue of the GPU, it is what
//! ran. This is most likely, but no proof: another process's kernel may have run at that very time.
//! So it says something about mean durations, and nothing about the bounds of a dispatch.
//!
//! If the GPU works although nothing was submitted, unknown processes use it, and kernels may be
//! taken to be longer than they are. From a small share of such time on, nothing is said.

use std::collections::VecDeque;

/// How long before the last idle reading a kernel can have been submitted that had not begun then,
/// ns.
const SLACK: u64 = 100_000;

/// Maximum distance between the two readings around a begin or an end, ns: a pause of the reader,
/// and no interruption. Whether it was interrupted does not depend on how long the kernel ran.
const CLOSE: u64 = 25_000;

/// Idle readings further apart than this, ns, are not of one spell.
const SPELL: u64 = 10_000_000;

/// A followed kernel's end is known to within this part of the time that it ran.
const PART: u64 = 32;

/// Kernels that ran at least this long, and whose end was not seen, were too long to be followed,
/// ns. The recorder follows them for a little longer.
const TOO_LONG: u64 = 90_000_000;

/// A GPU that was idle for this long, ns, has nothing left to begin.
const RESTED: u64 = 50_000;

/// Number of submissions that are remembered.
const MOST: usize = 1 << 12;

/// From this share of unexplained work on, kernels of others may be taken for the program's.
const OTHERS: f64 = 0.02;

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// It runs a kernel.
    Kernel,
    /// Nothing that takes time.
    Nothing,
    /// Something else, for an unknown time.
    Other,
}

/// A submitted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Submitted {
    /// When its doorbell rang, ns.
    pub(super) time: u64,
    /// Number of its queue.
    pub(super) queue: u32,
    /// Its index there.
    pub(super) index: u64,
    pub(super) does: Does,
}

/// A reading of a spell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Times before and after it, ns.
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) is_active: bool,
}

impl Reading {
    /// The reading, if it is one of a spell.
    pub(super) fn of(reading: &gputrace_abi::gpu::Activity) -> Option<Self> {
        let (before, after, is_active) = reading.of_spell()?;
        Some(Self {
            before,
            after,
            is_active,
        })
    }
}

/// How long a kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// At least the first time and at most the second, ns.
    Within(u64, u64),
    /// Too long to be seen whole.
    TooLong,
    /// Shorter than the time between the readings around its begin: others of its length were not
    /// seen at all.
    TooShort,
}

/// A time in which the GPU worked, and the only kernel that can have caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ran {
    /// Queue and index of the dispatch.
    pub(super) queue: u32,
    pub(super) index: u64,
    /// The time in which nothing must have been lost, ns.
    pub(super) within: (u64, u64),
    pub(super) took: Took,
}

/// Work under way.
#[derive(Clone, Copy, Debug)]
struct Busy {
    /// The GPU was idle at the first time, and worked at the second, ns.
    begin: (u64, u64),
    /// It still worked at this time, ns.
    until: u64,
}

/// What a GPU's register shows.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// Packets that have not been explained, in order of time.
    submitted: VecDeque<Submitted>,
    /// When the GPU was first seen idle in this spell, and when last, ns.
    idle: Option<(u64, u64)>,
    busy: Option<Busy>,
    /// Number of kernels that were submitted but are not known to have run: while another one ran,
    /// or together with it.
    owed: u32,
    /// How long the GPU was idle while it was watched, and at work without reason, ns.
    rested: u64,
    unexplained: u64,
}

impl Witness {
    /// A packet was submitted to a queue of this GPU.
    pub(super) fn submitted(&mut self, packet: Submitted) {
        if self.submitted.len() >= MOST {
            self.submitted.pop_front();
        }
        self.submitted.push_back(packet);
    }

    /// Whether, as far as can be seen, nothing else uses the GPU.
    pub(super) fn is_alone(&self) -> bool {
        let all = self.rested.saturating_add(self.unexplained);
        self.unexplained as f64 <= OTHERS * all as f64
    }

    /// Takes a reading, in order of time with packets. Returns what ran until then.
    pub(super) fn read(&mut self, reading: Reading) -> Option<Ran> {
        match (reading.is_active, self.busy.take()) {
            (true, Some(busy)) => {
                self.busy = Some(Busy {
                    until: reading.before,
                    ..busy
                });
                None
            }
            (true, None) => {
                let (since, idle) = self.idle.take()?;
                let rested = idle.saturating_sub(since);
                self.rested = self.rested.saturating_add(rested);
                if rested >= RESTED {
                    self.owed = 0;
                }
                self.busy = Some(Busy {
                    begin: (idle, reading.after),
                    until: reading.before,
                });
                None
            }
            (false, busy) => {
                // Two idle readings of different spells say nothing about the time between them.
                let since = self.idle.map(|(since, _)| since);
                let since = since.filter(|since| reading.before.saturating_sub(*since) < SPELL);
                if since.is_none() && busy.is_none() {
                    self.owed = 0;
                }
                self.idle = Some((since.unwrap_or(reading.before), reading.before));
                busy.and_then(|busy| self.ran(busy, reading.after))
            }
        }
    }

    /// The kernel that ran in a time of work that was over at `end`.
    fn ran(&mut self, busy: Busy, end: u64) -> Option<Ran> {
        let (from, begun) = busy.begin;
        let worked = busy.until.saturating_sub(begun);
        let is_close = begun.saturating_sub(from) <= CLOSE;
        let is_end_close = end.saturating_sub(busy.until) <= CLOSE + worked / PART;
        let earliest = from.saturating_sub(SLACK);
        // What was submitted after the last reading that found work may begin later.
        let later = self
            .submitted
            .partition_point(|packet| packet.time <= busy.until);
        let mut kernel = None;
        let (mut kernels, mut others) = (0_u32, 0_u32);
        for packet in self.submitted.drain(..later) {
            if packet.time < earliest {
                continue;
            }
            match packet.does {
                Does::Kernel => {
                    kernels += 1;
                    kernel = Some(packet);
                }
                Does::Other => others += 1,
                Does::Nothing => {}
            }
        }
        let owed = self.owed;
        self.owed = owed.saturating_add(kernels).saturating_sub(1);
        if (owed, kernels, others) == (0, 0, 0) && is_close && is_end_close {
            self.unexplained = self.unexplained.saturating_add(worked);
        }
        let is_too_long = worked >= TOO_LONG;
        let kernel = kernel.filter(|kernel| {
            (owed, kernels, others) == (0, 1, 0)
                && kernel.time <= begun
                && is_close
                && (is_end_close || is_too_long)
        })?;
        Some(Ran {
            queue: kernel.queue,
            index: kernel.index,
            within: (earliest, end),
            took: if !is_end_close {
                Took::TooLong
            } else if worked < begun.saturating_sub(from) {
                Took::TooShort
            } else {
                Took::Within(worked, end.saturating_sub(from))
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: u64 = 1_000;

    fn submitted(time: u64, index: u64, does: Does) -> Submitted {
        Submitted {
            time: time * US,
            queue: 3,
            index,
            does,
        }
    }

    /// Readings each 2 us in `from..to`, us, of a GPU that works at the times in `work`, us.
    fn read(witness: &mut Witness, (from, to): (u64, u64), work: &[(u64, u64)]) -> Vec<Ran> {
        let readings = (from..to).step_by(2).filter_map(|time| {
            let is_active = work
                .iter()
                .any(|(begin, end)| (*begin..*end).contains(&time));
            witness.read(Reading {
                before: time * US - US,
                after: time * US + US,
                is_active,
            })
        });
        readings.collect()
    }

    #[test]
    fn a_kernel_that_runs_alone_is_seen() {
        let mut witness = Witness::default();
        witness.submitted(submitted(100, 7, Does::Kernel));
        witness.submitted(submitted(104, 8, Does::Nothing));
        let ran = read(&mut witness, (50, 1_000), &[(110, 410)]);
        let expected = Ran {
            queue: 3,
            index: 7,
            within: (7 * US, 411 * US),
            took: Took::Within(296 * US, 304 * US),
        };
        assert_eq!(ran, [expected]);
        assert!(witness.is_alone());
    }

    #[test]
    fn what_is_not_clear_is_not_told() {
        let work = [(110, 410)];
        let told = |packets: &[(u64, Does)], span, work| {
            let mut witness = Witness::default();
            for ((time, does), index) in packets.iter().zip(0..) {
                witness.submitted(submitted(*time, index, *does));
            }
            let ran = read(&mut witness, span, work);
            (ran.len(), witness.is_alone())
        };
        let one = (100, Does::Kernel);
        assert_eq!(told(&[one], (50, 1_000), &work), (1, true));
        // Another kernel, or another packet that takes time, for the same time of work.
        for does in [Does::Kernel, Does::Other] {
            assert_eq!(told(&[one, (104, does)], (50, 1_000), &work).0, 0);
        }
        // Its begin, or its end, was not seen.
        assert_eq!(told(&[one], (112, 1_000), &work), (0, true));
        assert_eq!(told(&[one], (50, 400), &work), (0, true));
        // It was submitted later than the work began.
        assert_eq!(told(&[(120, Does::Kernel)], (50, 1_000), &work).0, 0);
        // Two that ran one after the other: each of the two times of work may be of either.
        let two = [one, (120, Does::Kernel)];
        let apart = [(110, 410), (416, 700)];
        assert_eq!(told(&two, (50, 1_000), &apart), (0, true));
        // Nothing was submitted: another process uses the GPU.
        assert_eq!(told(&[], (50, 1_000), &work), (0, false));
        assert_eq!(
            told(&[(100, Does::Nothing)], (50, 1_000), &work),
            (0, false)
        );
    }

    #[test]
    fn a_kernel_that_is_too_long_is_told_to_be() {
        let mut witness = Witness::default();
        witness.submitted(submitted(100, 7, Does::Kernel));
        read(&mut witness, (50, 400), &[(110, 1_000_000)]);
        read(&mut witness, (100_000, 100_002), &[(110, 1_000_000)]);
        let ran = read(&mut witness, (500_000, 500_002), &[]);
        assert_eq!(ran.len(), 1);
        assert_eq!((ran[0].index, ran[0].took), (7, Took::TooLong));
    }

    proptest! {
        /// Kernels of a queue run one after the other, some of them without a visible gap.
        #[test]
        fn what_is_told_is_true(
            kernels in prop::collection::vec((1_u64..400, 4_u64..200, 3_u64..11), 1..60),
            gap in 0_u64..8,
        ) {
            let mut witness = Witness::default();
            let (mut launched, mut free) = (200, 0);
            let mut truth: Vec<(u64, u64)> = Vec::new();
            for ((pause, duration, latency), index) in kernels.into_iter().zip(0..) {
                launched += pause;
                let begin = (launched + latency).max(free);
                truth.push((begin, begin + duration));
                free = begin + duration + gap;
                witness.submitted(submitted(launched, index, Does::Kernel));
            }
            // Work without a visible gap is one piece of work, as the register shows it.
            for ran in read(&mut witness, (100, free + 500), &truth) {
                let (begin, end) = truth[ran.index as usize];
                let duration = (end - begin) * US;
                let is_true = match ran.took {
                    Took::Within(least, most) => (least..=most).contains(&duration),
                    Took::TooShort => duration < 8 * US,
                    Took::TooLong => false,
                };
                prop_assert!(is_true, "{ran:?} {duration}");
            }
            prop_assert!(witness.is_alone());
        }
    }
}
