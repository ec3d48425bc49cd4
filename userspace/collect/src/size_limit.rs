//! The size at which a recording ends by itself.

use crate::{collector::CollectorEvent, sink::RecordSink};

/// Size at which a recording is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeLimit {
    /// Size of the capture, bytes; `None`: no limit.
    pub bytes: Option<u64>,
    /// Number of events; `None`: no limit. [`is_counted`](gputrace_capture::ledger::is_counted)
    /// says of which domains.
    pub events: Option<u64>,
}

/// The part of a [`SizeLimit`] that a recording has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// [`SizeLimit::bytes`].
    Bytes,
    /// [`SizeLimit::events`].
    Events,
}

impl SizeLimit {
    /// Reports once that the recording has reached its limit.
    pub(crate) fn look(&mut self, sink: &RecordSink) {
        let events = || sink.accounts.events();
        if let Some(reached) = self.reached(sink.writer.size(), events) {
            *self = Self::default();
            (sink.tell)(CollectorEvent::LimitReached(reached));
        }
    }

    /// The limit that a capture of `bytes` has reached. Its events are counted only if their number
    /// is limited: the count is a sum over all CPUs.
    fn reached(&self, bytes: u64, events: impl FnOnce() -> u64) -> Option<ReachedLimit> {
        if self.bytes.is_some_and(|limit| bytes >= limit) {
            return Some(ReachedLimit::Bytes);
        }
        let limit = self.events?;
        (events() >= limit).then_some(ReachedLimit::Events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_only_for_their_limit() {
        let uncounted = || unreachable!("nobody asked for the number of events");
        assert_eq!(SizeLimit::default().reached(u64::MAX, uncounted), None);
        let size = SizeLimit {
            bytes: Some(10),
            events: None,
        };
        assert_eq!(size.reached(9, uncounted), None);
        assert_eq!(size.reached(10, uncounted), Some(ReachedLimit::Bytes));
        let both = SizeLimit {
            events: Some(3),
            ..size
        };
        assert_eq!(both.reached(9, || 2), None);
        assert_eq!(both.reached(9, || 3), Some(ReachedLimit::Events));
    }
}
