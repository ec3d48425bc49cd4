//! Selects the part of a recording that outputs show: a time window, processes, threads, names,
//! domains.
//!
//! The capture holds everything. [`Filter`] stands between it and the exporters, so all formats
//! agree. It leaves out calls, dispatches and copies that are not asked for, and processes and
//! threads that are not asked for. What is shown refers only to what is shown: functions, kernels,
//! agents and queues always stay; references to a call's parent and to the calls that submitted a
//! dispatch are kept only if these calls are shown themselves. Which calls are shown must be known
//! before the first event is emitted, so a capture is read twice where that matters.
//!
//! A remark among the events, and [`FilteredOut`] in the [`Report`](crate::Report), say how much
//! was left out. The account of losses stays that of the whole recording.

mod ids;
mod window;

use std::{collections::HashMap, fmt, path::Path};

use gputrace_abi::domain::Domain;
use gputrace_capture::{ReadError, meta::Notice};
use gputrace_text::tables::plural;
use gputrace_timeline::{
    Timeline,
    event::{Call, Event},
    extent::Extent,
    gpu::{GpuTime, Origin},
};
use regex::Regex;

use crate::{functions::Functions, gpu::Gpus};
use ids::IdSet;
pub use window::{Moment, TimeWindow, WindowError};

/// Which events outputs show: those that pass every filter that is set. By default everything
/// passes.
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    /// Show what overlaps this part of the recording.
    pub window: Option<TimeWindow>,
    /// Show what these processes do, by id in the initial pid namespace; all if empty.
    pub pids: Vec<u32>,
    /// Show what these threads do or submit to the GPU; all if empty.
    pub tids: Vec<u32>,
    /// Show calls, dispatches, copies, and observations such as allocations, whose function,
    /// kernel, direction or name, as shown, matches.
    pub name: Option<Regex>,
    /// Show what belongs to these domains; all if empty.
    pub domains: Vec<Domain>,
}

impl FilterOptions {
    /// Whether everything passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.window.is_none()
            && self.pids.is_empty()
            && self.tids.is_empty()
            && self.name.is_none()
            && self.domains.is_empty()
    }

    /// Whether something can be shown while its caller is hidden. (HIP's own threads submit work
    /// that other threads asked for.)
    fn separates(&self) -> bool {
        self.window.is_some()
            || self.name.is_some()
            || !self.tids.is_empty()
            || !self.domains.is_empty()
    }
}

/// The domains that a word on the command line means: `HIP_RUNTIME_API`, `hip_api`, `hip-trace`,
/// `hip` and the like, ignoring case. Empty if it means none.
#[must_use]
pub fn domains_named(word: &str) -> Vec<Domain> {
    let plain = |name: &str| {
        let name = name.to_ascii_lowercase().replace('-', "_");
        let name = name.strip_suffix("_trace").unwrap_or(&name);
        name.strip_suffix("_api").unwrap_or(name).to_owned()
    };
    let wanted = plain(word);
    let means = |domain: &&Domain| {
        [domain.name(), domain.option(), domain.csv_stem()]
            .iter()
            .any(|name| plain(name) == wanted)
    };
    Domain::ALL.iter().filter(means).copied().collect()
}

/// How much a filter removed from the outputs. `Display` makes a sentence of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilteredOut {
    /// Calls left out, and calls in the capture.
    pub calls: (u64, u64),
    /// Dispatches and copies left out, and those in the capture (or those that passed the kernel
    /// filters).
    pub work: (u64, u64),
}

impl fmt::Display for FilteredOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, work } = self;
        write!(
            f,
            "The filters left {} of {} and {} of {} out of these outputs, also out of busy times \
             and counters; the capture has them all, and the account of losses covers all of it.",
            calls.0,
            plural(calls.1, "call", "calls"),
            work.0,
            plural(work.1, "dispatch or copy", "dispatches and copies")
        )
    }
}

/// Applies [`FilterOptions`] to the events of one capture. Memory grows by about one bit per call
/// shown.
#[derive(Debug)]
pub struct Filter {
    options: FilterOptions,
    /// First and last ns of `CLOCK_BOOTTIME` that are shown.
    window: (u64, u64),
    /// When the recording ended, if known.
    end: u64,
    /// Correlation ids of calls that are shown; `None` if no reference can be to a hidden call.
    shown: Option<IdSet>,
    functions: Functions,
    gpus: Gpus,
    /// Whether the name of a function or of a kernel matches, by its number; for a kernel that was
    /// not found, by process and address.
    function_names: HashMap<u32, bool>,
    kernel_names: HashMap<Result<u32, (u32, u64)>, bool>,
    out: FilteredOut,
    told: bool,
}

