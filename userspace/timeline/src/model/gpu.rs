//! The GPU part of the event model: agents, queues, kernels, dispatches and copies. Times say how
//! well they are known.

pub use gputrace_tomography::Lengths;
use std::sync::Arc;

use gputrace_capture::{
    counter::Counter,
    gpu::{Agent, AgentKind, GpuClock, Kernel},
};
use gputrace_kfd::clock::ClockSample;

/// How well the times of a dispatch or copy are known, from least to best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quality {
    /// Only the time of submission is known.
    #[default]
    Submitted,
    /// It ran between its submission and a later event on the same queue whose time is exact.
    Bounded,
    /// As [`Quality::Bounded`], narrowed by watching the queue's read index. Begin and end are
    /// estimated from the index's pace, within the proven window.
    Sampled,
    /// The GPU wrote its begin and end into the completion signal.
    Exact,
}

impl Quality {
    /// The name that every output uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Bounded => "bounded",
            Self::Sampled => "sampled",
            Self::Exact => "exact",
        }
    }

    /// Whether begin and end are the exact or most likely times, not bounds. The length between
    /// them need not be known: see [`GpuTime::is_drawn`].
    #[must_use]
    pub const fn is_placed(self) -> bool {
        matches!(self, Self::Exact | Self::Sampled)
    }
}

/// A reading of whether a GPU was at work, for whatever process, or a spell of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// KFD topology node of the GPU; `None` if the GPU is unknown.
    pub node_id: Option<u32>,
    /// ns, `CLOCK_BOOTTIME`.
    pub time: u64,
    /// What was read.
    pub state: ActivityState,
    /// The time that the reading or spell stands for, ns: the mean of the random pauses before
    /// them; 0 if it was not made at a random moment.
    pub stands_for: u64,
    /// How much later than planned a single reading was made, ns.
    pub late: u32,
}

/// What an [`Activity`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityState {
    /// Readings begin. The GPU may have worked before, since the last ones ended.
    Begin,
    /// The GPU was idle.
    Idle,
    /// The GPU was at work.
    Active,
    /// A spell of readings is over.
    Spell {
        /// The share of its time in which the GPU was at work, millionths.
        active: u32,
        /// The share of its time in which the reader was interrupted, millionths.
        unseen: u32,
    },
    /// Readings end: the GPU was idle, and no work had been submitted for a while.
    End,
    /// The GPU does not show it; nothing is known until the next [`ActivityState::Begin`].
    Refused,
}

/// The interval in which something is proven to have happened; ns, `CLOCK_BOOTTIME`.
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
    /// How well the times are known.
    pub quality: Quality,
    /// Begin, ns `CLOCK_BOOTTIME`. With [`Quality::Exact`] it is correct to within the window, with
    /// [`Quality::Sampled`] the most likely time in the window, otherwise the earliest possible
    /// time.
    pub begin: u64,
    /// End, not before `begin`: exact, most likely, or the latest proven; equal to `begin` if
    /// nothing proves an end.
    pub end: u64,
    /// When it began.
    pub begin_window: Window,
    /// When it ended.
    pub end_window: Window,
    /// Whether it is known not to have ended when the recording stopped.
    pub unfinished: bool,
    /// Set where the length is the mean of the dispatch's class instead of its own: the class, and
    /// the error of its mean. `None` where begin and end are exact, or where the class has no mean.
    pub estimate: Option<Estimate>,
}

impl GpuTime {
    /// How much longer than its shortest possible length something between two looks may have
    /// taken to count as known, as a part of that length: one in this many. The looks then tell the
    /// length of each, and so sums of them, to within 10 %.
    const SLACK: u64 = 10;

