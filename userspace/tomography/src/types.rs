//! What comes in and what is told.

use crate::Lengths;

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Runs a kernel of this class, which the caller numbers.
    Class(u32),
    /// Takes no time, such as a barrier that waits only for the packets before it.
    Nothing,
    /// May take any time, such as a barrier that waits for a signal.
    Unknown,
}

/// Begin and end as stamped by the GPU, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Begin.
    pub begin: u64,
    /// End.
    pub end: u64,
    /// Maximum error of each.
    pub uncertainty: u64,
}

/// A packet of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its index in the queue. If this is not the previous packet's index plus one, the sequence
    /// starts anew.
    pub index: u64,
    /// The latest time at which the GPU was told of it, ns.
    pub submitted: u64,
    /// What it does.
    pub task: Task,
    /// Whether it waits for all packets before it.
    pub waits: bool,
    /// When it ran, if that is known.
    pub exact: Option<Exact>,
    /// A time by which it had certainly ended, ns.
    pub ended_by: Option<u64>,
}

/// A look at a queue's read index that found it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Time of the look, ns.
    pub time: u64,
    /// Packets with lower indices had begun.
    pub read_index: u64,
    /// The queue's write index at that time.
    pub write_index: u64,
    /// Time of the last look that still found the previous index, ns; 0 if there was none.
    pub before: u64,
}

/// A mean with its standard error, both ns, finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// What is known of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Told {
    /// Its mean duration.
    Apart(Mean),
    /// Nothing by itself; only its duration together with others.
    Mixed,
    /// Nothing, because it was not seen.
    #[default]
    Unseen,
}

/// A class and its estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// The caller's number for the class.
    pub number: u32,
    /// Number of packets so far.
    pub count: u64,
    /// What is known.
    pub told: Told,
    /// Its two lengths, if it has a mean and clearly two lengths.
    pub lengths: Option<Lengths>,
}
