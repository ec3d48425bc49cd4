//! Prints results as Markdown, so that a run can be pasted into `docs/benchmarks.md`.

use std::{
    fmt::Display,
    fs,
    io::{self, Write as _},
};

use anyhow::Result;

/// A table under construction.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Table {
    /// An empty table with these column headings. The first column is text, the others are numbers.
    pub(crate) fn new(title: &str, heads: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            rows: vec![heads.iter().map(|&head| head.to_owned()).collect()],
            notes: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[&dyn Display]) {
        self.rows
            .push(cells.iter().map(ToString::to_string).collect());
    }

    /// Adds a sentence below the table.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Prints it.
    ///
    /// # Errors
    ///
    /// When standard output is closed.
    pub(crate) fn print(&self) -> Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = io::stdout().lock();
        writeln!(out, "\n### {}\n", self.title)?;
        for (number, row) in self.rows.iter().enumerate() {
            let mut cells = row.iter();
            for (column, width) in widths.iter().copied().enumerate() {
                let cell = cells.next().map_or("", String::as_str);
                if column == 0 {
                    write!(out, "| {cell:<width$} ")?;
                } else {
                    write!(out, "| {cell:>width$} ")?;
                }
            }
            writeln!(out, "|")?;
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width + 1);
                    write!(
                        out,
                        "{}",
                        if column == 0 {
                            format!("|:{dashes}")
                        } else {
                            format!("|{dashes}:")
                        }
                    )?;
                }
                writeln!(out, "|")?;
            }
        }
        for note in &self.notes {
            writeln!(out, "\n{note}")?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Prints a description of the machine.
///
/// # Errors
///
/// When standard output is closed.
pub(crate) fn machine() -> Result<()> {
    let uname = rustix::system::uname();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let guest =
        field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    writeln!(
        io::stdout().lock(),
        "Linux {} {}, {} x {}{}, load at the start {load}.",
        uname.release().to_string_lossy(),
        uname.machine().to_string_lossy(),
        gputrace_loader::present_cpus().len(),
        field("model name").unwrap_or_else(|| "unknown CPU".to_owned()),
        if guest { ", in a virtual machine" } else { "" },
    )?;
    Ok(())
}

/// The median; 0 if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    if !sorted.len().is_multiple_of(2) {
        return upper;
    }
    let lower = sorted
        .len()
        .checked_sub(1)
        .and_then(|last| sorted.get(last / 2));
    f64::midpoint(lower.copied().unwrap_or(0.0), upper)
}

/// The smallest value; 0 if there are no values.
pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// A number with separated thousands: `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "small whole and half numbers are exact")]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(least(&[4.0, 1.0]), 1.0);
    }

    #[test]
    fn thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
