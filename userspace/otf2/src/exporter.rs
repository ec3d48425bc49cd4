//! The exporter, which turns events into spans and collects them in a file.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    counter::Counter,
    ledger::Ledger,
    meta::{Notice, Recording},
};
use gputrace_export::{
    ExportError, Exporter, Functions, Output, OutputDir, Staging,
    functions::group,
    gpu::{Gpus, copy_node, uncertainty},
    lengths::Length,
};
use gputrace_timeline::{
    driver::EVICTED,
    event::{Call, CallEnd, CounterSample, Event, ProcessInfo, RangeKind},
    gpu::{Copy, Dispatch, GpuTime, Origin},
    observation::Observation,
};

use crate::{
    FORMAT,
    api::{Api, NAMES, ROLE_DATA_TRANSFER, ROLE_FUNCTION},
    definitions::{Definitions, RECORDING_STOPPED, quality},
    spans::{Limits, Span, Spans},
    write,
};

/// Maximum number of remarks kept: they go into one property of the archive.
const NOTICES: usize = 100;

/// What a location shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Calls of a thread.
    Calls,
    /// Kernels on a queue of an agent.
    Kernels { node: Option<u32>, queue: u32 },
    /// Copies to an agent.
    Copies { node: Option<u32> },
    /// Work without real times.
    Untimed,
    /// Observations of the domain with this number; these may belong to no thread, or no process.
    Observed(u8),
    /// Readings of counters of a process or an agent. In these spans, `correlation` is the value
    /// and `region` the metric.
    Counters { node: Option<u32> },
}

/// A location: its thread and what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) place: Place,
}

/// Category of marks.
const MARK: &str = "mark";

/// The name of a domain of observations.
pub(crate) fn stem(domain: u8) -> &'static str {
    Domain::from_id(domain).map_or("other", Domain::csv_stem)
}

/// Everything that is written except the spans.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) recording: Recording,
    pub(crate) processes: BTreeMap<u32, ProcessInfo>,
    pub(crate) threads: BTreeMap<(u32, u32), String>,
    pub(crate) gpus: Gpus,
    pub(crate) definitions: Definitions,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) notices: Vec<Notice>,
    /// The counters; the index of each is the number of its metric.
    pub(crate) counters: Vec<Arc<Counter>>,
    /// First and last time of all spans, ns.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Exporter of an OTF2 archive.
#[derive(Debug)]
pub struct Otf2Exporter {
    api: Api,
    staging: Staging,
    name: String,
    spans: Spans<Location>,
    /// Spans that overlap with others of their location.
    overlapping: Spans<u64>,
    functions: Functions,
    /// Index of each counter in `content.counters`.
    metrics: HashMap<Arc<Counter>, u32>,
    content: Content,
}

/// Checks whether archives can be made on this machine; to be called before a recording that is
/// exported as one.
///
/// # Errors
/// If OTF2's library is not installed.
pub fn available() -> Result<(), ExportError> {
    load().map(drop)
}

fn load() -> Result<Api, ExportError> {
    Api::load().map_err(|error| ExportError::Encode {
        format: FORMAT,
        reason: format!(
            "OTF2's library ({}) cannot be loaded: {error}. Install it (Debian 12: package \
             libopen-trace-format2-10, Debian 13: libopen-trace-format2-10t64, later: \
             libopen-trace-format2-10u; others: otf2 3.0 or later), or choose another format",
            NAMES.join(" or ")
        ),
    })
}

impl Otf2Exporter {
    /// Starts the archive `name` (e.g. `app_results`) in `directory`.
    ///
    /// # Errors
    /// If OTF2's library is not installed, or a file cannot be created.
    pub fn new(directory: &OutputDir, name: &str) -> Result<Self, ExportError> {
        let api = load()?;
        Ok(Self {
            api,
            staging: directory.staging(name)?,
            name: name.to_owned(),
            spans: Spans::new(directory, Limits::default())?,
            overlapping: Spans::new(directory, Limits::default())?,
            functions: Functions::default(),
            metrics: HashMap::new(),
            content: Content {
                recording: Recording::default(),
                processes: BTreeMap::new(),
                threads: BTreeMap::new(),
                gpus: Gpus::default(),
                definitions: Definitions::new(),
                ledger: None,
                notices: Vec::new(),
                counters: Vec::new(),
                first: u64::MAX,
                last: 0,
            },
        })
    }

    fn push(&mut self, location: Location, span: Span) -> Result<(), ExportError> {
        self.content.first = self.content.first.min(span.begin);
        self.content.last = self.content.last.max(span.end);
        Ok(self.spans.push(location, span)?)
    }

