//! Injected faults, and the kernels that they affect.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::timing::any_name;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// The kernel never ends.
    NeverEnds,
    /// The packet processor reports a queue error and stops the queue.
    QueueError {
        /// The value stored into the queue's inactive signal. ROCr maps 32 to "invalid packet
        /// format".
        #[serde(default = "invalid_packet_format")]
        code: i64,
    },
    /// The GPU is reset: all of the agent's queues stop, and the runtime gets a hardware exception.
    GpuReset,
    /// The kernel completes without start and end ticks.
    NoTimestamps,
    /// The start and end ticks are swapped.
    SwappedTimestamps,
    /// The kernel ends and is stamped, but its completion signal is never decremented.
    LostCompletion,
    /// The completion signal is decremented later than the kernel's end.
    LateCompletion {
        /// The delay in nanoseconds.
        delay_ns: u64,
    },
}

const fn invalid_packet_format() -> i64 {
    32
}

/// A fault and the kernels that it affects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRule {
    /// The fault.
    #[serde(flatten)]
    pub fault: Fault,
    /// Kernel name; `*` and `?` are wildcards.
    #[serde(default = "any_name")]
    pub kernel: String,
    /// The first affected dispatch of these kernels, counted from 1 within the process.
    #[serde(default = "one")]
    pub nth: u64,
    /// Number of affected dispatches from there on.
    #[serde(default = "one")]
    pub count: u64,
}

const fn one() -> u64 {
    1
}

/// The rules, and how often each has matched.
#[derive(Debug)]
pub(crate) struct Faults {
    rules: Vec<(WildMatch, FaultRule, AtomicU64)>,
}

impl Faults {
    pub(crate) fn new(rules: &[FaultRule]) -> Self {
        let rules = rules
            .iter()
            .map(|rule| {
                (
                    WildMatch::new(&rule.kernel),
                    rule.clone(),
                    AtomicU64::new(0),
                )
            })
            .collect();
        Self { rules }
    }

    /// The fault of this dispatch, if any. Every matching rule counts the dispatch; the first rule
    /// that is due applies.
    pub(crate) fn of_dispatch(&self, kernel: &str) -> Option<Fault> {
        let mut due = None;
        for (pattern, rule, seen) in &self.rules {
            if pattern.matches(kernel) {
                let number = seen.fetch_add(1, Ordering::Relaxed) + 1;
                if number >= rule.nth && number - rule.nth < rule.count {
                    due = due.or(Some(rule.fault));
                }
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_applies_to_its_kernels_from_the_nth_on() {
        let rule = FaultRule {
            fault: Fault::NeverEnds,
            kernel: "spin*".to_owned(),
            nth: 2,
            count: 2,
        };
        let faults = Faults::new(&[rule]);
        let hits: Vec<bool> = ["spin", "vadd", "spin", "spin2", "spin"]
            .iter()
            .map(|kernel| faults.of_dispatch(kernel).is_some())
            .collect();
        assert_eq!(hits, [false, false, true, true, false]);
    }
}
