//! The exporter, which turns events into rows.

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::Recording;
use gputrace_export::{
    ExportError, Exporter, Functions, Output, OutputDir, OutputError, OutputFile, gpu::Gpus,
};
use gputrace_timeline::{
    event::{Call, Event},
    stream::StreamInfo,
};
use serde::Serialize;

use crate::{
    FORMAT,
    allocations::Allocations,
    calls::Calls,
    database::{Complete, Database},
    graphs::Graphs,
    observed::Observed,
    query::Slot,
    referenced::{Strings, Who},
    report,
    rows::{Rows, cells},
    schema::Identity,
    work::Work,
};

/// Exporter of a rocpd database.
///
/// Memory grows with the number of processes, threads, functions, kernels, queues and streams, but
/// not with the number of calls, dispatches or copies.
#[derive(Debug)]
pub struct RocpdExporter {
    /// Set until the first event, which determines the names of the tables.
    to: Option<Destination>,
    /// Receives a database in memory.
    slot: Slot,
    writer: Option<Writer>,
}

impl RocpdExporter {
    /// Starts the database `file_name` (e.g. `app_results.db`) in `directory`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn new(directory: &OutputDir, file_name: &str) -> Result<Self, OutputError> {
        Ok(Self {
            to: Some(Destination::File(
                directory.file(file_name)?,
                directory.clone(),
            )),
            slot: Slot::default(),
            writer: None,
        })
    }

    /// Makes a database in memory (and in a temporary file if it is large); it is in the slot when
    /// the exporter has finished.
    #[must_use]
    pub fn in_memory() -> (Self, Slot) {
        let slot = Slot::default();
        let exporter = Self {
            to: Some(Destination::Memory),
            slot: slot.clone(),
            writer: None,
        };
        (exporter, slot)
    }

    /// The writer; its database is begun with `recording` if that has not happened yet.
    fn writer(&mut self, recording: &Recording) -> Result<&mut Writer, ExportError> {
        if let Some(to) = self.to.take() {
            self.writer = Some(Writer::begin(to, recording)?);
        }
        self.writer.as_mut().ok_or_else(|| ExportError::Encode {
            format: FORMAT,
            reason: "the database could not be begun".to_owned(),
        })
    }
}

impl Exporter for RocpdExporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        match event {
            Event::Recording(recording) => self.writer(recording).map(drop),
            other => self.writer(&Recording::default())?.event(other),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        self.writer(&Recording::default())?;
        match self.writer {
            Some(writer) => match writer.finish()? {
                Complete::File(file) => Ok(vec![file.finish("rocpd database (SQLite)")?]),
                Complete::Memory(connection) => {
                    self.slot.put(connection);
                    Ok(Vec::new())
                }
            },
            None => Ok(Vec::new()),
        }
    }
}

/// Where a database is written.
#[derive(Debug)]
enum Destination {
    File(OutputFile, OutputDir),
    Memory,
}

/// State that all parts of the writer share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) database: Database,
    pub(crate) strings: Strings,
    pub(crate) who: Who,
    pub(crate) functions: Functions,
    pub(crate) gpus: Gpus,
    /// In order of their appearance.
    pub(crate) streams: Vec<StreamInfo>,
    /// Row of the node.
    pub(crate) node: i64,
    /// The process that owns what belongs to no process: agents, the null stream. In a recording of
    /// the whole node, the first process.
    pub(crate) main: u32,
    events: i64,
    event_rows: Rows<6>,
}

impl Context {
    /// Adds a row to `rocpd_event` and returns its number. `stack` and `parent` are correlation ids
    /// of calls.
    pub(crate) fn event(
        &mut self,
        category: &str,
        (stack, parent): (u64, u64),
        extdata: &str,
    ) -> Result<i64, ExportError> {
        let category = self.strings.id(&self.database, category)?;
        self.events += 1;
        let row = cells![
            self.events,
            category,
            int(stack),
            int(parent),
            0_i64,
            extdata
        ];
        self.event_rows.add(&self.database, row)?;
        Ok(self.events)
    }
}

/// The parts of the writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) context: Context,
    calls: Calls,
    graphs: Graphs,
    pub(crate) work: Work,
    observed: Observed,
    allocations: Allocations,
    pub(crate) end: report::Ending,
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    began: u64,
}

