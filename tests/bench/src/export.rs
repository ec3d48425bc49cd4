//! How fast a capture becomes an output.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    Options, accounts,
    library::Library,
    machine::{most_resident, wait},
    report::{Table, grouped},
};

/// Between two looks at the memory of an export.
const SAMPLE: Duration = Duration::from_millis(5);

/// Prints time and memory of `gputrace export`.
///
/// # Errors
///
/// When gputrace fails.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let calls: u64 = if options.quick { 100_000 } else { 1_000_000 };
    let library = Library::build()?;
    let directory = library.directory();
    // Slower than gputrace can record, so that the capture holds every call.
    let rate = 250_000;
    let status = Command::new(&options.gputrace)
        .args(["--force", "-o", "made", "-f", "csv", "-d"])
        .arg(directory)
        .arg("--")
        .arg(std::env::current_exe()?)
        .arg("flood")
        .arg(library.path())
        .args(["--calls", &calls.to_string(), "--rate", &rate.to_string()])
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", options.gputrace.display()))?;
    ensure!(
        status.success(),
        "{} failed to record: {status}",
        options.gputrace.display()
    );
    let capture = directory.join("made.gtcap");
    let records = accounts::count(&capture)?;

    let mut table = Table::new(
        "Capture to outputs",
        &[
            "format",
            "records",
            "seconds",
            "records/s",
            "CPU seconds",
            "most memory, KiB",
            "capture, KiB",
            "outputs, KiB",
        ],
    );
    for format in ["csv", "pftrace"] {
        let outputs = directory.join(format);
        let begin = Instant::now();
        let child = Command::new(&options.gputrace)
            .arg("export")
            .arg(&capture)
            .args(["-f", format, "-o", "made", "-d"])
            .arg(&outputs)
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
        table.row(&[
            &format,
            &grouped(records),
            &format!("{seconds:.2}"),
            &grouped((records as f64 / seconds) as u64),
            &format!("{:.2}", used.cpu.as_secs_f64()),
            &grouped(memory / 1024),
            &grouped(fs::metadata(&capture)?.len() / 1024),
            &grouped(size(&outputs)? / 1024),
        ]);
    }
    table.note("The whole of `gputrace export`, from its start to its end; one output each.");
    table.print()
}

/// Bytes of the files in a directory.
fn size(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
