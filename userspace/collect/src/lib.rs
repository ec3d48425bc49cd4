//! From ring buffers to the capture file.
//!
//! One thread, the [`Collector`], reads all rings in rounds. It checks and counts each record and
//! appends it to the capture. It makes no decisions about targets: the session sends it further
//! metadata to write ([`Command`]) and receives its events ([`CollectorEvent`]).
//!
//! If the GPU's work is followed, a second thread reads memory that only the GPU writes: read
//! indices (`looks` decides when) and completion signals. It also reads the GPUs' clocks.
//!
//! The collector never waits for a traced process: a third thread reads the memory of processes
//! (`reading`). No process gets more of its time and of the capture than its `limits` allow.
//!
//! The accounts are exact. The eBPF programs count the calls that they *see* and those that they
//! lose; the [`accounts`] count the records that reach the capture. Both sides count a call under
//! the CPU and domain where it began, so that `seen = written + unfinished + dropped` can be
//! checked for each ([`gputrace_capture::ledger`]). A difference would be a defect, not noise.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod accounts;
mod activity;
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
mod size_limit;
mod tasks;
mod tracker;
mod unfinished;
mod values;
mod watch;

pub use activity::Gpu;
pub use collector::{
    Collector, CollectorEvent, CollectorHandle, Command, CommandSender, GpuSettings, Settings,
    Stopped, snapshot::Snapshot,
};
pub use sampling::GpuClocks;
pub use size_limit::{ReachedLimit, SizeLimit};
