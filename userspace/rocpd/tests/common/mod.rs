//! What tests of databases share.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gputrace_export::{Exporter, OutputDir};
use gputrace_rocpd::RocpdExporter;
use gputrace_timeline::event::Event;
use rusqlite::{
    Connection, OpenFlags,
    functions::{Context, FunctionFlags},
};

/// Writes a database of these events, and returns its path.
pub(crate) fn export(events: &[Event], directory: &Path) -> PathBuf {
    let out = OutputDir::open(directory, None).unwrap();
    let mut exporter = Box::new(RocpdExporter::new(&out, "app_results.db").unwrap());
    for event in events {
        exporter.event(event).unwrap();
    }
    let [output] = &exporter.finish().unwrap()[..] else {
        unreachable!("one file is made")
    };
    assert_eq!(output.bytes, fs::metadata(&output.path).unwrap().len());
    output.path.clone()
}

pub(crate) fn open(path: &Path) -> Connection {
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    // This SQLite lacks the mathematical functions that the usual ones have.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let sqrt = |arguments: &Context<'_>| Ok(arguments.get::<Option<f64>>(0)?.map(f64::sqrt));
    database
        .create_scalar_function("sqrt", 1, flags, sqrt)
        .unwrap();
    database
}

pub(crate) fn number(database: &Connection, sql: &str) -> i64 {
    database.query_one(sql, (), |row| row.get(0)).unwrap()
}

pub(crate) fn text(database: &Connection, sql: &str) -> String {
    database.query_one(sql, (), |row| row.get(0)).unwrap()
}