    /// Whether how long it took is known, so that its begin and end may be drawn and added up. This
    /// is the one rule of all outputs: what is not drawn has no begin and no end in them, only
    /// bounds, and is in no total.
    ///
    /// * Exact times are drawn.
    /// * Work with the mean length of its class is drawn: sums over the class are right to within
    ///   the error of the mean.
    /// * Sampled times are drawn if looks bound the length closely. Otherwise the likely end is only
    ///   the begin of what was seen next, and the time between is not the kernel's.
    /// * Bounds are never drawn, nor is what had not ended.
    #[must_use]
    pub const fn is_drawn(&self) -> bool {
        if self.unfinished {
            return false;
        }
        match self.quality {
            Quality::Exact => true,
            Quality::Sampled => self.estimate.is_some() || self.is_bounded_closely(),
            Quality::Bounded | Quality::Submitted => self.estimate.is_some(),
        }
    }

    /// Begin, ns `CLOCK_BOOTTIME`; `None` if it is not drawn ([`GpuTime::is_drawn`]).
    #[must_use]
    pub fn drawn_begin(&self) -> Option<u64> {
        self.is_drawn().then_some(self.begin)
    }

    /// End, ns `CLOCK_BOOTTIME`; `None` if it is not drawn ([`GpuTime::is_drawn`]).
    #[must_use]
    pub fn drawn_end(&self) -> Option<u64> {
        self.is_drawn().then_some(self.end)
    }

    /// The shortest and the longest that it can have taken, ns; `None` if nothing proves that it
    /// has ended.
    #[must_use]
    pub const fn proven_length(&self) -> Option<(u64, u64)> {
        let (Some(begun), Some(ended)) = (self.begin_window.latest, self.end_window.latest) else {
            return None;
        };
        Some((
            self.end_window.earliest.saturating_sub(begun),
            ended.saturating_sub(self.begin_window.earliest),
        ))
    }

    const fn is_bounded_closely(&self) -> bool {
        match self.proven_length() {
            Some((least, most)) => most.saturating_sub(least) <= least / Self::SLACK,
            None => false,
        }
    }
}

/// The class whose mean duration a dispatch was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// [`KernelClass::number`].
    pub class: u32,
    /// Standard error of that mean when the dispatch was emitted, ns. Single dispatches may differ
    /// from the mean by more.
    pub error: u64,
}

/// A class of dispatches that are expected to take about the same time: same kernel, grid,
/// workgroup, process and agent. Means are estimated from everything known about when the GPU took
/// packets from queues.
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
    /// Size of the grid in work-items.
    pub grid: [u32; 3],
    /// Size of a workgroup in work-items.
    pub workgroup: [u32; 3],
    /// Its dispatches in the recording, including those with exact times.
    pub count: u64,
    /// Mean duration of a dispatch; `Some` only with [`Told::Apart`].
    pub mean: Option<Mean>,
    /// Whether the mean is known, and if not, why.
    pub told: Told,
    /// Its two lengths, if it clearly has two; `Some` only with [`Told::Apart`]. No dispatch is
    /// near the mean then.
    pub lengths: Option<Lengths>,
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// ns, finite, not negative.
    pub value: f64,
    /// Standard error, ns, finite, not negative: the truth is within two of them in about 95 % of
    /// cases.
    pub error: f64,
}

/// What could be found out about the duration of a class's dispatches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Told {
    /// Their mean is known.
    Apart,
    /// Only the sum with other classes that always run beside it is known.
    Mixed,
    /// Nothing says how long they take.
    #[default]
    Unseen,
}

impl Told {
    /// The name that every output uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::Mixed => "mixed",
            Self::Unseen => "unseen",
        }
    }
}

/// Converts a clock sample of the capture for the model of that GPU's clock.
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

/// An agent of the node, with its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentInfo {
    /// As recorded.
    pub agent: Agent,
    /// Number among all agents, from 0 in order of `node_id`: rocprofv3's `Agent N` (absolute).
    pub absolute_index: u32,
    /// Number among agents of its kind, from 0 in order of `node_id`.
    pub type_index: u32,
    /// Its name in outputs: `Agent N` by its number among all agents, unless the user has chosen
    /// another.
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
    /// Capacity of its ring in packets.
    pub packets: u32,
    /// The driver's number for it, if its creation was traced (`AMDKFD_IOC_CREATE_QUEUE`, matched
    /// by the ring's address).
    pub kfd_id: Option<u32>,
    /// Whether the queue is older than the recording, judging by its first packet here: packets
    /// executed before that one are unknown.
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
    /// Its name as declared in C++, for people; the mangled name if it cannot be demangled.
    pub demangled: String,
    /// The name that outputs show: `demangled`, unless the user has chosen another.
    pub shown: String,
    /// What the kernel does if it is one of HIP's own (`blitcl.cpp` of ROCclr); `None` for a kernel
    /// of the program.
    pub runtime: Option<RuntimeKernel>,
    /// Set where outputs name kernels after ranges: the kernel for which this is another name.
    pub renamed: Option<Renamed>,
}

