//! Estimates how long each class of kernels takes from looks at the read indices of queues.
//!
//! A queue whose packets have no completion signals does not show when they end. But the recorder
//! looks at its read index periodically, and the durations of the packets taken between two looks
//! add up to the time between them. Thousands of looks make a well-determined system of equations
//! in the mean durations of *classes*: tomography.
//!
//! # Model
//!
//! Packets of a queue with the barrier bit run one after the other. Packet *i* begins at *b*(*i*),
//! the later of *b*(*i* - 1) + *d*(class of *i* - 1) + *gap* and *submitted*(*i*) + *latency*. The
//! unknowns are the means *d* of the classes, the gap, the gap after packets with stamps (which is
//! longer), the latency, and how much single durations differ from their means.
//!
//! * While a queue is not empty, begins follow each other: a *chain*. Its phase (when the current
//!   packet began) is a linear function of the unknowns, and a random walk, because durations
//!   differ from their means.
//! * A look is an observation of the phase: see `observe`. A Kalman filter on the phase (`chain`)
//!   turns looks into innovations, whose normal equations are accumulated (`normal`): generalised
//!   least squares.
//! * The means must add up to the time that the queues were seen at work (`balance`), and must not
//!   differ from one span of time to the next (`blocks`). If they do not add up, or differ, their
//!   standard errors are increased.
//! * How much durations differ is estimated by maximum likelihood as observations arrive (`noise`).
//! * Where the queue was clearly empty, the next packet begins a new chain at its submission. Where
//!   that is not clear, the chain is lost, and the next look begins another.
//! * Where looks bound single durations closely, a class with two lengths shows itself (`lengths`).
//! * In which steps hardware reports the index is found out from the changes (`step`).
//!
//! Apart from all this, `durations` has the mean of single durations that were seen whole.
//!
//! Memory and time are bounded by the number of classes. At most [`MOST_CLASSES`] are followed;
//! further classes are reported as unseen.
//!
//! All input times are in ns of the same clock.

mod balance;
mod blocks;
mod chain;
mod doorbell;
mod durations;
mod interval;
mod lengths;
mod model;
mod noise;
mod normal;
mod observe;
mod queue;
mod step;
mod tomograph;
mod types;

pub use self::{
    durations::Durations,
    lengths::Lengths,
    tomograph::Tomograph,
    types::{Class, Exact, Look, Mean, Packet, Task, Told},
};

/// Maximum number of classes. Packets of further classes are taken to have an unknown duration.
pub const MOST_CLASSES: usize = 512;

/// The columns of the equations that precede those of the classes.
mod column {
    /// From the end of a packet to the begin of the next one that waits for it.
    pub(crate) const GAP: usize = 0;
    /// From a packet's submission into an empty queue to its begin.
    pub(crate) const LATENCY: usize = 1;
    /// The time taken by a packet that does nothing.
    pub(crate) const BARRIER: usize = 2;
    /// The gap after a packet stamped by the GPU, which writes the stamps and the signal before it
    /// goes on.
    pub(crate) const STAMPED_GAP: usize = 3;
    /// The column of the first class.
    pub(crate) const CLASSES: usize = 4;
}
