//! Limits on what one process may ask of gputrace, so that it cannot take the share of others.
//!
//! A program writes the structures that gputrace follows, so it can claim anything: thousands of
//! queues, a doorbell that covers a million packets, a new kernel with each dispatch. Each claim
//! costs gputrace memory, reading and room in the capture. [`Limits`] decides how much is done for
//! one process, and remembers what was refused, for the account.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// A limited resource of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    /// Packets without a doorbell of their own, which are read from the ring.
    LatePackets,
    /// Texts that were not in memory when the function was called, which are read from outside.
    Texts,
    /// New kernels, which the session looks up in the process's memory.
    Kernels,
    /// Queues that are followed.
    Queues,
    /// Bytes of records.
    Bytes,
}

impl Resource {
    const ALL: [Self; 5] = [
        Self::LatePackets,
        Self::Texts,
        Self::Kernels,
        Self::Queues,
        Self::Bytes,
    ];

    /// The maximum amount that a process may use at once, and the amount that it regains per
    /// second.
    ///
    /// A GPU processes some hundred thousand packets per second, most of them with a doorbell each.
    /// HSA allows 128 queues per process and GPU; large programs have some ten thousand kernels.
    const fn allowance(self) -> (u64, u64) {
        match self {
            Self::LatePackets => (1 << 16, 1 << 14),
            Self::Texts => (256, 1 << 10),
            Self::Kernels => (1 << 16, 1 << 8),
            Self::Queues => (1 << 12, 0),
            Self::Bytes => (4 << 30, 256 << 20),
        }
    }

    /// Text of the remark on a refusal.
    const fn text(self) -> &'static str {
        match self {
            Self::LatePackets => "packets that one doorbell went past were not read",
            Self::Texts => "texts that were not in memory were not read",
            Self::Kernels => "kernels were not looked up, and may have no names",
            Self::Queues => {
                "queues were not followed: their dispatches without signals have no times"
            }
            Self::Bytes => "records were left out, because the process made too many",
        }
    }
}

/// Remaining amount of one resource of a process.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// Amount in units of 1 / 2^20, so that fractions add up.
    amount: u64,
    since: Instant,
}

const UNIT: u64 = 1 << 20;

/// Number of processes above which those that have used nothing are forgotten.
const PROCESSES: usize = 1 << 14;

/// Maximum number of refusals remembered by process and resource; further ones are added up under
/// process 0.
const REFUSALS: usize = 1 << 10;

/// Remaining amounts of all processes.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    left: HashMap<u32, [Option<Left>; Resource::ALL.len()]>,
    refused: BTreeMap<(u32, Resource), u64>,
}

impl Limits {
    /// Takes `count` from the remaining amount of a process. Returns false if there is less; then
    /// nothing is taken, and the refusal is counted.
    pub(crate) fn take(&mut self, pid: u32, what: Resource, count: u64, now: Instant) -> bool {
        if self.left.len() >= PROCESSES && !self.left.contains_key(&pid) {
            self.forget_idle(now);
        }
        let (most, per_second) = what.allowance();
        let Some(left) = self.left.entry(pid).or_default().get_mut(what as usize) else {
            return false;
        };
        let left = left.get_or_insert(Left {
            amount: most * UNIT,
            since: now,
        });
        left.refill(most, per_second, now);
        let wanted = count.saturating_mul(UNIT);
        let is_granted = left.amount >= wanted;
        if is_granted {
            left.amount -= wanted;
        } else {
            self.refuse(pid, what, count);
        }
        is_granted
    }

    /// Takes as much of `count` as is left, and returns it; the rest is refused.
    pub(crate) fn take_some(&mut self, pid: u32, what: Resource, count: u64, now: Instant) -> u64 {
        // Brings the remaining amount up to date.
        self.take(pid, what, 0, now);
        let left = self
            .left
            .get(&pid)
            .and_then(|all| all.get(what as usize).copied().flatten());
        let granted = left.map_or(0, |left| left.amount / UNIT).min(count);
        self.take(pid, what, granted, now);
        if granted < count {
            self.refuse(pid, what, count - granted);
        }
        granted
    }

    /// Returns an amount that a process no longer uses.
    pub(crate) fn give_back(&mut self, pid: u32, what: Resource, count: u64) {
        if let Some(Some(left)) = self
            .left
            .get_mut(&pid)
            .and_then(|all| all.get_mut(what as usize))
        {
            let (most, _) = what.allowance();
            left.amount = (left.amount + count.saturating_mul(UNIT)).min(most * UNIT);
        }
    }

