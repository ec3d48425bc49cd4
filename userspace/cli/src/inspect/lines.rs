//! Verdicts for people: a line each, in sections, with a coloured word in front where there is a terminal.

use std::io::IsTerminal as _;

use anyhow::Result;
use gputrace_text::terminal::{self, Colour};

use super::{
    printed,
    table::{clean, wrapped},
};

/// Columns of a name; one that is longer has a line of its own.
const NAME: usize = 22;
/// Status, name and the spaces around them.
const INDENT: usize = 2 + 9 + NAME + 2;

/// One line.
pub(super) struct Line<'a> {
    /// How it begins: two spaces, a word, and spaces up to the name.
    pub(super) status: &'static str,
    /// About what.
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

/// Prints such text; what lines begin with has colours if somebody looks.
pub(super) fn show(text: &str, heads: &[(&'static str, Colour)]) -> Result<()> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && terminal::stdout().is_terminal();
    let heads = if colour { heads } else { &[] };
    printed(terminal::write_coloured(
        &mut terminal::stdout().lock(),
        text,
        heads,
    ))
}
