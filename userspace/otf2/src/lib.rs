//! OTF2: archives of the Open Trace Format 2, for Vampir, otf2-print and the `otf2` Python module.
//!
//! [`Otf2Exporter`] writes `NAME_results.otf2`, `NAME_results.def` and the directory
//! `NAME_results`, in rocprofv3's layout:
//!
//! * a location group for each process with a location for each of its threads, `Thread TID`, on
//!   which calls are regions;
//! * a location group for each agent with accelerator streams: `Thread TID, Compute on GPU N, Queue
//!   N` with kernels, and `Thread TID, Copy to GPU N` with copies.
//!
//! Regions have the attribute `category` as in rocprofv3's archives (`hip_api`, `hsa_api`,
//! `kernel_dispatch`, `memory_copy`), and where they apply `correlation_id`, `quality`,
//! `start_uncertainty`, `end_uncertainty` (ns) and `unfinished`.
//!
//! Marks (`roctxMark`) are regions without duration in the category `mark`. rocprofv3's archives do
//! not contain marks, so programs that count their `marker_api` find only ranges.
//!
//! Regions of a location are nested, as readers require. Kernels of a queue that overlap, because
//! neither waits for the other, are on further locations whose names end in `(overlapping 2)` and
//! so on.
//!
//! Dispatches and copies whose duration is not known are regions without duration, at the time of
//! their submission, in the category `untimed`, on locations `Thread TID, Untimed work`: no reader
//! counts them as GPU time.
//!
//! The account of losses is in the archive's property `GPUTRACE::LOSS` (JSON), data about the
//! recording in `GPUTRACE::RECORDING`, and remarks in `GPUTRACE::NOTICES`; `otf2-print -A` shows
//! them.
//!
//! # The library
//!
//! The format is defined by its library, which few machines have, so it is loaded when an archive
//! is asked for: `libotf2.so.10`, or `libopen-trace-format2.so.10` on Debian. It writes files by
//! path. The paths that it gets lead into a private directory, from which the archive is moved when
//! it is complete.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use gputrace_export::{OutputDir, run};
//! use gputrace_otf2::Otf2Exporter;
//! use gputrace_timeline::Timeline;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = OutputDir::open(".".as_ref(), None)?;
//! let exporter = Otf2Exporter::new(&directory, "app_results")?;
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

mod api;
mod archive;
mod definitions;
mod exporter;
mod spans;
mod write;

pub use exporter::{Otf2Exporter, available};

/// Name of the format.
const FORMAT: &str = "otf2";
