//! What readings of completion signals prove about the signals' uses.

use std::collections::VecDeque;

use gputrace_abi::gpu::{Completion, completion_reason};

use super::{
    Work,
    evidence::Exact,
    knowledge::Losses,
    signal::{Fit, Use, User, fit},
};
use crate::model::event::Event;

impl Work {
    /// Handles a reading of a completion signal.
    pub(super) fn completion(&mut self, reading: &Completion, events: &mut VecDeque<Event>) {
        let signal = self
            .processes
            .get_mut(&reading.pid)
            .and_then(|process| process.signals.get_mut(&reading.signal));
        let Some(signal) = signal else { return };
        let mut uses = std::mem::take(&mut self.read);
        signal.read(reading, &mut uses);
        for used in &mut uses {
            used.proven = signal.has_ended(used, reading);
            used.ended |= used.proven;
        }
        for used in uses.iter().filter(|used| used.proven) {
            self.ended_by(used.user, reading.time);
        }
        let winner = self.stamped(&uses, reading);
        if let Some((user, exact)) = winner {
            self.stamp(user, exact);
        }
        // If the program is about to reuse the signal, this is the last reading that can concern
        // these uses. Otherwise a later reading may have stamps that were not there yet.
        let is_last = reading.reason != completion_reason::POLL && reading.value <= 0;
        let others_ended = winner.is_some() && reading.value <= 0;
        let over = uses.extract_if(.., |used| {
            is_last || others_ended || winner.is_some_and(|(user, _)| user == used.user)
        });
        self.over.extend(over.map(|used| used.user));
        self.close_over(events);
        let is_destroyed = reading.reason == completion_reason::DESTROY;
        if (is_destroyed || !uses.is_empty())
            && let Some(process) = self.processes.get_mut(&reading.pid)
            && let Some(signal) = process.signals.get_mut(&reading.signal)
        {
            signal.uses.splice(0..0, uses.drain(..));
            if is_destroyed && signal.uses.is_empty() {
                process.signals.remove(&reading.signal);
            }
        }
        uses.clear();
        self.read = uses;
    }

    /// The use in `uses` that the stamps of `reading` belong to, if that is certain.
    fn stamped(&mut self, uses: &[Use], reading: &Completion) -> Option<(User, Exact)> {
        if uses.len() > 1 && reading.value > 0 {
            return None;
        }
        let mut found: Option<(User, Exact)> = None;
        for used in uses {
            let Some(exact) = self.own_stamps(used, reading)? else {
                continue;
            };
            found = Some(match found {
                None => (used.user, exact),
                Some((other, _)) => (self.ends_last(other, used.user)?, exact),
            });
        }
        found
    }

    /// The stamps of `reading` if they can belong to `used`; `Some(None)` if they do not, `None` if
    /// that is uncertain.
    fn own_stamps(&mut self, used: &Use, reading: &Completion) -> Option<Option<Exact>> {
        let (node, earliest) = match used.user {
            User::Packet { queue, index } => {
                let queue = self.queues.get(queue as usize)?;
                (queue.info.node_id, queue.earliest(index)?)
            }
            User::Copy(id) => {
                let copy = self.copies.get(&id)?;
                if copy.by_cpu {
                    return Some(None);
                }
                (copy.engine_node, copy.evidence.earliest)
            }
        };
        match fit(used, reading, self.knowledge.clock(node), earliest) {
            Fit::Own(exact) => {
                // The use to which the stamps really belong may have been lost.
                let losses = self.knowledge.losses(used.prepared, reading.time);
                let can_be = match used.user {
                    _ if losses == Losses::Copies => false,
                    User::Packet { queue, index } => {
                        let queue = self.queues.get(queue as usize)?;
                        queue.can_be(index, &exact, losses > Losses::None)
                    }
                    User::Copy(_) => losses == Losses::None,
                };
                can_be.then_some(Some(exact))
            }
            Fit::Stale => Some(None),
            Fit::Unaligned(why) => {
                self.unaligned.entry(node).or_insert(why);
                Some(None)
            }
        }
    }

    /// Which of two uses certainly ends after the other, if any.
    fn ends_last(&self, one: User, other: User) -> Option<User> {
        let (
            User::Packet { queue, index },
            User::Packet {
                queue: same,
                index: with,
            },
        ) = (one, other)
        else {
            return None;
        };
        let later = index.max(with);
        let slot = self.queues.get(queue as usize)?.slot(later)?;
        (queue == same && slot.barrier).then_some(User::Packet {
            queue,
            index: later,
        })
    }
}
