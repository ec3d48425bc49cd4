//! What happened in one interval.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, btree_map::Entry},
};

use foldhash::fast::RandomState;
use gputrace_analysis::summary::{Active, Estimate};
use gputrace_capture::identity::Identity;
use gputrace_export::{
    functions::Functions,
    gpu::{Gpus, queue_id},
    intervals::Intervals,
    lengths::{Length, Sum},
};
use gputrace_timeline::{
    event::{Call, PendingQueue},
    gpu::{Activity, ActivityState, Copy, Dispatch, Quality},
};

use crate::{
    busy::Busy,
    group::GroupBy,
    snapshot::{FunctionRow, GpuRow, GroupRow, KernelRow, ProcessRow, QueueRow},
    usage::{Latency, Usage},
};

/// If kernels can have run for more than one part in this many of an interval while the status
/// register was not read, what the register says is no figure of the interval.
const UNREAD: u64 = 50;

/// An interval that is not shown yet.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    processes: BTreeMap<u32, Usage>,
    /// By number in the timeline.
    queues: BTreeMap<u32, Queue>,
    /// By KFD topology node.
    gpus: BTreeMap<Option<u32>, Gpu>,
    /// Readings of status registers, by KFD topology node.
    active: BTreeMap<Option<u32>, Active>,
    kernels: HashMap<KernelKey, Kernel, RandomState>,
    functions: HashMap<(u32, u32), Function, RandomState>,
}

/// Process, number of the kernel, and its address for kernels without a number.
type KernelKey = (u32, Option<u32>, u64);

#[derive(Debug)]
struct Kernel {
    name: String,
    sum: Sum,
}

#[derive(Debug, Default)]
struct Queue {
    pid: u32,
    node: Option<u32>,
    busy: Busy,
    kernels: u64,
    pending: u64,
    latency: Latency,
}

impl Queue {
    /// Notes whose queue it is.
    fn of(&mut self, pid: u32, node: Option<u32>) -> &mut Self {
        (self.pid, self.node) = (pid, node);
        self
    }
}

#[derive(Debug, Default)]
struct Gpu {
    busy: Busy,
    kernels: u64,
    copies: u64,
    copied: u64,
}

#[derive(Debug, Default)]
struct Function {
    calls: u64,
    failed: u64,
    total: u64,
}

impl Interval {
    pub(crate) fn new(begin: u64, end: u64) -> Self {
        Self {
            begin,
            end,
            ..Self::default()
        }
    }

    /// Counts a call that ended. Tracing it cost `cost`, ns.
    pub(crate) fn call(&mut self, call: &Call, failed: bool, cost: u64) {
        let process = self.processes.entry(call.pid).or_default();
        process.calls += 1;
        process.failed += u64::from(failed);
        process.cost = process.cost.saturating_add(cost);
        let function = self.functions.entry((call.pid, call.function)).or_default();
        function.calls += 1;
        function.failed += u64::from(failed);
        function.total = function
            .total
            .saturating_add(call.end.saturating_sub(call.begin));
    }

    /// Counts a kernel that ended. Tracing its submission cost `cost`, ns.
    pub(crate) fn kernel(&mut self, dispatch: &Dispatch, gpus: &Gpus, cost: u64) {
        let (pid, time) = (dispatch.origin.pid, &dispatch.time);
        let node = gpus.node_of(dispatch);
        let process = self.processes.entry(pid).or_default();
        process.kernels += 1;
        process.cost = process.cost.saturating_add(cost);
        let queue = self.queues.entry(dispatch.queue).or_default().of(pid, node);
        queue.kernels += 1;
        if time.quality == Quality::Exact {
            process.latency.count(&dispatch.origin, time.begin);
            queue.latency.count(&dispatch.origin, time.begin);
        }
        self.gpus.entry(node).or_default().kernels += 1;
        let key = (pid, gpus.kernel_id(dispatch), dispatch.kernel_object);
        let kernel = self.kernels.entry(key).or_insert_with(|| Kernel {
            name: gpus.kernel_name(dispatch).into_owned(),
            sum: Sum::default(),
        });
        kernel.sum.add(Length::of(time));
    }

