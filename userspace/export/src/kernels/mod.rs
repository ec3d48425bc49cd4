//! Selects the kernel dispatches that outputs show, and names the kernels.
//!
//! The capture holds every dispatch. One stage between it and the exporters gives kernels the
//! chosen names (`KernelInfo::shown`) and agents the chosen labels, and leaves out the dispatches
//! that the user's filters exclude; so all formats agree. What was left out is counted: a remark
//! among the events says so in every output, and [`LeftOut`] in the [`Report`](crate::Report).
//!
//! As in rocprofv3, regular expressions match anywhere in the name as shown, though not in the name
//! of a range after which a kernel is named. Iterations count the dispatches of one kernel from 1
//! on. A kernel here means a name on an agent in a process. Only dispatches are filtered: API
//! calls, copies and the kernels themselves stay.

mod iterations;
mod rename;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use gputrace_abi::domain::Domain;
use gputrace_capture::{gpu::AgentKind, meta::Notice};
use gputrace_text::tables::plural;
use gputrace_timeline::{
    event::{Call, Event},
    gpu::{AgentInfo, Dispatch},
};
use regex::Regex;

use crate::{functions::group, gpu::Gpus, intervals::Intervals};
pub use iterations::{Iterations, IterationsError};
use rename::Rename;

/// How to show kernels and their dispatches.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Whether a kernel launched within a range of its thread is named after the range.
    pub rename: bool,
    /// Whether to hide markers and ranges, because they were recorded only for naming kernels.
    pub hide_markers: bool,
    /// Form of kernel names.
    pub names: KernelNames,
    /// Which dispatches to show.
    pub filter: KernelFilter,
    /// How agents are labelled.
    pub agents: AgentLabels,
}

/// How agents are labelled: rocprofv3's `--agent-index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentLabels {
    /// `Agent N` by KFD's number of the node, whatever part of the topology a container hides.
    Absolute,
    /// `Agent N` by the number among all agents that are visible.
    #[default]
    Relative,
    /// `CPU N` and `GPU N` by the number among the visible agents of the kind.
    TypeRelative,
}

impl AgentLabels {
    fn label(self, info: &AgentInfo) -> String {
        match (self, info.agent.kind) {
            (Self::Absolute, _) => format!("Agent {}", info.agent.node_id),
            (Self::Relative, _) => format!("Agent {}", info.absolute_index),
            (Self::TypeRelative, AgentKind::Cpu) => format!("CPU {}", info.type_index),
            (Self::TypeRelative, AgentKind::Gpu) => format!("GPU {}", info.type_index),
        }
    }
}

/// Form of kernel names.
#[derive(Clone, Copy, Debug, Default)]
pub enum KernelNames {
    /// As declared in C++: `void scale<float>(float*, int)`.
    #[default]
    Demangled,
    /// As in the symbol: `_Z5scaleIfEvPT_i`.
    Mangled,
    /// The result of this function for the demangled name: `scale`.
    Truncated(fn(&str) -> &str),
}

/// Which dispatches outputs show: those that pass every filter that is set.
#[derive(Clone, Debug, Default)]
pub struct KernelFilter {
    /// Show only kernels whose names match.
    pub include: Option<Regex>,
    /// Hide kernels whose names match.
    pub exclude: Option<Regex>,
    /// Show only these dispatches of each kernel on each agent in each process, counted in order of
    /// submission.
    pub iterations: Option<Iterations>,
}

impl KernelFilter {
    /// Whether every dispatch passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.iterations.is_none()
    }

    fn wants(&self, name: &str) -> bool {
        self.include
            .as_ref()
            .is_none_or(|regex| regex.is_match(name))
            && !self
                .exclude
                .as_ref()
                .is_some_and(|regex| regex.is_match(name))
    }
}

