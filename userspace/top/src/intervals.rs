//! The intervals that are not shown yet, and what holds beyond them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use foldhash::fast::RandomState;
use gputrace_capture::{
    gpu::{Agent, AgentKind},
    meta::ClockSnapshot,
};
use gputrace_export::{costs::Costs, functions::Functions, gpu::Gpus};
use gputrace_kfd::topology::PciAddress;
use gputrace_timeline::{
    event::{CallEnd, Event, LifetimeChange, PendingQueue, ProcessInfo},
    gpu::{ActivityState, Dispatch, GpuTime, Quality},
    has_failed,
};

use crate::{
    counters::Counters,
    group::GroupBy,
    interval::Interval,
    snapshot::{Lost, Snapshot, VERSION},
};

/// Maximum number of intervals that are kept. A time beyond them is one that cannot be true.
const MOST_INTERVALS: usize = 64;

/// Everything that is known of the recording.
#[derive(Debug)]
pub(crate) struct Intervals {
    /// Length of an interval, ns.
    length: u64,
    /// Whether there is one interval only: the last one of the recording.
    is_once: bool,
    /// The groups that are shown.
    groups: Vec<GroupBy>,
    /// Without gaps, from the oldest on.
    open: VecDeque<Interval>,
    /// When the next interval begins.
    next: u64,
    /// When the earliest call or kernel began that was seen in the first interval; `None` after
    /// that interval. Before that time probes were being attached, and nothing could be seen.
    seen_from: Option<u64>,
    clocks: ClockSnapshot,
    functions: Functions,
    gpus: Gpus,
    costs: Costs,
    counters: Counters,
    processes: HashMap<u32, ProcessInfo, RandomState>,
    /// GPUs whose status register is being read, by node.
    is_read: BTreeSet<Option<u32>>,
    /// What queues had to do when it was last said.
    pending: Vec<PendingQueue>,
    lost: Lost,
    late: u64,
}

impl Intervals {
    pub(crate) fn new(length: u64, is_once: bool, groups: &[GroupBy]) -> Self {
        Self {
            length: length.max(1),
            is_once,
            groups: groups.to_vec(),
            open: VecDeque::new(),
            next: 0,
            seen_from: Some(u64::MAX),
            clocks: ClockSnapshot::default(),
            functions: Functions::default(),
            gpus: Gpus::default(),
            costs: Costs::default(),
            counters: Counters::default(),
            processes: HashMap::default(),
            is_read: BTreeSet::new(),
            pending: Vec::new(),
            lost: Lost::default(),
            late: 0,
        }
    }

    /// Takes the next event.
    pub(crate) fn event(&mut self, event: &Event) {
        self.gpus.learn(event);
        self.costs.learn(event);
        let cost = self.costs.price(event);
        match event {
            Event::Recording(recording) => {
                self.clocks = recording.clocks;
                self.next = recording.clocks.boottime;
            }
            Event::Clocks(clocks) => self.clocks = *clocks,
            Event::Function(info) => self.functions.learn(info),
            Event::Process(info) => {
                self.processes.insert(info.pid, (**info).clone());
            }
            Event::Lifetime(lifetime)
                if lifetime.what == LifetimeChange::Exited && lifetime.pid == lifetime.tid =>
            {
                self.counters.forget(lifetime.pid);
            }
            Event::Counter(sample) => self.counters.learn(sample),
            // What was open when the recording stopped has not ended.
            Event::Call(call) if call.how != CallEnd::RecordingStopped => {
                let info = self.functions.get(call.function);
                let failed = info.is_some_and(|info| has_failed(info, call));
                self.seen(call.begin);
                if let Some(interval) = self.at(call.end) {
                    interval.call(call, failed, cost);
                }
            }
            Event::Dispatch(dispatch) => {
                self.seen(begun(&dispatch.time));
                let gpus = std::mem::take(&mut self.gpus);
                let node = gpus.node_of(dispatch);
                self.busy(dispatch, node);
                if !dispatch.time.unfinished
                    && let Some(interval) = self.at(dispatch.time.end)
                {
                    interval.kernel(dispatch, &gpus, cost);
                }
                self.gpus = gpus;
            }
            Event::Activity(reading) => {
                let goes_on = self.is_read.contains(&reading.node_id);
                match reading.state {
                    ActivityState::End | ActivityState::Refused => {
                        self.is_read.remove(&reading.node_id);
                    }
                    ActivityState::Begin
                    | ActivityState::Idle
                    | ActivityState::Active
                    | ActivityState::Spell { .. } => {
                        self.is_read.insert(reading.node_id);
                    }
                }
                if let Some(interval) = self.at(reading.time) {
                    interval.activity(reading, goes_on);
                }
            }
            Event::Copy(copy) if !copy.time.unfinished => {
                if let Some(interval) = self.at(copy.time.end) {
                    interval.copy(copy, cost);
                }
            }
            Event::Pending(pending) => self.pending.clone_from(&pending.queues),
            Event::Ledger(ledger) => {
                let total = ledger.total().lost();
                self.lost.now += total.saturating_sub(self.lost.total);
                self.lost.total = total;
                if ledger.complete {
                    // Everything has come that can become known.
                    self.pending.clear();
                    self.end(ledger.time);
                }
            }
            _ => {}
        }
    }

    /// Something was seen that began at `time`.
    fn seen(&mut self, time: u64) {
        self.seen_from = self.seen_from.map(|from| from.min(time));
    }

    /// The interval in which something happened at `time`, or the oldest one if that interval has
    /// been shown.
    fn at(&mut self, time: u64) -> Option<&mut Interval> {
        self.reach(time);
        let oldest = self.open.front()?.begin;
        if time < oldest {
            self.late += 1;
            return self.open.front_mut();
        }
        let after = self.open.partition_point(|one| one.begin <= time);
        self.open.get_mut(after.checked_sub(1)?)
    }

