//! JSON in rocprofv3's format, `NAME_results.json`, for programs that read its document.
//!
//! The document is `{"rocprofiler-sdk-tool": [PROCESS, …]}`, with no other member at the top,
//! because readers of rocprofv3's documents check that this one is alone. Each process has
//! `metadata`, `agents`, `counters`, `strings`, `code_objects`, `kernel_symbols`, `host_functions`,
//! `summary`, `callback_records` and `buffer_records`. The name of an operation is
//! `strings.buffer_records[kind].operations[operation]`. Kinds have rocprofiler-sdk's numbers.
//! Operations are numbered by that list; their numbers differ between releases of ROCm as well.
//! Arrays of domains that were not recorded are empty.
//!
//! Data that has no place in rocprofv3's document is in members called `gputrace`, which other
//! readers ignore:
//!
//! * of a record: how well its times are known, and the windows in which they lie; whether a call
//!   had not returned;
//! * of a process: `untimed`, the dispatches and copies whose duration is not known, with null as
//!   their times: they are not in `buffer_records`; `threads`; `observations`, what the kernel did;
//! * of the first process: `document`, the data that belongs to no process: `recording`, `clocks`,
//!   `functions`, `notices`, `loss` (the account, per domain and CPU) and `end`. A document without
//!   processes has one with the number 0 for it.
//!
//! `callback_records.counter_collection` has the driver's counters that were read while a kernel
//! ran, like the CSV file of that name; `counters` describes them. The `gputrace` member of each
//! value has its number of readings.
//!
//! Markers have the called function as their operation, and their text in `strings.marker_api`, by
//! correlation id. `summary` is always present, and counts the same as the CSV statistics.
//!
//! An agent's `handle` is its KFD topology node plus 256; an unknown agent has rocprofiler-sdk's
//! null,
//! 0. A kernel that was not found has `kernel_id` 0. `kernel_symbols`, `code_objects` and
//!    `host_functions` are indexed by number; their entry 0 is empty. `size` in records is that of
//!    rocprofiler-sdk's struct, and 0 elsewhere. A code object's `rocp_agent` is the agent that
//!    executed a kernel of it, or else the only agent of its target. Its `hsa_agent`, a handle
//!    within the program, is unknown: 0. `metadata.config` says which domains were recorded.
//!
//! Only metadata is kept in memory: records wait in a nameless file until their array is written.

mod counters;
mod document;
mod loss;
mod memory;
mod metadata;
pub(crate) mod records;
mod spill;
mod summary;
mod symbols;

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    ledger::Ledger,
    meta::{ClockSnapshot, End, Notice, Recording, ValueKind},
};
use gputrace_timeline::{
    args::{self, ArgValue},
    event::{Call, CallEnd, Event, FunctionInfo, LifetimeChange, ProcessInfo},
    gpu::Direction,
};
use serde_json::{Map, Value};

use crate::{
    classes::ClassRecord,
    costs::Costs,
    counters::CounterRecord,
    exporter::{ExportError, Exporter, Output},
    functions::{Functions, UNKNOWN_FUNCTION, group},
    gpu::Gpus,
    observed::ObservationRecord,
    output::{OutputDir, OutputFile},
};

use self::{
    counters::{CollectionRecord, CounterIds},
    memory::{ALLOCATIONS, AllocationRecord, SCRATCH},
    records::{
        Argument, CALL_SIZE, CallNotes, CallRecord, CopyRecord, Correlation, DIRECTIONS,
        DISPATCH_OPERATIONS, DispatchInfo, DispatchRecord, KINDS, MarkerText, Returned, kind,
    },
    spill::Spill,
    summary::Summaries,
    symbols::Symbols,
};

pub use self::{loss::loss, metadata::traces};

const FORMAT: &str = "json";

/// The arrays of `buffer_records` that every release of rocprofv3 has, in its order. Arrays of
/// calls have the names of their CSV files.
const OLD_ARRAYS: &[&str] = &[
    "kernel_dispatch",
    "hip_api",
    "hsa_api",
    "marker_api",
    "rccl_api",
    "memory_copy",
    "memory_allocation",
    "scratch_memory",
    "rocdecode_api",
    "rocjpeg_api",
    "pc_sample_host_trap",
    "pc_sample_stochastic",
];