/// How many dispatches the filters removed from the outputs. `Display` makes a sentence of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Dispatches left out.
    pub dispatches: u64,
    /// Dispatches in the capture.
    pub of: u64,
    /// Whether any kernel's name passed the name filters.
    pub any_name: bool,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dispatches, of, .. } = self;
        write!(
            f,
            "The kernel filters left {dispatches} of {} out of these outputs, also out of busy \
             times and counters; the capture has them all.",
            plural(*of, "kernel dispatch", "kernel dispatches")
        )?;
        if *of > 0 && !self.any_name {
            f.write_str(" No kernel has a matching name.")?;
        }
        Ok(())
    }
}

/// What a dispatch runs: a known kernel, or one that was not found, by process and address.
type Runs = Result<u32, (u32, u64)>;

/// Dispatches of one name on one agent in one process.
#[derive(Debug, Default)]
struct Instances {
    /// Number of dispatches before all waiting ones, counted up to the highest iteration asked for.
    before: u64,
    /// Ids of those that wait.
    waiting: BTreeSet<u64>,
}

/// Applies [`KernelOptions`] to a capture's events.
///
/// Dispatches of several queues come out of order. So if iterations are asked for, dispatches wait
/// until all that were submitted before them have come. Per kernel, no more wait than the highest
/// iteration asked for, so a hanging queue does not make everything after it accumulate in memory.
#[derive(Debug)]
pub(crate) struct KernelStage {
    options: KernelOptions,
    rename: Rename,
    kernels: Gpus,
    /// Number of each wanted name on an agent in a process; `None` for names that are not wanted.
    known: HashMap<(Runs, Option<u32>), Option<usize>>,
    numbers: HashMap<(u32, Option<u32>, String), usize>,
    instances: Vec<Instances>,
    /// Ids of the dispatches that have come.
    arrived: Intervals,
    held: BTreeMap<u64, (usize, Box<Dispatch>)>,
    left_out: LeftOut,
    told: bool,
}

impl KernelStage {
    pub(crate) fn new(options: KernelOptions) -> Self {
        Self {
            options,
            rename: Rename::default(),
            kernels: Gpus::default(),
            known: HashMap::new(),
            numbers: HashMap::new(),
            instances: Vec::new(),
            arrived: Intervals::default(),
            held: BTreeMap::new(),
            left_out: LeftOut::default(),
            told: false,
        }
    }

    /// What was left out; `None` without filters.
    pub(crate) fn left_out(&self) -> Option<LeftOut> {
        (!self.options.filter.is_empty()).then_some(self.left_out)
    }

    /// Whether an event passes unchanged and has no other effect, so that `take` may be skipped.
    pub(crate) fn passes(&self, event: &Event) -> bool {
        match event {
            Event::Dispatch(_) => !self.options.rename && self.options.filter.is_empty(),
            Event::Call(_) => !self.options.hide_markers,
            Event::Copy(_) | Event::Observation(_) | Event::Counter(_) => true,
            _ => false,
        }
    }

    /// Takes an event and emits what results from it.
    pub(crate) fn take(&mut self, event: Event, give: &mut impl FnMut(Event)) {
        match event {
            Event::Kernel(mut info) => {
                match self.options.names {
                    KernelNames::Demangled => {}
                    KernelNames::Mangled => info.shown = info.symbol(),
                    KernelNames::Truncated(truncate) => {
                        info.shown = truncate(&info.demangled).to_owned();
                    }
                }
                let event = Event::Kernel(info);
                if self.options.rename {
                    self.rename.learn(&event);
                }
                if !self.options.filter.is_empty() {
                    self.kernels.learn(&event);
                }
                give(event);
            }
            Event::Queue(info) => {
                if !self.options.filter.is_empty() {
                    self.kernels.learn(&event);
                }
                give(Event::Queue(info));
            }
            Event::Agent(mut info) => {
                info.label = self.options.agents.label(&info);
                give(Event::Agent(info));
            }
            Event::Dispatch(dispatch) => {
                if self.options.filter.is_empty() {
                    self.release(dispatch, give);
                } else {
                    self.dispatch(dispatch, give);
                }
            }
            Event::Call(call) if self.options.hide_markers => {
                if group(call.domain) != Domain::MarkerCore.csv_stem() {
                    give(Event::Call(Call { range: 0, ..call }));
                }
            }
            Event::Function(info) => {
                let event = Event::Function(info);
                if self.options.rename {
                    self.rename.learn(&event);
                }
                give(event);
            }
            Event::Ledger(_) | Event::End(_) => {
                let time = match &event {
                    Event::Ledger(ledger) => ledger.time,
                    Event::End(end) => end.time,
                    _ => 0,
                };
                self.finish(time, give);
                give(event);
            }
            other => give(other),
        }
    }

