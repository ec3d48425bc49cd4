//! Tables of synthetic recordings, read back. `tests/readers/parquet_check.py` reads those of real
//! recordings.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs::File, path::Path};

use gputrace_export::{
    Exporter, OutputDir, synthetic,
    testing::{names, on_full_disk},
};
use gputrace_parquet::{ParquetExporter, table::ROWS};
use gputrace_timeline::event::Event;
use parquet::{
    file::{
        metadata::RowGroupMetaData,
        reader::{FileReader as _, SerializedFileReader},
    },
    record::RowAccessor as _,
};

fn write(directory: &Path, events: &[Event]) {
    let out = OutputDir::open(directory, None).unwrap();
    let mut exporter = Box::new(ParquetExporter::new(&out, "app").unwrap());
    events
        .iter()
        .for_each(|event| exporter.event(event).unwrap());
    assert_eq!(exporter.finish().unwrap().len(), 5);
}

fn open(directory: &Path, table: &str) -> SerializedFileReader<File> {
    let file = File::open(directory.join(format!("app_{table}.parquet"))).unwrap();
    SerializedFileReader::new(file).unwrap()
}

/// Rows as maps from column to text.
fn rows(directory: &Path, table: &str) -> Vec<BTreeMap<String, String>> {
    let reader = open(directory, table);
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        let row = row.unwrap();
        let columns = row.get_column_iter();
        columns
            .map(|(name, field)| (name.clone(), field.to_string()))
            .collect()
    })
    .collect()
}

#[test]
fn times_that_a_double_cannot_hold_are_exact() {
    for begin in [(1_u64 << 53) + 1, (1 << 60) + 3, (1 << 63) + 1] {
        let end = begin + 501;
        let mut events = synthetic::events();
        for event in &mut events {
            match event {
                Event::Call(call) => (call.begin, call.end) = (begin, end),
                Event::Dispatch(dispatch) => dispatch.time = synthetic::exact(begin, end),
                Event::Copy(copy) => copy.time = synthetic::exact(begin, end),
                _ => {}
            }
        }
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &events);
        for table in ["calls", "kernels", "copies"] {
            for row in rows(directory.path(), table) {
                let found = ["start", "end", "duration"].map(|column| row[column].clone());
                assert_eq!(
                    found,
                    [begin, end, 501].map(|number| number.to_string()),
                    "{table}"
                );
            }
        }
    }
}

#[test]
fn each_event_is_a_row_of_its_table() {
    let directory = tempfile::tempdir().unwrap();
    let events = synthetic::events();
    write(directory.path(), &events);
    let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
    let calls = rows(directory.path(), "calls");
    assert_eq!(calls.len(), count(|event| matches!(event, Event::Call(_))));
    let kernels = rows(directory.path(), "kernels");
    assert_eq!(
        kernels.len(),
        count(|event| matches!(event, Event::Dispatch(_)))
    );
    let copies = rows(directory.path(), "copies");
    assert_eq!(copies.len(), count(|event| matches!(event, Event::Copy(_))));
    let dispatches = events.iter().filter_map(|event| match event {
        Event::Dispatch(dispatch) => Some(dispatch),
        _ => None,
    });
    for (row, dispatch) in kernels.iter().zip(dispatches) {
        assert_eq!(row["dispatch_id"], dispatch.id.to_string());
        let begin = dispatch.time.drawn_begin();
        assert_eq!(
            row["start"],
            begin.map_or("null".to_owned(), |begin| begin.to_string())
        );
        assert_eq!(
            row["quality"],
            format!("{:?}", dispatch.time.quality.name())
        );
        let latest = dispatch.time.end_window.latest;
        assert_eq!(
            row["end_latest"],
            latest.map_or("null".to_owned(), |latest| latest.to_string())
        );
    }
    assert!(
        kernels
            .iter()
            .any(|row| row["name"].contains("add(float*, float*)"))
    );
}

#[test]
fn memory_is_bounded_by_row_groups() {
    let directory = tempfile::tempdir().unwrap();
    let begin = synthetic::START;
    let events: Vec<Event> = (1..=ROWS as u64 + 1)
        .map(|id| {
            let time = synthetic::exact(begin + id * 10, begin + id * 10 + 5);
            Event::Dispatch(Box::new(synthetic::dispatch(id, begin + id * 10, time)))
        })
        .collect();
    write(directory.path(), &events);
    let reader = open(directory.path(), "kernels");
    let metadata = reader.metadata();
    let groups = metadata.row_groups().iter().map(RowGroupMetaData::num_rows);
    assert_eq!(groups.collect::<Vec<_>>(), [ROWS as i64, 1]);
    let last = reader.get_row_iter(None).unwrap().last().unwrap().unwrap();
    let id = last
        .get_column_iter()
        .position(|(name, _)| name == "dispatch_id");
    assert_eq!(last.get_ulong(id.unwrap()).unwrap(), ROWS as u64 + 1);
}

/// An exporter that is dropped leaves no file.
#[test]
fn dropped_tables_leave_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let mut exporter = ParquetExporter::new(&out, "app").unwrap();
    for event in synthetic::events() {
        exporter.event(&event).unwrap();
    }
    drop(exporter);
    assert_eq!(names(directory.path()), Vec::<String>::new());
}

#[test]
fn a_full_disk_is_named_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    on_full_disk(
        "a_full_disk_is_named_and_leaves_no_file",
        2,
        directory.path(),
        |full| {
            let out = OutputDir::open(full, None).unwrap();
            let mut exporter = Box::new(ParquetExporter::new(&out, "app").unwrap());
            let events = synthetic::events();
            let added = events.iter().try_for_each(|event| exporter.event(event));
            let error = added
                .and_then(|()| exporter.finish())
                .unwrap_err()
                .to_string();
            assert!(error.contains("no space left"), "{error}");
            assert_eq!(names(full), Vec::<String>::new());
        },
    );
}

#[test]
fn only_what_is_known_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &synthetic::drawn());
    let number = |row: &BTreeMap<String, String>, column: &str| row[column].parse::<u64>().ok();
    let found: Vec<_> = rows(directory.path(), "kernels")
        .iter()
        .map(|row| {
            let (begin, end) = (number(row, "start"), number(row, "end"));
            assert!(number(row, "start_earliest").is_some());
            assert_eq!(begin.is_some(), end.is_some());
            let ns = end.zip(begin).map(|(end, begin)| end - begin);
            assert_eq!(number(row, "duration"), ns);
            (number(row, "dispatch_id").unwrap(), ns)
        })
        .collect();
    assert_eq!(found, synthetic::DRAWN);
    let copies = rows(directory.path(), "copies");
    let drawn = copies.iter().filter(|row| number(row, "end").is_some());
    assert_eq!((copies.len(), drawn.count()), (3, 2));
}
