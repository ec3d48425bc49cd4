//! Reads a capture back as typed events: the model that exporters see.
//!
//! [`Timeline`] is an iterator of [`event::Event`]s over a capture file. It checks and decodes the
//! records, sorts them by time ([`timeline`] explains how), and follows processes and threads
//! through forks, execs and renames. It ends with the recorder's account of what was lost. [`args`]
//! decodes arguments and return values. Dispatches and copies ([`gpu`]) are derived from packets,
//! completion signals and read indices; their times say how well they are known. Memory use grows
//! with the capture's metadata, not with its number of records.
//!
//! `model` defines the events and their parts, `decode` decodes single records, `derive` adds what
//! follows from several records together, and [`timeline`] drives them. Each module uses only those
//! before it.
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

pub use derive::{
    args, driver,
    failures::{FAILED_CALLS, has_failed, tells_error},
    ranges::{NOTHING_SELECTED, WORK_NOT_SELECTED},
    status,
    unseen::{COLLECTION_PERIOD, WORK_NOT_SEEN},
};
pub use model::{event, extent, gpu, observation, request, stream, tally, tally::Tally, values};
pub use timeline::Timeline;

/// Whether a remark in a recording begins with `begin`. In merged recordings, the title of its
/// capture comes first.
#[must_use]
pub fn is_remark(text: &str, begin: &str) -> bool {
    let behind_title = |(at, colon): (usize, &str)| {
        let rest = text.get(at + colon.len()..);
        rest.is_some_and(|rest| rest.starts_with(begin))
    };
    text.starts_with(begin) || text.match_indices(": ").any(behind_title)
}
