//! The ways to standard output and standard error.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Stderr, Stdout, Write},
    os::fd::AsFd,
};

use crate::{Escaping, Line};

/// Standard output, for writers whose format keeps terminals safe by itself, and for those that only ask about it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn stdout() -> Stdout {
    io::stdout()
}

/// Standard error, as [`stdout`].
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn stderr() -> Stderr {
    io::stderr()
}

/// How many columns the terminal has that `stream` is; `None` if it is no terminal.
#[must_use]
pub fn columns(stream: &impl AsFd) -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(columns))
}

/// Shows a line on standard error. Nobody may be reading any more.
pub fn say(line: &Line) {
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Writes text whose lines were made safe one by one ([`crate::Page`]). What acts within a line is escaped again, which
/// changes nothing where it was; line breaks are believed.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    write_coloured(out, text, &[])
}

/// A colour of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// What is well.
    Green,
    /// What needs a look.
    Yellow,
    /// What is wrong.
    Red,
}

impl Colour {
    /// ECMA-48, `SELECT GRAPHIC RENDITION`.
    const fn begins(self) -> &'static str {
        match self {
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
        }
    }
}

/// As [`fn@write`]; of lines that begin with one of `heads`, the beginning has the colour that stands beside it.
///
/// # Errors
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

/// Makes the line empty on which the cursor of standard error is, if that is a terminal: a bar of progress may be there.
pub fn erase_line() {
    if stderr().is_terminal() {
        let _ = stderr().lock().write_all(b"\r\x1b[K");
    }
}

/// Standard error for a log: each write is one entry, of which only the last line break is believed.
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