/// A kernel renamed after the range in which it was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Renamed {
    /// Number of the kernel itself.
    pub kernel: u32,
    /// Number of the function that stands for the range's text (see [`Origin::range`]).
    pub range: u32,
}

impl KernelInfo {
    /// Suffix of the symbol of a kernel's descriptor (LLVM's `AMDGPUUsage`).
    const DESCRIPTOR: &str = ".kd";

    /// Number of the kernel that runs, regardless of its name in outputs.
    #[must_use]
    pub fn own_id(&self) -> u32 {
        self.renamed.map_or(self.id, |renamed| renamed.kernel)
    }

    /// The name that outputs show, or the mangled name if there is no other. Empty if it has no
    /// name.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        match self.shown.as_str() {
            "" => &self.kernel.name,
            shown => shown,
        }
    }

    /// Name of its descriptor's symbol: rocprofv3's `kernel_name`, and what `--mangled-kernels`
    /// shows. Empty if the kernel has no name.
    #[must_use]
    pub fn symbol(&self) -> String {
        match self.kernel.name.as_str() {
            "" => String::new(),
            name => format!("{name}{}", Self::DESCRIPTOR),
        }
    }

    /// Demangled name of its descriptor's symbol, as binutils and rocprofv3
    /// (`demangled_kernel_name`) write it: `scale(float*) [clone .kd]`, but `small.kd` for a C
    /// function.
    #[must_use]
    pub fn demangled_symbol(&self) -> String {
        if self.demangled == self.kernel.name || self.demangled.is_empty() {
            self.symbol()
        } else {
            format!("{} [clone {}]", self.demangled, Self::DESCRIPTOR)
        }
    }
}

/// What a kernel of HIP's own does. HIP uses kernels for small copies and fills, for those within
/// one GPU, and for all of them where SDMA engines are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuntimeKernel {
    /// Copies memory or images.
    Copy,
    /// Fills memory or images.
    Fill,
    /// Anything else: waits, schedules, sets up.
    Other,
}

impl RuntimeKernel {
    /// Prefix of the names of HIP's own kernels.
    const PREFIX: &str = "__amd_rocclr_";

    /// Determined from the kernel's name; `None` for a kernel of the program.
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

    /// The name that outputs use.
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

/// Who submitted work to the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Thread that submitted it; 0 if unknown: for a queue that was in use when the recording
    /// began, packets before the first observed doorbell, and packets whose doorbell was not seen.
    pub tid: u32,
    /// When, ns `CLOCK_BOOTTIME`; if `tid` is 0, a time at which the GPU had not taken it yet.
    pub time: u64,
    /// Correlation id of the innermost API call that submitted it; 0 if none is recorded.
    pub innermost: u64,
    /// Correlation id of the outermost such call.
    pub outermost: u64,
    /// Correlation id of the innermost such call that is not HSA's. HIP calls HSA, so where calls
    /// of both are recorded, this is the call by which programs and tools know the work. Equal to
    /// `innermost` if only calls of HSA are recorded, or if the capture lacks the call between.
    pub caller: u64,
    /// `hipStream_t` argument of such a call; 0 is the null stream, `None` if unknown.
    pub stream: Option<u64>,
    /// [`StreamInfo::number`](super::stream::StreamInfo::number) of this stream (rocprofv3's
    /// `Stream_Id`); 0 for a null stream or an unknown stream. Known when the event is emitted.
    pub stream_id: u32,
    /// Number of the stack of the outermost call ([`Event::Stack`](super::event::Event::Stack)), if
    /// one was recorded and is still known; 0 if too many new ones came at once. Known when the
    /// event is emitted.
    pub stack_number: Option<u32>,
    /// Whether one of HIP's own threads submitted it later than the call that asked for it
    /// (`AMD_DIRECT_DISPATCH=0`). That call is then `outermost`; it belongs to another thread and
    /// was found by the order of work in its stream.
    pub deferred: bool,
    /// The thread's innermost range (see [`crate::model::event::RangeKind::Nested`]), or the last
    /// mark directly inside it or outside all ranges: number of the function that stands for its
    /// text. Known when the event is emitted.
    pub range: Option<u32>,
    /// As in [`crate::model::event::Call`].
    pub external: Option<u64>,
}

