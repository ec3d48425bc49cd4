//! What one process may ask of gputrace, so that it cannot take another's share.
//!
//! A program writes the structures that gputrace follows, so it can claim anything: queues by the
//! thousand, a doorbell that went past a million packets, a new kernel with each dispatch. Each
//! such claim costs gputrace memory, reading and room in the capture. [`Limits`] says how much of
//! it is done for one process, and remembers what was not, for the account.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// What a process can use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    /// Packets that no doorbell of theirs told of, to be read from the ring.
    LatePackets,
    /// Texts that were not in memory when the function was called, to be read from outside.
    Texts,
    /// Kernels that are new, which the session then looks for in the process's memory.
    Kernels,
    /// Queues that are followed.
    Queues,
    /// Bytes of records.
    Bytes,
}

impl What {
    const ALL: [Self; 5] = [
        Self::LatePackets,
        Self::Texts,
        Self::Kernels,
        Self::Queues,
        Self::Bytes,
    ];

    /// How much a process may have at once, and how much of it comes back in a second.
    ///
    /// A GPU takes some hundred thousand packets a second, most of them with a doorbell each. HSA
    /// allows 128 queues per process and GPU; large programs have some ten thousand kernels.
    const fn allowance(self) -> (u64, u64) {
        match self {
            Self::LatePackets => (1 << 16, 1 << 14),
            Self::Texts => (256, 1 << 10),
            Self::Kernels => (1 << 16, 1 << 8),
            Self::Queues => (1 << 12, 0),
            Self::Bytes => (4 << 30, 256 << 20),
        }
    }

    /// What is said of it.
    const fn text(self) -> &'static str {
        match self {
            Self::LatePackets => "packets that one doorbell went past were not read",
            Self::Texts => "texts that were not in memory were not looked for",
            Self::Kernels => "kernels were not looked for, and may have no names",
            Self::Queues => {
                "queues were not followed: their dispatches without signals have no times"
            }
            Self::Bytes => "records were left out, because the process made too many",
        }
    }
}

/// What is left to a process of one thing.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// In units of 1 / 2^20, so that parts of one add up.
    amount: u64,
    since: Instant,
}

const UNIT: u64 = 1 << 20;

/// Processes of which it is known what is left to them; beyond, those with everything left are forgotten.
const PROCESSES: usize = 1 << 14;

/// Kinds of refusals that are remembered by process; more are added up under process 0.
const REFUSALS: usize = 1 << 10;

/// What is left to whom.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    left: HashMap<u32, [Option<Left>; What::ALL.len()]>,
    refused: BTreeMap<(u32, What), u64>,
}

impl Limits {
    /// Takes so much of what is left to a process; false if that is less. Then nothing is taken, and the refusal is
    /// counted.
    pub(crate) fn take(&mut self, pid: u32, what: What, count: u64, now: Instant) -> bool {
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

    /// As much of `count` as is left; what is more is refused.
    pub(crate) fn take_some(&mut self, pid: u32, what: What, count: u64, now: Instant) -> u64 {
        // Brings what is left up to date.
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

    /// A process has given something back.
    pub(crate) fn give_back(&mut self, pid: u32, what: What, count: u64) {
        if let Some(Some(left)) = self
            .left
            .get_mut(&pid)
            .and_then(|all| all.get_mut(what as usize))
        {
            let (most, _) = what.allowance();
            left.amount = (left.amount + count.saturating_mul(UNIT)).min(most * UNIT);
        }
    }

    /// A process has ended.
    pub(crate) fn ended(&mut self, pid: u32) {
        self.left.remove(&pid);
    }

    /// What has been refused to whom, to be said: the process (0: several), how often, what. Nothing is left.
    pub(crate) fn take_refused(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused)
            .into_iter()
            .map(|((pid, what), count)| match pid {
                0 => format!("further processes: {count} {}", what.text()),
                pid => format!("process {pid}: {count} {}", what.text()),
            })
            .collect()
    }

    fn refuse(&mut self, pid: u32, what: What, count: u64) {
        let is_known = self.refused.contains_key(&(pid, what));
        let pid = if is_known || self.refused.len() < REFUSALS {
            pid
        } else {
            0
        };
        let refused = self.refused.entry((pid, what)).or_default();
        *refused = refused.saturating_add(count);
    }

    /// Forgets processes to which everything is left, or would be by now.
    fn forget_idle(&mut self, now: Instant) {
        self.left.retain(|_, all| {
            What::ALL.iter().zip(all).any(|(what, left)| {
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
        // Not at every record.
        if passed < Duration::from_millis(1) {
            return;
        }
        self.since = now;
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        // A unit and a microsecond are so nearly the same part of one and of a second that they are taken for it.
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
        let (most, per_second) = What::Texts.allowance();
        assert!(limits.take(1, What::Texts, most, now));
        assert!(!limits.take(1, What::Texts, 1, now));
        assert!(limits.take(2, What::Texts, 1, now), "another process");
        assert!(limits.take(1, What::Kernels, 1, now), "another thing");
        let later = now + Duration::from_secs(1);
        assert!(
            limits.take(1, What::Texts, most.min(per_second) - 1, later),
            "comes back"
        );
        assert_eq!(
            limits.take_refused(),
            ["process 1: 1 texts that were not in memory were not looked for"]
        );
        assert!(limits.take_refused().is_empty(), "said once");
    }

    #[test]
    fn what_is_left_is_taken_in_part() {
        let mut limits = Limits::default();
        let now = Instant::now();
        let (most, _) = What::LatePackets.allowance();
        assert_eq!(
            limits.take_some(1, What::LatePackets, most - 10, now),
            most - 10
        );
        assert_eq!(limits.take_some(1, What::LatePackets, 100, now), 10);
        assert_eq!(limits.take_some(1, What::LatePackets, 100, now), 0);
        assert!(limits.take_refused()[0].starts_with("process 1: 190 "));
    }

    #[test]
    fn what_is_held_comes_back_when_it_is_given_back() {
        let mut limits = Limits::default();
        let now = Instant::now();
        let (most, _) = What::Queues.allowance();
        let later = now + Duration::from_hours(1);
        assert!(limits.take(1, What::Queues, most, now));
        assert!(!limits.take(1, What::Queues, 1, later));
        limits.give_back(1, What::Queues, 1);
        assert!(limits.take(1, What::Queues, 1, later));
        assert!(!limits.take(1, What::Queues, 1, later));
        limits.ended(1);
        assert!(limits.take(1, What::Queues, most, later));
    }

    #[test]
    fn processes_and_refusals_are_bounded() {
        let mut limits = Limits::default();
        let now = Instant::now();
        for pid in 1..2 * PROCESSES as u32 {
            assert!(limits.take(
                pid,
                What::Texts,
                1,
                now + Duration::from_secs(u64::from(pid))
            ));
        }
        assert!(limits.left.len() <= PROCESSES);
        for pid in 1..2 * REFUSALS as u32 {
            limits.refuse(pid, What::Texts, 1);
        }
        let refused = limits.take_refused();
        assert_eq!(refused.len(), REFUSALS + 1);
        assert!(refused[0].starts_with(&format!("further processes: {} ", REFUSALS - 1)));
    }
}