    /// Forgets a process that has ended.
    pub(crate) fn ended(&mut self, pid: u32) {
        self.left.remove(&pid);
    }

    /// Takes the refusals so far, as remarks: the process (0: several), how often, and what.
    pub(crate) fn take_refused(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused)
            .into_iter()
            .map(|((pid, what), count)| match pid {
                0 => format!("further processes: {count} {}", what.text()),
                pid => format!("process {pid}: {count} {}", what.text()),
            })
            .collect()
    }

    fn refuse(&mut self, pid: u32, what: Resource, count: u64) {
        let is_known = self.refused.contains_key(&(pid, what));
        let pid = if is_known || self.refused.len() < REFUSALS {
            pid
        } else {
            0
        };
        let refused = self.refused.entry((pid, what)).or_default();
        *refused = refused.saturating_add(count);
    }

    /// Forgets processes that have used nothing, or have regained everything by now.
    fn forget_idle(&mut self, now: Instant) {
        self.left.retain(|_, all| {
            Resource::ALL.iter().zip(all).any(|(what, left)| {
                let (most, per_second) = what.allowance();
                left.as_mut().is_some_and(|left| {
                    left.refill(most, per_second, now);
                    left.amount < most * UNIT
                })
            })
        });
    }
}

impl Left {
    fn refill(&mut self, most: u64, per_second: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        // Limits how often this is computed.
        if passed < Duration::from_millis(1) {
            return;
        }
        self.since = now;
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        // A unit is about one millionth of one, as a microsecond is of a second, so they are
        // treated as equal.
        let more = micros.saturating_mul(per_second);
        self.amount = self.amount.saturating_add(more).min(most * UNIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_does_not_use_up_what_another_has() {
        let mut limits = Limits::default();
        let now = Instant::now();
        let (most, per_second) = Resource::Texts.allowance();
        assert!(limits.take(1, Resource::Texts, most, now));
        assert!(!limits.take(1, Resource::Texts, 1, now));
        assert!(limits.take(2, Resource::Texts, 1, now), "another process");
        assert!(limits.take(1, Resource::Kernels, 1, now), "another thing");
        let later = now + Duration::from_secs(1);
        assert!(
            limits.take(1, Resource::Texts, most.min(per_second) - 1, later),
            "comes back"
        );
        assert_eq!(
            limits.take_refused(),
            ["process 1: 1 texts that were not in memory were not read"]
        );
        assert!(limits.take_refused().is_empty(), "said once");
    }

    #[test]
    fn what_is_left_is_taken_in_part() {
        let mut limits = Limits::default();
        let now = Instant::now();
        let (most, _) = Resource::LatePackets.allowance();
        assert_eq!(
            limits.take_some(1, Resource::LatePackets, most - 10, now),
            most - 10
        );
        assert_eq!(limits.take_some(1, Resource::LatePackets, 100, now), 10);
        assert_eq!(limits.take_some(1, Resource::LatePackets, 100, now), 0);
        assert!(limits.take_refused()[0].starts_with("process 1: 190 "));
    }

    #[test]
    fn what_is_held_comes_back_when_it_is_given_back() {
        let mut limits = Limits::default();
        let now = Instant::now();
        let (most, _) = Resource::Queues.allowance();
        let later = now + Duration::from_hours(1);
        assert!(limits.take(1, Resource::Queues, most, now));
        assert!(!limits.take(1, Resource::Queues, 1, later));
        limits.give_back(1, Resource::Queues, 1);
        assert!(limits.take(1, Resource::Queues, 1, later));
        assert!(!limits.take(1, Resource::Queues, 1, later));
        limits.ended(1);
        assert!(limits.take(1, Resource::Queues, most, later));
    }

    #[test]
    fn processes_and_refusals_are_bounded() {
        let mut limits = Limits::default();
        let now = Instant::now();
        for pid in 1..2 * PROCESSES as u32 {
            assert!(limits.take(
                pid,
                Resource::Texts,
                1,
                now + Duration::from_secs(u64::from(pid))
            ));
        }
        assert!(limits.left.len() <= PROCESSES);
        for pid in 1..2 * REFUSALS as u32 {
            limits.refuse(pid, Resource::Texts, 1);
        }
        let refused = limits.take_refused();
        assert_eq!(refused.len(), REFUSALS + 1);
        assert!(refused[0].starts_with(&format!("further processes: {} ", REFUSALS - 1)));
    }
}
