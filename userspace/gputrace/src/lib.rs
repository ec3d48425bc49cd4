//! Follow AMD GPU work of other processes from your own program, and read captures.
//!
//! This crate is for authors of tools. It gives from outside a process what roctracer and
//! rocprofiler-sdk give inside one: API calls with arguments and correlation ids, kernel dispatches
//! and copies with their times, markers, allocations, and what was lost.
//!
//! # Record and follow
//!
//! A [`Session`] starts the program `gputrace` as its recorder, and reads what that records while it
//! records it. So the rights that tracing needs, the eBPF programs and the probes are the recorder's:
//! nothing of your process is changed, no signal handler, no limit, no thread but one, and any
//! number of sessions can run at once. When the session is dropped or your process ends, however it
//! ends, the recorder removes its probes and ends too.
//!
//! ```no_run
//! use gputrace::{Domain, Event, Index, Session};
//!
//! # fn main() -> Result<(), gputrace::Error> {
//! let mut session = Session::builder()
//!     .attach(1234)
//!     .domains([Domain::HipRuntime, Domain::KernelDispatch])
//!     .start()?;
//! let mut index = Index::default();
//! for event in session.events() {
//!     let event = event?;
//!     index.learn(&event);
//!     match &event {
//!         Event::Call(call) => println!("{} ns {}", call.end - call.begin, index.call_name(call)),
//!         Event::Dispatch(dispatch) => {
//!             let (begin, end) = (dispatch.time.drawn_begin(), dispatch.time.drawn_end());
//!             println!("{begin:?} to {end:?} ns {}", index.kernel_name(dispatch));
//!         }
//!         _ => {}
//!     }
//! }
//! session.finish()?;
//! # Ok(()) }
//! ```
//!
//! # Read a capture
//!
//! [`Capture`] reads a file that `gputrace` has written, with the same events. It needs no root.
//!
//! ```
//! use gputrace::{Capture, Event};
//!
//! # fn count(path: &std::path::Path) -> Result<usize, gputrace::Error> {
//! let mut kernels = 0;
//! for event in Capture::open(path)?.events()? {
//!     if let Event::Dispatch(_) = event? {
//!         kernels += 1;
//!     }
//! }
//! # Ok(kernels) }
//! ```
//!
//! # Order and delay
//!
//! [`Event`] says in which order events come: calls of a thread in order of time, and everything
//! that an event refers to before it. A call is delivered when it has ended and the recorder has
//! read the rings of all CPUs, some ten milliseconds later; a dispatch when nothing more can become
//! known about it, within about a second. [`event::Event::Dispatch`] carries the quality of its times.
//!
//! # What was lost
//!
//! Nothing waits for the reader. What it leaves unread beyond 256 MiB is lost, and is in the
//! [`Ledger`] like every other loss; the last one comes just before [`Event::End`].

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod builder;
mod capture;
mod error;
mod events;
mod index;
mod session;
#[doc(hidden)]
pub mod wire;

pub use builder::Builder;
pub use capture::Capture;
pub use error::{Cause, Error};
pub use events::Events;
pub use gputrace_abi::domain::Domain;
pub use gputrace_capture::{
    ledger::{Ledger, LedgerRow},
    meta::{ClockSnapshot, Recording},
};
pub use gputrace_timeline::{
    args, event,
    event::{Call, Event},
    gpu,
    gpu::{Copy, Dispatch},
    observation, stream,
};
pub use index::Index;
pub use session::{Control, Finished, LiveReader, Range, Session};

/// The version of this library. The recorder must have the same.
pub const VERSION: &str = wire::VERSION;

/// Names of the functions of a domain that this version knows, in order; a newer runtime may have
/// more. Empty for domains that are not of functions.
///
/// ```
/// use gputrace::{Domain, operations};
///
/// assert!(operations(Domain::HipRuntime).contains(&"hipLaunchKernel"));
/// ```
#[must_use]
pub fn operations(domain: Domain) -> Vec<&'static str> {
    let mut names: Vec<_> = gputrace_catalog::signatures()
        .map(|signature| signature.name)
        .filter(|name| gputrace_catalog::classify(name) == Some(domain))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
