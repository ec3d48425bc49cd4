//! From ring buffers to the capture file.
//!
//! One thread, the [`Collector`], reads all rings in rounds, checks each record, counts it and appends
//! it to the capture. It decides nothing about targets: the session tells it what to write besides
//! records ([`Command`]) and hears from it what happened ([`CollectorEvent`]).
//!
//! Where the GPU's work is followed, a second thread looks at what only the GPU writes: read indices (`looks` says
//! when), completion signals, clocks.
//!
//! The collector waits for no process that is traced: a third thread reads what is read from the memory of processes
//! (`reading`). And no process gets more of its time and of the capture than its `limits`.
//!
//! The accounts are exact. Programs count the calls that they *see* and those that they lose; the
//! [`accounts`] count the records that reach the capture. Both sides count a call under the CPU and
//! domain where it began, so that `seen = written + unfinished + dropped` can be checked for each
//! ([`gputrace_capture::ledger`]), and a difference would be a defect, not noise.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod accounts;
pub mod clocks;
mod collector;
mod constants;
mod header;
mod late;
mod limits;
mod looks;
mod open;
mod pace;
mod pending;
mod queue;
mod reading;
mod rings;
mod sampling;
mod scratch;
mod sink;
mod tasks;
mod tracker;
mod values;
mod watch;

pub use collector::{
    Collector, CollectorEvent, CollectorHandle, Command, CommandSender, GpuSettings, Settings,
    Stopped,
};
pub use sampling::GpuClocks;
