//! One recording, from its targets to its outputs.
//!
//! [`record`] does everything that `gputrace` does when it records:
//!
//! 1. check what was asked for, so that mistakes are told before anything is loaded;
//! 2. load the programs (`gputrace-loader`), open the capture, start the collector (`gputrace-collect`);
//! 3. choose `targets` (launch a program, attach to processes, or the node) and put probes onto the
//!    libraries that they map (`probing`), now and whenever their dynamic linkers map more or, of the
//!    whole node, the kernel tells of more, and off functions that are called too often; have the other
//!    `sources` attach and read;
//! 4. wait for the end: Ctrl-C, SIGTERM, time over, targets gone (`recorder`);
//! 5. freeze the programs, close the books, remove the probes, make the `outputs`.
//!
//! [`export`] makes outputs of a capture later. Nothing here prints: callers pass a function that shows
//! a line to the user.

#![warn(clippy::print_stderr)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod error;
mod helper;
mod inbox;
mod outputs;
mod probing;
mod recorder;
mod request;
mod said;
mod sources;
mod system;
mod targets;

pub use error::SessionError;
pub use outputs::{
    Outputs, config::output_config, export, export_from, formats::Format, location::split,
    placeholders::Names,
};
pub use probing::{
    chosen::plan,
    extra::{ExtraFunctions, ProgramFunctions},
    named::LibraryName,
};
pub use recorder::{Finished, Say, periods::Period, record};
pub use request::{Formats, FunctionFilter, LiveFormat, OutputRequest, Request, Targets, Watcher};
pub use system::{hostname, kernel_release};
pub use targets::user::User;