impl Writer {
    fn begin(to: Destination, recording: &Recording) -> Result<Self, ExportError> {
        let seed = serde_json::to_vec(recording).unwrap_or_default();
        let identity = Identity::new(recording.clocks.realtime, &seed);
        let database = match to {
            Destination::File(file, directory) => Database::create(file, &directory, identity)?,
            Destination::Memory => Database::in_memory(identity)?,
        };
        let identity = &database.identity;
        let event_rows = Rows::new(
            identity,
            "rocpd_event",
            "id, category_id, stack_id, parent_stack_id, correlation_id, extdata",
        );
        let calls = Calls::new(identity);
        let graphs = Graphs::new(identity, recording);
        let work = Work::new(identity, recording.clocks.boottime);
        let observed = Observed::new(identity);
        let allocations = Allocations::new(identity);
        let mut context = Context {
            strings: Strings::default(),
            who: Who::default(),
            functions: Functions::default(),
            gpus: Gpus::default(),
            streams: Vec::new(),
            node: gputrace_export::node::node_number(recording),
            main: recording.main_pid.unwrap_or(0),
            events: 0,
            event_rows,
            database,
        };
        // A kernel's row refers to the empty string if the kernel was not renamed.
        context.strings.id(&context.database, "")?;
        report::recording(&mut context, recording)?;
        Ok(Self {
            context,
            calls,
            graphs,
            work,
            observed,
            allocations,
            end: report::Ending::default(),
            began: recording.clocks.boottime,
        })
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        let context = &mut self.context;
        context.gpus.learn(event);
        match event {
            Event::Recording(_)
            | Event::Agent(_)
            | Event::CodeFile(_)
            | Event::Stack(_)
            | Event::Pending(_) => Ok(()),
            Event::Stream(info) => {
                context.streams.push(*info);
                Ok(())
            }
            Event::Function(info) => {
                context.functions.learn(info);
                self.graphs.function(info);
                report::function(context, info)
            }
            Event::Process(info) => {
                if context.main == 0 {
                    context.main = info.pid;
                }
                context.who.describe(info);
                Ok(())
            }
            Event::Thread(info) => {
                context.who.rename(info.pid, info.tid, &info.name);
                Ok(())
            }
            Event::Lifetime(lifetime) => {
                context.who.lifetime(lifetime);
                self.graphs.lifetime(lifetime);
                Ok(())
            }
            Event::Observation(one) => {
                self.allocations.observation(context, one)?;
                self.observed.observation(context, one)
            }
            Event::Counter(sample) => self.observed.sample(context, sample),
            Event::Call(call) => {
                self.end.last_call = self.end.last_call.max(call.end);
                self.calls.call(context, call)?;
                self.graphs.call(context, call)
            }
            Event::Queue(queue) => {
                self.work.queue(queue);
                Ok(())
            }
            Event::Activity(reading) => {
                self.work.activity(reading);
                Ok(())
            }
            Event::CodeObject(info) => {
                self.work.code_object(info);
                Ok(())
            }
            Event::Kernel(info) => self.work.kernel(context, info),
            Event::KernelClass(class) => self.work.class(context, class),
            Event::Dispatch(dispatch) => {
                let graph = self.graphs.of(&dispatch.origin, Domain::HsaCore);
                match self.work.dispatch(context, dispatch, graph)? {
                    Some(event) => self.observed.readings(context, event, &dispatch.readings),
                    None => Ok(()),
                }
            }
            Event::Copy(copy) => {
                let graph = self.graphs.of(&copy.origin, Domain::HsaAmdExt);
                self.work.copy(context, copy, graph)
            }
            Event::Clocks(clocks) => report::clocks(context, clocks),
            Event::Notice(notice) => {
                self.work.notice(notice);
                report::notice(context, notice)
            }
            Event::Ledger(ledger) => {
                self.end.ledger = true;
                report::ledger(context, ledger)
            }
            Event::End(end) => {
                self.end.time = Some(end.time);
                report::end(context, end)
            }
        }
    }

    fn finish(mut self) -> Result<Complete, ExportError> {
        self.calls.finish(&self.context.database)?;
        self.allocations.finish(&self.context)?;
        let (began, stopped) = (self.began, self.end.stopped());
        self.work.write_use(&self.context, began, stopped)?;
        self.work.finish(&mut self.context)?;
        self.graphs.finish(&self.context)?;
        let Context {
            event_rows,
            database,
            ..
        } = &mut self.context;
        event_rows.finish(database)?;
        report::finish(&mut self.context, &self.end)?;
        self.context.database.finish()
    }
}

/// SQLite's integers are signed: numbers of 2^63 or more, which only addresses can be, become
/// negative.
pub(crate) fn int(value: u64) -> i64 {
    value as i64
}

/// JSON text for an `extdata` column.
pub(crate) fn json(value: &impl Serialize) -> String {
    // A struct of numbers and strings can always be serialized.
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

/// The name of a call's kind.
pub(crate) fn category(call: &Call) -> &'static str {
    Domain::from_id(call.domain).map_or("UNKNOWN_API", Domain::name)
}
