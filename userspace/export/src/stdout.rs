//! Standard output, for formats and texts that are safe for terminals.

use std::io::{self, BufWriter, Write};

use gputrace_text::terminal;

use crate::output::OutputError;

/// Size of the buffer in bytes.
const BUFFER: usize = 64 << 10;

/// Buffered standard output. As with [`OutputFile`](crate::OutputFile), errors of its [`Write`]
/// carry an [`OutputError`], which `OutputError::from(io_error)` recovers.
#[derive(Debug)]
pub struct StandardOutput(BufWriter<io::Stdout>);

impl Default for StandardOutput {
    fn default() -> Self {
        Self(BufWriter::with_capacity(BUFFER, terminal::stdout()))
    }
}

fn failed(source: io::Error) -> io::Error {
    OutputError::Stdout { source }.into()
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(failed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(failed)
    }
}
