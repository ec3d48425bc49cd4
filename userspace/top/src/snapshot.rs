//! What is shown of an interval. These are also the members of the JSON lines, which
//! `docs/guide/top.md` describes.

use gputrace_capture::identity::Identity;
use serde::Serialize;

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
    /// The GPUs, in order of their nodes.
    pub gpus: Vec<GpuRow>,
    /// The processes that called or used something, the busiest first.
    pub processes: Vec<ProcessRow>,
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

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuRow {
    /// KFD topology node; `None` for work on an unknown GPU.
    pub node: Option<u32>,
    /// Name for people, e.g. `Agent 1 (gfx90a)`.
    pub name: String,
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
    /// Calls that ended.
    pub calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Time in which its kernels ran, on any GPU.
    pub busy: Busy,
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
    /// Video memory that it holds, bytes.
    pub vram_bytes: Option<u64>,
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
