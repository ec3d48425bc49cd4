//! A snapshot as text for people.

use std::fmt;

use gputrace_text::{
    Page,
    tables::{Align, plural, table},
};

use crate::{
    rows::{
        Cell, FUNCTIONS, GPUS, Heading, KERNELS, PROCESSES, QUEUES, function, gpu, group, groups,
        kernel, process, queue,
    },
    snapshot::Snapshot,
    view::Options,
};

/// Writes a snapshot.
pub(crate) fn write(out: &mut String, snapshot: &Snapshot, options: &Options) -> fmt::Result {
    let mut page = Page::new(std::mem::take(out)).within(options.columns);
    page.line(format_args!("{}", title(snapshot)))?;
    page.blank()?;
    let (rows, seconds) = (options.rows, seconds(snapshot));
    part(&mut page, &GPUS, &snapshot.gpus, rows, |row| {
        gpu(row, seconds)
    })?;
    part(&mut page, &PROCESSES, &snapshot.processes, rows, |row| {
        process(row, seconds)
    })?;
    for (by, of_this) in &snapshot.groups {
        part(&mut page, &groups(*by), of_this, rows, |row| {
            group(row, seconds)
        })?;
    }
    part(&mut page, &QUEUES, &snapshot.queues, rows, |row| {
        queue(row, seconds)
    })?;
    part(&mut page, &KERNELS, &snapshot.kernels, rows, |row| {
        kernel(row, seconds)
    })?;
    part(&mut page, &FUNCTIONS, &snapshot.functions, rows, |row| {
        function(row, seconds)
    })?;
    *out = page.into_inner();
    Ok(())
}

/// Length of the interval in seconds, never 0.
pub(crate) fn seconds(snapshot: &Snapshot) -> f64 {
    snapshot.seconds().max(1e-9)
}

/// The line about all of a snapshot.
pub(crate) fn title(snapshot: &Snapshot) -> String {
    let late = match snapshot.late {
        0 => String::new(),
        late => format!(", {late} counted late"),
    };
    let own = match snapshot.gputrace_cpus {
        Some(cpus) => format!(", own CPU {:.1} %", cpus * 100.0),
        None => String::new(),
    };
    format!(
        "{} UTC, {:.1} s: {}, {} lost{own}{late}",
        time_of_day(snapshot.time_of_day),
        snapshot.seconds(),
        plural(snapshot.processes.len() as u64, "process", "processes"),
        plural(snapshot.lost.total, "event", "events"),
    )
}

/// Writes a table with the first `most` rows; nothing if there is no row.
fn part<T>(
    page: &mut Page<String>,
    heading: &Heading,
    all: &[T],
    most: usize,
    row: impl Fn(&T) -> Vec<Cell>,
) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    let align: Vec<Align> = heading.iter().map(|(_, align)| *align).collect();
    let head = heading.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head)
        .chain(all.iter().take(most).map(|one| texts(row(one))))
        .collect();
    table(page, &align, &rows)?;
    if let Some(more) = all.len().checked_sub(most).filter(|more| *more > 0) {
        page.line(format_args!("  ... and {more} more (--rows)"))?;
    }
    page.blank()
}

/// What cells show.
pub(crate) fn texts(cells: Vec<Cell>) -> Vec<String> {
    cells.into_iter().map(|cell| cell.text).collect()
}

/// Time of day, UTC, of a number of ns since the Unix epoch.
fn time_of_day(ns: u64) -> String {
    let second = ns / 1_000_000_000 % 86_400;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}", second % 60)
}
