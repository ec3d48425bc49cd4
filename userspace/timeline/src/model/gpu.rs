//! The GPU's part of the event model: agents, queues, kernels, dispatches and copies, with times that say
//! how well they are known.

use std::sync::Arc;

use gputrace_capture::{
    counter::Counter,
    gpu::{Agent, GpuClock, Kernel},
};
use gputrace_kfd::clock::ClockSample;

/// How well the times of a dispatch or copy are known. The order is that of knowledge, least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quality {
    /// Only when it was submitted.
    #[default]
    Submitted,
    /// Between its submission and something later on the same queue whose time is exact.
    Bounded,
    /// As [`Quality::Bounded`], narrowed by watching the queue's read index. Begin and end are estimates by its pace,
    /// within what is proven.
    Sampled,
    /// The GPU wrote its begin and end into the completion signal.
    Exact,
}

impl Quality {
    /// The word that every output uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Bounded => "bounded",
            Self::Sampled => "sampled",
            Self::Exact => "exact",
        }
    }

    /// Whether a span of this quality may be drawn among the GPU's own: it is as long as it looks.
    #[must_use]
    pub const fn is_drawn(self) -> bool {
        matches!(self, Self::Exact | Self::Sampled)
    }
}

/// The moments between which something is proven to have happened; ns, `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Not before this.
    pub earliest: u64,
    /// Not after this; `None` if nothing proves that it has happened.
    pub latest: Option<u64>,
}

/// When the GPU worked on something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTime {
    /// What the rest is worth.
    pub quality: Quality,
    /// Begin, ns `CLOCK_BOOTTIME`. With [`Quality::Exact`] it is right within the windows; with [`Quality::Sampled`]
    /// it is the most likely one of its window; with less it is the earliest possible.
    pub begin: u64,
    /// End, not before `begin`: exact, most likely, or the latest proven; without any proof equal to `begin`.
    pub end: u64,
    /// When it began.
    pub begin_window: Window,
    /// When it ended.
    pub end_window: Window,
    /// Whether it is known not to have ended when the recording stopped.
    pub unfinished: bool,
    /// Where the length is that of the dispatch's class and not its own: which class, and how sure its mean is. `None` where
    /// begin and end are exact, or no class has told anything.
    pub estimate: Option<Estimate>,
}

impl GpuTime {
    /// Whether begin and end are a span of its own: exact, between looks, or as long as its class takes on average.
    #[must_use]
    pub const fn is_drawn(&self) -> bool {
        self.quality.is_drawn() || self.estimate.is_some()
    }
}

/// The class whose mean duration a dispatch was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// [`KernelClass::number`].
    pub class: u32,
    /// Standard error of that mean when the dispatch was given out, ns. Single dispatches may differ from the mean by more.
    pub error: u64,
}

/// Dispatches that are expected to take about the same time: of one kernel, with one grid and one workgroup, by one process on
/// one agent. Means are estimated from all that is known of when queues were taken from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelClass {
    /// Number in this timeline, dense from 0.
    pub number: u32,
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// KFD topology node of the agent, if known.
    pub node_id: Option<u32>,
    /// [`KernelInfo::id`]; `None` if no code object with this kernel was found.
    pub kernel: Option<u32>,
    /// `kernel_object` of the packets.
    pub kernel_object: u64,
    /// Work-items in all.
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    pub workgroup: [u32; 3],
    /// Its dispatches in the recording, also those with exact times.
    pub count: u64,
    /// Mean duration of a dispatch; `Some` only with [`Told::Apart`].
    pub mean: Option<Mean>,
    /// Whether there is such a mean, and why not.
    pub told: Told,
}

/// A mean and how far it may be from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// ns, finite, not negative.
    pub value: f64,
    /// Standard error, ns, finite, not negative: the truth is within two of them in about 95 % of cases.
    pub error: f64,
}

/// What could be told of how long the dispatches of a class take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Told {
    /// Their mean is known.
    Apart,
    /// Only what they take together with others that always run beside them is known.
    Mixed,
    /// Nothing says how long they take.
    #[default]
    Unseen,
}

impl Told {
    /// The word that every output uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::Mixed => "mixed",
            Self::Unseen => "unseen",
        }
    }
}

/// A sample of a GPU's clock from the capture, for a model of that clock.
#[must_use]
pub fn clock_sample(clock: &GpuClock) -> ClockSample {
    ClockSample {
        gpu_id: clock.gpu_id,
        gpu_tick: clock.tick,
        boottime_ns: clock.boottime,
        uncertainty_ns: clock.uncertainty,
        off_ns: clock.off,
        step_ns: clock.step,
    }
}

