//! Chooses the functions to probe, and attaches and removes the probes.

pub(crate) mod chosen;
pub(crate) mod constants;
pub(crate) mod extra;
mod files;
mod guard;
pub(crate) mod instruments;
mod kokkos;
pub(crate) mod limiter;
pub(crate) mod linkers;
pub(crate) mod named;
pub(crate) mod prices;
pub(crate) mod report;
pub(crate) mod tools;
