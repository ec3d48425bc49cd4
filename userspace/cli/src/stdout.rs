//! Standard output of the commands. That it cannot be written is a failure with a status of its own
//! ([`crate::exit::OUTPUT`]); that its reader has gone away (`gputrace list | head`) is none.

use std::io::{self, Write as _};

use gputrace_export::{OutputError, StandardOutput};
use gputrace_text::terminal;

/// Prints text whose lines were escaped one by one.
///
/// # Errors
/// [`OutputError::Stdout`].
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    wrote(terminal::write(&mut StandardOutput::default(), text))
}

/// The result of writing to a [`StandardOutput`].
///
/// # Errors
/// [`OutputError::Stdout`].
pub(crate) fn wrote(result: io::Result<()>) -> Result<(), OutputError> {
    match result.map_err(OutputError::from) {
        Err(error) if error.is_closed_pipe() => Ok(()),
        result => result,
    }
}

/// Prints what the argument parser has to say: help on standard output, and refusals, about which
/// nothing more can be done, on standard error.
///
/// # Errors
/// [`OutputError::Stdout`].
pub(crate) fn print_parsers(answer: &clap::Error) -> Result<(), OutputError> {
    let printed = answer.print();
    if answer.use_stderr() {
        return Ok(());
    }
    let printed = printed.and_then(|()| terminal::stdout().flush());
    wrote(printed.map_err(|source| OutputError::Stdout { source }.into()))
}
