//! Readings that the collector has ordered and not received yet.
//!
//! In the capture, a value comes before its call, as epoch marks promise. So a mark waits for the
//! values that were ordered before it, for half a second at most; after that they are written as
//! they were.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use gputrace_capture::meta::Epoch;

/// Maximum wait for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// A reading that was ordered.
#[derive(Debug)]
pub(crate) enum Ordered {
    /// A value's record as it arrived, and later records of the same call that needed no reading:
    /// annotations have an order.
    Value(Vec<u8>, Vec<Vec<u8>>),
    /// A number of packets.
    Packets(usize),
}

/// The orders, and the epoch marks that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    next: u64,
    ordered: BTreeMap<u64, (Instant, Ordered)>,
    /// The last value that was ordered (its order's number), and its call.
    last: Option<(u64, u64)>,
    /// Waiting epoch marks, each with the number of the first order that follows it.
    marks: VecDeque<(u64, Epoch)>,
}

impl Pending {
    /// Returns the number of the next order.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Adds an order.
    pub(crate) fn add(&mut self, number: u64, ordered: Ordered, now: Instant) {
        self.ordered.insert(number, (now, ordered));
    }

    /// Notes that the value ordered last belongs to this call.
    pub(crate) fn is_of_call(&mut self, number: u64, correlation: u64) {
        self.last = Some((number, correlation));
    }

    /// Appends the record of a value to an order of the same call that is still open. Returns false
    /// if there is none.
    pub(crate) fn follows(&mut self, correlation: u64, record: &[u8]) -> bool {
        let last = self.last.filter(|(_, call)| *call == correlation);
        let Some((_, Ordered::Value(_, followers))) =
            last.and_then(|(number, _)| self.ordered.get_mut(&number))
        else {
            return false;
        };
        followers.push(record.to_vec());
        true
    }

    /// Takes the order with this number, if its answer is still waited for.
    pub(crate) fn take(&mut self, number: u64) -> Option<Ordered> {
        Some(self.ordered.remove(&number)?.1)
    }

    /// Takes the orders that have waited long enough; with `all`, every order.
    pub(crate) fn overdue(&mut self, now: Instant, all: bool) -> Vec<Ordered> {
        let mut overdue = Vec::new();
        // The numbers of orders increase with time.
        while let Some(first) = self.ordered.first_entry()
            && (all || now >= first.get().0 + PATIENCE)
        {
            overdue.push(first.remove().1);
        }
        overdue
    }

    /// Adds a mark at the end of a round: everything before it is written or ordered.
    pub(crate) fn mark(&mut self, epoch: Epoch) {
        self.marks.push_back((self.next, epoch));
    }

    /// Takes the latest mark for which everything has been written.
    pub(crate) fn due_mark(&mut self) -> Option<Epoch> {
        let values = self.ordered.iter();
        let mut values = values.filter(|(_, (_, ordered))| matches!(ordered, Ordered::Value(..)));
        let first = values.next().map_or(u64::MAX, |(number, _)| *number);
        let mut due = None;
        while let Some((number, _)) = self.marks.front()
            && *number <= first
        {
            due = self.marks.pop_front().map(|(_, epoch)| epoch);
        }
        due
    }

    /// Whether an answer is waited for.
    pub(crate) fn any_order(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// Whether an order or a mark is waiting.
    pub(crate) fn any(&self) -> bool {
        !self.ordered.is_empty() || !self.marks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(pending: &mut Pending, time: u64) {
        pending.mark(Epoch { time });
    }

    fn order(pending: &mut Pending, ordered: Ordered, now: Instant) -> u64 {
        let number = pending.number();
        pending.add(number, ordered, now);
        number
    }

    #[test]
    fn marks_wait_for_the_values_before_them() {
        let now = Instant::now();
        let mut pending = Pending::default();
        mark(&mut pending, 1);
        assert_eq!(pending.due_mark().map(|epoch| epoch.time), Some(1));
        let first = order(&mut pending, Ordered::Value(vec![1], Vec::new()), now);
        mark(&mut pending, 2);
        let second = order(&mut pending, Ordered::Value(vec![2], Vec::new()), now);
        mark(&mut pending, 3);
        order(&mut pending, Ordered::Packets(7), now);
        assert!(pending.due_mark().is_none());
        assert!(matches!(pending.take(first), Some(Ordered::Value(..))));
        assert_eq!(pending.due_mark().map(|epoch| epoch.time), Some(2));
        assert!(pending.take(second).is_some());
        mark(&mut pending, 4);
        assert_eq!(
            pending.due_mark().map(|epoch| epoch.time),
            Some(4),
            "not for packets"
        );
        assert!(pending.any());
        assert!(pending.take(first).is_none(), "once");
    }

    #[test]
    fn nobody_waits_for_ever() {
        let now = Instant::now();
        let mut pending = Pending::default();
        order(&mut pending, Ordered::Value(vec![1], Vec::new()), now);
        mark(&mut pending, 2);
        order(&mut pending, Ordered::Packets(3), now + PATIENCE);
        assert!(pending.overdue(now, false).is_empty());
        assert_eq!(pending.overdue(now + PATIENCE, false).len(), 1);
        assert_eq!(pending.due_mark().map(|epoch| epoch.time), Some(2));
        assert_eq!(pending.overdue(now, true).len(), 1);
        assert!(!pending.any());
    }

    #[test]
    fn values_of_a_call_stay_in_order() {
        let now = Instant::now();
        let mut pending = Pending::default();
        let number = order(&mut pending, Ordered::Value(vec![1], Vec::new()), now);
        assert!(!pending.follows(7, &[2]), "of no call");
        pending.is_of_call(number, 7);
        assert!(pending.follows(7, &[2]));
        assert!(!pending.follows(8, &[3]), "of another call");
        let Some(Ordered::Value(_, followers)) = pending.take(number) else {
            panic!("a value")
        };
        assert_eq!(followers, [[2]]);
        assert!(!pending.follows(7, &[4]), "written by now");
    }
}
