//! Apache Parquet: one file for each table, for pandas, Polars, DuckDB and Spark.
//!
//! | file | a row is |
//! |---|---|
//! | `_calls.parquet` | a call of an API |
//! | `_kernels.parquet` | a dispatch of a kernel |
//! | `_copies.parquet` | a copy of memory |
//! | `_events.parquet` | something that the kernel or the driver did |
//! | `_losses.parquet` | a domain: what was seen, written and dropped, by reason |
//!
//! Columns bear the names of rocpd's views where these have such a column (`regions`, `kernels`,
//! `memory_copies`); what only gputrace knows (quality, windows, estimates) follows. Times are ns,
//! `CLOCK_BOOTTIME`. What is not known is null. In each row of `losses`, `seen = written + unfinished +
//! lost + unaccounted`, and `lost` is the sum of the `dropped_…` columns.
//!
//! [`tables`] says what the columns are, one row each; [`table`] puts rows into files. Memory is
//! bounded: a row group is written when it has [`table::ROWS`] rows or many bytes of text.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod exporter;
pub mod table;
pub mod tables;

pub use exporter::ParquetExporter;

/// What `-f` calls the format.
pub const FORMAT: &str = "parquet";
