//! Apache Parquet: one file per table, for pandas, Polars, DuckDB and Spark.
//!
//! | file | a row is |
//! |---|---|
//! | `_calls.parquet` | a call of an API |
//! | `_kernels.parquet` | a dispatch of a kernel |
//! | `_copies.parquet` | a copy of memory |
//! | `_events.parquet` | something that the kernel or the driver did |
//! | `_losses.parquet` | a domain: what was seen, written and dropped, by reason |
//!
//! Columns have the names of rocpd's views where these have such a column (`regions`, `kernels`,
//! `memory_copies`). Data that only gputrace has (quality, windows, estimates) follows. Times are
//! ns, `CLOCK_BOOTTIME`. Unknown values are null. In each row of `losses`, `seen = written +
//! unfinished + lost + unaccounted`, and `lost` is the sum of the `dropped_…` columns.
//!
//! [`tables`] defines the columns, one line each; [`table`] writes rows into files. Memory is
//! bounded: a row group is written when it has [`table::ROWS`] rows, or a lot of text.

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

/// Name of the format for `-f`.
pub const FORMAT: &str = "parquet";
