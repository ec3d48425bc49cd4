//! A flight recorder: a recording of which only the last part is kept, until something happens.
//!
//! The recorder writes its capture into a file without a name. A [`Ring`] follows that file and
//! says which blocks of it are still needed: those of the last seconds, as far as the limit of its
//! size allows. Earlier blocks are discarded. What they said that later records cannot be understood
//! without (libraries, processes, queues, code objects) is kept in memory (`base`), and what they
//! contained is subtracted from the accounts (`discarded`).
//!
//! [`dump`] writes what is kept as an ordinary capture. [`Watch`] looks for the [`Rule`]s for which
//! a dump is made: slow calls, errors, long kernels, queues that do not move, faults of the driver.
//!
//! Nothing here knows files by name, threads or targets: `gputrace-session` drives it.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod base;
mod discarded;
mod dump;
mod ring;
mod rules;
#[cfg(test)]
mod tests;

pub use dump::{DumpError, Moment, Written, dump};
pub use ring::{Limits, Ring, Taken};
pub use rules::{OpenCall, Rule, Watch};
