//! Measures how fast captures are exported.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{
    Options,
    machine::{most_resident, wait},
    made,
    report::{Table, grouped},
};

/// Interval of sampling the memory of an export.
const SAMPLE: Duration = Duration::from_millis(5);

/// Number of times that each format is exported, alternating with the others; the median counts.
const TURNS: usize = 3;

/// Formats.
const FORMATS: [&str; 6] = ["csv", "ndjson", "pftrace", "json", "rocpd", "otf2"];

/// Prints time and memory of `gputrace export` for a synthetic capture of calls, dispatches and
/// copies.
///
/// # Errors
///
/// When gputrace fails.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let (calls, dispatches, copies) = made::ROUND;
    let rounds = if options.quick { 30_000 } else { 1_000_000 };
    let records = rounds * (calls + dispatches + copies);
    let place = tempfile::tempdir()?;
    let capture = place.path().join("made.gtcap");
    made::capture(&capture, rounds)?;
    let mut table = Table::new(
        "Capture to outputs",
        &[
            "format",
            "records",
            "seconds",
            "records/s",
            "against reading",
            "CPU seconds",
            "most memory, KiB",
            "outputs, KiB",
        ],
    );
    // Reading alone: with a filter that nothing passes. In the same run, so that ratios are
    // meaningful.
    let mut reading = Vec::new();
    let mut made: Vec<Vec<Measured>> = FORMATS.iter().map(|_| Vec::new()).collect();
    for _ in 0..if options.quick { 1 } else { TURNS } {
        reading.push(export(
            options,
            &capture,
            place.path(),
            "csv",
            &["--pid", "1"],
        )?);
        for (format, measured) in FORMATS.iter().zip(&mut made) {
            measured.push(export(options, &capture, place.path(), format, &[])?);
        }
    }
    let reading = median(&mut reading);
    let mut row = |name: &str, measured: &Measured| {
        table.row(&[
            &name,
            &grouped(records),
            &format!("{:.2}", measured.seconds),
            &grouped((records as f64 / measured.seconds) as u64),
            &format!("{:.2}", measured.seconds / reading.seconds),
            &format!("{:.2}", measured.cpu),
            &grouped(measured.memory / 1024),
            &grouped(measured.bytes / 1024),
        ]);
    };
    row("(reading)", &reading);
    for (format, measured) in FORMATS.iter().zip(&mut made) {
        row(format, &median(measured));
    }
    table.note(format!(
        "The whole of `gputrace export`, from its start to its end; one output each, medians of {TURNS} turns. A record is a call, a dispatch or a copy, \
         {calls} : {dispatches} : {copies}; the capture ({} KiB) is made up. `(reading)` leaves everything out.",
        grouped(fs::metadata(&capture)?.len() / 1024)
    ));
    table.print()
}

/// Figures of one export.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    seconds: f64,
    cpu: f64,
    memory: u64,
    bytes: u64,
}

fn median(measured: &mut [Measured]) -> Measured {
    measured.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    measured
        .get(measured.len() / 2)
        .copied()
        .unwrap_or_default()
}

fn export(
    options: &Options,
    capture: &Path,
    place: &Path,
    format: &str,
    more: &[&str],
) -> Result<Measured> {
    let outputs = place.join("outputs");
    let begin = Instant::now();
    let child = Command::new(&options.gputrace)
        .arg("export")
        .arg(capture)
        .args(["-f", format, "-o", "made", "-d"])
        .arg(&outputs)
        .args(more)
        .stderr(Stdio::null())
        .spawn()?;
    let mut memory = 0;
    while let Some(most) = most_resident(child.id()) {
        memory = most;
        thread::sleep(SAMPLE);
    }
    let used = wait(child.id())?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(
        used.success,
        "{} failed to export {format}",
        options.gputrace.display()
    );
    let bytes = size(&outputs)?;
    fs::remove_dir_all(&outputs)?;
    Ok(Measured {
        seconds,
        cpu: used.cpu.as_secs_f64(),
        memory,
        bytes,
    })
}

/// Total size in bytes of the files in a directory and below.
fn size(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => size(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
