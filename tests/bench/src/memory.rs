//! Memory of the recorder during a long flood.

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    Options, accounts,
    library::Library,
    machine::{resident, wait},
    report::{Table, grouped},
};

/// Calls per second.
const RATE: u64 = 100_000;

/// Interval of sampling the recorder's memory.
const SAMPLE: Duration = Duration::from_millis(250);

/// Prints the memory of `gputrace -p` while a program makes calls at a steady rate, and while it
/// then writes the outputs.
///
/// # Errors
///
/// When gputrace or the program fails.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let time = Duration::from_secs(if options.quick { 5 } else { 60 });
    let library = Library::build()?;
    let directory = library.directory();
    let mut program = Command::new(std::env::current_exe()?)
        .arg("flood")
        .arg(library.path())
        .args(["--rate", &RATE.to_string()])
        // The flood does not end by itself; it is killed.
        .args(["--calls", &u64::MAX.to_string()])
        .spawn()?;
    let wait_for_mapping = Instant::now();
    let maps = format!("/proc/{}/maps", program.id());
    let mapped = || std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("libamdhip64"));
    while !mapped() && wait_for_mapping.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(10));
    }
    let recorder = Command::new(&options.gputrace)
        .args([
            "-p",
            &program.id().to_string(),
            "--force",
            "-o",
            "flood",
            "-f",
            "csv",
            "--duration",
        ])
        .arg(format!("{}s", time.as_secs()))
        .arg("-d")
        .arg(directory)
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", options.gputrace.display()))?;

    let begin = Instant::now();
    let (mut during, mut after) = (Vec::new(), Vec::new());
    let pid = recorder.id();
    while let Some(memory) = resident(pid) {
        let (since, half) = (begin.elapsed(), time / 2);
        // The first two seconds are spent on loading and attaching.
        if since < time {
            if since > Duration::from_secs(2) || !during.is_empty() || since > half {
                during.push(memory);
            }
        } else {
            after.push(memory);
        }
        thread::sleep(SAMPLE);
    }
    let used = wait(pid)?;
    program.kill()?;
    program.wait()?;
    ensure!(used.success, "{} failed", options.gputrace.display());
    let records = accounts::count(&directory.join("flood.gtcap"))?;

    let kibibytes = |bytes: u64| grouped(bytes / 1024);
    let mut table = Table::new(
        "Memory of the recorder",
        &[
            "while",
            "records",
            "first, KiB",
            "last, KiB",
            "least, KiB",
            "most, KiB",
        ],
    );
    for (what, samples) in [("recording", &during), ("making the CSV files", &after)] {
        let (Some(first), Some(last), Some(least), Some(most)) = (
            samples.first(),
            samples.last(),
            samples.iter().min(),
            samples.iter().max(),
        ) else {
            continue;
        };
        table.row(&[
            &what,
            &grouped(records),
            &kibibytes(*first),
            &kibibytes(*last),
            &kibibytes(*least),
            &kibibytes(*most),
        ]);
    }
    table.note(format!(
        "VmRSS of `gputrace -p` every {} ms for {} s, with {} calls per second; the ring buffers (8 MiB here, mapped) \
         are part of it once they have been read through. Aim: flat.",
        SAMPLE.as_millis(),
        time.as_secs(),
        grouped(RATE)
    ));
    table.print()
}
