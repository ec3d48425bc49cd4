//! Records about the GPU on their way into the order of time.

use gputrace_abi::gpu::{Completion, Copy, Packet, QueueState};

/// A record, or something else that has its place in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item {
    Packet(Packet),
    Completion(Completion),
    Copy(Copy),
    Queue(QueueState),
    /// The process is another program from now on, or the id is another process's.
    Restart {
        time: u64,
        pid: u32,
    },
    /// The process's main thread ended.
    Exit {
        time: u64,
        pid: u32,
    },
}

impl Item {
    /// When it was made, ns.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Self::Packet(packet) => packet.time,
            Self::Completion(reading) => reading.time,
            Self::Copy(copy) => copy.time,
            Self::Queue(state) => state.time,
            Self::Restart { time, .. } | Self::Exit { time, .. } => *time,
        }
    }
}

/// Records that wait for those made before them.
#[derive(Debug, Default)]
pub(crate) struct Records {
    waiting: Vec<Item>,
}

impl Records {
    pub(crate) fn push(&mut self, item: Item) {
        self.waiting.push(item);
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes out what was made at or before `until`, in order of time, then of the capture.
    pub(crate) fn due(&mut self, until: u64) -> Vec<Item> {
        self.waiting.sort_by_key(Item::time);
        let due = self.waiting.partition_point(|item| item.time() <= until);
        self.waiting.drain(..due).collect()
    }

    /// Takes out the oldest `count`.
    pub(crate) fn oldest(&mut self, count: usize) -> Vec<Item> {
        self.waiting.sort_by_key(Item::time);
        let count = count.min(self.waiting.len());
        self.waiting.drain(..count).collect()
    }
}
