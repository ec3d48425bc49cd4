//! The summary for people: where the time went, what hangs, what was lost.
//!
//! [`Summary`] takes events and renders text; [`SummaryExporter`] does this as part of an export
//! and writes the text to its destination. Memory grows with the number of functions, kernels,
//! queues, processes and remarks, not with the number of calls or dispatches.

pub mod agents;
mod busy;
mod costs;
mod counters;
mod gpu_use;
mod observed;
mod processes;
mod render;
mod render_gpu;
pub mod report;
pub(crate) mod stats;
pub mod tables;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::{self, Write},
};

use gputrace_capture::{
    ledger::Ledger,
    meta::{End, Notice, ProbeCost, Recording},
};
use gputrace_text::Page;
use gputrace_timeline::{
    FAILED_CALLS, NOTHING_SELECTED, WORK_NOT_SEEN,
    event::{Call, CallEnd, Event},
    is_remark,
};

pub use busy::{Active, Estimate, Reach};
use gputrace_export::{
    costs::Costs,
    exporter::{ExportError, Exporter, Output},
    functions::{Functions, group},
    output::OutputFile,
};
use processes::ProcessUse;
use stats::Durations;

/// Maximum number of unfinished calls that are listed: those open longest.
const LISTED_CALLS: usize = 20;

/// Maximum number of remarks shown; if there are more, they have the same cause.
const LISTED_NOTICES: usize = 20;

/// The data of the summary; `Display` renders it as lines of plain text.
#[derive(Debug, Default)]
pub struct Summary {
    recording: Recording,
    functions: Functions,
    /// Durations by group (see [`gputrace_export::functions::group`]) and function name.
    groups: BTreeMap<&'static str, HashMap<String, Durations>>,
    processes: BTreeMap<u32, ProcessUse>,
    /// The unfinished calls that were open longest, longest first.
    unfinished: Vec<Call>,
    unfinished_calls: u64,
    /// Number of calls whose end is not recorded, by function.
    without_end: BTreeMap<String, u64>,
    /// What was said about calls that failed.
    failed: Vec<String>,
    notices: Vec<String>,
    more_notices: u64,
    ledger: Option<Ledger>,
    end: Option<End>,
    /// Earliest begin and latest end of a call.
    span: Option<(u64, u64)>,
    gpu: gpu_use::GpuUse,
    observed: observed::Observed,
    counters: counters::Counters,
    /// Names of threads.
    threads: BTreeMap<u32, String>,
    costs: Costs,
}

impl Summary {
    /// Takes an event.
    pub fn event(&mut self, event: &Event) {
        self.costs.event(event);
        match event {
            Event::Recording(recording) => {
                self.gpu.recording(recording);
                self.recording = (**recording).clone();
            }
            Event::Function(info) => self.functions.learn(info),
            Event::Process(process) => {
                let known = self.processes.entry(process.pid).or_default();
                known.name.clone_from(&process.name);
                known.identity.clone_from(&process.identity);
            }
            Event::Call(call) => self.call(call),
            Event::Notice(notice) => self.notice(notice),
            Event::Ledger(ledger) => self.ledger = Some((**ledger).clone()),
            Event::End(end) => self.end = Some(end.clone()),
            Event::Agent(_)
            | Event::Queue(_)
            | Event::CodeObject(_)
            | Event::Kernel(_)
            | Event::KernelClass(_)
            | Event::Dispatch(_)
            | Event::Copy(_) => self.gpu.event(event),
            Event::Activity(reading) => self.gpu.agents.activity(reading),
            Event::Observation(one) => self.observed.observation(one),
            Event::Counter(sample) => self.counters.sample(sample),
            Event::Thread(thread) => {
                self.threads.insert(thread.tid, thread.name.clone());
            }
            Event::Stream(_)
            | Event::CodeFile(_)
            | Event::Stack(_)
            | Event::Lifetime(_)
            | Event::Clocks(_)
            | Event::Pending(_) => {}
        }
    }

    fn notice(&mut self, notice: &Notice) {
        self.gpu.agents.notice(notice);
        // These are the most important remarks, so they come first however many there are.
        let is_one_of = |remarks: &[&str]| remarks.iter().any(|one| is_remark(&notice.text, one));
        if is_one_of(&[NOTHING_SELECTED, WORK_NOT_SEEN]) {
            self.notices.insert(0, notice.text.clone());
        } else if is_one_of(&[FAILED_CALLS]) {
            // Failed calls explain most other remarks, so these have a place of their own.
            self.failed.push(notice.text.clone());
        } else if self.notices.len() < LISTED_NOTICES {
            self.notices.push(notice.text.clone());
        } else {
            self.more_notices += 1;
        }
    }

