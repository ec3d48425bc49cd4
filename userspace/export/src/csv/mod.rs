//! CSV files as rocprofv3 writes them, so that scripts made for its output work unchanged.
//!
//! * `NAME_hip_api_trace.csv` and `NAME_hsa_api_trace.csv`: one row per call. Strings and the
//!   header are quoted, numbers are not. Times are ns of `CLOCK_BOOTTIME`, as rocprofv3's.
//! * `NAME_kernel_trace.csv` and `NAME_memory_copy_trace.csv`: one row per kernel dispatch or copy
//!   whose times are real, that is of quality `exact` or `sampled`. Rows are in no particular
//!   order, as rocprofv3's. `Correlation_Id` is that of the innermost call that submitted the work,
//!   0 if none is recorded. `Stream_Id` numbers the recording's streams, not their handles, from 1
//!   in order of their first appearance, as in all formats; 0 is a null stream or an unknown one.
//!   `Queue_Id` counts from 1. An unknown agent is empty. A kernel that was not found has
//!   `Kernel_Id` 0 and its address as its name.
//! * `NAME_kernel_trace_quality.csv` and `NAME_memory_copy_trace_quality.csv`: every dispatch and
//!   every copy, including those of which only the submission is known, see below.
//! * `NAME_kernel_names.csv`: the mangled name of each kernel that ran, by `Kernel_Id`. All other
//!   files have the names that people read.
//! * `NAME_agent_info.csv`: the node's CPUs and GPUs.
//! * `NAME_counter_trace.csv`, if counters were read and there are any: a row whenever a value
//!   changed, and at the beginning and the end. A value holds until the next row of the same
//!   counter.
//! * `NAME_counter_collection.csv`, if counters were read: for each dispatch of the kernel trace, a
//!   row per counter of its agent that was read while it ran. The value is the mean of these
//!   readings, or for a counter that only grows, the growth from the first to the last, if there
//!   are two. Dispatches that ended before anything was read have no row. The driver counts for the
//!   whole GPU, so the value includes other work that ran there. The columns are rocprofv3's, with
//!   sizes as products.
//! * `NAME_kernel_classes.csv`, if not all times of kernels are exact: each class of dispatches
//!   with its mean duration and the mean's standard error in ns. Both are empty if the mean is
//!   unknown; `Told` says why.
//! * `NAME_…_stats.csv` and `NAME_domain_stats.csv`, if asked for ([`CsvOptions::stats`]). They
//!   count GPU work whose duration is known. Where it is an estimate, `MinNs`, `MaxNs` and `StdDev`
//!   are those of means of classes.
//! * `NAME_kernel_stats_quality.csv` and `NAME_memory_copy_stats_quality.csv` beside them: how many
//!   durations are known, how many of these are estimates, and the standard errors of total and
//!   average.
//! * `NAME_arguments.csv`, if asked for ([`CsvOptions::arguments`]): arguments and results of
//!   calls, one per row.
//! * `NAME_unfinished_calls.csv`, only if there are any: calls that had not returned. They also
//!   have rows in the files above, whose end is the time up to which they were open, because
//!   scripts that look for a hang read those files.
//! * `NAME_loss.csv`, always: what was seen, written and lost, see [`crate::loss`].
//!
//! Each group of domains that was asked for gets a file, even if it has no calls. rocprofv3 writes
//! no file then, so its users' scripts must cope with a missing file. But a script that opens the
//! file by name gets an empty table here instead of an exception, and an empty file says what a
//! missing one cannot: the group was traced, and nothing was called.
//!
//! # The quality files
//!
//! Join them with the trace by `Dispatch_Id`, or by `Trace_Row`: the number, from 1, of the same
//! dispatch's or copy's row in the trace, empty if it has none. Times are ns of `CLOCK_BOOTTIME`.
//!
//! | column | meaning |
//! |---|---|
//! | `Quality` | `exact`, `sampled`, `bounded` or `submitted`, see [`gputrace_timeline::gpu::Quality`] |
//! | `Unfinished` | `true` if it is known not to have ended when the recording stopped |
//! | `Submit_Timestamp` | when the thread handed it to the queue; without a thread, a time before the GPU took it |
//! | `Start_Timestamp`, `End_Timestamp` | as in the trace; with `bounded` and `submitted` the earliest possible begin and the latest proven end |
//! | `Start_Earliest`, `Start_Latest`, `End_Earliest`, `End_Latest` | the windows in which it is proven to have begun and ended; a `Latest` is empty if nothing proves that it has |
//! | `Start_Uncertainty`, `End_Uncertainty` | by how much the timestamp can be wrong at most; empty without a `Latest` |
//! | `Correlation_Id`, `Outermost_Correlation_Id` | of the innermost and the outermost call that asked for it, 0 if none is recorded |
//! | `Direction_By` | what the direction of a copy follows from: `memory`, where the memory is; `agents`, only the agents that the call names; `call`, only the call of HIP, by its name or `hipMemcpyKind`; empty if the direction is unknown |
//! | `Packet_Index` | index of the packet in its queue |
//! | `Group_Segment_Size` | bytes of LDS of a workgroup, dynamic included |
//! | `Read_Later` | `true` if the packet was read from the ring after the doorbell |
//! | `Kernel_Class`, `Estimated_Duration`, `Estimate_Error` | where the duration is an estimate: the class whose mean it is (empty if the duration lies between two looks), the estimate, and its standard error, ns |
//! | `Engine_Mask` | engine of a copy as one bit; 0 if the runtime chose |

