//! What comes in and what is told.

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Runs a kernel of this class, numbered by the caller.
    Class(u32),
    /// Nothing that takes time, such as a barrier that waits only for the packets before it.
    Nothing,
    /// Something that may take any time, such as a barrier that waits for a signal.
    Unknown,
}

/// Begin and end as the GPU stamped them, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Begin.
    pub begin: u64,
    /// End.
    pub end: u64,
    /// Each is at most so far from the truth.
    pub uncertainty: u64,
}

/// A packet of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its index in the queue. A packet whose index is not the last one's plus one begins anew.
    pub index: u64,
    /// When the GPU was told of it at the latest, ns.
    pub submitted: u64,
    /// What it does.
    pub task: Task,
    /// Whether it waits for all packets before it.
    pub waits: bool,
    /// When it ran, if that is known.
    pub exact: Option<Exact>,
    /// When it had ended for certain, ns.
    pub ended_by: Option<u64>,
}

/// A look at a queue's read index that found it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// When, ns.
    pub time: u64,
    /// Packets with lower indices had begun.
    pub read_index: u64,
    /// The queue's write index then.
    pub write_index: u64,
    /// The last look before, which found the index as it was before, ns; 0 if there was none.
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

/// What can be told of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Told {
    /// Its mean duration.
    Apart(Mean),
    /// Nothing by itself: only what it takes together with others.
    Mixed,
    /// Nothing.
    #[default]
    Unseen,
}

/// A class and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// The caller's number of it.
    pub number: u32,
    /// Its packets so far.
    pub count: u64,
    /// What can be told.
    pub told: Told,
}
