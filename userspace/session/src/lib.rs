//! One recording, from its targets to its outputs.
//!
//! [`record`] does everything that `gputrace` does when it records:
//!
//! 1. check what was asked for, so that mistakes are told before anything is loaded;
//! 2. load the programs (`gputrace-probe`), open the capture, start the collector (`gputrace-collect`);
//! 3. choose targets (`launch` a program, attach to processes, or the node) and put probes onto the
//!    libraries that they map (`instrument`, `files`), now and whenever their dynamic linkers map more
//!    (`linkers`, `discovery`) or, of the whole node, the kernel tells of more (`scan`), and off
//!    functions that are called too often (`hot`);
//! 4. wait for the end: Ctrl-C, SIGTERM, time over, targets gone (`recorder`, `inbox`, `ending`);
//! 5. freeze the programs, close the books, remove the probes (`closing`, `detach`), make the outputs
//!    (`outputs`; those of `live` are there already).
//!
//! [`export`] makes outputs of a capture later. Nothing here prints: callers pass a function that shows
//! a line to the user.

#![warn(clippy::print_stderr)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make and read files of their own")
)]

mod before;
mod chosen;
mod closing;
mod config;
mod constants;
mod counters;
mod descriptors;
mod detach;
mod discovery;
mod driver;
mod ending;
mod error;
mod files;
mod formats;
mod gpu;
mod helper;
mod holder;
mod hot;
mod inbox;
mod instrument;
mod kokkos;
mod launch;
mod linkers;
mod live;
mod named;
mod names;
mod news;
mod others;
mod outputs;
mod pasids;
mod periods;
mod place;
mod recorder;
mod request;
mod said;
mod scan;
mod signals;
mod smi;
mod smi_functions;
mod system;
mod tools;
mod tracepoints;
mod urgency;
mod user;
mod written;

pub use chosen::plan;
pub use config::output_config;
pub use error::SessionError;
pub use formats::Format;
pub use named::LibraryName;
pub use names::Names;
pub use others::{Others, ProgramFunctions};
pub use outputs::{Outputs, export, export_from};
pub use periods::Period;
pub use place::split;
pub use recorder::{Finished, Say, record};
pub use request::{Formats, FunctionFilter, LiveFormat, OutputRequest, Request, Targets, Watcher};
pub use system::{hostname, kernel_release};
pub use user::User;