    fn call(&mut self, call: &Call) -> Result<(), ExportError> {
        let name = self.functions.name(call.function);
        let function = self.functions.get(call.function);
        let is_mark = function.is_some_and(|info| info.range == Some(RangeKind::Mark));
        let category = if is_mark { MARK } else { group(call.domain) };
        let region = self
            .content
            .definitions
            .region(name, category, ROLE_FUNCTION);
        let location = Location {
            pid: call.pid,
            tid: call.tid,
            place: Place::Calls,
        };
        let unfinished = match call.how {
            CallEnd::Returned(_) => 0,
            CallEnd::ThreadExited => 1,
            CallEnd::Executed => 2,
            CallEnd::RecordingStopped => RECORDING_STOPPED,
            CallEnd::NotSeen => 4,
        };
        let span = Span {
            begin: call.begin,
            end: call.end,
            correlation: call.correlation,
            region,
            depth: call.depth,
            unfinished,
            ..Span::default()
        };
        self.push(location, span)
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<(), ExportError> {
        let node = self.content.gpus.node_of(dispatch);
        let name = self.content.gpus.kernel_name(dispatch).into_owned();
        let category = (Domain::KernelDispatch, "kernel_dispatch");
        let queue = dispatch.queue;
        let place = Place::Kernels { node, queue };
        self.work(
            &dispatch.origin,
            &dispatch.time,
            place,
            (&name, category, ROLE_FUNCTION),
        )
    }

    fn copy(&mut self, copy: &Copy) -> Result<(), ExportError> {
        let place = Place::Copies {
            node: copy_node(copy),
        };
        let name = copy.direction.name();
        let category = (Domain::MemoryCopy, "memory_copy");
        self.work(
            &copy.origin,
            &copy.time,
            place,
            (name, category, ROLE_DATA_TRANSFER),
        )
    }

    fn observation(&mut self, one: &Observation) -> Result<(), ExportError> {
        let category = stem(one.domain);
        let name = match one.get("trigger") {
            // The reason of an eviction is part of its name.
            Some(reason) if one.name == EVICTED => format!("{} ({reason})", one.name),
            _ => one.name.clone().into_owned(),
        };
        let span = Span {
            begin: one.begin,
            end: one.end.max(one.begin),
            region: self
                .content
                .definitions
                .region(&name, category, ROLE_FUNCTION),
            unfinished: if one.is_open { RECORDING_STOPPED } else { 0 },
            ..Span::default()
        };
        let location = Location {
            pid: one.whose.pid,
            tid: one.whose.tid,
            place: Place::Observed(one.domain),
        };
        self.push(location, span)
    }

    fn counter(&mut self, sample: &CounterSample) -> Result<(), ExportError> {
        let counters = &mut self.content.counters;
        let metric = match self.metrics.get(&sample.counter) {
            Some(metric) => *metric,
            None => {
                let metric = counters.len() as u32;
                counters.push(Arc::clone(&sample.counter));
                self.metrics.insert(Arc::clone(&sample.counter), metric);
                metric
            }
        };
        let span = Span {
            begin: sample.time,
            end: sample.time,
            correlation: sample.value.to_bits(),
            region: metric,
            ..Span::default()
        };
        let location = Location {
            pid: sample.counter.pid,
            tid: 0,
            place: Place::Counters {
                node: sample.counter.node_id,
            },
        };
        self.push(location, span)
    }

    fn work(
        &mut self,
        origin: &Origin,
        time: &GpuTime,
        place: Place,
        (name, (_, category), role): (&str, (Domain, &str), u8),
    ) -> Result<(), ExportError> {
        let drawn = time.is_drawn();
        let category = if drawn { category } else { "untimed" };
        let (begin, end) = if drawn {
            (time.begin, time.end)
        } else if origin.time != 0 {
            (origin.time, origin.time)
        } else {
            (time.begin, time.begin)
        };
        let length = Length::of(time);
        let known = |value, window| uncertainty(value, window).unwrap_or(u64::MAX);
        let span = Span {
            begin,
            end,
            correlation: origin.innermost,
            start_uncertainty: known(time.drawn_begin(), &time.begin_window),
            end_uncertainty: known(time.drawn_end(), &time.end_window),
            region: self.content.definitions.region(name, category, role),
            depth: 0,
            quality: quality(time.quality),
            kernel_class: length
                .and_then(|length| length.class())
                .map_or(u64::MAX, Into::into),
            estimate_error: length
                .and_then(|length| length.estimate_error())
                .unwrap_or(u64::MAX),
            unfinished: if time.unfinished {
                RECORDING_STOPPED
            } else {
                0
            },
        };
        let location = Location {
            pid: origin.pid,
            tid: origin.tid,
            place: if drawn { place } else { Place::Untimed },
        };
        self.push(location, span)
    }
}

impl Exporter for Otf2Exporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        let content = &mut self.content;
        content.gpus.learn(event);
        match event {
            Event::Recording(recording) => content.recording.clone_from(recording),
            Event::Function(info) => self.functions.learn(info),
            Event::Process(info) => {
                content.processes.insert(info.pid, (**info).clone());
            }
            Event::Thread(info) => {
                content
                    .threads
                    .insert((info.pid, info.tid), info.name.clone());
            }
            Event::Call(call) => return self.call(call),
            Event::Dispatch(dispatch) => return self.dispatch(dispatch),
            Event::Copy(copy) => return self.copy(copy),
            Event::Observation(one) => return self.observation(one),
            Event::Counter(sample) => return self.counter(sample),
            Event::Notice(notice) => {
                if content.notices.len() < NOTICES {
                    content.notices.push(notice.clone());
                }
            }
            Event::Ledger(ledger) => content.ledger = Some((**ledger).clone()),
            Event::End(end) => content.last = content.last.max(end.time),
            Event::Activity(_)
            | Event::Pending(_)
            | Event::Agent(_)
            | Event::Queue(_)
            | Event::CodeObject(_)
            | Event::Stream(_)
            | Event::CodeFile(_)
            | Event::Stack(_)
            | Event::Kernel(_)
            | Event::KernelClass(_)
            | Event::Lifetime(_)
            | Event::Clocks(_) => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        let Self {
            api,
            staging,
            name,
            mut spans,
            mut overlapping,
            mut content,
            ..
        } = *self;
        let anchor = format!("{name}.otf2");
        write::archive(
            &api,
            &staging.path(),
            &name,
            &mut content,
            &mut spans,
            &mut overlapping,
        )
        .map_err(|error| error.into_export(|source| staging.error(&anchor, source)))?;
        let names = [anchor.as_str(), &format!("{name}.def"), &name];
        Ok(vec![staging.publish(&names, "OTF2 archive")?])
    }
}
