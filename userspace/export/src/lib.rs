//! From events to files: the [`Exporter`] trait, the driver that runs exporters over a capture, and
//! the formats that need no heavy dependencies.

pub mod exporter;
pub mod output;

pub use exporter::{ExportError, Exporter, Output};
pub use output::{FileOwner, OutputDir, OutputError, OutputFile};
