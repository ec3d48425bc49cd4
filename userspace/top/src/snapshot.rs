//! What is shown of an interval. These are also the members of the JSON lines, which
//! `docs/guide/top.md` describes.

use std::collections::BTreeMap;

use gputrace_capture::identity::Identity;
use serde::Serialize;

use crate::group::GroupBy;

/// Version of the JSON lines. It is incremented when a member is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// An interval of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// When it began, ns `CLOCK_BOOTTIME`.
    pub begin: u64,
    /// When it ended, ns `CLOCK_BOOTTIME`.
    pub end: u64,
    /// The time of day when it ended, ns since the Unix epoch.
    pub time_of_day: u64,
    /// What was lost.
    pub lost: Lost,
    /// Number of calls, kernels and copies whose interval had been shown when they became known.
    /// They are counted in this one.
    pub late: u64,
    /// Processors that gputrace has used since the snapshot before, on average; `None` if unknown.
    pub gputrace_cpus: Option<f64>,
    /// The GPUs, in order of their nodes.
    pub gpus: Vec<GpuRow>,
    /// The processes that called or used something, the busiest first.
    pub processes: Vec<ProcessRow>,
    /// The same in groups, as far as asked for, the busiest first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<GroupBy, Vec<GroupRow>>,
    /// The queues that were used, the busiest first.
    pub queues: Vec<QueueRow>,
    /// The kernels, those with the most time first.
    pub kernels: Vec<KernelRow>,
    /// The functions, those with the most time first.
    pub functions: Vec<FunctionRow>,
}

impl Snapshot {
    /// Length of the interval in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end.saturating_sub(self.begin) as f64 / 1e9
    }
}

/// Calls and records that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Since the snapshot before.
    pub now: u64,
    /// Since the beginning.
    pub total: u64,
}

/// How long a GPU worked in an interval, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Busy {
    /// Exact, or the sum of mean durations; `None` if kernels of unknown duration may have run.
    pub ns: Option<u64>,
    /// It was not less.
    pub least_ns: u64,
    /// It was not more.
    pub most_ns: u64,
}

impl Busy {
    /// By which rows are ordered.
    pub(crate) fn rank(&self) -> u64 {
        self.ns.unwrap_or(self.most_ns)
    }
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuRow {
    /// KFD topology node; `None` for work on an unknown GPU.
    pub node: Option<u32>,
    /// Name for people, e.g. `Agent 1 (gfx90a)`.
    pub name: String,
    /// PCI address, e.g. `0000:c3:00.0`. Partitions of a GPU have the same, and differ in `node`.
    pub pci: Option<String>,
    /// Time in which kernels of traced processes ran.
    pub busy: Busy,
    /// Time in which the GPU's status register said that it was at work, for whatever process, ns.
    /// Only for work whose end cannot be seen otherwise, and with enough readings.
    pub active_ns: Option<u64>,
    /// Its standard error, ns.
    pub active_error_ns: Option<u64>,
    /// Kernels that ended.
    pub kernels: u64,
    /// Copies that ended.
    pub copies: u64,
    /// Their size in bytes.
    pub copied_bytes: u64,
    /// Video memory in use by anybody, bytes.
    pub vram_used_bytes: Option<u64>,
    /// Video memory that the GPU has, bytes.
    pub vram_total_bytes: Option<u64>,
    /// Power, W.
    pub power_w: Option<f64>,
    /// Clock of the shaders, MHz.
    pub clock_mhz: Option<f64>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessRow {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// The program as people know it, with its arguments.
    pub command: String,
    /// Whose process it is; absent if nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// What it did.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Processes that have something in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupRow {
    /// Their container, pod, job or user; `None` for processes that belong to none.
    pub name: Option<String>,
    /// Their process ids, in order.
    pub pids: Vec<u32>,
    /// What they did together.
    #[serde(flatten)]
    pub usage: Usage,
}

/// What a process, or a group of them, did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// KFD topology nodes of the GPUs on which kernels ran or waited, in order.
    pub gpus: Vec<u32>,
    /// Calls that ended.
    pub calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Time in which kernels ran, on any GPU.
    pub busy: Busy,
    /// The part of the busy time in the sum of the busy times of all processes, 0 to 1; `None` if
    /// one is unknown, or all are 0.
    pub busy_share: Option<f64>,
    /// Kernels that ended.
    pub kernels: u64,
    /// Dispatches whose end was not known at the end of the interval: they wait, run, or are over.
    pub pending: u64,
    /// Copies that ended.
    pub copies: u64,
    /// Their size in bytes.
    pub copied_bytes: u64,
    /// Time from submission to begin, of the kernels whose begin is exact, ns.
    pub launch_latency_ns: Option<Quantiles>,
    /// Video memory in use, bytes.
    pub vram_bytes: Option<u64>,
    /// Time that tracing took of the threads, by the prices of `gputrace_export::costs`, ns.
    pub cost_ns: u64,
}

impl Usage {
    /// By which rows are ordered.
    pub(crate) fn rank(&self) -> (u64, u64, u64) {
        (self.busy.rank(), self.kernels, self.calls)
    }
}

/// A queue of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueRow {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// rocprofv3's `Queue_Id`, as in all outputs of a recording.
    pub queue: u64,
    /// KFD topology node of its GPU, if known.
    pub node: Option<u32>,
    /// Name of the GPU for people.
    pub gpu: String,
    /// Time in which its kernels ran.
    pub busy: Busy,
    /// Kernels that ended.
    pub kernels: u64,
    /// Dispatches whose end was not known at the end of the interval.
    pub pending: u64,
    /// Time from submission to begin, of the kernels whose begin is exact, ns.
    pub launch_latency_ns: Option<Quantiles>,
}

/// Quantiles, exact to 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: u64,
    /// 99 % are not larger.
    pub p99: u64,
}

/// A kernel of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelRow {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// How often it ended.
    pub calls: u64,
    /// How many of the calls have a known duration.
    pub known: u64,
    /// Sum of the known durations, ns.
    pub total_ns: u64,
    /// Mean of the known durations, ns; `None` if there are none.
    pub mean_ns: Option<f64>,
    /// Standard error of the mean, ns; 0 if all are exact.
    pub mean_error_ns: f64,
}

/// A function that a process called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunctionRow {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Calls that ended.
    pub calls: u64,
    /// How many of them returned an error.
    pub failed: u64,
    /// Sum of their durations, ns. Calls inside others count in both.
    pub total_ns: u64,
}
