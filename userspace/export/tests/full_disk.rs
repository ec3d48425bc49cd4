//! An export onto a disk that fills up, simulated by a limit on the size of files.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{io::Cursor, ops::ControlFlow, path::Path};

use gputrace_capture::{CaptureReader, meta::Recording};
use gputrace_export::{
    ExportError, OutputDir, OutputError, csv::CsvExporter, run, testing::on_full_disk,
};
use gputrace_timeline::{
    Timeline,
    synthetic::{Synthetic, call},
};

#[test]
fn a_full_disk_leaves_no_partial_file_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    on_full_disk("a_full_disk", 64, directory.path(), export);
    assert!(directory.path().exists());
}

fn export(directory: &Path) {
    let mut capture = Synthetic::new(&Recording::default());
    for number in 1..20_000 {
        capture.call(&call(number, number, number + 1));
    }
    let timeline =
        Timeline::new(CaptureReader::new(Cursor::new(capture.bytes())).unwrap()).unwrap();
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
    assert!(
        error.to_string().starts_with("no space left for"),
        "{error}"
    );
    assert!(report.outputs.is_empty());
}
