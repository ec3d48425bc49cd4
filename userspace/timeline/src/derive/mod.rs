//! Conclusions from several records together: dispatches and copies with their times, ranges,
//! memory in use, names of arguments.

pub mod args;
pub(crate) mod asked;
pub(crate) mod before;
pub(crate) mod callers;
pub(crate) mod collective;
pub(crate) mod communicators;
pub(crate) mod counter;
pub(crate) mod deferred;
pub mod driver;
pub(crate) mod failures;
pub(crate) mod group;
pub(crate) mod limited;
pub(crate) mod memory;
pub(crate) mod pasids;
pub(crate) mod placements;
pub(crate) mod processes;
pub(crate) mod ranges;
pub(crate) mod readings;
pub mod status;
pub(crate) mod streams;
pub(crate) mod undrawn;
pub(crate) mod unseen;
pub(crate) mod work;