mod arguments;
mod collection;
mod counters;
mod memory;
mod observed;
mod pair;
mod stats;
mod table;
mod work;

use std::collections::BTreeMap;

use gputrace_abi::domain::Domain;
use gputrace_capture::ledger::Ledger;
use gputrace_timeline::{
    args,
    event::{Call, Event},
};

use crate::{
    exporter::{ExportError, Exporter, Output},
    functions::{Functions, group, group_title},
    loss,
    observed::memory_domain,
    output::OutputDir,
};
use collection::Collection;
use observed::Observed;
use stats::Stats;
use table::{Field, Table};
use work::GpuTables;

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

/// What to write in addition to the traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsvOptions {
    /// Write `NAME_…_stats.csv` for each trace, and `NAME_domain_stats.csv`: rocprofv3's `--stats`.
    pub stats: bool,
    /// Write `NAME_arguments.csv`.
    pub arguments: bool,
}

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
    gpu: GpuTables,
    observed: Observed,
    memory: Option<Table>,
    scratch: Option<Table>,
    counters: Option<Table>,
    collection: Collection,
    /// Whether arguments are written, and their file.
    with_arguments: bool,
    arguments: Option<Table>,
    stats: Option<Stats>,
    ledger: Option<Ledger>,
}

impl CsvExporter {
    /// Writes files called `NAME_….csv` to `directory`.
    #[must_use]
    pub fn new(directory: OutputDir, name: &str) -> Self {
        Self::with_options(directory, name, CsvOptions::default())
    }

    /// As [`CsvExporter::new`], with more files.
    #[must_use]
    pub fn with_options(directory: OutputDir, name: &str, options: CsvOptions) -> Self {
        Self {
            directory,
            name: name.to_owned(),
            functions: Functions::default(),
            domains: Vec::new(),
            traces: BTreeMap::new(),
            unfinished: None,
            gpu: GpuTables::default(),
            observed: Observed::default(),
            memory: None,
            scratch: None,
            counters: None,
            collection: Collection::default(),
            with_arguments: options.arguments,
            arguments: None,
            stats: options.stats.then(Stats::default),
            ledger: None,
        }
    }

    fn call(&mut self, call: &Call) -> Result<(), ExportError> {
        let name = self.functions.name(call.function);
        let row = [
            Field::Text(Ledger::domain_name(call.domain)),
            name.into(),
            call.pid.into(),
            call.tid.into(),
            call.correlation.into(),
            call.begin.into(),
            call.end.into(),
        ];
        let table = trace(
            &mut self.traces,
            &self.directory,
            &self.name,
            group(call.domain),
        )?;
        match &call.request {
            Some(_) => {
                let (result, fields) = request(&self.functions, call);
                table.fields(row.iter().cloned().chain([result.into(), fields.into()]))?;
            }
            None => table.fields(row.iter().cloned())?,
        }
        if self.with_arguments
            && let Some(info) = self.functions.get(call.function)
        {
            let table = match &mut self.arguments {
                Some(table) => table,
                None => self
                    .arguments
                    .insert(arguments::begin(&self.directory, &self.name)?),
            };
            arguments::rows(table, info, call)?;
        }
        let Some(reason) = call.how.reason() else {
            if let Some(stats) = &mut self.stats {
                stats.add(
                    group(call.domain),
                    name,
                    call.end.saturating_sub(call.begin),
                );
            }
            return Ok(());
        };
        let table = match &mut self.unfinished {
            Some(table) => table,
            None => {
                let columns: Vec<&str> = CALL_COLUMNS.into_iter().chain(["Reason"]).collect();
                let table = Table::create(
                    &self.directory,
                    &format!("{}_unfinished_calls.csv", self.name),
                    columns,
                )?;
                self.unfinished.insert(table)
            }
        };
        table.fields(row.into_iter().chain([reason.into()]))
    }
}

