//! Text from outside, and the only ways in which it leaves gputrace.
//!
//! A traced program chooses its name, its arguments, the names of its files, threads and kernels,
//! its environment and the texts of markers. A capture file may come from anybody. gputrace is
//! often run by root on a terminal, so none of that text may reach a terminal, a log, a
//! spreadsheet, a page or a file name unescaped:
//!
//! * [`Outside`] is such text. It cannot be displayed, compared, or turned into a string; each of
//!   its methods returns the form that is safe in one place.
//! * [`Line`] is a line for a terminal. It can be made from anything, because all of it is escaped,
//!   including line breaks. Functions that show messages to people take `Line`s, so the compiler
//!   finds a message that was not escaped.
//! * [`Page`] is text of many lines for people. It grows by escaped lines.
//! * [`terminal`] has the functions that write to standard output and standard error. Clippy
//!   refuses others (`clippy.toml`).
//! * [`tables`] has numbers with units and tables for people, in escaped lines.
//! * [`json`] writes JSON with the exact text in which no character acts on a terminal.
//!
//! Formats that only programs read (protobuf, SQLite, OTF2, captures) keep the exact text.
//!
//! # How text is escaped
//!
//! | character | shown as |
//! |---|---|
//! | tab, line feed, carriage return | `\t`, `\n`, `\r` |
//! | other controls below U+0080: ESC, BEL, DEL | `\x1b`, `\x07`, `\x7f` |
//! | controls above: CSI, NEL | `\u{9b}`, `\u{85}` |
//! | line and paragraph separators, marks that change the direction, characters without a width | `\u{2028}`, `\u{202e}`, `\u{200b}` |
//! | bytes that are not UTF-8 | `\xff` |
//!
//! A backslash is kept, so escaped text does not change when it is escaped again; but it cannot be
//! told whether a displayed `\n` was two characters. Escaped text is at most four times as long as
//! the original, in bytes.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod json;
mod line;
mod outside;
pub mod tables;
pub mod terminal;

pub use line::{Line, Page};
pub use outside::{FILE_NAME_PART, Outside, outside};

use std::fmt::{self, Write};

/// Whether a character would act on a terminal, be invisible, or change how others are read.
///
/// Sources: ECMA-48 for controls; Unicode Technical Report 36 and CVE-2021-42574 for direction
/// marks; Unicode's property `Default_Ignorable_Code_Point` for characters without a width.
#[must_use]
pub fn acts(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Writes a character, escaped if it acts.
fn push(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '\t' => out.write_str("\\t"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\0'..='\u{7f}' if acts(c) => write!(out, "\\x{:02x}", u32::from(c)),
        _ if acts(c) => write!(out, "\\u{{{:x}}}", u32::from(c)),
        _ => out.write_char(c),
    }
}

/// Writes text, escaped; parts that need no escape are written as a whole.
fn push_str(out: &mut impl Write, text: &str) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(acts) {
        let (before, after) = rest.split_at(at);
        out.write_str(before)?;
        let mut characters = after.chars();
        if let Some(c) = characters.next() {
            push(out, c)?;
        }
        rest = characters.as_str();
    }
    out.write_str(rest)
}

/// Escapes everything that is written to it.
struct Escaping<'a, W: Write>(&'a mut W);

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        push_str(self.0, text)
    }
}