/// An agent of the node, with its number among those of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentInfo {
    /// As recorded.
    pub agent: Agent,
    /// Number among all agents, from 0 in order of `node_id`: rocprofv3's `Agent N` (absolute).
    pub absolute_index: u32,
    /// Number among agents of its kind, from 0 in order of `node_id`.
    pub type_index: u32,
    /// How outputs call it: `Agent N` by its number among all agents, unless the user wants another.
    pub label: String,
}

/// A queue of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueInfo {
    /// Number in this timeline, dense from 0.
    pub number: u32,
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// `hsa_queue_t::id`, unique in the process.
    pub id: u64,
    /// KFD topology node of its agent, if known.
    pub node_id: Option<u32>,
    /// Packets that its ring holds.
    pub packets: u32,
    /// The driver's number of it, if its creation was traced (`AMDKFD_IOC_CREATE_QUEUE`, joined by the ring's address).
    pub kfd_id: Option<u32>,
    /// Whether it is older than the recording, as far as its first packet here shows: nobody knows which packets were
    /// executed before that one.
    pub is_older: bool,
}

/// A kernel that dispatches refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// Number in this timeline, dense from 1 (rocprofv3's `Kernel_Id`).
    pub id: u32,
    /// Number of its code object, dense from 1.
    pub code_object: u32,
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// As recorded; `name` is mangled.
    pub kernel: Kernel,
    /// As C++ declares it: the name for people. The mangled one if it cannot be demangled.
    pub demangled: String,
    /// The name that outputs show: `demangled`, unless the user wants another.
    pub shown: String,
    /// What it does if it is one of HIP's own (`blitcl.cpp` of ROCclr); `None` for a kernel of the program's.
    pub runtime: Option<RuntimeKernel>,
    /// Of which kernel this is another name; `None`, but where outputs call kernels after ranges.
    pub renamed: Option<Renamed>,
}

/// A kernel that is called after the range in which it was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Renamed {
    /// Number of the kernel itself.
    pub kernel: u32,
    /// Number of the function that is the range's text (see [`Origin::range`]).
    pub range: u32,
}

impl KernelInfo {
    /// Suffix of the symbol of a kernel's descriptor (LLVM's `AMDGPUUsage`).
    const DESCRIPTOR: &str = ".kd";

    /// Number of the kernel that runs, whatever outputs call it.
    #[must_use]
    pub fn own_id(&self) -> u32 {
        self.renamed.map_or(self.id, |renamed| renamed.kernel)
    }

    /// The name that outputs show; the mangled one where there is no other. Empty if it has no name.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        match self.shown.as_str() {
            "" => &self.kernel.name,
            shown => shown,
        }
    }

    /// The name of its descriptor's symbol: rocprofv3's `kernel_name`, and what `--mangled-kernels` shows. Empty if it has no name.
    #[must_use]
    pub fn symbol(&self) -> String {
        match self.kernel.name.as_str() {
            "" => String::new(),
            name => format!("{name}{}", Self::DESCRIPTOR),
        }
    }

    /// That symbol demangled, as binutils and rocprofv3 (`demangled_kernel_name`) write it: `scale(float*) [clone .kd]`, but
    /// `small.kd` for a function of C.
    #[must_use]
    pub fn demangled_symbol(&self) -> String {
        if self.demangled == self.kernel.name || self.demangled.is_empty() {
            self.symbol()
        } else {
            format!("{} [clone {}]", self.demangled, Self::DESCRIPTOR)
        }
    }
}

/// What a kernel of HIP's own does. HIP copies and fills by kernels what is small, what stays on a GPU, and all
/// where SDMA engines are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuntimeKernel {
    /// Copies memory or images.
    Copy,
    /// Fills memory or images.
    Fill,
    /// Waits, schedules, sets up.
    Other,
}

impl RuntimeKernel {
    /// Names of HIP's own kernels begin so.
    const PREFIX: &str = "__amd_rocclr_";

    /// By the kernel's name; `None` for a kernel of the program's.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let name = name.strip_prefix(Self::PREFIX)?;
        Some(if name.starts_with("copy") {
            Self::Copy
        } else if name.starts_with("fill") {
            Self::Fill
        } else {
            Self::Other
        })
    }

    /// The word that outputs use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Other => "other",
        }
    }
}

/// A code object that a process has loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeObjectInfo {
    /// Number in this timeline, dense from 1.
    pub id: u32,
    /// As recorded, without its kernels.
    pub code_object: gputrace_capture::gpu::CodeObject,
}

