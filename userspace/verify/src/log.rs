//! What the bundled program says it did: one JSON object per line.
//!
//! All moments are ns of `CLOCK_BOOTTIME`, which is ROCr's system domain, unless they are called ticks.

use serde::{Deserialize, Serialize};

/// A kernel of the bundled code objects. All spin; they differ by name, and one has private memory.
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
    /// All of them.
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

    /// How long it is told to spin, ns.
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
    /// Before the recorder comes, if it is to come to a running program; each kernel once.
    Before,
    /// One after the other, each with a completion signal that is used again, pauses between them.
    Single,
    /// Back to back, each with a signal of its own.
    Batch,
    /// Back to back, many for a doorbell, without signals but for the last one's.
    Plain,
    /// As [`Part::Plain`], for two seconds: so long that mean durations can be estimated.
    Stream,
    /// As [`Part::Plain`], one for a doorbell, with pauses.
    Gaps,
    /// With signals, in a queue whose packets get no stamps.
    Unstamped,
    /// Kernels with private memory.
    Scratch,
}

/// A dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Why.
    pub part: Part,
    /// `hsa_queue_t::id`.
    pub queue: u64,
    /// Index of the packet.
    pub index: u64,
    /// What.
    pub kernel: Kernel,
    /// Work-items.
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    pub workgroup: [u16; 3],
    /// For how many ticks it was to spin.
    pub ticks: u64,
    /// Whether it had a completion signal.
    pub signalled: bool,
    /// Just before the doorbell rang that told the GPU of it.
    pub rung_ns: u64,
    /// When it, or a packet behind it that waits for it, was seen to be complete; `None`: never.
    pub seen_ns: Option<u64>,
    /// Begin and end as the runtime tells them, of a signalled dispatch in a queue that has stamps.
    pub runtime_ns: Option<[u64; 2]>,
    /// What the kernel itself read from the clock at its begin and end; `None` if it wrote nothing.
    pub clock_ticks: Option<[u64; 2]>,
    /// The same as the runtime converts it.
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
    /// Within the GPU, which runtimes do by a kernel.
    Within,
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Direction.
    pub direction: Direction,
    /// How much.
    pub bytes: u64,
    /// Just before it was asked for.
    pub asked_ns: u64,
    /// When it was seen to be complete; `None`: never.
    pub seen_ns: Option<u64>,
    /// Begin and end as the runtime tells them; `None` if it does not.
    pub runtime_ns: Option<[u64; 2]>,
}

/// The read index was seen to have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The last look before, after which it had not changed yet.
    pub before_ns: u64,
    /// The look by which it had.
    pub seen_ns: u64,
    /// What it was then.
    pub index: u64,
}

/// One line.
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
        /// Ticks in a second, as the runtime converts them.
        frequency_hz: u64,
    },
    /// The runtime cannot be loaded.
    NoRuntime {
        /// Why not; may have paths.
        detail: String,
    },
    /// There is no GPU.
    NoGpu,
    /// There is no code object for the GPU.
    NoObject {
        /// Its instruction set.
        gfx: String,
    },
    /// Everything is there; it waits to be told to go on.
    Ready,
    /// A dispatch has ended or was given up.
    Dispatch(Dispatch),
    /// A copy has ended or was given up.
    Copy(Copy),
    /// What the read index of a queue was while packets were in it, as far as the program looked.
    ReadIndex {
        /// `hsa_queue_t::id`.
        queue: u64,
        /// What it was at the first look.
        from: u64,
        /// Each change.
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
        /// What: words without addresses.
        what: String,
    },
    /// Something else failed; the program gave up.
    Failed {
        /// What: words without addresses.
        what: String,
    },
    /// It has done everything.
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
