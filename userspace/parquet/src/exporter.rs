//! The exporter, which turns events into rows of tables.

use gputrace_capture::{ledger::Ledger, meta::Recording};
use gputrace_export::{ExportError, Exporter, Output, OutputDir};
use gputrace_timeline::{
    event::{Call, Event},
    gpu::{Copy, Dispatch},
    observation::Observation,
};

use crate::{
    FORMAT,
    table::TableFile,
    tables::{self, CALLS, COPIES, Columns, EVENTS, KERNELS, Known},
};

/// A table and its columns.
#[derive(Debug)]
struct Table<T: 'static> {
    file: TableFile,
    columns: Columns<T>,
}

impl<T> Table<T> {
    fn create(directory: &OutputDir, name: &str, columns: Columns<T>) -> Result<Self, ExportError> {
        let all = columns.iter().copied().flatten();
        let names: Vec<_> = all
            .map(|(name, kind, _)| ((*name).to_owned(), *kind))
            .collect();
        Ok(Self {
            file: TableFile::create(directory, name, &names)?,
            columns,
        })
    }

    fn add(&mut self, row: &T, known: &Known) -> Result<(), ExportError> {
        let all = self.columns.iter().copied().flatten();
        self.file.add(all.map(|(_, _, value)| value(row, known)))
    }
}

/// Writes Parquet files.
#[derive(Debug)]
pub struct ParquetExporter {
    calls: Table<Call>,
    kernels: Table<Dispatch>,
    copies: Table<Copy>,
    events: Table<Observation>,
    losses: TableFile,
    known: Known,
    /// The latest account.
    ledger: Option<Box<Ledger>>,
}

impl ParquetExporter {
    /// Starts the files in `directory`; their names begin with `prefix`.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if a file cannot be created.
    pub fn new(directory: &OutputDir, prefix: &str) -> Result<Self, ExportError> {
        let file = |table: &str| format!("{prefix}_{table}.parquet");
        Ok(Self {
            calls: Table::create(directory, &file("calls"), CALLS)?,
            kernels: Table::create(directory, &file("kernels"), KERNELS)?,
            copies: Table::create(directory, &file("copies"), COPIES)?,
            events: Table::create(directory, &file("events"), EVENTS)?,
            losses: TableFile::create(directory, &file("losses"), &tables::loss_columns())?,
            known: Known::default(),
            ledger: None,
        })
    }

    /// Notes in every file which recording it belongs to.
    fn note(&mut self, recording: &Recording) {
        let clocks = &recording.clocks;
        let day = i128::from(clocks.realtime) - i128::from(clocks.boottime);
        for file in [
            &mut self.calls.file,
            &mut self.kernels.file,
            &mut self.copies.file,
            &mut self.events.file,
            &mut self.losses,
        ] {
            file.note("gputrace.version", &recording.tool_version);
            file.note("gputrace.hostname", &recording.hostname);
            file.note("gputrace.command", &recording.command.join(" "));
            // Adding this to a time in a row gives `CLOCK_REALTIME`, ns.
            file.note("gputrace.realtime_minus_boottime", &day.to_string());
        }
    }
}

impl Exporter for ParquetExporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.known.gpus.learn(event);
        match event {
            Event::Recording(recording) => self.note(recording),
            Event::Function(info) => self.known.functions.learn(info),
            Event::Call(call) => self.calls.add(call, &self.known)?,
            Event::Dispatch(dispatch) => self.kernels.add(dispatch, &self.known)?,
            Event::Copy(copy) => self.copies.add(copy, &self.known)?,
            Event::Observation(one) => self.events.add(one, &self.known)?,
            Event::Ledger(ledger) => self.ledger = Some(ledger.clone()),
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        if let Some(ledger) = &self.ledger {
            for row in ledger.by_domain() {
                self.losses.add(tables::loss(&row, ledger.complete))?;
            }
        }
        let mut files = [
            (self.calls.file, "API calls"),
            (self.kernels.file, "kernel dispatches"),
            (self.copies.file, "memory copies"),
            (self.events.file, "events of kernel and driver"),
            (self.losses, "account of losses"),
        ];
        // All files are complete before the first one gets its name.
        files.iter_mut().try_for_each(|(file, _)| file.complete())?;
        let published = files
            .into_iter()
            .map(|(file, content)| file.publish(content));
        published.collect()
    }
}
