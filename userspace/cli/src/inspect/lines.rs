//! Results for people: one line each, in sections, beginning with a word that is coloured on
//! terminals.

use std::io::IsTerminal as _;

use anyhow::Result;
use gputrace_export::StandardOutput;
use gputrace_text::terminal::{self, Colour};

use super::table::{clean, wrapped};
use crate::stdout;

/// Width of the name column; a longer name has a line of its own.
const NAME: usize = 22;
/// Width of status, name and the spaces around them.
const INDENT: usize = 2 + 9 + NAME + 2;

/// One line.
pub(super) struct Line<'a> {
    /// Beginning of the line: two spaces, a word, and spaces up to the name.
    pub(super) status: &'static str,
    /// What the line is about.
    pub(super) name: &'a str,
    /// What was found, and what it means.
    pub(super) text: String,
    /// What to do.
    pub(super) next: Option<&'a str>,
}

/// Adds a section.
pub(super) fn write<'a>(out: &mut String, title: &str, lines: impl Iterator<Item = Line<'a>>) {
    out.push_str(title);
    out.push('\n');
    for line in lines {
        let (name, text) = (clean(line.name), clean(&line.text));
        let first = format!("{}{name:<NAME$}  ", line.status);
        if name.chars().count() > NAME {
            out.push_str(first.trim_end());
            out.push('\n');
            out.push_str(&wrapped(&" ".repeat(INDENT), INDENT, &text));
        } else {
            out.push_str(&wrapped(&first, INDENT, &text));
        }
        if let Some(next) = line.next {
            let indent = " ".repeat(INDENT);
            out.push_str(&wrapped(
                &format!("{indent}next: "),
                INDENT + 6,
                &clean(next),
            ));
        }
    }
    out.push('\n');
}

/// Prints such text; the beginnings of lines are coloured on a terminal.
pub(super) fn show(text: &str, heads: &[(&'static str, Colour)]) -> Result<()> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && terminal::stdout().is_terminal();
    let heads = if colour { heads } else { &[] };
    let mut out = StandardOutput::default();
    stdout::wrote(terminal::write_coloured(&mut out, text, heads))?;
    Ok(())
}
