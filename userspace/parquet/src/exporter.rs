//! The exporter: events to rows of tables.

use gputrace_capture::{ledger::Ledger, meta::Recording};
use gputrace_export::{ExportError, Exporter, Output, OutputDir};
use gputrace_timeline::event::Event;

use crate::{
    FORMAT,
    table::{Kind, TableFile},
    tables::{self, CALLS, COPIES, Column, EVENTS, KERNELS, Known},
};

/// A table with columns of a constant.
#[derive(Debug)]
struct Table<T: 'static> {
    file: TableFile,
    columns: &'static [Column<T>],
}

impl<T> Table<T> {
    fn create(to: &Place<'_>, name: &str, columns: &'static [Column<T>]) -> Result<Self, ExportError> {
        let names: Vec<(String, Kind)> = columns
            .iter()
            .map(|(name, kind, _)| ((*name).to_owned(), *kind))
            .collect();
        Ok(Self {
            file: to.create(name, &names)?,
            columns,
        })
    }

    fn add(&mut self, row: &T, known: &Known) -> Result<(), ExportError> {
        self.file
            .add(self.columns.iter().map(|(_, _, value)| value(row, known)))
    }
}

/// Where files are made, and what their metadata says.
struct Place<'a> {
    directory: &'a OutputDir,
    prefix: &'a str,
    about: Vec<(&'static str, String)>,
}

impl Place<'_> {
    fn create(&self, name: &str, columns: &[(String, Kind)]) -> Result<TableFile, ExportError> {
        let file = format!("{}_{name}.parquet", self.prefix);
        TableFile::create(self.directory, &file, columns, &self.about)
    }
}

#[derive(Debug)]
struct Tables {
    calls: Table<gputrace_timeline::event::Call>,
    kernels: Table<gputrace_timeline::gpu::Dispatch>,
    copies: Table<gputrace_timeline::gpu::Copy>,
    events: Table<gputrace_timeline::observation::Observation>,
    losses: TableFile,
}

impl Tables {
    fn create(directory: &OutputDir, prefix: &str, about: Option<&Recording>) -> Result<Self, ExportError> {
        let about = about.map_or_else(Vec::new, |recording| {
            vec![
                ("gputrace.version", recording.tool_version.clone()),
                ("gputrace.hostname", recording.hostname.clone()),
                ("gputrace.command", recording.command.join(" ")),
                // What is added to a time of a row to have one of `CLOCK_REALTIME`, ns.
                (
                    "gputrace.realtime_minus_boottime",
                    (i128::from(recording.clocks.realtime) - i128::from(recording.clocks.boottime))
                        .to_string(),
                ),
            ]
        });
        let to = Place {
            directory,
            prefix,
            about,
        };
        Ok(Self {
            calls: Table::create(&to, "calls", CALLS)?,
            kernels: Table::create(&to, "kernels", KERNELS)?,
            copies: Table::create(&to, "copies", COPIES)?,
            events: Table::create(&to, "events", EVENTS)?,
            losses: to.create("losses", &tables::loss_columns())?,
        })
    }
}

/// Writes Parquet files.
#[derive(Debug)]
pub struct ParquetExporter {
    directory: OutputDir,
    prefix: String,
    /// Made at the first event, which says what the recording is.
    tables: Option<Tables>,
    known: Known,
    /// The last account.
    ledger: Option<Box<Ledger>>,
}

impl ParquetExporter {
    /// Files go into `directory`; their names begin with `prefix`.
    #[must_use]
    pub fn new(directory: &OutputDir, prefix: &str) -> Self {
        Self {
            directory: directory.clone(),
            prefix: prefix.to_owned(),
            tables: None,
            known: Known::default(),
            ledger: None,
        }
    }

    fn begin(&mut self, about: Option<&Recording>) -> Result<&mut Tables, ExportError> {
        if self.tables.is_none() {
            self.tables = Some(Tables::create(&self.directory, &self.prefix, about)?);
        }
        self.tables.as_mut().ok_or(ExportError::Encode {
            format: FORMAT,
            reason: "there is no table".to_owned(),
        })
    }
}

impl Exporter for ParquetExporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.known.gpus.learn(event);
        match event {
            Event::Recording(recording) => self.begin(Some(recording)).map(drop)?,
            Event::Function(info) => self.known.functions.learn(info),
            Event::Ledger(ledger) => self.ledger = Some(ledger.clone()),
            _ => {}
        }
        let known = std::mem::take(&mut self.known);
        let tables = self.begin(None);
        let added = tables.and_then(|tables| match event {
            Event::Call(call) => tables.calls.add(call, &known),
            Event::Dispatch(dispatch) => tables.kernels.add(dispatch, &known),
            Event::Copy(copy) => tables.copies.add(copy, &known),
            Event::Observation(one) => tables.events.add(one, &known),
            _ => Ok(()),
        });
        self.known = known;
        added
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        self.begin(None)?;
        let Some(mut tables) = self.tables.take() else {
            return Ok(Vec::new());
        };
        if let Some(ledger) = &self.ledger {
            for row in ledger.by_domain() {
                tables.losses.add(tables::loss(&row, ledger.complete))?;
            }
        }
        let Tables {
            calls,
            kernels,
            copies,
            events,
            losses,
        } = tables;
        let mut files = [
            (calls.file, "API calls"),
            (kernels.file, "kernel dispatches"),
            (copies.file, "memory copies"),
            (events.file, "events of kernel and driver"),
            (losses, "account of losses"),
        ];
        // All are whole before the first one is there.
        files.iter_mut().try_for_each(|(file, _)| file.complete())?;
        let published = files.into_iter().map(|(file, content)| file.publish(content));
        published.collect()
    }
}