impl Filter {
    /// Creates a filter for the capture at `path`, which is read once in advance if necessary.
    /// # Errors
    /// [`ReadError`] if the capture cannot be read.
    pub fn for_capture(options: FilterOptions, path: &Path) -> Result<Self, ReadError> {
        let mut filter = Self::new(options, Extent::of(path)?);
        if filter.options.separates() {
            for event in Timeline::open(path)? {
                match event {
                    Ok(event) => filter.learn(&event),
                    // Reported when the outputs are made.
                    Err(_) => break,
                }
            }
        }
        Ok(filter)
    }

    /// Creates a filter for a recording of this extent. Unless only processes are selected, all
    /// events must be passed to [`Filter::learn`] before the first one is exported.
    #[must_use]
    pub fn new(options: FilterOptions, extent: Extent) -> Self {
        Self {
            window: options
                .window
                .map_or((0, u64::MAX), |window| window.within(extent)),
            shown: options.separates().then(IdSet::default),
            options,
            end: extent.end,
            functions: Functions::default(),
            gpus: Gpus::default(),
            function_names: HashMap::new(),
            kernel_names: HashMap::new(),
            out: FilteredOut::default(),
            told: false,
        }
    }

    /// What has been left out so far.
    #[must_use]
    pub fn left_out(&self) -> FilteredOut {
        self.out
    }

    /// Notes which calls will be shown.
    pub fn learn(&mut self, event: &Event) {
        match event {
            Event::Function(info) => self.functions.learn(info),
            Event::Call(call) => {
                let wanted = self.wants_call(call);
                if let Some(shown) = self.shown.as_mut().filter(|_| wanted) {
                    shown.insert(call.correlation);
                }
            }
            _ => {}
        }
    }

    /// Takes an event and emits what is to be shown of it.
    pub(crate) fn take(&mut self, mut event: Event, give: &mut impl FnMut(Event)) {
        let wanted = match &mut event {
            Event::Function(info) => {
                self.functions.learn(info);
                true
            }
            Event::Kernel(_) => {
                self.gpus.learn(&event);
                true
            }
            Event::Call(call) => {
                let wanted = self.wants_call(call);
                count(&mut self.out.calls, wanted);
                call.parent = self.reference(call.parent);
                call.range = self.reference(call.range);
                wanted
            }
            Event::Dispatch(dispatch) => {
                let wanted =
                    self.wants_work(Domain::KernelDispatch, &dispatch.origin, &dispatch.time)
                        && self.wants_kernel(dispatch);
                count(&mut self.out.work, wanted);
                self.origin(&mut dispatch.origin);
                if !asked(&self.options.domains, Domain::Counter) {
                    dispatch.readings.clear();
                }
                wanted
            }
            Event::Copy(copy) => {
                let name = self.options.name.as_ref();
                let wanted = self.wants_work(Domain::MemoryCopy, &copy.origin, &copy.time)
                    && name.is_none_or(|name| name.is_match(copy.direction.name()));
                count(&mut self.out.work, wanted);
                self.origin(&mut copy.origin);
                wanted
            }
            Event::Process(info) => asked(&self.options.pids, info.pid),
            Event::Stream(info) => asked(&self.options.pids, info.pid),
            Event::Stack(stack) => asked(&self.options.pids, stack.pid),
            Event::CodeFile(_) => true,
            Event::KernelClass(class) => asked(&self.options.pids, class.pid),
            Event::Thread(info) => self.wants_task(info.pid, info.tid),
            Event::Lifetime(lifetime) => {
                self.wants_task(lifetime.pid, lifetime.tid)
                    && self.in_window(lifetime.time, lifetime.time)
            }
            Event::Observation(one) => {
                let whose = one.whose;
                // What belongs to a GPU concerns everybody; what belongs to a process concerns all
                // its threads.
                (whose.pid == 0
                    || asked(&self.options.pids, whose.pid)
                        && (whose.tid == 0 || self.wants_task(whose.pid, whose.tid)))
                    && self.in_window(one.begin, one.end)
                    && (self.options.name.as_ref()).is_none_or(|name| name.is_match(&one.name))
                    && (self.options.domains.is_empty()
                        || self
                            .options
                            .domains
                            .iter()
                            .any(|domain| domain.id() == one.domain))
            }
            Event::Counter(sample) => {
                (sample.counter.pid == 0 || asked(&self.options.pids, sample.counter.pid))
                    && self.in_window(sample.time, sample.time)
                    && (self.options.domains.is_empty()
                        || self.options.domains.contains(&Domain::Counter))
            }
            Event::Activity(reading) => self.in_window(reading.time, reading.time),
            Event::Pending(pending) => self.in_window(pending.time, pending.time),
            Event::Ledger(ledger) => {
                let time = ledger.time;
                self.finish(time, give);
                true
            }
            Event::End(end) => {
                let time = end.time;
                self.finish(time, give);
                true
            }
            Event::Recording(_)
            | Event::Agent(_)
            | Event::Queue(_)
            | Event::CodeObject(_)
            | Event::Clocks(_)
            | Event::Notice(_) => true,
        };
        if wanted {
            give(event);
        }
    }

