//! Inputs for deriving the GPU's work, in order of time.

use gputrace_abi::{
    gpu::{Completion, Copy, Packet, QueueState, ScratchState},
    record::{Task, task_op},
};

/// A record about the GPU's work, or another event that matters to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item {
    Packet(Packet),
    Completion(Completion),
    Copy(Copy),
    Queue(QueueState),
    Scratch(ScratchState),
    /// The driver has created a queue.
    Ring(Ring),
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
            Self::Ring(ring) => ring.time,
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
