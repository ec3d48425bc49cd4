//! CSV files as rocprofv3 writes them, so that scripts made for its output work unchanged.
//!
//! * `NAME_hip_api_trace.csv` and `NAME_hsa_api_trace.csv`: one row per call. Strings and the header are
//!   quoted, numbers are not. Times are ns of `CLOCK_BOOTTIME`, as rocprofv3's.
//! * `NAME_unfinished_calls.csv`, only if there are any: calls that had not returned. They also have rows
//!   in the files above, with the moment up to which they were open as end, because a script that
//!   looks for a hang looks there.
//! * `NAME_loss.csv`, always: what was seen, written and lost, see [`crate::loss`].
//!
//! A file is made for each group of domains that was asked for, even if no call of it happened.
//! rocprofv3 makes none then, so its users' scripts must cope with a missing file; but a script that
//! opens the file by its name gets an empty table here instead of an exception, and an empty file says
//! what a missing one cannot: it was traced, and nothing was called.

use std::{borrow::Cow, collections::BTreeMap};

use csv::{QuoteStyle, Writer, WriterBuilder};
use gputrace_abi::domain::Domain;
use gputrace_capture::ledger::Ledger;
use gputrace_timeline::event::{Call, CallEnd, Event};

use crate::{
    exporter::{ExportError, Exporter, Output},
    functions::{Functions, group, group_title},
    loss,
    output::{OutputDir, OutputFile},
};

const FORMAT: &str = "csv";

/// Columns of an API trace, exactly rocprofv3's.
const CALL_COLUMNS: [&str; 7] = [
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
];

/// Exporter of the CSV files.
#[derive(Debug)]
pub struct CsvExporter {
    directory: OutputDir,
    name: String,
    functions: Functions,
    /// Domains that were asked for.
    domains: Vec<Domain>,
    /// API traces by group.
    traces: BTreeMap<&'static str, Table>,
    unfinished: Option<Table>,
    ledger: Option<Ledger>,
}

impl CsvExporter {
    /// Files go to `directory` and are called `NAME_….csv`.
    #[must_use]
    pub fn new(directory: OutputDir, name: &str) -> Self {
        Self {
            directory,
            name: name.to_owned(),
            functions: Functions::default(),
            domains: Vec::new(),
            traces: BTreeMap::new(),
            unfinished: None,
            ledger: None,
        }
    }

    fn call(&mut self, call: &Call) -> Result<(), ExportError> {
        let name = self.functions.name(call.function);
        let domain: Cow<'_, str> = match Domain::from_id(call.domain) {
            Some(known) => known.name().into(),
            None => Ledger::domain_name(call.domain).into(),
        };
        let row = (
            &domain,
            name,
            call.pid,
            call.tid,
            call.correlation,
            call.begin,
            call.end,
        );
        trace(&mut self.traces, &self.directory, &self.name, group(call.domain))?.row(&row)?;
        let reason = match call.how {
            CallEnd::Returned(_) => return Ok(()),
            CallEnd::ThreadExited => "thread_exited",
            CallEnd::Executed => "process_executed",
            CallEnd::RecordingStopped => "recording_stopped",
        };
        let table = match &mut self.unfinished {
            Some(table) => table,
            None => {
                let columns: Vec<&str> = CALL_COLUMNS.into_iter().chain(["Reason"]).collect();
                let table = Table::create(
                    &self.directory,
                    &format!("{}_unfinished_calls.csv", self.name),
                    &columns,
                )?;
                self.unfinished.insert(table)
            }
        };
        table.row(&(row, reason))
    }
}

impl Exporter for CsvExporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        match event {
            Event::Recording(recording) => {
                let asked = |domain: &&Domain| recording.domains.iter().any(|name| name == domain.name());
                self.domains = Domain::ALL.iter().filter(asked).copied().collect();
                for domain in &self.domains {
                    trace(&mut self.traces, &self.directory, &self.name, domain.csv_stem())?;
                }
            }
            Event::Function(info) => self.functions.learn(info),
            Event::Call(call) => self.call(call)?,
            Event::Ledger(ledger) => self.ledger = Some((**ledger).clone()),
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        let mut account = Table::create(
            &self.directory,
            &format!("{}_loss.csv", self.name),
            &loss::columns(),
        )?;
        for row in loss::rows(self.ledger.as_ref(), &self.domains) {
            account.row(&row)?;
        }
        // Everything is written before the first file gets its name: on a full disk there are no
        // outputs rather than some.
        let mut tables: Vec<(Table, String)> = Vec::new();
        for (group, table) in self.traces {
            tables.push((table, format!("{} calls", group_title(group))));
        }
        tables.extend(
            self.unfinished
                .map(|table| (table, "calls that had not returned".to_owned())),
        );
        tables.push((account, "account of calls seen, written and lost".to_owned()));
        for (table, _) in &mut tables {
            table.writer.flush()?;
        }
        tables
            .into_iter()
            .map(|(table, content)| table.finish(&content))
            .collect()
    }
}

/// The trace of a group, begun if it is not there yet.
fn trace<'a>(
    traces: &'a mut BTreeMap<&'static str, Table>,
    directory: &OutputDir,
    name: &str,
    group: &'static str,
) -> Result<&'a mut Table, ExportError> {
    use std::collections::btree_map::Entry;
    match traces.entry(group) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            let table = Table::create(directory, &format!("{name}_{group}_trace.csv"), &CALL_COLUMNS)?;
            Ok(entry.insert(table))
        }
    }
}

/// A CSV file in the making.
#[derive(Debug)]
struct Table {
    writer: Writer<OutputFile>,
}

impl Table {
    fn create(directory: &OutputDir, file: &str, columns: &[impl AsRef<[u8]>]) -> Result<Self, ExportError> {
        let file = directory.file(file)?;
        let mut writer = WriterBuilder::new()
            .quote_style(QuoteStyle::NonNumeric)
            .has_headers(false)
            .from_writer(file);
        writer.write_record(columns).map_err(encode)?;
        Ok(Self { writer })
    }

    fn row(&mut self, row: &impl serde::Serialize) -> Result<(), ExportError> {
        self.writer.serialize(row).map_err(encode)
    }

    fn finish(self, content: &str) -> Result<Output, ExportError> {
        let file = self
            .writer
            .into_inner()
            .map_err(|error| ExportError::from(error.into_error()))?;
        Ok(file.finish(content)?)
    }
}

fn encode(error: csv::Error) -> ExportError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        other => ExportError::Encode {
            format: FORMAT,
            reason: format!("{other:?}"),
        },
    }
}
