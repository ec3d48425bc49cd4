//! Checks the CSV files against the capture.

use std::{fs, path::Path};

use gputrace_abi::domain::Domain;
use gputrace_capture::ledger::Ledger;
use gputrace_timeline::event::{Call, CallEnd};

use crate::{Outputs, Trace};

/// Columns of rocprofv3's API traces.
const COLUMNS: [&str; 7] = [
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
];

/// Reads the header and the rows of a CSV file.
///
/// # Panics
/// If it cannot be read or is not CSV.
#[must_use]
pub fn read(path: &Path) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader =
        csv::Reader::from_path(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header = reader
        .headers()
        .expect("a header")
        .iter()
        .map(str::to_owned)
        .collect();
    let rows = reader
        .records()
        .map(|row| row.expect("a row").iter().map(str::to_owned).collect())
        .collect();
    (header, rows)
}

/// Asserts that the CSV files of a recording agree with its capture: the API traces contain every
/// call, the file of unfinished calls the unfinished ones with the reason, and the loss file the
/// account.
///
/// # Panics
/// If not.
pub fn assert_same(outputs: &Outputs, trace: &Trace) {
    let rows = |chosen: &dyn Fn(&Call) -> bool| -> Vec<Vec<String>> {
        let calls = trace.calls.iter().filter(|call| chosen(call));
        calls.filter_map(|call| row(call, trace)).collect()
    };
    for stem in ["hip_api", "hsa_api"] {
        let of_stem = |call: &Call| {
            Domain::from_id(call.domain).is_some_and(|domain| domain.csv_stem() == stem)
        };
        let path = outputs.file(&format!("_{stem}_trace.csv"));
        assert_table(&path, &COLUMNS, rows(&of_stem));
    }
    let unfinished = rows(&|call| reason(call.how).is_some());
    let path = outputs.file("_unfinished_calls.csv");
    assert_eq!(path.exists(), !unfinished.is_empty(), "{}", path.display());
    if path.exists() {
        let columns: Vec<&str> = COLUMNS.into_iter().chain(["Reason"]).collect();
        let reasons = trace.calls.iter().filter_map(|call| reason(call.how));
        let with_reason = unfinished
            .into_iter()
            .zip(reasons)
            .map(|(mut row, reason)| {
                row.push(reason.to_owned());
                row
            });
        assert_table(&path, &columns, with_reason.collect());
    }
    if let Some(ledger) = &trace.ledger {
        assert_account(&outputs.file("_loss.csv"), ledger);
    }
}

fn row(call: &Call, trace: &Trace) -> Option<Vec<String>> {
    let texts = [
        Domain::from_id(call.domain)?.name().to_owned(),
        trace.name(call).to_owned(),
    ];
    let numbers = [
        u64::from(call.pid),
        u64::from(call.tid),
        call.correlation,
        call.begin,
        call.end,
    ];
    Some(
        texts
            .into_iter()
            .chain(numbers.iter().map(u64::to_string))
            .collect(),
    )
}

fn reason(how: CallEnd) -> Option<&'static str> {
    match how {
        CallEnd::Returned(_) => None,
        CallEnd::ThreadExited => Some("thread_exited"),
        CallEnd::Executed => Some("process_executed"),
        CallEnd::RecordingStopped => Some("recording_stopped"),
        CallEnd::NotSeen => Some("end_not_recorded"),
    }
}

/// Asserts that a file has these columns and these rows, in any order. The file of a library may be
/// missing if nothing of it was traced.
fn assert_table(path: &Path, columns: &[&str], mut expected: Vec<Vec<String>>) {
    if expected.is_empty() && !path.exists() {
        return;
    }
    let (header, mut rows) = read(path);
    assert_eq!(header, columns);
    rows.sort();
    expected.sort();
    if rows != expected {
        let odd = rows.iter().find(|row| !expected.contains(row));
        let absent = expected.iter().find(|row| !rows.contains(row));
        panic!(
            "{}: {} rows for {} calls; not in the capture: {odd:?}; not in the file: {absent:?}",
            path.display(),
            rows.len(),
            expected.len()
        );
    }
    // rocprofv3 quotes text but not numbers.
    let text = fs::read_to_string(path).expect("the file just read");
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some(format!("\"{}\"", columns.join("\",\"")).as_str())
    );
    if let Some(line) = lines.next() {
        let quoted: Vec<bool> = line
            .split(',')
            .map(|field| field.starts_with('"'))
            .collect();
        assert_eq!(
            quoted[..COLUMNS.len()],
            [true, true, false, false, false, false, false],
            "{line}"
        );
    }
}

/// Asserts that the sums in a loss file equal those of the ledger.
fn assert_account(path: &Path, ledger: &Ledger) {
    let (header, rows) = read(path);
    let sum = |column: &str| -> u64 {
        let index = header.iter().position(|name| name == column);
        let index = index
            .unwrap_or_else(|| panic!("{} has no column {column}: {header:?}", path.display()));
        // Only rows of single CPUs; the others are sums.
        let rows = rows.iter().filter(|row| row[1].parse::<u32>().is_ok());
        rows.map(|row| row[index].parse::<u64>().expect("a number"))
            .sum()
    };
    let total = ledger.total();
    let columns = [
        ("Seen", total.seen),
        ("Written", total.written),
        ("Unfinished", total.unfinished),
    ];
    for (column, expected) in columns {
        assert_eq!(
            sum(column),
            expected,
            "column {column} of {}",
            path.display()
        );
    }
}