    /// Adds intervals up to `time`.
    fn reach(&mut self, time: u64) {
        while self.next <= time && self.open.len() < MOST_INTERVALS {
            let end = if self.is_once {
                u64::MAX
            } else {
                self.next.saturating_add(self.length)
            };
            self.open.push_back(Interval::new(self.next, end));
            self.next = end;
        }
    }

    /// Adds a kernel's time to all intervals in which it can have run.
    fn busy(&mut self, dispatch: &Dispatch, node: Option<u32>) {
        let time = &dispatch.time;
        let from = time.begin_window.earliest.min(time.begin);
        let to = time.end_window.latest.map(|latest| latest.max(time.end));
        self.reach(time.end);
        for interval in &mut self.open {
            if interval.end > from && to.is_none_or(|to| interval.begin < to) {
                interval.busy(dispatch, node);
            }
        }
    }

    /// The recording ended at `time`.
    fn end(&mut self, time: u64) {
        self.reach(time);
        while self.open.back().is_some_and(|last| last.begin >= time) && self.open.len() > 1 {
            self.open.pop_back();
        }
        if let Some(last) = self.open.back_mut() {
            last.end = last.end.min(time.max(last.begin.saturating_add(1)));
            if self.is_once {
                // The time before was spent on attaching, unless something was seen already.
                let asked = last.end.saturating_sub(self.length);
                let from = self.seen_from.take().unwrap_or(u64::MAX).min(asked);
                last.begin = last.begin.max(from);
            }
        }
        self.next = u64::MAX;
    }

    /// The oldest interval, if it had ended at `time`.
    pub(crate) fn ended(&mut self, time: u64) -> Option<Snapshot> {
        self.reach(time);
        if self.open.front()?.end > time {
            return None;
        }
        self.shown()
    }

    /// The oldest interval, if there is one. The recording has ended.
    pub(crate) fn rest(&mut self) -> Option<Snapshot> {
        self.shown()
    }

    fn shown(&mut self) -> Option<Snapshot> {
        let mut interval = self.open.pop_front()?;
        if let Some(from) = self.seen_from.take()
            && (interval.begin..interval.end).contains(&from)
        {
            interval.begin = from;
        }
        for one in &self.pending {
            interval.pending(one);
        }
        interval.complete(|pid| self.counters.vram_of(pid));
        let mut processes = interval.process_rows();
        for row in &mut processes {
            if let Some(info) = self.processes.get(&row.pid) {
                row.command = command(info);
                let identity = &info.identity;
                row.identity = (!identity.is_empty()).then(|| identity.clone());
            }
        }
        let identity = |pid| self.processes.get(&pid).map(|info| &info.identity);
        let groups = self.groups.iter();
        let groups = groups.map(|by| (*by, interval.group_rows(*by, identity)));
        let groups = groups.collect();
        let is_gpu = |kind: AgentKind| kind == AgentKind::Gpu;
        let agents = self.gpus.agents().iter();
        let mut nodes: Vec<Option<u32>> = agents
            .filter(|info| is_gpu(info.agent.kind))
            .map(|info| Some(info.agent.node_id))
            .collect();
        let is_cpu = |node: &Option<u32>| {
            let info = node.and_then(|node| self.gpus.agent(node));
            info.is_some_and(|info| !is_gpu(info.agent.kind))
        };
        nodes.extend(interval.nodes().filter(|node| !is_cpu(node)));
        nodes.sort_unstable();
        nodes.dedup();
        let gpus = nodes.into_iter().map(|node| {
            let mut row = interval.gpu_row(node, &self.gpus);
            row.pci = node.and_then(|node| pci_address(&self.gpus.agent(node)?.agent));
            (row.vram_used_bytes, row.vram_total_bytes) = self.counters.vram(node);
            row.power_w = self.counters.power(node);
            row.clock_mhz = self.counters.clock(node);
            row
        });
        let gpus = gpus.collect();
        let snapshot = Snapshot {
            version: VERSION,
            begin: interval.begin,
            end: interval.end,
            time_of_day: self
                .clocks
                .realtime
                .saturating_add(interval.end.saturating_sub(self.clocks.boottime)),
            lost: self.lost,
            late: std::mem::take(&mut self.late),
            gputrace_cpus: None,
            gpus,
            processes,
            groups,
            queues: interval.queue_rows(&self.gpus),
            kernels: interval.kernel_rows(),
            functions: interval.function_rows(&self.functions),
        };
        self.lost.now = 0;
        Some(snapshot)
    }
}

/// When a kernel had begun, as far as it was seen: one that was submitted before gputrace attached
/// may have begun long before.
fn begun(time: &GpuTime) -> u64 {
    match time.quality {
        Quality::Exact => time.begin,
        _ => time.begin_window.latest.unwrap_or(time.end),
    }
}

/// Where a GPU is on the PCI bus.
fn pci_address(agent: &Agent) -> Option<String> {
    let number = |of: &str| {
        let mut numbers = agent.info.iter();
        numbers.find_map(|(name, value)| (name == of).then_some(*value))
    };
    let address = PciAddress::new(number("Domain")?, number("Location_Id")?)?;
    Some(address.to_string())
}

/// The program as people know it: the last part of its path, with its arguments.
fn command(info: &ProcessInfo) -> String {
    let Some((program, arguments)) = info.command.split_first() else {
        return info.name.clone();
    };
    let program = program.rsplit('/').next().unwrap_or(program);
    let mut command = program.to_owned();
    for argument in arguments {
        command.push(' ');
        command.push_str(argument);
    }
    command
}