/// Who asked for something that the GPU does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Thread that submitted it; 0 if nobody saw that: of a queue that was in use when the recorder came, packets
    /// before the first doorbell.
    pub tid: u32,
    /// When, ns `CLOCK_BOOTTIME`; with a `tid` of 0 when it had been submitted and not been taken by the GPU.
    pub time: u64,
    /// Correlation id of the innermost API call that submitted it; 0 if none is recorded.
    pub innermost: u64,
    /// Correlation id of the outermost.
    pub outermost: u64,
    /// `hipStream_t` that such a call was given; 0 is the null stream, `None` not known.
    pub stream: Option<u64>,
    /// Whether a thread of HIP's submitted it later than the call that asked for it (`AMD_DIRECT_DISPATCH=0`): that is the
    /// outermost, of another thread, and was found by the order of its stream.
    pub deferred: bool,
    /// The innermost range of the thread (see [`crate::model::event::RangeKind::Nested`]), or the last mark directly inside it or
    /// outside of all: number of the function that is its text. Known when the event is emitted.
    pub range: Option<u32>,
    /// As in [`crate::model::event::Call`].
    pub external: Option<u64>,
}

/// What was read of a counter while a dispatch ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Of the dispatch's agent: its own, or one of the dispatch's process on it. Of merged captures, several counters may
    /// have the same number.
    pub counter: Arc<Counter>,
    /// The mean of the readings; of a counter that only grows, by how much it grew from the first to the last. Finite.
    pub value: f64,
    /// Readings that lie within the dispatch; at least two of a counter that only grows.
    pub readings: u64,
}

/// A kernel dispatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatch {
    /// Number in this timeline, dense from 1, about in the order of submission.
    pub id: u64,
    /// Who asked.
    pub origin: Origin,
    /// [`QueueInfo::number`].
    pub queue: u32,
    /// KFD topology node of the agent, if known.
    pub node_id: Option<u32>,
    /// Index of the packet in the queue.
    pub index: u64,
    /// [`KernelInfo::id`]; `None` if no code object with this kernel was found.
    pub kernel: Option<u32>,
    /// `kernel_object` of the packet.
    pub kernel_object: u64,
    /// Work-items of a workgroup.
    pub workgroup: [u32; 3],
    /// Work-items in all.
    pub grid: [u32; 3],
    /// Bytes of private memory of a work-item.
    pub private_size: u32,
    /// Bytes of group memory of a workgroup, dynamic included.
    pub group_size: u32,
    /// Address of the arguments.
    pub kernarg: u64,
    /// Completion signal, 0 if none.
    pub signal: u64,
    /// Whether it waits for all packets before it.
    pub barrier: bool,
    /// Whether the packet was read from the ring later, see `packet_flags::READ_LATER`.
    pub read_later: bool,
    /// When.
    pub time: GpuTime,
    /// Counters that were read while it ran, if its times are real ([`Quality::is_drawn`]). Known when the event is emitted.
    pub readings: Vec<Reading>,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Not known: an agent could not be told.
    #[default]
    Unknown,
    /// Between two places of the host.
    HostToHost,
    /// To a GPU.
    HostToDevice,
    /// From a GPU.
    DeviceToHost,
    /// Within a GPU or between two.
    DeviceToDevice,
}

impl Direction {
    /// The name that rocprofiler prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "MEMORY_COPY_NONE",
            Self::HostToHost => "MEMORY_COPY_HOST_TO_HOST",
            Self::HostToDevice => "MEMORY_COPY_HOST_TO_DEVICE",
            Self::DeviceToHost => "MEMORY_COPY_DEVICE_TO_HOST",
            Self::DeviceToDevice => "MEMORY_COPY_DEVICE_TO_DEVICE",
        }
    }
}

/// A copy by an engine of a GPU (or by a kernel of ROCr's own).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Number in this timeline, dense from 1.
    pub id: u64,
    /// Who asked.
    pub origin: Origin,
    /// Direction.
    pub direction: Direction,
    /// KFD topology node of the destination's agent.
    pub destination_node: Option<u32>,
    /// KFD topology node of the source's agent.
    pub source_node: Option<u32>,
    /// Destination address.
    pub destination: u64,
    /// Source address.
    pub source: u64,
    /// Bytes.
    pub bytes: u64,
    /// Engine as one bit; 0 if ROCr chose.
    pub engine: u32,
    /// Completion signal, 0 if none.
    pub signal: u64,
    /// When.
    pub time: GpuTime,
}
