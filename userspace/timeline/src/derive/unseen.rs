//! Notices GPU work that went past the probes, so that nobody takes its absence for an idle GPU.
//!
//! A program that waits for its launches shows that their packets were submitted. If the recording
//! has fewer dispatches than that, the runtime told the GPU of them in a way that gputrace does not
//! see. Only what is certain counts: a launch that failed, was captured into a graph or was not
//! waited for may have no dispatch yet. Of a launched graph, only the kernels that it certainly has
//! count. Its other kernels can only hide that some are missing.

mod copies;
mod graphs;

use std::collections::{BTreeMap, VecDeque};

use foldhash::{HashMap, HashSet};
use gputrace_abi::domain::Domain;
use gputrace_capture::{
    ledger::{Ledger, LedgerRow},
    meta::Notice,
};
use gputrace_catalog::{
    launch::{self, Launch},
    signature, stream_word,
};
use gputrace_text::tables::{count, plural};

use self::{
    copies::Copies,
    graphs::{Graph, Graphs},
};
use super::deferred::{Handle, handle};
use crate::model::event::{Call, CallEnd, Event, FunctionInfo, LifetimeChange};

/// Beginning of remarks that kernels are missing in the recording, nobody knows where: figures of
/// GPUs are no more than lower bounds.
pub const WORK_NOT_SEEN: &str = "Not all work of GPUs was seen";

/// Beginning of the recorder's remarks on collection periods.
pub const COLLECTION_PERIOD: &str = "collection period";

/// Maximum number of launches of a process that wait for a call that waits for them. Further ones
/// are not counted.
const MOST_WAITING: usize = 1 << 16;

/// Fewer dispatches than launches are remarked on if one in this many is missing.
const FEW: u64 = 100;

/// `hipMemcpyDeviceToHost`.
const TO_HOST: u64 = 2;

/// Domains of records of packets.
const PACKETS: [Domain; 2] = [Domain::KernelDispatch, Domain::QueuePacket];

/// Domains of records of the GPU's work.
const WORK: [Domain; 3] = [
    Domain::KernelDispatch,
    Domain::QueuePacket,
    Domain::MemoryCopy,
];

/// Maximum number of events of a process that are remembered.
const MOST_EVENTS: usize = 1 << 12;

/// Functions other than launches that matter here, by name without `_spt`.
const FUNCTIONS: [(&str, What); 13] = [
    ("hipCtxSynchronize", What::WaitsForDevice),
    ("hipDeviceSynchronize", What::WaitsForDevice),
    ("hipEventQuery", What::WaitsForEvent),
    ("hipEventRecord", What::RecordsEvent),
    ("hipEventRecordWithFlags", What::RecordsEvent),
    ("hipEventSynchronize", What::WaitsForEvent),
    ("hipMemcpy", What::CopiesByKind),
    ("hipMemcpyDtoH", What::WaitsForStream),
    ("hipMemcpyWithStream", What::CopiesByKind),
    ("hipStreamQuery", What::WaitsForStream),
    ("hipStreamSynchronize", What::WaitsForStream),
    ("hsa_amd_memory_fill", What::ByRocr),
    ("hsa_memory_copy", What::ByRocr),
];

/// Compares launches with dispatches.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    functions: HashMap<u32, Function>,
    /// Ids of the runtime's own kernels, which no call launched.
    internal: HashSet<u32>,
    processes: BTreeMap<u32, Process>,
    copies: Copies,
    /// Whether the recording has collection periods. What was launched in one may have been
    /// submitted outside.
    has_periods: bool,
}

/// A function that matters here.
#[derive(Clone, Copy, Debug)]
struct Function {
    what: What,
    stream: Option<u8>,
    /// Whether its null stream is the thread's own.
    per_thread: bool,
}

/// What a function does.
#[derive(Clone, Copy, Debug)]
enum What {
    Launches(Launch),
    Graphs(Graph),
    /// Succeeds when everything in its stream has ended.
    WaitsForStream,
    /// So does this, if it copies to the host: the fourth argument is `hipMemcpyKind`.
    CopiesByKind,
    /// Returns when everything on the thread's device has ended.
    WaitsForDevice,
    /// Puts the event in the first argument into its stream.
    RecordsEvent,
    /// Succeeds when everything before the event in the first argument has ended.
    WaitsForEvent,
    /// ROCr does it with the processor or on queues of its own, which are not seen. The third
    /// argument is 0 if there is nothing to do.
    ByRocr,
}

