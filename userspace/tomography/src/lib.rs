//! How long each class of kernels takes, from looks at the read indices of queues.
//!
//! A queue whose packets have no completion signals tells no ends. But the recorder looks at its read index every now and
//! then, and between two looks the durations of the packets taken add up to the time between them. Over thousands of looks
//! that is a well-determined system of equations in the mean durations of *classes*: tomography.
//!
//! # Model
//!
//! Packets of a queue with the barrier bit run one after the other. Packet *i* begins at *b*(*i*), the later of *b*(*i* - 1) +
//! *d*(class of *i* - 1) + *gap* and *submitted*(*i*) + *latency*. Unknown are the means *d* of the classes, the gap, the gap
//! behind packets with stamps, which is longer, the latency, and how much single durations differ from their means.
//!
//! * While a queue is not empty, begins follow each other: a *chain*. Its phase (when the present packet began) is
//!   a linear function of the unknowns, and a random walk, because durations differ from their means.
//! * A look is an observation of the phase: see `observe`. A Kalman filter on the phase (`chain`) makes innovations of
//!   them, whose normal equations are accumulated (`normal`): generalised least squares.
//! * How much durations differ is found by maximum likelihood as the observations come (`noise`).
//! * Where the queue was clearly empty, the next packet begins a new chain at its submission. Where that is not clear, the
//!   chain is lost, and the next look begins another.
//! * In which steps hardware reports the index is found out from the changes (`step`).
//!
//! Memory and time are bounded by the number of classes: at most [`MOST_CLASSES`], further ones are said to be unseen.
//!
//! All times that come in are ns of one clock.

mod blocks;
mod chain;
mod doorbell;
mod interval;
mod model;
mod noise;
mod normal;
mod observe;
mod queue;
mod step;
mod tomograph;
mod types;

pub use self::{
    tomograph::Tomograph,
    types::{Class, Exact, Look, Mean, Packet, Task, Told},
};

/// Classes that are told apart; packets of others are known to take unknown time.
pub const MOST_CLASSES: usize = 512;

/// The columns of the equations before those of the classes.
mod column {
    /// From the end of a packet to the begin of the next one that waits for it.
    pub(crate) const GAP: usize = 0;
    /// From a packet's submission into an empty queue to its begin.
    pub(crate) const LATENCY: usize = 1;
    /// What a packet takes that does nothing but be processed.
    pub(crate) const BARRIER: usize = 2;
    /// The gap behind a packet that the GPU stamped: it writes the stamps and the signal before it goes on.
    pub(crate) const STAMPED_GAP: usize = 3;
    /// The first class's.
    pub(crate) const CLASSES: usize = 4;
}
