//! The watcher's state of one queue: whether it is at work, how fast, and how often to look at it.

use std::time::{Duration, Instant};

use gputrace_abi::{
    gpu::{QUEUE_STATE_SIZE, QueueState, queue_reason},
    record::kind,
};
use gputrace_reader::Look;

use crate::{
    header::header,
    looks::{FASTEST, LOOK_EVERY, SLOWEST},
    scratch::Scratch,
};

/// How long a queue with packets counts as busy after its last packet without a signal, or the last
/// change of its read index. A queue that hangs is looked at every [`LOOK_EVERY`].
const BUSY_FOR: Duration = Duration::from_millis(200);

/// How long an empty queue is still looked at: the collector may be about to report a packet, which
/// it does every 20 ms.
const LINGER: Duration = Duration::from_millis(25);

/// With fewer packets than this, short packets do not make looks more frequent.
const MANY: u64 = 4;

/// With as many packets as this, a queue is not about to run empty. Hardware may report its read
/// index in steps of 16.
const DEEP: u64 = 32;

/// State of a queue.
pub(crate) struct Queue {
    /// Topology node of its agent, if that is known.
    pub(crate) node: Option<u32>,
    /// Until this time, the queue counts as busy if it has packets, and is looked at if it has
    /// none.
    pub(crate) busy_until: Instant,
    pub(crate) linger_until: Instant,
    pub(crate) read_index: Option<u64>,
    pub(crate) write_index: u64,
    /// Time just before the last reading of the read index, ns `CLOCK_BOOTTIME`; 0 if it was never
    /// read.
    pub(crate) looked: u64,
    /// When the read index was first seen with its current value, ns `CLOCK_BOOTTIME`.
    pub(crate) since: u64,
    /// Observed time from one packet's begin to the next, ns: a mean in which the most recent ones
    /// weigh most.
    pub(crate) pace: u64,
    /// Whether the queue has, or may have, packets without signals.
    pub(crate) is_followed: bool,
    /// Set if the scratch memory of queues is looked at.
    pub(crate) scratch: Option<Scratch>,
}

impl Queue {
    pub(crate) fn new(now: Instant, scratch: bool) -> Self {
        Self {
            node: None,
            busy_until: now,
            linger_until: now,
            read_index: None,
            write_index: 0,
            looked: 0,
            since: 0,
            pace: SLOWEST,
            is_followed: false,
            scratch: scratch.then(Scratch::default),
        }
    }

    /// Notes the submission of a packet without a signal.
    pub(crate) fn submitted(&mut self, now: Instant) {
        self.busy_until = now + BUSY_FOR;
        self.linger_until = now + LINGER;
        self.is_followed = true;
    }

    /// How often to look at the queue, ns; `None` if nothing is expected.
    pub(crate) fn wanted(&self, now: Instant) -> Option<u64> {
        let left = self
            .write_index
            .saturating_sub(self.read_index.unwrap_or(0));
        match left {
            _ if !self.is_followed => None,
            0 if now >= self.linger_until => None,
            0 => Some(SLOWEST),
            _ if now >= self.busy_until => Some(LOOK_EVERY.as_nanos() as u64),
            MANY.. => Some((self.pace / 2).clamp(FASTEST, SLOWEST)),
            _ => Some(SLOWEST),
        }
    }

    /// Whether the queue has so many packets that short packets make looks more frequent.
    pub(crate) fn has_many(&self) -> bool {
        self.write_index
            .saturating_sub(self.read_index.unwrap_or(0))
            >= MANY
    }

    /// Whether more packets wait than a read index that is reported in steps hides.
    pub(crate) fn is_deep(&self) -> bool {
        let waiting = self
            .write_index
            .saturating_sub(self.read_index.unwrap_or(self.write_index));
        waiting >= DEEP
    }

    /// Notes a look. Returns the state to record if the read index has changed.
    pub(crate) fn look(
        &mut self,
        pid: u32,
        address: u64,
        look: &Look,
        [write_index, read_index]: [u64; 2],
    ) -> Option<QueueState> {
        let looked = std::mem::replace(&mut self.looked, look.before);
        let wrote = std::mem::replace(&mut self.write_index, write_index);
        let before = self.read_index.replace(read_index);
        if wrote != write_index || before != Some(read_index) {
            let now = Instant::now();
            self.busy_until = now + BUSY_FOR;
            self.linger_until = now + LINGER;
        }
        if before == Some(read_index) {
            return None;
        }
        if let Some(before) = before
            && before < wrote
            && let Some(steps) = read_index.checked_sub(before).filter(|steps| *steps > 0)
        {
            let pace = look.after.saturating_sub(self.since) / steps;
            self.pace = (self.pace.saturating_mul(3).saturating_add(pace)) / 4;
        }
        self.since = look.after;
        Some(QueueState {
            header: header(QUEUE_STATE_SIZE, kind::QUEUE, 0),
            pid,
            reason: queue_reason::SAMPLE,
            time: look.after,
            queue: address,
            read_index,
            write_index,
            looked,
        })
    }
}