    /// Counts a copy that ended. Tracing its submission cost `cost`, ns.
    pub(crate) fn copy(&mut self, copy: &Copy, cost: u64) {
        let process = self.processes.entry(copy.origin.pid).or_default();
        process.copies += 1;
        process.copied = process.copied.saturating_add(copy.bytes);
        process.cost = process.cost.saturating_add(cost);
        // Of the two agents, a GPU: a copy from one GPU to another counts for both.
        let mut nodes = [copy.source_node, copy.destination_node];
        if nodes.first() == nodes.last() {
            nodes[1] = None;
        }
        for node in nodes.into_iter().filter(Option::is_some) {
            let gpu = self.gpus.entry(node).or_default();
            gpu.copies += 1;
            gpu.copied = gpu.copied.saturating_add(copy.bytes);
        }
    }

    /// Adds the part of a kernel's time that lies in the interval.
    pub(crate) fn busy(&mut self, dispatch: &Dispatch, node: Option<u32>) {
        let (begin, end, time) = (self.begin, self.end, &dispatch.time);
        let process = self.processes.entry(dispatch.origin.pid).or_default();
        process.busy.add(time, begin, end);
        process.gpus.extend(node);
        let queue = self.queues.entry(dispatch.queue).or_default();
        let queue = queue.of(dispatch.origin.pid, node);
        queue.busy.add(time, begin, end);
        let gpu = self.gpus.entry(node).or_default();
        gpu.busy.add(time, begin, end);
    }

    /// Adds a reading of a status register. `goes_on` says whether readings had begun before.
    pub(crate) fn activity(&mut self, reading: &Activity, goes_on: bool) {
        let begin = self.begin;
        let active = self.active.entry(reading.node_id).or_insert_with(|| {
            let mut active = Active::default();
            if goes_on {
                active.add(&Activity {
                    state: ActivityState::Begin,
                    time: begin,
                    ..*reading
                });
            }
            active
        });
        active.add(reading);
    }

    /// Adds work of a queue that may have run from its `since` on.
    pub(crate) fn pending(&mut self, work: &PendingQueue) {
        let (begin, end) = (self.begin.max(work.since), self.end);
        if begin >= end {
            return;
        }
        let process = self.processes.entry(work.pid).or_default();
        process.pending = process.pending.saturating_add(work.dispatches);
        process.busy.add_possible(begin, end);
        process.gpus.extend(work.node_id);
        let queue = self.queues.entry(work.queue).or_default();
        let queue = queue.of(work.pid, work.node_id);
        queue.pending = queue.pending.saturating_add(work.dispatches);
        queue.busy.add_possible(begin, end);
        let gpu = self.gpus.entry(work.node_id).or_default();
        gpu.busy.add_possible(begin, end);
    }

