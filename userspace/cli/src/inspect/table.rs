//! Tables and numbers for people.

use std::fmt::Write as _;

use gputrace_text::{Page, outside};

/// Maximum width of every table in columns.
pub(super) const WIDTH: usize = 100;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Left, for text.
    Left,
    /// Right, for numbers.
    Right,
}

/// A table with column headings.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.into_iter().map(|cell| clean(&cell)).collect());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends the table after an empty line and a title; appends nothing if it has no rows.
    pub(super) fn section(&self, out: &mut Page<String>, title: &str) {
        if !self.is_empty() {
            let _ = out.paragraph(format_args!("{title}"));
            self.render(out);
        }
    }

    /// Appends the table.
    pub(super) fn render(&self, out: &mut Page<String>) {
        let width = |index: usize, heading: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(heading.len())
        };
        let widths: Vec<usize> = (0..)
            .zip(&self.columns)
            .map(|(index, (heading, _))| width(index, heading))
            .collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::new();
            for ((cell, width), (_, align)) in cells.zip(&widths).zip(&self.columns) {
                let _ = match align {
                    Align::Left => write!(text, "{cell:<width$}  "),
                    Align::Right => write!(text, "{cell:>width$}  "),
                };
            }
            // Writing to a string does not fail.
            let _ = out.line(format_args!("{}", text.trim_end()));
        };
        line(&mut self.columns.iter().map(|(heading, _)| *heading));
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str));
        }
    }
}

/// Removes terminal control characters: names come from other users' processes.
pub(super) fn clean(text: &str) -> String {
    outside(text).terminal()
}

/// At most `most` characters; a cut is shown as an ellipsis.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A value, or a dash for an unknown one.
pub(super) fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

/// Bytes with a binary unit.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = "EiB";
    for next in UNITS {
        if value < 1023.95 {
            unit = next;
            break;
        }
        value /= 1024.0;
    }
    format!("{value:.1} {unit}")
}

/// A time with a suitable unit.
pub(super) fn time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0 => "0".to_owned(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        1_000_000_000..60_000_000_000 => format!("{:.1} s", value / 1e9),
        60_000_000_000..3_600_000_000_000 => format!("{:.1} min", value / 60e9),
        _ => format!("{:.1} h", value / 3600e9),
    }
}

/// Wraps text to lines of at most [`WIDTH`] columns. The first line begins with `first`, all others
/// with `indent` spaces.
pub(super) fn wrapped(first: &str, indent: usize, text: &str) -> String {
    let mut out = String::new();
    let mut line = first.to_owned();
    let mut length = indent;
    let mut empty = true;
    for word in text.split_whitespace() {
        let columns = word.chars().count();
        if !empty && length + 1 + columns > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            length = indent;
            empty = true;
        }
        if !empty {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += columns;
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_even_and_names_cannot_command_the_terminal() {
        let mut table = Table::new(&[
            ("PID", Align::Right),
            ("NAME", Align::Left),
            ("N", Align::Right),
        ]);
        table.row(["7".into(), "evil\x1b[2J".into(), "10".into()]);
        table.row(["4711".into(), "ok".into(), "1".into()]);
        let mut out = Page::new(String::new());
        table.render(&mut out);
        assert_eq!(
            out.into_inner(),
            " PID  NAME          N\n   7  evil\\x1b[2J  10\n4711  ok            1\n"
        );
    }

    #[test]
    fn numbers() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(64 << 30), "64.0 GiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(time(0), "0");
        assert_eq!(time(1_500), "1.5 us");
        assert_eq!(time(90_000_000_000), "1.5 min");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        let text = "word ".repeat(60);
        let out = wrapped("  ok  ", 6, &text);
        assert!(
            out.lines().all(|line| line.chars().count() <= WIDTH),
            "{out}"
        );
        assert!(
            out.starts_with("  ok  word word") && out.contains("\n      word"),
            "{out}"
        );
    }
}