/// What was read from a counter while a dispatch ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// A counter of the dispatch's agent, or of the dispatch's process on that agent. In merged
    /// captures, several counters may have the same number.
    pub counter: Arc<Counter>,
    /// Mean of the readings; for a counter that only grows, the growth from the first reading to
    /// the last. Finite.
    pub value: f64,
    /// Number of readings within the dispatch; at least two for a counter that only grows.
    pub readings: u64,
}

/// A kernel dispatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatch {
    /// Number in this timeline, dense from 1, about in the order of submission.
    pub id: u64,
    /// Who submitted it.
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
    /// Size of a workgroup in work-items.
    pub workgroup: [u32; 3],
    /// Size of the grid in work-items.
    pub grid: [u32; 3],
    /// Private memory of a work-item in bytes.
    pub private_size: u32,
    /// Group memory of a workgroup in bytes, including dynamic memory.
    pub group_size: u32,
    /// Address of the kernel arguments.
    pub kernarg: u64,
    /// Completion signal, 0 if none.
    pub signal: u64,
    /// Whether it waits for all packets before it.
    pub barrier: bool,
    /// Whether the packet was read from the ring later, see `packet_flags::READ_LATER`.
    pub read_later: bool,
    /// When it ran.
    pub time: GpuTime,
    /// Counters that were read while it ran, if it is drawn ([`GpuTime::is_drawn`]). Known
    /// when the event is emitted.
    pub readings: Vec<Reading>,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Unknown, because neither the memory nor the agents that the call names tell.
    #[default]
    Unknown,
    /// From host to host.
    HostToHost,
    /// From host to GPU.
    HostToDevice,
    /// From GPU to host.
    DeviceToHost,
    /// Within a GPU or between two GPUs.
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

/// What the direction of a copy follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KnownBy {
    /// Both source and destination are in memory of known agents: this is proven.
    Memory,
    /// The agents that the call names. They need not be those of the memory.
    Agents,
    /// The call of HIP that the copy belongs to, by its name or `hipMemcpyKind`. The program may be
    /// wrong.
    Call,
}

impl KnownBy {
    /// The name that every output uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Agents => "agents",
            Self::Call => "call",
        }
    }
}

/// A copy by an SDMA engine (or by one of ROCr's own kernels).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Number in this timeline, dense from 1.
    pub id: u64,
    /// Who submitted it.
    pub origin: Origin,
    /// Direction.
    pub direction: Direction,
    /// What the direction follows from; `None` if it is [`Direction::Unknown`].
    pub known_by: Option<KnownBy>,
    /// KFD topology node of the agent with the destination's memory; where that is not known, of
    /// the agent that the call names.
    pub destination_node: Option<u32>,
    /// The same for the source.
    pub source_node: Option<u32>,
    /// Kinds of the agents with the source's and the destination's memory, where the memory is
    /// known.
    pub memory_kinds: [Option<AgentKind>; 2],
    /// Destination address.
    pub destination: u64,
    /// Source address.
    pub source: u64,
    /// Bytes.
    pub bytes: u64,
    /// Engine as one bit; 0 if ROCr chose it.
    pub engine: u32,
    /// Completion signal, 0 if none.
    pub signal: u64,
    /// When it ran.
    pub time: GpuTime,
}
