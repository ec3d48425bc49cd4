//! A capture read back as typed events: the model that exporters see.
//!
//! [`Timeline`] is an iterator of [`event::Event`]s over a capture file. It checks and decodes the
//! records, brings them into the order of time ([`timeline`] explains how), follows processes and
//! threads through forks, execs and renames, and closes with the recorder's account of what was lost.
//! [`args`] decodes arguments and return values. From packets, completion signals and read indices it makes
//! dispatches and copies ([`gpu`]), whose times say how well they are known. Memory use does not grow with the
//! capture's records, only with its metadata.
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
    allow(clippy::disallowed_methods, reason = "tests make and read files of their own")
)]

pub mod args;
mod before;
mod collective;
mod communicators;
mod counter;
mod decode;
mod deferred;
pub mod driver;
pub mod event;
pub mod extent;
pub mod gpu;
mod group;
pub mod ioctl;
mod memory;
pub mod observation;
mod pasids;
mod processes;
mod ranges;
mod readings;
pub mod status;
#[cfg(feature = "synthetic")]
pub mod synthetic;
pub mod tally;
pub mod timeline;
mod tracepoint;
pub mod values;
mod work;

pub use ranges::NOTHING_SELECTED;
pub use tally::Tally;
pub use timeline::Timeline;
