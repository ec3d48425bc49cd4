//! Spells: readings that follow each other so fast that they see single kernels begin and end.
//!
//! While the GPU is idle there is a short pause after each reading, which costs a fraction of the
//! processor time of reading on. While the GPU is at work there is none, nor where pauses take much
//! longer than they should, as in some virtual machines: short kernels would be missed.
//!
//! Most readings of a spell repeat what the one before found. A spell keeps its first reading, its
//! last one, and for each change the last reading before it and the first one after it.
//!
//! A kernel that runs at the end of a spell is followed: the register is read again after pauses of
//! a fixed share of the time that the kernel has run, so that long kernels are known as precisely,
//! in proportion, as short ones.

use gputrace_abi::gpu::activity;

use super::Gpu;

/// Maximum length of a spell, ns.
pub(super) const LENGTH: u64 = 6_000_000;

/// Maximum time in a spell without the pauses, ns.
pub(super) const BUSY: u64 = 1_500_000;

/// Pause after a reading that found the GPU idle, ns. Kernels that are as short may be missed; their
/// durations would be too uncertain to be told anyway.
const PAUSE: u64 = 15_000;

/// Once a pause took longer than this, ns, the spell goes on without.
const LONG_PAUSE: u64 = 30_000;

/// Maximum number of changes in a spell.
const CHANGES: u32 = 256;

/// A kernel that runs for longer than this is not followed to its end, ns.
const LONGEST: u64 = 100_000_000;

/// Pauses while a kernel is followed: the time for which it has run, divided by this.
const PART: u64 = 64;

/// A reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Time before it, ns.
    pub(super) before: u64,
    /// Time after it, ns.
    pub(super) after: u64,
    /// One of [`activity`].
    pub(super) state: u32,
    /// The register.
    pub(super) register: u32,
}

/// A part of a whole, in millionths; 0 of nothing.
fn millionths(part: u64, whole: u64) -> u32 {
    let share = part.saturating_mul(1_000_000).checked_div(whole);
    u32::try_from(share.unwrap_or(0)).unwrap_or(u32::MAX)
}

/// A spell on one GPU, or what follows it.
#[derive(Debug)]
pub(super) struct Spell {
    pub(super) gpu: Gpu,
    /// The last reading, and whether it was kept.
    last: Option<(Seen, bool)>,
    changes: u32,
    /// When the GPU was first seen at work since it was idle in this spell, ns; `None` while it is
    /// idle, or if it has not been idle.
    since: Option<u64>,
    /// Whether a pause took too long.
    is_late: bool,
    /// How long the spell lasted, how long of that the GPU was active, and how long the reader was
    /// interrupted; ns.
    lasted: u64,
    active: u64,
    unseen: u64,
}

impl Spell {
    pub(super) fn new(gpu: Gpu) -> Self {
        Self {
            gpu,
            last: None,
            changes: 0,
            since: None,
            is_late: false,
            lasted: 0,
            active: 0,
            unseen: 0,
        }
    }

    /// Takes a reading, and passes on what is to be kept. Returns whether the spell may go on.
    pub(super) fn take(&mut self, seen: Seen, mut keep: impl FnMut(Seen)) -> bool {
        let is_active = seen.state == activity::ACTIVE;
        if let Some((last, _)) = self.last {
            self.measure(last, seen);
        }
        match self.last {
            Some((last, _)) if last.state == seen.state => self.last = Some((seen, false)),
            last => {
                if let Some((last, false)) = last {
                    keep(last);
                }
                keep(seen);
                self.since = (is_active && last.is_some()).then_some(seen.after);
                self.changes += u32::from(last.is_some());
                self.last = Some((seen, true));
            }
        }
        (is_active || seen.state == activity::IDLE) && self.changes < CHANGES
    }

    /// Adds the time between two readings.
    fn measure(&mut self, last: Seen, seen: Seen) {
        let gap = seen.after.saturating_sub(last.after);
        self.lasted += gap;
        if gap > LONG_PAUSE {
            self.unseen += gap;
        } else if last.state != seen.state {
            self.active += gap / 2;
        } else if seen.state == activity::ACTIVE {
            self.active += gap;
        }
    }

    /// The share in which the GPU was active of the time in which the reader was not interrupted,
    /// millionths.
    pub(super) fn active(&self) -> u32 {
        millionths(self.active, self.lasted - self.unseen)
    }

    /// The share of the time so far in which the reader was interrupted, millionths.
    pub(super) fn unseen(&self) -> u32 {
        millionths(self.unseen, self.lasted)
    }

    /// Whether the last reading found the GPU idle.
    pub(super) fn is_idle(&self) -> bool {
        self.last
            .is_some_and(|(last, _)| last.state == activity::IDLE)
    }

    /// How long to wait before the next reading, if at all; ns.
    pub(super) fn pause(&self) -> Option<u64> {
        (self.is_idle() && !self.is_late).then_some(PAUSE)
    }

    /// Notes how long a pause took, ns.
    pub(super) fn paused(&mut self, took: u64) {
        self.is_late |= took > LONG_PAUSE;
    }

    /// When to read next if the spell is over, but a kernel that began in it still runs; ns.
    pub(super) fn follow(&self, now: u64) -> Option<u64> {
        let ran = now.saturating_sub(self.since?);
        (ran < LONGEST).then(|| now.saturating_add((ran / PART).max(1)))
    }

    /// Ends the spell: passes on the last reading if it was not kept.
    pub(super) fn end(self, keep: impl FnOnce(Seen)) {
        if let Some((last, false)) = self.last {
            keep(last);
        }
    }
}
