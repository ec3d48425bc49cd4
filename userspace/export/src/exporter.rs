//! The trait that each format implements.

use std::path::PathBuf;

use gputrace_timeline::event::Event;

use crate::output::OutputError;

/// Writes one format.
///
/// [`run`](crate::run) gives it every event of a capture once, in the order that
/// [`gputrace_timeline::event`] promises, and then finishes it. An exporter that is dropped without
/// [`Exporter::finish`] must leave no file behind; files from [`OutputDir`](crate::OutputDir) are
/// then removed automatically. Memory must not grow with the number of calls.
pub trait Exporter {
    /// Name of the format as given to `--output-format`, e.g. `csv`.
    fn format(&self) -> &'static str;

    /// Takes the next event.
    ///
    /// # Errors
    /// When the output cannot be written. The exporter is then dropped and gets no further events.
    fn event(&mut self, event: &Event) -> Result<(), ExportError>;

    /// Completes the output and gives the files their final names.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError>;
}

/// A file that an exporter made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Human-readable description, e.g. `HIP API calls`.
    pub content: String,
}

/// Why an output could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A file could not be created or written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The format cannot express something, or an encoder failed.
    #[error("cannot write {format}: {reason}")]
    Encode {
        /// Name of the format.
        format: &'static str,
        /// What went wrong, as a clause.
        reason: String,
    },
}

impl ExportError {
    /// Whether the reader of standard output has gone away, which is no failure.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.is_closed_pipe())
    }
}

impl From<std::io::Error> for ExportError {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error.into())
    }
}
