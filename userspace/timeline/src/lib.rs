//! A capture read back as typed events: the model that exporters see.
//!
//! [`Timeline`] is an iterator of [`event::Event`]s over a capture file. It checks and decodes the
//! records, brings them into the order of time ([`timeline`] explains how), follows processes and
//! threads through forks, execs and renames, and closes with the recorder's account of what was lost.
//! [`args`] decodes arguments and return values. From packets, completion signals and read indices it makes
//! dispatches and copies ([`gpu`]), whose times say how well they are known. Memory use does not grow with the
//! capture's records, only with its metadata.
//!
//! `model` has the events and their parts, `decode` makes them of records one by one, `derive` adds what follows from many
//! of them, and [`timeline`] drives these. Each uses only those before it.
//!
//! ```no_run
//! use gputrace_timeline::{Timeline, event::Event};
//!
//! # fn main() -> Result<(), gputrace_capture::ReadError> {
//! for event in Timeline::open("app.gtcap".as_ref())? {
//!     if let Event::Call(call) = event? {
//!         println!("{} took {} ns", call.function, call.end - call.begin);
//!     }
//! }
//! # Ok(()) }
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod decode;
mod derive;
mod model;
#[cfg(feature = "synthetic")]
pub mod synthetic;
pub mod timeline;

pub use derive::{args, driver, ranges::NOTHING_SELECTED, status};
pub use model::{event, extent, gpu, observation, request, tally, tally::Tally, values};
pub use timeline::Timeline;
