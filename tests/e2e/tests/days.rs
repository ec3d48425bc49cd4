//! Recordings that last for days.
#![expect(clippy::expect_used, reason = "tests")]

use std::{fs::File, mem::MaybeUninit, process::Command};

use gputrace_capture::{
    CaptureWriter,
    ledger::{Ledger, LedgerRow},
    meta::{ClockSnapshot, End, EndReason, Recording},
};
use gputrace_e2e::{Bench, Running};

const SECOND: u64 = 1_000_000_000;
const WEEK: u64 = 7 * 24 * 3_600;

/// Writes what a recorder of a node with 256 CPUs writes in an idle week: an account per hour, and
/// clocks every five minutes (a test in `userspace/collect/src/pace.rs` checks that it writes no
/// more).
fn idle_week(sink: File) {
    let recording = Recording {
        abi_version: gputrace_abi::ABI_VERSION,
        cpus: 256,
        ..Recording::default()
    };
    let row = |number: u32| LedgerRow {
        cpu: number / 4,
        domain: (number % 4) as u8,
        seen: 1_000_000_000,
        written: 1_000_000_000,
        dropped: vec![0; 12],
        ..LedgerRow::default()
    };
    let mut writer = CaptureWriter::create(sink, &recording).expect("a capture");
    for second in (0..=WEEK).step_by(300) {
        let clocks = ClockSnapshot {
            boottime: second * SECOND,
            monotonic: second * SECOND,
            monotonic_raw: second * SECOND,
            realtime: (1_800_000_000 + second) * SECOND,
            uncertainty: 1_000,
            realtime_error: Some(1_000_000),
        };
        writer.meta(&clocks.into()).expect("clocks");
        if second % 3_600 == 0 {
            let ledger = Ledger {
                time: second * SECOND,
                complete: second == WEEK,
                rows: (0..4 * 256).map(row).collect(),
                ..Ledger::default()
            };
            writer.meta(&ledger.into()).expect("an account");
        }
    }
    let end = End {
        time: WEEK * SECOND,
        reason: EndReason::Interrupted,
    };
    writer.meta(&end.into()).expect("the end");
    writer.flush().expect("the end");
}

/// Maximum memory of any child that has ended, bytes (getrusage(2)).
fn most_memory() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes into a local variable.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    assert_eq!(outcome, 0);
    // SAFETY: a struct of plain numbers, for which zeros are valid.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_maxrss).expect("a size") << 10
}

#[test]
fn an_idle_week_is_exported_in_little_memory() {
    let bench = Bench::new();
    let capture = bench.path().join("week.gtcap");
    idle_week(File::create(&capture).expect("a file"));
    let size = capture.metadata().expect("the capture").len();
    assert!(size < 50 << 20, "{size} bytes of capture");
    let mut export = Command::new(bench.gputrace_bare().get_program());
    export.arg("export").arg(&capture).current_dir(bench.path());
    export.args([
        "-f", "csv", "json", "ndjson", "pftrace", "rocpd", "parquet", "otf2",
    ]);
    Running::start("gputrace export", &mut export).finish();
    let most = most_memory();
    eprintln!("{size} bytes of capture, {most} bytes of memory");
    assert!(most < 64 << 20, "too much");
}
