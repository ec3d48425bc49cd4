//! Measures how many records per second get from the rings into the capture.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use gputrace_abi::counters::DropReason;

use crate::{
    Options,
    machine::{Cpus, Pinned, memory_file_system},
    programs::Producer,
    recording::Recording,
    report::{Table, grouped},
};

/// Runs of the producer, of 64 records each, between two readings of the clock.
const RUNS: u32 = 32;

/// Rate of the producer.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// As fast as possible.
    Flood,
    /// Records per second.
    Rate(f64),
}

/// Prints how many records reach the capture at several rates.
///
/// # Errors
///
/// When something cannot be set up, or the accounts are not exact.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let mut table = Table::new(
        "Ring to capture",
        &[
            "producer",
            "capture on",
            "seen/s",
            "written/s",
            "lost",
            "collector busy",
            "collector ns/record",
            "records/s per core",
        ],
    );
    let time = Duration::from_secs(if options.quick { 1 } else { 5 });
    let disk = tempfile::tempdir()?;
    let memory = memory_file_system().map(tempfile::tempdir_in).transpose()?;
    let places = [
        memory.as_ref().map(|memory| (memory.path(), "memory")),
        Some((disk.path(), "disk")),
    ];
    let paces = [
        Pace::Rate(0.5e6),
        Pace::Rate(1e6),
        Pace::Rate(2e6),
        Pace::Rate(3e6),
        Pace::Flood,
    ];
    for (place, name) in places.into_iter().flatten() {
        for pace in paces {
            row(&mut table, options, place, name, pace, time)?;
        }
    }
    table.note(
        "One CPU produces, another one collects: 112-byte records by gputrace's own ring code, run without breakpoints by \
         BPF_PROG_TEST_RUN, into one ring of 4 MiB; captures checked record by record. `records/s per core` is what the \
         collector's CPU time per record comes to; aim: at least 2 million. seen = written + lost, exactly.",
    );
    table.print()
}

fn row(
    table: &mut Table,
    options: &Options,
    place: &Path,
    name: &str,
    pace: Pace,
    time: Duration,
) -> Result<()> {
    let cpus = Cpus::choose()?;
    let capture = place.join("throughput.gtcap");
    let recording = Recording::start(&capture, cpus.collector)?;
    let producer = Producer::load(&options.programs, &recording.calls)?;
    let before = Recording::collector_time();
    let elapsed = thread::scope(|scope| {
        scope
            .spawn(|| produce(&producer, cpus.caller, pace, time))
            .join()
    });
    let elapsed = elapsed
        .map_err(|_| anyhow!("the producer failed"))??
        .as_secs_f64();
    let recorded = recording.finish(None)?;
    std::fs::remove_file(&capture)?;

    let total = recorded.ledger.total();
    let busy = recorded.collector.saturating_sub(before).as_secs_f64();
    let lost = total.dropped_for(DropReason::RingFull);
    table.row(&[
        &match pace {
            Pace::Flood => "as fast as it can".to_owned(),
            Pace::Rate(rate) => format!("{:.1} M/s", rate / 1e6),
        },
        &name,
        &grouped((total.seen as f64 / elapsed) as u64),
        &grouped((total.written as f64 / elapsed) as u64),
        &format!(
            "{} ({:.1} %)",
            grouped(lost),
            100.0 * lost as f64 / total.seen as f64
        ),
        &format!("{:.0} %", 100.0 * busy / elapsed),
        &format!("{:.0}", 1e9 * busy / total.written as f64),
        &grouped((total.written as f64 / busy) as u64),
    ]);
    Ok(())
}

/// Produces records for `time`; returns the actual duration.
fn produce(producer: &Producer, cpu: usize, pace: Pace, time: Duration) -> Result<Duration> {
    const BATCH: f64 = 64.0;
    let _pinned = Pinned::to(cpu)?;
    let begin = Instant::now();
    let mut runs = 0.0;
    while begin.elapsed() < time {
        let due = match pace {
            Pace::Flood => runs + f64::from(RUNS),
            Pace::Rate(rate) => begin.elapsed().as_secs_f64() * rate / BATCH,
        };
        // A producer that was preempted does not catch up all at once.
        let now = (due - runs).clamp(0.0, f64::from(RUNS)).floor();
        if now > 0.0 {
            producer.run(now as u32)?;
            runs += now;
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(begin.elapsed())
}