impl Exporter for CsvExporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        match event {
            Event::Recording(recording) => {
                let asked =
                    |domain: &&Domain| recording.domains.iter().any(|name| name == domain.name());
                self.domains = Domain::ALL.iter().filter(asked).copied().collect();
                for domain in &self.domains {
                    if !domain.has_empty_table() {
                        continue;
                    }
                    if domain.is_api() {
                        trace(
                            &mut self.traces,
                            &self.directory,
                            &self.name,
                            domain.csv_stem(),
                        )?;
                    } else if Observed::has(*domain) {
                        self.observed.begin(&self.directory, &self.name, *domain)?;
                    } else {
                        self.gpu.begin(&self.directory, &self.name, *domain)?;
                    }
                    if let Some(stats) = self.stats.as_mut().filter(|_| !Observed::has(*domain)) {
                        stats.begin(domain.csv_stem());
                    }
                }
            }
            Event::Function(info) => self.functions.learn(info),
            Event::Observation(one) if one.domain == Domain::MemoryAllocation.id() => {
                let table = match &mut self.memory {
                    Some(table) => table,
                    None => self
                        .memory
                        .insert(memory::begin(&self.directory, &self.name)?),
                };
                memory::row(table, self.gpu.gpus(), one)?;
            }
            Event::Observation(one) if one.domain == Domain::ScratchMemory.id() => {
                let table = match &mut self.scratch {
                    Some(table) => table,
                    None => self
                        .scratch
                        .insert(memory::begin_scratch(&self.directory, &self.name)?),
                };
                memory::scratch_row(table, self.gpu.gpus(), one)?;
            }
            Event::Observation(one) => self.observed.row(&self.directory, &self.name, one)?,
            Event::Counter(sample) => {
                let table = match &mut self.counters {
                    Some(table) => table,
                    None => self
                        .counters
                        .insert(counters::begin(&self.directory, &self.name)?),
                };
                counters::row(table, self.gpu.gpus(), sample)?;
                // Older captures do not say when counters were read.
                if sample.counter.group.is_some() {
                    self.collection.begin(&self.directory, &self.name)?;
                }
            }
            Event::Call(call) => self.call(call)?,
            Event::Ledger(ledger) => self.ledger = Some((**ledger).clone()),
            _ => {}
        }
        self.gpu.event(&self.directory, &self.name, event)?;
        if let Event::Dispatch(dispatch) = event {
            let place = (&self.directory, self.name.as_str());
            self.collection.dispatch(place, self.gpu.gpus(), dispatch)?;
        }
        if let Some(stats) = &mut self.stats {
            match event {
                Event::Dispatch(dispatch) => {
                    let name = self.gpu.gpus().kernel_name(dispatch);
                    stats.work(Domain::KernelDispatch, &name, &dispatch.time);
                }
                Event::Copy(copy) => {
                    stats.work(Domain::MemoryCopy, copy.direction.name(), &copy.time);
                }
                Event::Observation(one) => {
                    if let Some(domain) = memory_domain(one) {
                        stats.add(domain.csv_stem(), &one.name, one.duration());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        let mut account = Table::create(
            &self.directory,
            &format!("{}_loss.csv", self.name),
            loss::columns(),
        )?;
        for row in loss::rows(self.ledger.as_ref(), &self.domains) {
            account.fields(row.into_iter().map(Field::from))?;
        }
        // All data is written before the first file gets its final name: a full disk leaves no
        // outputs instead of some.
        let mut tables: Vec<(Table, String)> = Vec::new();
        for (group, table) in self.traces {
            tables.push((table, format!("{} calls", group_title(group))));
        }
        tables.extend(
            self.unfinished
                .map(|table| (table, "calls that had not returned".to_owned())),
        );
        tables.push((
            account,
            "account of calls seen, written and lost".to_owned(),
        ));
        tables.extend(self.observed.finish());
        tables.extend(
            self.arguments
                .map(|table| (table, "arguments and results of calls".to_owned())),
        );
        tables.extend(
            self.memory
                .map(|table| (table, "allocations of memory".to_owned())),
        );
        tables.extend(
            self.scratch
                .map(|table| (table, "scratch memory of queues".to_owned())),
        );
        tables.extend(
            self.counters
                .map(|table| (table, "values of counters".to_owned())),
        );
        tables.extend(self.collection.finish());
        tables.extend(self.gpu.finish(&self.directory, &self.name)?);
        if let Some(stats) = &self.stats {
            tables.extend(stats.finish(&self.directory, &self.name)?);
        }
        for (table, _) in &mut tables {
            table.flush()?;
        }
        tables
            .into_iter()
            .map(|(table, content)| table.finish(&content))
            .collect()
    }
}

/// The last two columns of a request to the driver: its result and its fields.
fn request(functions: &Functions, call: &Call) -> (String, String) {
    let Some(info) = functions.get(call.function) else {
        return (String::new(), String::new());
    };
    let result = args::returned(info, call).map(|value| value.to_string());
    let fields: Vec<String> = args::decoded(info, call)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    (result.unwrap_or_default(), fields.join(" "))
}

/// The trace of a group, created if necessary.
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
            let more: &[&str] = if group == Domain::KfdIoctl.csv_stem() {
                &["Result", "Arguments"]
            } else {
                &[]
            };
            let columns = CALL_COLUMNS.iter().chain(more).copied();
            let table = Table::create(directory, &format!("{name}_{group}_trace.csv"), columns)?;
            Ok(entry.insert(table))
        }
    }
}
