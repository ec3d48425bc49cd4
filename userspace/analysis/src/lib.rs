//! Analyses of recordings, for people and for scripts: the summary, the report and the comparison.
//!
//! Each analysis is an [`Exporter`](gputrace_export::Exporter): like the file formats in
//! `gputrace-export`, it reads the events of a recording in one pass, and keeps what it needs of
//! them.
//!
//! * [`summary::SummaryExporter`]: where the time went, as text; [`summary::tables`]: the same as
//!   tables that the user chooses;
//! * [`report::ReportExporter`]: an HTML page with graphics;
//! * [`wall_clock::WallClockExporter`]: the time by caller and callee, as text and JSON;
//! * [`diff`]: a comparison of two recordings;
//! * [`agents`]: how busy each GPU was, which other formats show, too;
//! * [`costs`]: a remark on what tracing cost the traced programs.
//!
//! All of them use the statistics in `gputrace-export`.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod costs;
pub mod diff;
pub mod summary;
pub mod wall_clock;

pub use summary::{agents, report};