/// All arrays of `buffer_records`: those of every release, then one for each newer domain of
/// rocprofv3.
static ARRAYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let newer = Domain::ALL
        .iter()
        .filter(|domain| domain.is_api() && domain.config().is_some());
    let newer = newer
        .map(|domain| domain.csv_stem())
        .filter(|stem| !OLD_ARRAYS.contains(stem));
    OLD_ARRAYS.iter().copied().chain(newer).collect()
});

/// Arrays of a process's `gputrace.untimed`, with the keys under which they wait.
const UNTIMED: &[(&str, &str)] = &[
    ("kernel_dispatch", "untimed kernel_dispatch"),
    ("memory_copy", "untimed memory_copy"),
];

/// Key of calls of unknown domains, in a process's `gputrace`.
const OTHER: &str = "other_api";

/// Key of what the kernel did to a process and its threads, in its `gputrace`.
const OBSERVATIONS: &str = "observations";

/// Key of texts of markers by correlation id, in a process's `strings`.
const MARKERS: &str = "marker texts";

/// Key of counters that were read while kernels ran, in a process's `callback_records`.
const COLLECTION: &str = "counter_collection";

/// Key of counters of a process's use, and for process 0 of the GPUs' state, in its `gputrace`.
const COUNTERS: &str = "counters";

/// Key of classes of a process's kernels, in its `gputrace`.
const CLASSES: &str = "kernel_classes";

/// Keys of durations of a process's work with standard errors, in its `gputrace`.
const DURATIONS: [(&str, Domain); 2] = [
    ("kernel_durations", Domain::KernelDispatch),
    ("copy_durations", Domain::MemoryCopy),
];

/// A process and its threads.
#[derive(Clone, Debug, Default)]
struct Process {
    info: ProcessInfo,
    end: Option<u64>,
    /// Names by thread id.
    threads: BTreeMap<u32, String>,
}

/// Exporter of the JSON document.
#[derive(Debug)]
pub struct JsonExporter {
    file: OutputFile,
    /// Members of `metadata.config` about the making of outputs.
    config: Map<String, Value>,
    records: Spill<(u32, &'static str)>,
    recording: Recording,
    functions: Functions,
    /// Names of operations by kind.
    operations: Vec<Vec<String>>,
    /// Operation number by function.
    operation_of: HashMap<u32, usize>,
    processes: BTreeMap<u32, Process>,
    gpus: Gpus,
    symbols: Symbols,
    summaries: Summaries,
    counter_ids: CounterIds,
    clocks: Vec<ClockSnapshot>,
    notices: Vec<Notice>,
    ledger: Option<Ledger>,
    end: Option<End>,
    costs: Costs,
}

impl JsonExporter {
    /// Starts the document `file_name` (e.g. `app_results.json`) in `directory`.
    ///
    /// # Errors
    /// If its file, or the scratch file for waiting records, cannot be created.
    pub fn new(directory: &OutputDir, file_name: &str) -> Result<Self, ExportError> {
        let mut operations = vec![Vec::new(); KINDS.len()];
        let named = [
            (Domain::KernelDispatch, DISPATCH_OPERATIONS.to_vec()),
            (Domain::MemoryCopy, DIRECTIONS.map(Direction::name).to_vec()),
            (Domain::MemoryAllocation, ALLOCATIONS.to_vec()),
            (Domain::ScratchMemory, SCRATCH.to_vec()),
        ];
        for (domain, names) in named {
            if let Some(list) = operations.get_mut(kind(Some(domain))) {
                *list = names.into_iter().map(str::to_owned).collect();
            }
        }
        Ok(Self {
            file: directory.file(file_name)?,
            config: Map::new(),
            records: Spill::new(directory)?,
            recording: Recording::default(),
            functions: Functions::default(),
            operations,
            operation_of: HashMap::new(),
            processes: BTreeMap::new(),
            gpus: Gpus::default(),
            symbols: Symbols::default(),
            summaries: Summaries::default(),
            counter_ids: CounterIds::default(),
            clocks: Vec::new(),
            notices: Vec::new(),
            ledger: None,
            end: None,
            costs: Costs::default(),
        })
    }

