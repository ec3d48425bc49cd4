//! `gputrace top`: who uses the GPUs now, and how.
//!
//! [`TopView`] takes the events of a recording while it is made. It adds them up in intervals
//! ([`interval`]) and turns each interval that is over into a [`Snapshot`]. It shows that on a screen
//! ([`screen`]), as text ([`page`]) or as a line of JSON, [`DELAY`] after the interval's end: the end
//! of a kernel becomes known later than it happens.
//!
//! Nothing is guessed: what is not known of a kernel's time widens the range in which a GPU's use
//! lies. Memory grows with the number of processes, functions and kernels of the intervals that are
//! not shown yet, not with the length of the recording.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod busy;
mod counters;
mod group;
mod interval;
mod intervals;
mod jobs;
mod page;
mod rows;
mod screen;
mod snapshot;
mod terminal;
#[cfg(test)]
mod tests;
mod usage;
mod view;

pub use group::GroupBy;
pub use jobs::{Starter, Task};
pub use snapshot::{
    Busy, FunctionRow, GpuRow, GroupRow, KernelRow, Lost, ProcessRow, Quantiles, QueueRow,
    Snapshot, Usage, VERSION,
};
pub use terminal::restore;
pub use view::{DELAY, Format, Options, TopView};
