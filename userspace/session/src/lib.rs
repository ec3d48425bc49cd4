//! One recording, from its targets to its outputs.
//!
//! [`record`] does everything that `gputrace` does when it records:
//!
//! 1. It checks the request, so that mistakes are reported before anything is loaded.
//! 2. It loads the eBPF programs (`gputrace-loader`), opens the capture and starts the collector
//!    (`gputrace-collect`).
//! 3. It chooses the `targets`: a launched program, running processes, or the whole node. Then it
//!    attaches probes to the libraries that they map (`probing`), and starts the other `sources`.
//!    While it records, it probes further libraries when a dynamic linker (or, for the whole node,
//!    the kernel) reports that they were mapped, and removes the probes of functions that are
//!    called too often.
//! 4. It waits for the end: Ctrl-C, SIGTERM, the time limit, or the end of all targets
//!    (`recorder`).
//! 5. It freezes the eBPF programs, completes the accounts, removes the probes and makes the
//!    `outputs`.
//!
//! [`record_for`] does the same for another program, which reads the capture while it grows and
//! controls the recording. [`export`] makes outputs of a capture later. Nothing here prints: callers pass a function that
//! shows a line to the user.

#![warn(clippy::print_stderr)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod error;
mod inbox;
mod outputs;
mod probing;
mod recorder;
mod remote;
mod request;
mod said;
mod sources;
mod system;
mod targets;

pub use error::SessionError;
pub use gputrace_catalog::stacks::Caller;
pub use gputrace_collect::SizeLimit;
pub use gputrace_flight::{Limits as FlightLimits, Rule};
pub use outputs::{
    Outputs, config::output_config, export, export_from, formats::Format, location::split,
    placeholders::Names,
};
pub use probing::{
    chosen::{observed_behind, plan},
    extra::{ExtraFunctions, ProgramFunctions},
    named::LibraryName,
};
pub use recorder::{Finished, Say, periods::Period, record, record_for};
pub use remote::{News, Order, Orders, Remote};
pub use request::{
    FlightRequest, Formats, FunctionFilter, LiveFormat, LiveOutput, NewView, OutputRequest, Parts,
    Request, StacksOf, Targets, View, Watcher,
};
pub use system::{STOP_FILE, hostname, is_switched_off, kernel_release};
pub use targets::{holder::run_first, user::User};
