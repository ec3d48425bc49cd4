//! Writes the report as text.

use std::io::{self, Write};

use gputrace_text::outside;

use super::{Part, Row};

const COLUMNS: [&str; 12] = [
    "LABEL", "COUNT", "DEPTH", "METRIC", "UNITS", "SUM", "MEAN", "MIN", "MAX", "VAR", "STDDEV",
    "% SELF",
];

/// Maximum indentation; deeper rows are not indented further.
const MAX_INDENT: usize = 64;
/// Maximum width of the label column; longer labels overflow it.
const MAX_WIDTH: usize = 100;

/// Writes the tables of whole processes, then those of threads.
pub(super) fn write(
    to: &mut impl Write,
    merged: &[Part],
    single: &[Part],
    remarks: &[String],
) -> io::Result<()> {
    for part in merged {
        let threads = single
            .iter()
            .filter(|thread| thread.pid == part.pid)
            .count();
        let title = format!(
            "WALL-CLOCK TIME OF PROCESS {}, ALL {threads} THREADS TOGETHER",
            part.pid
        );
        table(to, &title, [part].into_iter())?;
        let threads = single.iter().filter(|thread| thread.pid == part.pid);
        table(
            to,
            &format!("WALL-CLOCK TIME OF PROCESS {}, BY THREAD", part.pid),
            threads,
        )?;
    }
    if merged.is_empty() {
        writeln!(to, "No call was recorded.")?;
    }
    for remark in remarks {
        writeln!(to, "{}", outside(remark).terminal())?;
    }
    Ok(())
}

fn table<'a>(
    to: &mut impl Write,
    title: &str,
    parts: impl Iterator<Item = &'a Part>,
) -> io::Result<()> {
    let rows: Vec<[String; 12]> = parts
        .flat_map(|part| part.rows.iter().map(|row| cells(part, row)))
        .collect();
    let mut widths = COLUMNS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count().min(MAX_WIDTH));
        }
    }
    let inner = widths.iter().map(|width| width + 3).sum::<usize>() - 1;
    let line = format!("|{}|", "-".repeat(inner));
    writeln!(to, "{line}\n|{title:^inner$}|\n{line}")?;
    write_row(to, &COLUMNS.map(str::to_owned), &widths)?;
    writeln!(to, "{line}")?;
    for row in &rows {
        write_row(to, row, &widths)?;
    }
    writeln!(to, "{line}\n")
}

fn write_row(to: &mut impl Write, cells: &[String; 12], widths: &[usize; 12]) -> io::Result<()> {
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        // Text is left-aligned, numbers are right-aligned.
        match column {
            0 | 3 | 4 => write!(to, "| {cell:<width$} ")?,
            _ => write!(to, "| {cell:>width$} ")?,
        }
    }
    writeln!(to, "|")
}

fn cells(part: &Part, row: &Row) -> [String; 12] {
    let seconds = |ns: f64| format!("{:.6}", ns / 1e9);
    let stats = &row.stats;
    [
        outside(&label(part, row)).terminal(),
        stats.count.to_string(),
        row.depth.to_string(),
        "wall_clock".to_owned(),
        "sec".to_owned(),
        seconds(stats.sum as f64),
        seconds(stats.mean()),
        seconds(stats.min as f64),
        seconds(stats.max as f64),
        format!("{:.6}", stats.variance() / 1e18),
        seconds(stats.deviation()),
        format!("{:.1}", row.self_percent()),
    ]
}

/// The label, e.g. `|00>>> |_fib(long)`: the thread, and a branch for each level.
pub(super) fn label(part: &Part, row: &Row) -> String {
    let thread = match part.thread {
        Some((_, number)) => format!("|{number:02}>>> "),
        None => "|all>>> ".to_owned(),
    };
    match row.depth.min(MAX_INDENT) {
        0 => format!("{thread}{}", row.label),
        depth => format!("{thread}{}|_{}", "  ".repeat(depth - 1), row.label),
    }
}