#[derive(Debug, Default)]
struct Process {
    /// Launches that nobody has waited for, by stream, and their number.
    waiting: HashMap<Handle, Waiting>,
    waiting_count: usize,
    /// Kernels whose packets must have been submitted: by calls of their own, and by graphs.
    launched: u64,
    by_graphs: u64,
    graphs: Graphs,
    /// Dispatches other than the runtime's own.
    dispatched: u64,
    /// Calls of [`What::ByRocr`] by the program.
    by_rocr: u64,
    /// The stream into which each event was put last, and when that call began, ns.
    events: HashMap<u64, (Handle, u64)>,
    capturing: HashSet<Handle>,
    /// Whether a capture began before the recording: nobody knows what was captured.
    captured_before: bool,
    /// The device of each thread that has set one.
    devices: HashMap<u32, u32>,
    /// The end of each thread's last launch: calls before it are HIP's own.
    inside: HashMap<u32, u64>,
}

/// Launches into a stream that nobody has waited for.
#[derive(Debug, Default)]
struct Waiting {
    /// The ends of the calls, ns, and how many kernels of a graph each launches; `None` for a
    /// kernel by itself. In order of their begins.
    ends: VecDeque<(u64, Option<u64>)>,
    /// The device of the thread that launched last.
    device: u32,
}

impl Waiting {
    /// Takes the launches that were over at `time`, ns.
    fn take(&mut self, time: u64) -> Taken {
        let mut taken = Taken::default();
        while let Some((_, kernels)) = self.ends.pop_front_if(|(end, _)| *end <= time) {
            taken.launches += 1;
            match kernels {
                None => taken.kernels += 1,
                Some(kernels) => taken.by_graphs += kernels,
            }
        }
        taken
    }
}

/// Launches that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Number of calls.
    launches: usize,
    /// Kernels of calls that launch one, and those of graphs.
    kernels: u64,
    by_graphs: u64,
}