    /// Emits the remark about what was left out; `time` is that of the remark, ns.
    pub(crate) fn finish(&mut self, time: u64, give: &mut impl FnMut(Event)) {
        if !self.told {
            self.told = true;
            let text = self.out.to_string();
            give(Event::Notice(Notice { time, text }));
        }
    }

    fn wants_call(&mut self, call: &Call) -> bool {
        self.wants_task(call.pid, call.tid)
            && self.in_window(call.begin, call.end)
            && (self.options.domains.is_empty()
                || self
                    .options
                    .domains
                    .iter()
                    .any(|domain| domain.id() == call.domain))
            && match &self.options.name {
                None => true,
                Some(name) => *self
                    .function_names
                    .entry(call.function)
                    .or_insert_with(|| name.is_match(self.functions.name(call.function))),
            }
    }

    fn wants_work(&self, domain: Domain, origin: &Origin, time: &GpuTime) -> bool {
        let end = if time.unfinished { self.end } else { time.end };
        self.wants_task(origin.pid, origin.tid)
            && asked(&self.options.domains, domain)
            && self.in_window(time.begin, end.max(time.begin))
    }

    fn wants_kernel(&mut self, dispatch: &gputrace_timeline::gpu::Dispatch) -> bool {
        let Some(name) = &self.options.name else {
            return true;
        };
        let runs = dispatch
            .kernel
            .ok_or((dispatch.origin.pid, dispatch.kernel_object));
        *self
            .kernel_names
            .entry(runs)
            .or_insert_with(|| name.is_match(&self.gpus.kernel_name(dispatch)))
    }

    fn wants_task(&self, pid: u32, tid: u32) -> bool {
        asked(&self.options.pids, pid) && asked(&self.options.tids, tid)
    }

    fn in_window(&self, begin: u64, end: u64) -> bool {
        begin <= self.window.1 && end >= self.window.0
    }

    /// `correlation`, or 0 if that call is hidden.
    fn reference(&self, correlation: u64) -> u64 {
        let shown = self.shown.as_ref();
        if shown.is_none_or(|shown| shown.contains(correlation)) {
            correlation
        } else {
            0
        }
    }

    /// Keeps references to calls that are shown. One to a hidden call refers to the next call that
    /// is shown.
    fn origin(&self, origin: &mut Origin) {
        let calls = [origin.innermost, origin.caller, origin.outermost];
        let [innermost, caller, outermost] = calls.map(|call| self.reference(call));
        let first = |calls: [u64; 3]| calls.into_iter().find(|call| *call != 0).unwrap_or(0);
        origin.innermost = first([innermost, caller, outermost]);
        origin.caller = first([caller, outermost, innermost]);
        origin.outermost = first([outermost, caller, innermost]);
    }
}

/// Whether `value` is selected; an empty list selects everything.
fn asked<T: PartialEq + Copy>(named: &[T], value: T) -> bool {
    named.is_empty() || named.contains(&value)
}

fn count((left_out, of): &mut (u64, u64), wanted: bool) {
    *left_out += u64::from(!wanted);
    *of += 1;
}

#[cfg(test)]
mod tests;
