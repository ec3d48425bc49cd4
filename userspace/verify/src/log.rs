//! Messages in which the bundled program reports what it did: one JSON object per line.
//!
//! All times are ns of `CLOCK_BOOTTIME`, which is ROCr's system domain, unless they are called
//! ticks.

use serde::{Deserialize, Serialize};

/// A kernel of the bundled code objects. All of them spin; they differ by name, and one has private
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    /// About 10 us.
    Short,
    /// About 60 us.
    Medium,
    /// About 400 us.
    Long,
    /// About 60 us, with 1 KiB of private memory for each work-item.
    Scratch,
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Self; 4] = [Self::Short, Self::Medium, Self::Long, Self::Scratch];

    /// Its name in the code object, without `.kd`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "gputrace_spin_short",
            Self::Medium => "gputrace_spin_medium",
            Self::Long => "gputrace_spin_long",
            Self::Scratch => "gputrace_spin_scratch",
        }
    }

    /// How long it is to spin, ns.
    #[must_use]
    pub const fn spins_ns(self) -> u64 {
        match self {
            Self::Short => 10_000,
            Self::Medium | Self::Scratch => 60_000,
            Self::Long => 400_000,
        }
    }
}

/// A part of what the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Before the recorder attaches to a running program: each kernel once.
    Before,
    /// One after the other with pauses, each with a reused completion signal.
    Single,
    /// Back to back, each with its own signal.
    Batch,
    /// Back to back, many per doorbell, with a signal only for the last.
    Plain,
    /// As [`Part::Plain`], but for two seconds, which is long enough to estimate mean durations.
    Stream,
    /// As [`Part::Plain`], but one per doorbell, with pauses.
    Gaps,
    /// With signals, in a queue whose packets get no stamps.
    Unstamped,
    /// Kernels with private memory.
    Scratch,
}

/// A dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The part of the program that it belongs to.
    pub part: Part,
    /// `hsa_queue_t::id`.
    pub queue: u64,
    /// Index of the packet.
    pub index: u64,
    /// The kernel.
    pub kernel: Kernel,
    /// Size of the grid in work-items.
    pub grid: [u32; 3],
    /// Size of a workgroup in work-items.
    pub workgroup: [u16; 3],
    /// Number of ticks that it was to spin.
    pub ticks: u64,
    /// Whether it had a completion signal.
    pub signalled: bool,
    /// Just before the doorbell that announced it rang.
    pub rung_ns: u64,
    /// When it, or a later packet that waits for it, was seen to be complete; `None`: never.
    pub seen_ns: Option<u64>,
    /// Begin and end according to the runtime, for a dispatch with a signal in a queue with stamps.
    pub runtime_ns: Option<[u64; 2]>,
    /// The clock as read by the kernel itself at its begin and end; `None` if it wrote nothing.
    pub clock_ticks: Option<[u64; 2]>,
    /// `clock_ticks` as converted by the runtime.
    pub clock_ns: Option<[u64; 2]>,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the GPU.
    ToDevice,
    /// From the GPU.
    ToHost,
    /// Within the GPU; runtimes use a kernel for it.
    Within,
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Direction.
    pub direction: Direction,
    /// Size in bytes.
    pub bytes: u64,
    /// Just before it was submitted.
    pub asked_ns: u64,
    /// When it was seen to be complete; `None`: never.
    pub seen_ns: Option<u64>,
    /// Begin and end according to the runtime; `None` if it has none.
    pub runtime_ns: Option<[u64; 2]>,
}

/// An observed change of the read index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Time before the last look at which it had not changed yet.
    pub before_ns: u64,
    /// Time after the look at which it had changed.
    pub seen_ns: u64,
    /// The new read index.
    pub index: u64,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum Said {
    /// The runtime is loaded and has a GPU.
    Machine {
        /// Process id.
        pid: u32,
        /// Version of the HSA interface.
        hsa: [u16; 2],
        /// The GPU's instruction set.
        gfx: String,
        /// KFD's topology node of the GPU.
        node: u32,
    },
    /// The GPU's clock.
    Clock {
        /// Ticks per second, as the runtime converts them.
        frequency_hz: u64,
    },
    /// The runtime could not be loaded.
    NoRuntime {
        /// The reason; may contain paths.
        detail: String,
    },
    /// There is no GPU.
    NoGpu,
    /// There is no code object for the GPU.
    NoObject {
        /// Its instruction set.
        gfx: String,
    },
    /// Everything is ready; the program waits to be told to go on.
    Ready,
    /// A dispatch has ended, or the program gave up waiting for it.
    Dispatch(Dispatch),
    /// A copy has ended, or the program gave up waiting for it.
    Copy(Copy),
    /// The course of a queue's read index while it contained packets, as far as the program looked.
    ReadIndex {
        /// `hsa_queue_t::id`.
        queue: u64,
        /// The read index at the first look.
        from: u64,
        /// All changes after that.
        changes: Vec<Change>,
    },
    /// The runtime reported an error of a queue.
    QueueError {
        /// `hsa_queue_t::id`.
        queue: u64,
        /// `hsa_status_t`.
        status: u32,
    },
    /// A dispatch or copy did not complete in time; the program gave up.
    Stuck {
        /// What was stuck, in words without addresses.
        what: String,
    },
    /// Something else failed; the program gave up.
    Failed {
        /// What failed, in words without addresses.
        what: String,
    },
    /// The program has done everything.
    Done,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back() {
        let said = Said::Copy(Copy {
            direction: Direction::Within,
            bytes: 4096,
            asked_ns: 1,
            seen_ns: None,
            runtime_ns: Some([2, 3]),
        });
        let line = serde_json::to_string(&said).unwrap();
        assert!(
            line.starts_with(r#"{"said":"copy","direction":"within""#),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
    }
}