    /// Nodes of the GPUs that were used.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Option<u32>> {
        self.gpus.keys().copied()
    }

    /// The row of a GPU, without what its counters say.
    pub(crate) fn gpu_row(&mut self, node: Option<u32>, gpus: &Gpus) -> GpuRow {
        let mut row = GpuRow {
            node,
            name: gpus.agent_title(node),
            ..GpuRow::default()
        };
        if let Some(gpu) = self.gpus.get(&node) {
            row.busy = gpu.busy.time(self.begin, self.end);
            (row.kernels, row.copies, row.copied_bytes) = (gpu.kernels, gpu.copies, gpu.copied);
        } else {
            row.busy.ns = Some(0);
        }
        if let Some(estimate) = self.active(node) {
            row.active_ns = Some(estimate.value);
            row.active_error_ns = Some(estimate.error);
        }
        row
    }

    /// What a GPU's status register says of the interval; `None` if kernels can have run for long
    /// while it was not read.
    fn active(&mut self, node: Option<u32>) -> Option<Estimate> {
        let (begin, end) = (self.begin, self.end);
        let active = self.active.get_mut(&node)?;
        active.finish(end);
        let mut read = Intervals::default();
        active.spans().for_each(|(from, to)| read.insert(from, to));
        let gpu = self.gpus.get(&node);
        let unread = gpu.map_or(0, |gpu| gpu.busy.possible_outside(&read, begin, end));
        let is_complete = unread <= end.saturating_sub(begin) / UNREAD;
        active.estimate().filter(|_| is_complete)
    }

    /// Completes what is known of the processes. `vram` says how much video memory a process holds,
    /// bytes.
    pub(crate) fn complete(&mut self, vram: impl Fn(u32) -> Option<u64>) {
        for (pid, process) in &mut self.processes {
            process.vram = vram(*pid);
            process.busy_sum = process.busy.time(self.begin, self.end).ns;
        }
    }

    /// Sum of the busy times of all processes, ns; `None` if one is unknown.
    fn all_busy(&self) -> Option<u64> {
        self.processes
            .values()
            .map(|process| process.busy_sum)
            .sum()
    }

    /// The rows of the processes, without names.
    pub(crate) fn process_rows(&self) -> Vec<ProcessRow> {
        let all_busy = self.all_busy();
        let row = |(pid, process): (&u32, &Usage)| ProcessRow {
            pid: *pid,
            usage: process.shown(self.begin, self.end, all_busy),
            ..ProcessRow::default()
        };
        let mut rows: Vec<ProcessRow> = self.processes.iter().map(row).collect();
        rows.sort_by_key(|row| Reverse(row.usage.rank()));
        rows
    }

    /// The rows of groups of processes. `identity` says whose a process is.
    pub(crate) fn group_rows<'a>(
        &self,
        by: GroupBy,
        identity: impl Fn(u32) -> Option<&'a Identity>,
    ) -> Vec<GroupRow> {
        let mut groups: BTreeMap<Option<String>, (Vec<u32>, Usage)> = BTreeMap::new();
        for (pid, process) in &self.processes {
            let name = identity(*pid).and_then(|identity| by.name(identity));
            match groups.entry(name) {
                Entry::Vacant(none) => {
                    none.insert((vec![*pid], process.clone()));
                }
                Entry::Occupied(mut known) => {
                    let (pids, usage) = known.get_mut();
                    pids.push(*pid);
                    usage.join(process);
                }
            }
        }
        let all_busy = self.all_busy();
        let rows = groups.into_iter().map(|(name, (pids, usage))| GroupRow {
            name,
            pids,
            usage: usage.shown(self.begin, self.end, all_busy),
        });
        let mut rows: Vec<GroupRow> = rows.collect();
        rows.sort_by_key(|row| Reverse(row.usage.rank()));
        rows
    }

    /// The rows of the queues.
    pub(crate) fn queue_rows(&self, gpus: &Gpus) -> Vec<QueueRow> {
        let row = |(number, queue): (&u32, &Queue)| QueueRow {
            pid: queue.pid,
            queue: queue_id(*number),
            node: queue.node,
            gpu: gpus.agent_title(queue.node),
            busy: queue.busy.time(self.begin, self.end),
            kernels: queue.kernels,
            pending: queue.pending,
            launch_latency_ns: queue.latency.quantiles(),
        };
        let mut rows: Vec<QueueRow> = self.queues.iter().map(row).collect();
        rows.sort_by_key(|row| Reverse((row.busy.rank(), row.kernels, row.pending)));
        rows
    }

    /// The rows of the kernels.
    pub(crate) fn kernel_rows(&self) -> Vec<KernelRow> {
        let row = |(key, kernel): (&KernelKey, &Kernel)| {
            let (mean, error) = kernel.sum.mean();
            let is_known = kernel.sum.known() > 0;
            KernelRow {
                pid: key.0,
                name: kernel.name.clone(),
                calls: kernel.sum.count(),
                known: kernel.sum.known(),
                total_ns: u64::try_from(kernel.sum.total()).unwrap_or(u64::MAX),
                mean_ns: is_known.then_some(mean),
                mean_error_ns: if is_known { error } else { 0.0 },
            }
        };
        let mut rows: Vec<KernelRow> = self.kernels.iter().map(row).collect();
        rows.sort_by(|one, other| {
            let key = |row: &KernelRow| (row.total_ns, row.calls);
            key(other)
                .cmp(&key(one))
                .then_with(|| (one.pid, &one.name).cmp(&(other.pid, &other.name)))
        });
        rows
    }

    /// The rows of the functions.
    pub(crate) fn function_rows(&self, functions: &Functions) -> Vec<FunctionRow> {
        let row = |((pid, id), function): (&(u32, u32), &Function)| FunctionRow {
            pid: *pid,
            name: functions.name(*id).to_owned(),
            calls: function.calls,
            failed: function.failed,
            total_ns: function.total,
        };
        let mut rows: Vec<FunctionRow> = self.functions.iter().map(row).collect();
        rows.sort_by(|one, other| {
            let key = |row: &FunctionRow| (row.total_ns, row.calls);
            key(other)
                .cmp(&key(one))
                .then_with(|| (one.pid, &one.name).cmp(&(other.pid, &other.name)))
        });
        rows
    }
}