impl Unseen {
    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        self.copies.function(info);
        let name = info.function.name.as_str();
        let plain = name.strip_suffix("_spt").unwrap_or(name);
        let is_api = matches!(
            info.domain,
            Some(Domain::HipRuntime | Domain::HsaCore | Domain::HsaAmdExt)
        );
        let known = FUNCTIONS.iter().find(|(function, _)| *function == plain);
        let launch = || launch::launch(name).map(|(launch, _)| What::Launches(launch));
        let graph = || {
            let mut known = graphs::FUNCTIONS.iter();
            let (_, graph) = known.find(|(function, _)| *function == plain)?;
            Some(What::Graphs(*graph))
        };
        let Some(what) = known
            .map(|(_, what)| *what)
            .or_else(graph)
            .or_else(launch)
            .filter(|_| is_api)
        else {
            return;
        };
        let function = Function {
            what,
            stream: signature(name).and_then(stream_word),
            per_thread: plain.len() != name.len(),
        };
        self.functions.insert(info.function.id, function);
    }

    /// Learns of a remark of the recorder.
    pub(crate) fn notice(&mut self, notice: &Notice) {
        self.has_periods |= notice.text.starts_with(COLLECTION_PERIOD);
    }

    /// Learns from an event before it is emitted or hidden.
    pub(crate) fn seen(&mut self, event: &Event) {
        self.copies.seen(event, |pid| {
            let process = self.processes.get(&pid);
            process.is_some_and(|process| !process.capturing.is_empty())
        });
        match event {
            Event::Call(call) => self.call(call),
            Event::Kernel(kernel) if kernel.runtime.is_some() => {
                self.internal.insert(kernel.id);
            }
            Event::Dispatch(dispatch) => {
                let internal = |kernel: &u32| self.internal.contains(kernel);
                if !dispatch.kernel.as_ref().is_some_and(internal) {
                    let process = self.processes.entry(dispatch.origin.pid).or_default();
                    process.dispatched += 1;
                }
            }
            Event::Lifetime(lifetime) => {
                let is_over = match lifetime.what {
                    LifetimeChange::Executed { .. } => true,
                    LifetimeChange::Exited => lifetime.tid == lifetime.pid,
                    _ => false,
                };
                if let Some(process) = self.processes.get_mut(&lifetime.pid).filter(|_| is_over) {
                    process.restart();
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, call: &Call) {
        let Some(function) = self.functions.get(&call.function) else {
            return;
        };
        let is_success = |status: u64| status as u32 == 0;
        if !matches!(call.how, CallEnd::Returned(status) if is_success(status)) {
            return;
        }
        let process = self.processes.entry(call.pid).or_default();
        let device = process.devices.get(&call.tid).copied().unwrap_or_default();
        let stream = handle(call, function.stream, function.per_thread, device);
        match function.what {
            What::Launches(launch) => process.launch(launch, stream, device, call),
            What::Graphs(graph) => process.graph(graph, stream, device, call),
            What::CopiesByKind if u64::from(call.args[3] as u32) != TO_HOST => {}
            What::WaitsForStream | What::CopiesByKind => {
                process.waited(stream, call.begin);
            }
            What::WaitsForDevice => process.waited_for_device(device, call.begin),
            What::RecordsEvent => {
                let [event, ..] = call.args;
                if process.events.len() < MOST_EVENTS || process.events.contains_key(&event) {
                    process.events.insert(event, (stream, call.begin));
                }
            }
            What::WaitsForEvent => {
                let [event, ..] = call.args;
                if let Some((stream, begin)) = process.events.get(&event).copied() {
                    process.waited(stream, begin);
                }
            }
            What::ByRocr => {
                let [_, _, size, ..] = call.args;
                process.by_rocr += u64::from(call.parent == 0 && size != 0);
            }
        }
    }

    /// Remarks on what is missing. `ledger` is the account of a recording of `domains`.
    pub(crate) fn remarks(&self, domains: &[String], ledger: Option<&Ledger>) -> Vec<String> {
        let has = |domain: Domain| domains.iter().any(|name| name == domain.name());
        let mut remarks = Vec::new();
        let lost_packets = ledger.map_or(0, |ledger| lost(ledger, &PACKETS));
        let misses = |process: &Process| {
            let seen = process.dispatched.saturating_add(lost_packets);
            let launched = process.launched.saturating_add(process.by_graphs);
            let missing = launched.saturating_sub(seen);
            missing > 0 && missing.saturating_mul(FEW) >= launched
        };
        for (pid, process) in &self.processes {
            if has(Domain::KernelDispatch) && !self.has_periods && misses(process) {
                remarks.push(format!(
                    "{WORK_NOT_SEEN}: process {pid} {}, and waited \
                     for them, but {} could be seen. Most likely \
                     its runtime stores to doorbells by itself (DEBUG_CLR_DIRECT_DOORBELL=1), or \
                     uses packets that this version of gputrace does not know, or queues that ROCr \
                     did not make (user queues of DRM). Busy times of GPUs are lower bounds.",
                    process.asked(),
                    plural(process.dispatched, "dispatch", "dispatches"),
                ));
            }
            if has(Domain::MemoryCopy) && process.by_rocr > 0 {
                remarks.push(format!(
                    "ROCr's own copies were not seen: process {pid} called hsa_memory_copy or \
                     hsa_amd_memory_fill {}. ROCr does this with the processor, or with \
                     kernels in queues of its own: it is neither among the copies nor among the \
                     kernels, and busy times of GPUs do not include it.",
                    count(process.by_rocr, "time")
                ));
            }
        }
        let is_blind = |pid| {
            let process = self.processes.get(&pid);
            process.is_some_and(|process| process.captured_before || misses(process))
        };
        if has(Domain::KernelDispatch) && has(Domain::MemoryCopy) && !self.has_periods {
            let lost = ledger.map_or(0, |ledger| lost(ledger, &WORK));
            remarks.extend(self.copies.remark(lost, is_blind));
        }
        remarks
    }
}

impl Process {
    fn launch(&mut self, launch: Launch, stream: Handle, device: u32, call: &Call) {
        if self.is_inside(call) {
            return;
        }
        match launch {
            Launch::Kernel(sizes) => {
                let (grid, workgroup) = sizes.read(&call.args, &call.stack);
                let is_empty = grid.into_iter().chain(workgroup).any(|size| size == 0);
                if !is_empty {
                    self.graphs.captured(stream);
                    self.wait(None, stream, device, call);
                }
            }
            Launch::BeginCapture => {
                self.graphs.begin(stream);
                self.capturing.insert(stream);
            }
            Launch::EndCapture => {
                self.graphs.end(stream, call);
                if !self.capturing.remove(&stream) {
                    // It began before the recording.
                    self.captured_before = true;
                    self.waiting.clear();
                    self.waiting_count = 0;
                }
            }
            Launch::SetDevice => {
                let [device, ..] = call.args;
                self.devices.insert(call.tid, device as u32);
            }
            Launch::Unknown | Launch::CreateStream | Launch::DestroyStream => {}
        }
    }

    fn graph(&mut self, graph: Graph, stream: Handle, device: u32, call: &Call) {
        let is_launch = matches!(graph, Graph::Launches);
        if is_launch && self.is_inside(call) {
            return;
        }
        let kernels = self.graphs.call(graph, call);
        if kernels > 0 {
            self.wait(Some(kernels), stream, device, call);
        }
    }

    /// Whether a launch is HIP's own, inside another one.
    fn is_inside(&mut self, call: &Call) -> bool {
        let end = self.inside.entry(call.tid).or_default();
        let is_inside = call.begin < *end;
        if !is_inside {
            *end = call.end;
        }
        is_inside
    }

    /// Adds a launch, of that many kernels of a graph or of one by itself, to those that nobody
    /// has waited for.
    fn wait(&mut self, kernels: Option<u64>, stream: Handle, device: u32, call: &Call) {
        // A capture extends to streams that wait for events of its stream.
        if !self.capturing.is_empty() || self.waiting_count >= MOST_WAITING {
            return;
        }
        let waiting = self.waiting.entry(stream).or_default();
        waiting.ends.push_back((call.end, kernels));
        waiting.device = device;
        self.waiting_count += 1;
    }

    /// What was launched, in words.
    fn asked(&self) -> String {
        let calls = (self.launched > 0).then(|| {
            let calls = count(self.launched, "call");
            format!("made {calls} that each launch a kernel")
        });
        let graphs = (self.by_graphs > 0).then(|| {
            let kernels = count(self.by_graphs, "kernel");
            format!("launched graphs with at least {kernels}")
        });
        let parts: Vec<String> = calls.into_iter().chain(graphs).collect();
        parts.join(" and ")
    }

    /// What was launched into a stream before `time`, ns, has ended.
    fn waited(&mut self, stream: Handle, time: u64) {
        if let Some(waiting) = self.waiting.get_mut(&stream) {
            let ended = waiting.take(time);
            if waiting.ends.is_empty() {
                self.waiting.remove(&stream);
            }
            self.ended(ended);
        }
    }

    /// What was launched on a device before `time`, ns, has ended.
    fn waited_for_device(&mut self, device: u32, time: u64) {
        let streams = self.waiting.values_mut();
        let of_device = streams.filter(|waiting| waiting.device == device);
        let ended: Vec<Taken> = of_device.map(|waiting| waiting.take(time)).collect();
        ended.into_iter().for_each(|taken| self.ended(taken));
        self.waiting.retain(|_, waiting| !waiting.ends.is_empty());
    }

    fn ended(&mut self, taken: Taken) {
        self.waiting_count -= taken.launches;
        self.launched += taken.kernels;
        self.by_graphs = self.by_graphs.saturating_add(taken.by_graphs);
    }

    /// The process ends or executes another program.
    fn restart(&mut self) {
        *self = Self {
            launched: self.launched,
            by_graphs: self.by_graphs,
            dispatched: self.dispatched,
            by_rocr: self.by_rocr,
            captured_before: self.captured_before,
            ..Self::default()
        };
    }
}

/// Number of records of these domains that are missing, of all processes.
fn lost(ledger: &Ledger, domains: &[Domain]) -> u64 {
    let rows = ledger.rows.iter();
    rows.filter(|row| domains.iter().any(|domain| domain.id() == row.domain))
        .map(LedgerRow::lost)
        .sum()
}

#[cfg(test)]
mod tests;
