//! Simulates a GPU and its runtime: queues that take their packets in order, a clock of its own,
//! signals that are reused, and a recorder that sees what gputrace would see of them.

mod clock;
mod host;

pub(crate) use clock::{Clock, Jump};
pub(crate) use host::{Recorded, run};

/// Random numbers (SplitMix64), reproducible from the seed.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in `percent` of the cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.next() % 100 < u64::from(percent)
    }
}

/// Parameters of program, GPU and recorder; percentages of packets unless said otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    /// Number of queues, one after the other at the same address.
    pub(crate) generations: u64,
    /// Packets per queue.
    pub(crate) packets: u64,
    pub(crate) signalled: u32,
    pub(crate) barrier: u32,
    /// Packets that are not dispatches.
    pub(crate) other: u32,
    /// Signals shared by two packets.
    pub(crate) shared: u32,
    /// Whether the runtime asks for stamps.
    pub(crate) profiling: bool,
    /// Doorbells that announce several packets, and doorbells that ring out of order.
    pub(crate) batched: u32,
    pub(crate) disordered: u32,
    /// Doorbells that the program stores by itself, so that the recorder does not see them.
    pub(crate) unseen: u32,
    /// Packets of a batch that the collector reads later.
    pub(crate) read_later: u32,
    /// Records that are lost.
    pub(crate) lost: u32,
    /// Number of packets by which the reported read index advances at a time, and its delay, ns.
    pub(crate) step: u64,
    pub(crate) delay: u64,
    /// Time between two samples of the read index, ns; 0 for none.
    pub(crate) sampling: u64,
    /// Whether the last packet of the last queue never ends.
    pub(crate) hangs: bool,
    pub(crate) clock: Clock,
}

/// The truth about a packet or copy.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) queue_id: u64,
    pub(crate) index: u64,
    pub(crate) is_kernel: bool,
    /// A thread of its own.
    pub(crate) tid: u32,
    pub(crate) begin: u64,
    /// `u64::MAX` for never.
    pub(crate) end: u64,
    /// Whether the capture has a record of it, and whether it has that of its own doorbell.
    pub(crate) recorded: bool,
    pub(crate) own_recorded: bool,
    pub(crate) signalled: bool,
    /// An address that is unique to this packet.
    pub(crate) kernarg: u64,
}
