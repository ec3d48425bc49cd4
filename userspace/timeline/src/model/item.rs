//! Inputs for deriving the GPU's work, in order of time.

use gputrace_abi::{
    gpu::{Activity, Completion, Copy, Packet, QueueState, ScratchState},
    record::{Task, task_op},
};
use gputrace_capture::gpu::AgentKind;
use gputrace_catalog::placement::IPC_HANDLE_SIZE;

/// A record about the GPU's work, or another event that matters to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item {
    Packet(Packet),
    Completion(Completion),
    Copy(Copy),
    Queue(QueueState),
    Scratch(ScratchState),
    Activity(Activity),
    /// The driver has created a queue.
    Ring(Ring),
    /// A call changed where a process has memory.
    Placement(PlacementChange),
    /// The process executed another program, or the process id was reused.
    Restart {
        time: u64,
        pid: u32,
    },
    /// The process's main thread ended.
    Exit {
        time: u64,
        pid: u32,
    },
}

impl Item {
    /// What the beginning or end of a task means for the GPU's work.
    pub(crate) fn of_task(task: &Task) -> Option<Item> {
        let (time, pid) = (task.time, task.pid);
        match task.op {
            task_op::FORK | task_op::EXEC => Some(Item::Restart { time, pid }),
            task_op::EXIT if task.tid == pid => Some(Item::Exit { time, pid }),
            _ => None,
        }
    }

    /// Time of the item, ns `CLOCK_BOOTTIME`.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Self::Packet(packet) => packet.time,
            Self::Completion(reading) => reading.time,
            Self::Copy(copy) => copy.time,
            Self::Queue(state) => state.time,
            Self::Scratch(state) => state.time,
            Self::Activity(reading) => reading.time,
            Self::Ring(ring) => ring.time,
            Self::Placement(change) => change.time,
            Self::Restart { time, .. } | Self::Exit { time, .. } => *time,
        }
    }
}

/// A queue that the driver created (`AMDKFD_IOC_CREATE_QUEUE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) time: u64,
    pub(crate) pid: u32,
    /// Address of the packets, by which it is matched with HSA's queue.
    pub(crate) address: u64,
    pub(crate) queue: KfdQueue,
}

/// A queue by its number in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KfdQueue {
    pub(crate) id: u32,
    pub(crate) gpu_id: u32,
}

/// A change of where a process has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacementChange {
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) time: u64,
    pub(crate) pid: u32,
    pub(crate) what: Change,
}

/// An `hsa_amd_ipc_memory_t`.
pub(crate) type IpcHandle = [u8; IPC_HANDLE_SIZE];

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// There is memory at an address from now on.
    Mapped {
        address: u64,
        bytes: u64,
        whose: Whose,
    },
    /// The memory that begins at an address is no longer there.
    Unmapped { address: u64 },
    /// There is no longer memory in a range of addresses.
    Cleared { address: u64, bytes: u64 },
    /// Memory of the host is pinned; GPUs see it at `seen_at`, or at its own address.
    Locked {
        host: u64,
        bytes: u64,
        seen_at: Option<u64>,
    },
    /// It is no longer pinned.
    Unlocked { host: u64 },
    /// A handle stands for memory.
    Handle { handle: u64, whose: Whose },
    /// A handle stands for the memory at an address.
    HandleOf { handle: u64, address: u64 },
    /// There is memory that a handle stands for at an address.
    MappedHandle {
        address: u64,
        bytes: u64,
        handle: u64,
    },
    /// Other processes may map the memory at an address by a handle.
    Shared { handle: IpcHandle, address: u64 },
    /// Memory of another process is mapped.
    Attached {
        handle: IpcHandle,
        address: u64,
        bytes: u64,
    },
    /// Code objects were unloaded.
    Unloaded,
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// That of an agent; only one of these exists.
    Owner([Option<(u32, AgentKind)>; 2]),
    /// Not known.
    Unknown,
}
