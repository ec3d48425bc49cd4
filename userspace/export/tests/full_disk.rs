//! An export onto a disk that fills up, simulated by a limit on the size of files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{env, fs, io::Cursor, ops::ControlFlow, path::Path, process::Command};

use gputrace_capture::{CaptureReader, meta::Recording};
use gputrace_export::{ExportError, OutputDir, OutputError, csv::CsvExporter, run};
use gputrace_timeline::{
    Timeline,
    synthetic::{Synthetic, call},
};

const DIRECTORY: &str = "GPUTRACE_TEST_FULL_DISK";

#[test]
fn a_full_disk_leaves_no_partial_file_and_is_named() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return export(directory.as_ref());
    }
    // The limit and the ignored signal are inherited, so this program is run again below a shell.
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ && ulimit -f 64 && exec \"$0\" a_full_disk"])
        .arg(env::current_exe().unwrap())
        .env(DIRECTORY, directory.path())
        .status()
        .unwrap();
    assert!(status.success());
    let left: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(fs::exists(directory.path()).unwrap());
}

fn export(directory: &Path) {
    let mut capture = Synthetic::new(&Recording::default());
    for number in 1..20_000 {
        capture.call(&call(number, number, number + 1));
    }
    let timeline = Timeline::new(CaptureReader::new(Cursor::new(capture.bytes())).unwrap()).unwrap();
    let out = OutputDir::open(directory, None).unwrap();
    let report = run(
        timeline,
        vec![Box::new(CsvExporter::new(out, "app"))],
        &mut |_| ControlFlow::Continue(()),
    );
    let [(format, error)] = &report.failures[..] else {
        panic!("{report:?}")
    };
    assert_eq!(*format, "csv");
    assert!(
        matches!(error, ExportError::Output(OutputError::Full { .. })),
        "{error:?}"
    );
    assert!(error.to_string().starts_with("no space left for"), "{error}");
    assert!(report.outputs.is_empty());
}
