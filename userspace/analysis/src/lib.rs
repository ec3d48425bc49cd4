//! Analyses of recordings: the summary, the report and the comparison, for people and for scripts.
//!
//! Each analysis is an [`Exporter`](gputrace_export::Exporter): it reads the events of a recording in one pass,
//! as the writers of files in `gputrace-export` do, and keeps what it needs of them.
//!
//! * [`summary::SummaryExporter`]: where the time went, as text; [`summary::tables`]: the same as tables that the user
//!   chose;
//! * [`report::ReportExporter`]: one page of HTML with pictures;
//! * [`wall_clock::WallClockExporter`]: the time by caller and callee, as text and JSON;
//! * [`diff`]: two recordings compared;
//! * [`costs`]: what probes cost the traced program.
//!
//! All of them are made of the statistics in `gputrace-export`.

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

pub use summary::report;
