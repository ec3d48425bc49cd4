//! Loads gputrace's eBPF programs into the kernel and attaches them.
//!
//! There are two objects, because no loader does everything (measured; see
//! docs/decisions/0002-two-loaders.md):
//!
//! * [`calls::Calls`] is the user-space half of `ebpf/probes`: the programs on API functions. They
//!   are loaded with libbpf, because only libbpf attaches hundreds of functions with one
//!   `uprobe_multi` link, which is created and, above all, removed in milliseconds.
//! * [`ioctls::Ioctls`], [`sched::Sched`] and [`tracepoint::Tracing`] load further programs of the
//!   same object on request: on requests to the driver, on the scheduling of traced threads, and on
//!   any tracepoint.
//! * [`tasks::Tasks`] is the user-space half of `ebpf/kernel`: programs on kernel tracepoints,
//!   loaded with aya.
//!
//! The trait [`attach::Backend`] hides how probes are attached: by [`attach::UprobeMulti`] where
//! the kernel has it (6.6), else by [`events::PerfEvents`].
//!
//! This crate does not know what a library or a function is: callers pass a file, offsets and
//! cookies (planned by `gputrace-tracee`), and read records and counters back (`gputrace-collect`).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod attach;
pub mod calls;
mod cpus;
mod error;
pub mod events;
mod extra;
pub mod helper;
pub mod hits;
pub mod holds;
pub mod ioctls;
pub mod layout;
mod libbpf;
pub mod probes;
pub mod sched;
mod settings;
pub mod tasks;
pub mod tracefs;
pub mod tracepoint;

pub use cpus::{possible_cpus, present_cpus};
pub use error::ProbeError;

/// A ring buffer that can be read record by record.
pub type Ring = aya::maps::RingBuf<aya::maps::MapData>;
