//! Checks the CSV files against the capture.

use std::path::Path;

use gputrace_abi::domain::Domain;

use crate::{Outputs, Trace, trace::is_finished};

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

/// Reads a CSV file: its header, and its rows.
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

/// Asserts that the API traces hold exactly the finished calls of the capture, and that the loss file's
/// numbers are those of its ledger.
///
/// # Panics
/// If not.
pub fn assert_same(outputs: &Outputs, trace: &Trace) {
    for stem in ["hip_api", "hsa_api"] {
        let mut expected: Vec<Vec<String>> = trace
            .calls
            .iter()
            .filter(|call| is_finished(call))
            .filter_map(|call| Some((call, Domain::from_id(call.domain)?)))
            .filter(|(_, domain)| domain.csv_stem() == stem)
            .map(|(call, domain)| {
                let numbers = [
                    u64::from(call.pid),
                    u64::from(call.tid),
                    call.correlation,
                    call.begin,
                    call.end,
                ];
                let texts = [domain.name().to_owned(), trace.name(call).to_owned()];
                texts
                    .into_iter()
                    .chain(numbers.iter().map(u64::to_string))
                    .collect()
            })
            .collect();
        let path = outputs.file(&format!("_{stem}_trace.csv"));
        if expected.is_empty() && !path.exists() {
            continue;
        }
        let (header, mut rows) = read(&path);
        assert_eq!(header, COLUMNS);
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
    }
}
