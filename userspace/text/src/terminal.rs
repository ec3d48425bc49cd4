//! Access to standard output and standard error.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, IsTerminal as _, Stderr, Stdout, Write},
    os::{fd::AsFd, unix::fs::FileTypeExt as _},
};

use crate::{Escaping, Line};

/// Standard output, for formats that are safe for terminals by themselves, and for queries about
/// it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn stdout() -> Stdout {
    io::stdout()
}

/// Standard error; see [`stdout`].
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn stderr() -> Stderr {
    io::stderr()
}

/// Number of columns of the terminal `stream`; `None` if it is not a terminal.
#[must_use]
pub fn columns(stream: &impl AsFd) -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(columns))
}

/// Whether `stream` could not be written because nobody reads it any more: its pipe is closed, or
/// its terminal.
#[must_use]
pub fn is_unread(error: &io::Error, stream: &impl AsFd) -> bool {
    /// `EIO` of `errno.h`: what a terminal returns that was hung up, and a disk that is broken.
    const EIO: i32 = 5;
    let is_device = || {
        let file = stream.as_fd().try_clone_to_owned().map(File::from);
        let metadata = file.and_then(|file| file.metadata());
        metadata.is_ok_and(|metadata| metadata.file_type().is_char_device())
    };
    error.kind() == io::ErrorKind::BrokenPipe || error.raw_os_error() == Some(EIO) && is_device()
}

/// Shows a line on standard error. Errors are ignored, because the reader may be gone.
pub fn say(line: &Line) {
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Writes text whose lines were escaped one by one ([`crate::Page`]). Characters that act within a
/// line are escaped again, which changes nothing in escaped text; line breaks are kept.
///
/// # Errors
///
/// When `out` cannot be written.
pub fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    write_coloured(out, text, &[])
}

/// Colour of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// For good results.
    Green,
    /// For results that need attention.
    Yellow,
    /// For errors.
    Red,
}

impl Colour {
    /// Control sequence that begins the colour: ECMA-48, `SELECT GRAPHIC RENDITION`.
    const fn begins(self) -> &'static str {
        match self {
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
        }
    }
}

/// Like [`fn@write`]. Lines that begin with one of `heads` have that beginning in the given colour.
///
/// # Errors
///
/// When `out` cannot be written.
pub fn write_coloured(
    out: &mut impl Write,
    text: &str,
    heads: &[(&str, Colour)],
) -> io::Result<()> {
    let mut safe = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let head = heads.iter().find(|(head, _)| line.starts_with(head));
        let line = head.map_or(line, |(head, colour)| {
            for part in [colour.begins(), head, "\x1b[0m"] {
                safe.push_str(part);
            }
            line.strip_prefix(head).unwrap_or_default()
        });
        // Writing to a string does not fail.
        let _ = Escaping(&mut safe).write_str(line);
        safe.push_str(end);
    }
    out.write_all(safe.as_bytes())?;
    out.flush()
}

/// Clears the line with the cursor on standard error, if that is a terminal: it may contain a
/// progress bar.
pub fn erase_line() {
    if stderr().is_terminal() {
        let _ = stderr().lock().write_all(b"\r\x1b[K");
    }
}

/// Standard error for a log: each write is one entry, of which only the last line break is kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = entry.strip_suffix(b"\n").unwrap_or(entry);
        say(&crate::Outside::from_bytes(text).terminal().into());
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_text_stay_and_controls_do_not() {
        let mut out = Vec::new();
        write(&mut out, "a\x1b[2J\tb\n\n c\u{9b}").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "a\\x1b[2J\\tb\n\n c\\u{9b}"
        );
        let mut out = Vec::new();
        write_coloured(
            &mut out,
            "  ok  \x1b[31m\nok\n",
            &[("  ok ", Colour::Green)],
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\x1b[32m  ok \x1b[0m \\x1b[31m\nok\n"
        );
    }
}
