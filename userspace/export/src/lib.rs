//! Turns events into files.
//!
//! Every output is made from a capture, in one pass: [`run`] reads a
//! [`Timeline`](gputrace_timeline::Timeline) and gives each event to every [`Exporter`]. Exporters
//! keep no calls in memory, so a capture may be larger than the machine's memory.
//!
//! * [`csv::CsvExporter`]: the files that rocprofv3 writes, further files on how well the GPU's
//!   times are known, and the account of losses ([`loss`]);
//! * [`json::JsonExporter`]: all records in one document, in rocprofv3's format;
//! * [`ndjson::NdjsonExporter`]: one JSON object per line, gputrace's own format;
//! * [`text::TextWriter`]: one line per event, for people;
//! * other formats have crates of their own (`gputrace-otf2`, `gputrace-parquet`,
//!   `gputrace-perfetto`, `gputrace-rocpd`), and so have analyses of a recording: summary, report,
//!   wall clock, differences (`gputrace-analysis`).
//!
//! Options about kernels (which ones to show, and under which names) are applied to the events on
//! their way, once for all formats: [`kernels`]. So is the choice of a part of the recording:
//! [`filter`]. [`merge`] makes several captures one [`Source`].
//!
//! The names and measures of the GPU's work that several formats need are here too: [`gpu`],
//! [`intervals`], [`lengths`], [`levels`], [`moments`].
//!
//! Files are created through [`OutputDir`], in which they appear either complete or not at all.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use gputrace_export::{OutputDir, csv::CsvExporter, json::JsonExporter, run};
//! use gputrace_timeline::Timeline;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = OutputDir::open(".".as_ref(), None)?;
//! let report = run(
//!     Timeline::open("app.gtcap".as_ref())?,
//!     vec![
//!         Box::new(JsonExporter::new(&directory, "app")?),
//!         Box::new(CsvExporter::new(directory, "app")),
//!     ],
//!     &mut |_| ControlFlow::Continue(()),
//! );
//! for output in report.outputs {
//!     eprintln!("{}: {}", output.path.display(), output.content);
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

pub mod classes;
pub mod costs;
mod counters;
pub mod csv;
pub mod exporter;
pub mod filter;
pub mod folded;
pub mod functions;
pub mod gpu;
pub mod intervals;
pub mod json;
pub mod kernels;
pub mod lengths;
pub mod levels;
mod lines;
pub mod loss;
pub mod merge;
pub mod moments;
pub mod ndjson;
pub mod node;
pub mod observed;
pub mod output;
mod prefetch;
mod run;
mod shared;
pub mod stacks;
mod stdout;
mod sums;
#[cfg(any(test, feature = "synthetic"))]
pub mod synthetic;
#[cfg(any(test, feature = "synthetic"))]
pub mod testing;
pub mod text;
mod writer_thread;

pub use exporter::{ExportError, Exporter, Output};
pub use filter::{Filter, FilterOptions};
pub use functions::Functions;
pub use kernels::KernelOptions;
pub use output::{FileOwner, OutputDir, OutputError, OutputFile, Staging, abandon};
pub use prefetch::Prefetch;
pub use run::{Progress, Report, Source, Stages, run, run_with};
pub use shared::SharedText;
pub use stdout::StandardOutput;
pub use writer_thread::WriterThread;
