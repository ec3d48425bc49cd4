//! Which functions of which files are probed, and getting the probes on and off.

pub(crate) mod chosen;
pub(crate) mod constants;
pub(crate) mod extra;
mod files;
pub(crate) mod instruments;
mod kokkos;
mod limiter;
pub(crate) mod linkers;
pub(crate) mod named;
pub(crate) mod report;
pub(crate) mod tools;