    /// Emits what is waiting, and the remark about what was left out; `time` is that of the remark,
    /// ns.
    pub(crate) fn finish(&mut self, time: u64, give: &mut impl FnMut(Event)) {
        self.decide(u64::MAX, give);
        if !self.told && !self.options.filter.is_empty() {
            self.told = true;
            let text = self.left_out.to_string();
            give(Event::Notice(Notice { time, text }));
        }
    }

    /// Emits a dispatch that is shown, after its kernel if that was renamed.
    fn release(&mut self, mut dispatch: Box<Dispatch>, give: &mut impl FnMut(Event)) {
        if self.options.rename
            && let Some(kernel) = self.rename.rename(&mut dispatch)
        {
            give(Event::Kernel(Box::new(kernel)));
        }
        give(Event::Dispatch(dispatch));
    }

    fn dispatch(&mut self, dispatch: Box<Dispatch>, give: &mut impl FnMut(Event)) {
        self.left_out.of += 1;
        let id = dispatch.id;
        match (
            self.instances_of(&dispatch),
            &self.options.filter.iterations,
        ) {
            (None, _) => self.left_out.dispatches += 1,
            (Some(_), None) => self.release(dispatch, give),
            (Some(number), Some(iterations)) => {
                let last = iterations.last();
                if let Some(instances) = self.instances.get_mut(number) {
                    instances.waiting.insert(id);
                    self.held.insert(id, (number, dispatch));
                    let room = last.saturating_sub(instances.before);
                    // The dispatches before it already make its iteration higher than any asked
                    // for.
                    if instances.waiting.len() as u64 > room
                        && let Some(beyond) = instances.waiting.pop_last()
                    {
                        self.held.remove(&beyond);
                        self.left_out.dispatches += 1;
                    }
                }
            }
        }
        if self.options.filter.iterations.is_some() {
            self.arrived.insert(id, id.saturating_add(1));
            // Ids begin at 1.
            if let Some((0 | 1, end)) = self.arrived.first() {
                self.decide(end, give);
            }
        }
    }

    /// Decides on waiting dispatches with an id below `end`: all dispatches before them are known.
    fn decide(&mut self, end: u64, give: &mut impl FnMut(Event)) {
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() < end) {
            let (id, (number, dispatch)) = entry.remove_entry();
            let Some(instances) = self.instances.get_mut(number) else {
                continue;
            };
            instances.waiting.remove(&id);
            instances.before += 1;
            let iterations = self.options.filter.iterations.as_ref();
            if iterations.is_none_or(|iterations| iterations.contains(instances.before)) {
                self.release(dispatch, give);
            } else {
                self.left_out.dispatches += 1;
            }
        }
    }

    /// The number of a dispatch's name on its agent in its process; `None` if the name is not
    /// wanted.
    fn instances_of(&mut self, dispatch: &Dispatch) -> Option<usize> {
        let pid = dispatch.origin.pid;
        let node = self.kernels.node_of(dispatch);
        let runs = (dispatch.kernel.ok_or((pid, dispatch.kernel_object)), node);
        if let Some(known) = self.known.get(&runs) {
            return *known;
        }
        let name = self.kernels.kernel_name(dispatch);
        let wanted = self.options.filter.wants(&name);
        self.left_out.any_name |= wanted;
        let number = wanted.then(|| {
            let next = self.instances.len();
            let key = (pid, node, name.into_owned());
            let number = *self.numbers.entry(key).or_insert(next);
            if number == next {
                self.instances.push(Instances::default());
            }
            number
        });
        self.known.insert(runs, number);
        number
    }
}

#[cfg(test)]
mod tests;