    /// Adds members of rocprofv3's configuration about the making of outputs to `metadata.config`.
    #[must_use]
    pub fn with_config(mut self, config: Map<String, Value>) -> Self {
        self.config = config;
        self
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        let process = self.processes.entry(pid).or_default();
        process.info.pid = pid;
        process
    }

    /// The number of a function among the operations of its kind.
    fn operation(&mut self, function: u32, kind: usize, name: &str) -> usize {
        let Some(list) = self.operations.get_mut(kind) else {
            return 0;
        };
        *self.operation_of.entry(function).or_insert_with(|| {
            // Several libraries may export a function of this name.
            list.iter()
                .position(|known| known == name)
                .unwrap_or_else(|| {
                    list.push(name.to_owned());
                    list.len() - 1
                })
        })
    }

    fn learn(&mut self, info: &FunctionInfo) {
        self.functions.learn(info);
        let kind = kind(info.domain);
        // The text of a marker is in `strings`; its operation is the called function.
        let called = info
            .function
            .aliases
            .first()
            .filter(|_| info.range.is_some());
        self.operation(
            info.function.id,
            kind,
            called.unwrap_or(&info.function.name),
        );
    }

    fn call(&mut self, call: &Call) -> Result<(), ExportError> {
        let kind = kind(Domain::from_id(call.domain));
        let operation = match self.operation_of.get(&call.function) {
            Some(operation) => *operation,
            None => self.operation(call.function, kind, UNKNOWN_FUNCTION),
        };
        self.summaries.call(call);
        let info = self.functions.get(call.function);
        if let Some(info) = info {
            self.symbols.call(info, call);
        }
        if let Some(value) = info.and_then(|info| marker_text(info, call)) {
            let text = MarkerText {
                key: call.correlation,
                value,
            };
            self.records.push((call.pid, MARKERS), &text)?;
        }
        let arguments = info.map_or_else(Vec::new, |info| arguments(info, call));
        let returns = info.map_or(ValueKind::Word, |info| info.function.returns);
        let retval = match call.how {
            CallEnd::Returned(uint64_t_retval) if returns != ValueKind::Void => {
                Some(Returned { uint64_t_retval })
            }
            _ => None,
        };
        let record = CallRecord {
            size: CALL_SIZE,
            kind,
            operation,
            correlation_id: Correlation {
                internal: call.correlation,
                external: call.external.unwrap_or(0),
                ancestor: Some(call.parent),
            },
            start_timestamp: call.begin,
            end_timestamp: call.end,
            thread_id: call.tid,
            args: arguments,
            retval,
            gputrace: CallNotes {
                unfinished: call.how.reason(),
                cpu: call.cpu,
                depth: call.depth,
            },
        };
        let array = group(call.domain);
        let array = ARRAYS
            .iter()
            .find(|known| **known == array)
            .unwrap_or(&OTHER);
        Ok(self.records.push((call.pid, array), &record)?)
    }
}

impl Exporter for JsonExporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.gpus.learn(event);
        self.costs.event(event);
        match event {
            Event::Recording(recording) => self.recording.clone_from(recording),
            Event::Function(info) => self.learn(info),
            Event::Process(info) => {
                let process = self.process(info.pid);
                process.info.clone_from(info);
                process.end = None;
            }
            Event::Thread(info) => {
                let threads = &mut self.process(info.pid).threads;
                threads.insert(info.tid, info.name.clone());
            }
            Event::Lifetime(lifetime) => {
                if lifetime.what == LifetimeChange::Exited && lifetime.pid == lifetime.tid {
                    self.process(lifetime.pid).end = Some(lifetime.time);
                }
            }
            Event::Call(call) => self.call(call)?,
            Event::CodeObject(info) => self.symbols.code_object(info),
            Event::Kernel(info) => self.symbols.kernel(info),
            Event::Dispatch(dispatch) => {
                let node = self.gpus.node_of(dispatch);
                if let (Some(node), Some(kernel)) = (node, self.gpus.kernel(dispatch)) {
                    self.symbols.executed(kernel.code_object, node);
                }
                let name = self.gpus.kernel_name(dispatch);
                self.summaries.work(
                    dispatch.origin.pid,
                    Domain::KernelDispatch,
                    &name,
                    &dispatch.time,
                );
                let kernel = self.symbols.kernel_id(self.gpus.kernel_id(dispatch));
                let info = DispatchInfo::new(dispatch, kernel, &self.gpus);
                let record = DispatchRecord::new(dispatch, info, &self.gpus);
                let array = array("kernel_dispatch", dispatch.time.is_drawn());
                self.records.push((dispatch.origin.pid, array), &record)?;
                if let Some(record) =
                    CollectionRecord::new(dispatch, info, &self.gpus, &mut self.counter_ids)
                {
                    self.records
                        .push((dispatch.origin.pid, COLLECTION), &record)?;
                }
            }
            Event::Copy(copy) => {
                let stream = copy.origin.stream_id;
                let array = array("memory_copy", copy.time.is_drawn());
                let record = CopyRecord::new(copy, stream);
                let name = copy.direction.name();
                self.summaries
                    .work(copy.origin.pid, Domain::MemoryCopy, name, &copy.time);
                self.records.push((copy.origin.pid, array), &record)?;
            }
            Event::Observation(one) => {
                self.summaries.observation(one);
                if let Some((array, record)) = AllocationRecord::new(one) {
                    self.records.push((one.whose.pid, array), &record)?;
                }
                let record = ObservationRecord::new(one);
                self.records.push((one.whose.pid, OBSERVATIONS), &record)?;
            }
            Event::Counter(sample) => {
                self.records
                    .push((sample.counter.pid, COUNTERS), &CounterRecord::new(sample))?;
            }
            Event::Clocks(clocks) => self.clocks.push(*clocks),
            Event::Notice(notice) => self.notices.push(notice.clone()),
            Event::Ledger(ledger) => self.ledger = Some((**ledger).clone()),
            Event::End(end) => self.end = Some(end.clone()),
            Event::KernelClass(class) => {
                let name = self.gpus.class_name(class);
                let record = ClassRecord::new(class, &name);
                self.records.push((class.pid, CLASSES), &record)?;
            }
            Event::Activity(_)
            | Event::Pending(_)
            | Event::Agent(_)
            | Event::Queue(_)
            | Event::CodeFile(_)
            | Event::Stack(_)
            | Event::Stream(_) => {}
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        self.document()?;
        Ok(vec![
            self.file
                .finish("all records as JSON, in rocprofv3's shape")?,
        ])
    }
}

/// Key under which work waits; it depends on whether it is drawn.
fn array(name: &'static str, drawn: bool) -> &'static str {
    let untimed = UNTIMED.iter().find(|(known, _)| !drawn && *known == name);
    untimed.map_or(name, |(_, waiting)| waiting)
}

/// The text of a marker; `None` for other calls.
fn marker_text<'a>(info: &'a FunctionInfo, call: &'a Call) -> Option<&'a str> {
    if info.range.is_some() {
        return Some(&info.function.name);
    }
    // A marker beyond the maximum number of texts has its text as an argument.
    args::decoded(info, call)
        .filter(|_| info.domain == Some(Domain::MarkerCore))
        .find_map(|(_, value)| match value {
            ArgValue::Text { text, .. } => Some(text),
            _ => None,
        })
}

/// A call's arguments with their types.
fn arguments<'a>(info: &'a FunctionInfo, call: &'a Call) -> Vec<Argument<'a>> {
    let typed = args::typed(info, call);
    typed
        .map(|argument| Argument {
            c_type: argument.c_type,
            name: argument.name,
            value: argument.value,
        })
        .collect()
}
