//! rocpd: the SQLite database that rocprofv3 writes by default. `rocpd` tools, scripts and plain
//! SQL made for its databases also work on recordings of gputrace.
//!
//! [`RocpdExporter`] takes events and writes `NAME_results.db`, schema version 3.0.3:
//!
//! * API calls are rows of `rocpd_region` with their arguments in `rocpd_arg`; their return values
//!   are in the event's `extdata`.
//! * Dispatches and copies whose times are real (quality `exact` or `sampled`) are rows of
//!   `rocpd_kernel_dispatch` and `rocpd_memory_copy`; quality and uncertainty are in `extdata`.
//! * Allocations and frees are in `rocpd_memory_allocate`.
//! * Launches of graphs are in `rocpd_graph_launch`, and work has the number of its graph (module
//!   `graphs`).
//! * All views of rocpd exist; those of domains that were not recorded have no rows.
//!
//! As in rocprofv3's databases, `stack_id` of an event is the correlation id of the call, or of the
//! innermost call that submitted the work. `correlation_id` is the external id that the program
//! pushed, 0 if none.
//!
//! Readers choose their views by the version in `rocpd_metadata`. The views of 3.0.0 to 3.0.3 find
//! all their columns. Version 3.0.4 adds barriers for events of HIP, whose times gputrace does not
//! record, and 3.0.5 more of SPM, of which there is nothing: their tables and columns exist, as far
//! as they are known, and are empty.
//!
//! # Data that has no place in rocpd
//!
//! It is in tables whose names begin with `gputrace_`, which other readers ignore: every dispatch
//! and copy with the windows in which it is proven to have begun and ended (`gputrace_dispatch`,
//! `gputrace_copy`), calls that had not returned (`gputrace_unfinished_call`), the account of
//! losses (`gputrace_loss`), how the recording was made (`gputrace_recording`, `gputrace_clock`,
//! `gputrace_function`), and the recorder's remarks (`gputrace_notice`). `src/sql/tables.sql`
//! describes their columns.
//!
//! The views use inner joins, which leave out rows with dangling references. So an unknown agent is
//! agent -1, `unknown agent`, and a kernel that was not found has a negative id and its address as
//! its name.
//!
//! # How it is written
//!
//! In one transaction without a journal, with statements that are prepared once and indexes that
//! are created last, in bounded memory. SQLite never opens a file by name (module `vfs`), and the
//! file gets its name only when it is complete.
//!
//! [`RocpdExporter::in_memory`] writes no file, but leaves a database for queries by [`Queryable`].
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use gputrace_export::{OutputDir, run};
//! use gputrace_rocpd::RocpdExporter;
//! use gputrace_timeline::Timeline;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = OutputDir::open(".".as_ref(), None)?;
//! let exporter = RocpdExporter::new(&directory, "app_results.db")?;
//! let timeline = Timeline::open("app.gtcap".as_ref())?;
//! run(timeline, vec![Box::new(exporter)], &mut |_| ControlFlow::Continue(()));
//! # Ok(()) }
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod allocations;
mod calls;
mod database;
mod exporter;
mod graphs;
mod observed;
mod query;
mod referenced;
mod report;
mod rows;
mod schema;
mod vfs;
mod work;

pub use exporter::RocpdExporter;
pub use query::{QueryError, Queryable, Rows, Slot, Value};

/// Name of the format.
const FORMAT: &str = "rocpd";