    /// To be called when there are no more events. Busy times and queue depths are incomplete until
    /// then.
    pub fn finish(&mut self) {
        self.gpu.finish(self.stopped());
    }

    /// When the recording stopped, or else the latest known time, ns `CLOCK_BOOTTIME`.
    fn stopped(&self) -> u64 {
        let last_call = self.span.map(|(_, end)| end);
        let end = self.end.as_ref().map(|end| end.time).or(last_call);
        end.unwrap_or(self.recording.clocks.boottime)
    }

    /// Duration of the recording, ns.
    fn recorded(&self) -> u64 {
        self.stopped()
            .saturating_sub(self.recording.clocks.boottime)
    }

    fn call(&mut self, call: &Call) {
        self.gpu.call(call);
        self.processes.entry(call.pid).or_default().calls += 1;
        let (begin, end) = self.span.unwrap_or((call.begin, call.end));
        self.span = Some((begin.min(call.begin), end.max(call.end)));
        let age = call.end - call.begin;
        match call.how {
            CallEnd::Returned(_) => {
                let functions = self.groups.entry(group(call.domain)).or_default();
                let name = self.functions.name(call.function);
                if !functions.contains_key(name) {
                    let info = self.functions.get(call.function);
                    let cost = info.map(|info| info.function.probe_cost);
                    let stepped = cost == Some(ProbeCost::SingleStepped);
                    functions.insert(name.to_owned(), Durations::new(stepped));
                }
                if let Some(durations) = functions.get_mut(name) {
                    durations.add(age);
                }
            }
            CallEnd::NotSeen => {
                let name = self.functions.name(call.function);
                match self.without_end.get_mut(name) {
                    Some(calls) => *calls += 1,
                    None => _ = self.without_end.insert(name.to_owned(), 1),
                }
            }
            CallEnd::ThreadExited | CallEnd::Executed | CallEnd::RecordingStopped => {
                self.unfinished_calls += 1;
                let at = self
                    .unfinished
                    .partition_point(|other| other.end - other.begin >= age);
                if at < LISTED_CALLS {
                    self.unfinished.insert(at, call.clone());
                    self.unfinished.truncate(LISTED_CALLS);
                }
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        render::render(self, &mut Page::new(f))
    }
}

/// Writes the summary at the end of an export.
pub struct SummaryExporter {
    summary: Summary,
    to: Destination,
    columns: Option<usize>,
}

/// Where a text goes once it is complete.
pub(crate) enum Destination {
    /// A stream, e.g. standard error.
    Stream(Box<dyn Write>),
    /// A file.
    File(OutputFile),
}

impl Destination {
    /// Writes the text; `content` describes it.
    fn write(self, text: &[u8], content: &str) -> Result<Vec<Output>, ExportError> {
        match self {
            Self::Stream(mut stream) => {
                stream.write_all(text)?;
                stream.flush()?;
                Ok(Vec::new())
            }
            Self::File(mut file) => {
                file.write_all(text)?;
                Ok(vec![file.finish(content)?])
            }
        }
    }
}

impl SummaryExporter {
    /// Writes the summary to a stream, e.g. standard error.
    pub fn to_stream(stream: impl Write + 'static) -> Self {
        Self {
            summary: Summary::default(),
            to: Destination::Stream(Box::new(stream)),
            columns: None,
        }
    }

    /// Writes the summary to a file.
    #[must_use]
    pub fn to_file(file: OutputFile) -> Self {
        Self {
            summary: Summary::default(),
            to: Destination::File(file),
            columns: None,
        }
    }

    /// Limits the lines of tables to this many columns, as far as clipping names allows; `None` for
    /// no limit.
    #[must_use]
    pub fn within(self, columns: Option<usize>) -> Self {
        Self { columns, ..self }
    }
}

impl Exporter for SummaryExporter {
    fn format(&self) -> &'static str {
        "summary"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.summary.event(event);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        self.summary.finish();
        let mut page = Page::new(String::new()).within(self.columns);
        render::render(&self.summary, &mut page).map_err(io::Error::other)?;
        self.to.write(page.into_inner().as_bytes(), "summary")
    }
}
