//! From calls to what they change about where the memory of a process is.
//!
//! The changes go to [`crate::derive::work`], which uses them in order of time with the copies.
//! Memory exists from the return of the call that makes it, and until the call that frees it
//! begins.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_capture::gpu::AgentKind;
use gputrace_catalog::{
    memory::Allocation,
    placement::{IPC_HANDLE_SIZE, Placement, placement},
};

use crate::model::{
    event::{Call, CallEnd, FunctionInfo},
    item::{Change, IpcHandle, PlacementChange, Whose},
    values::PointeeData,
};

/// Offsets of the words with node and kind in the bytes that are read of an agent, see
/// [`gputrace_abi::gpu::AGENT_WORDS`]. The bytes begin at the first of these words.
const AGENT_WORDS: [usize; 2] = [0, 24];

/// The functions that matter for the places of memory.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    functions: HashMap<u32, Placement, RandomState>,
}

impl Placements {
    /// Learns of a function. Returns whether it is one of those that place memory.
    pub(crate) fn function(&mut self, info: &FunctionInfo) -> bool {
        let function = &info.function;
        let found = placement(&function.name);
        if let Some(placement) = found {
            self.functions.insert(function.id, placement);
        }
        found.is_some()
    }

    /// What a call changes; `None` if nothing, or it failed.
    pub(crate) fn call(&self, call: &Call) -> Option<PlacementChange> {
        let placement = *self.functions.get(&call.function)?;
        if !matches!(call.how, CallEnd::Returned(status) if status as u32 == 0) {
            return None;
        }
        let what = change(call, placement)?;
        Some(PlacementChange {
            time: if ends(placement) {
                call.begin
            } else {
                call.end
            },
            pid: call.pid,
            what,
        })
    }
}

/// Whether something ends with such a call.
const fn ends(placement: Placement) -> bool {
    matches!(
        placement,
        Placement::Owned(Allocation::Free | Allocation::VmemFree)
            | Placement::Unlock
            | Placement::Detach
            | Placement::Unmap
            | Placement::InteropEnd
            | Placement::Unload
    )
}

fn change(call: &Call, placement: Placement) -> Option<Change> {
    let [first, second, _, fourth, ..] = call.args;
    let mapped = |address, bytes, whose| Change::Mapped {
        address,
        bytes,
        whose,
    };
    Some(match placement {
        Placement::Owned(Allocation::Allocate(word)) => {
            mapped(call.stored(word)?, second, Whose::Owner(owner(call)))
        }
        Placement::Owned(Allocation::VmemAllocate(word)) => Change::Handle {
            handle: call.stored(word)?,
            whose: Whose::Owner(owner(call)),
        },
        Placement::Owned(Allocation::Free) | Placement::Detach | Placement::InteropEnd => {
            Change::Unmapped { address: first }
        }
        // The memory stays while it is mapped. A later handle with this number replaces it.
        Placement::Owned(Allocation::VmemFree) => return None,
        Placement::Lock(word) => Change::Locked {
            host: first,
            bytes: second,
            seen_at: call.stored(word),
        },
        Placement::Register => Change::Locked {
            host: first,
            bytes: second,
            seen_at: None,
        },
        Placement::Unlock => Change::Unlocked { host: first },
        Placement::Share => Change::Shared {
            handle: ipc_handle(call, 2)?,
            address: first,
        },
        Placement::Attach => Change::Attached {
            handle: ipc_handle(call, 0)?,
            address: call.stored(4)?,
            bytes: second,
        },
        Placement::Import(word) => Change::Handle {
            handle: call.stored(word)?,
            whose: Whose::Unknown,
        },
        Placement::Retain => Change::HandleOf {
            handle: call.stored(0)?,
            address: second,
        },
        Placement::Map => Change::MappedHandle {
            address: first,
            bytes: second,
            handle: fourth,
        },
        Placement::Unmap => Change::Cleared {
            address: first,
            bytes: second,
        },
        Placement::Interop => mapped(call.stored(5)?, call.stored(4)?, Whose::Unknown),
        Placement::Unload => Change::Unloaded,
    })
}

/// The handle of shared memory that an argument word points to.
fn ipc_handle(call: &Call, word: u8) -> Option<IpcHandle> {
    let mut read = call.pointees.iter();
    let PointeeData::Bytes(bytes) = &read.find(|pointee| pointee.word == word)?.data else {
        return None;
    };
    bytes.first_chunk::<IPC_HANDLE_SIZE>().copied()
}

/// Node and kind of the agent whose pool or region a call was given, as each of the places in
/// ROCr's object that may hold them has it. Only one of them is the agent's.
pub(crate) fn owner(call: &Call) -> [Option<(u32, AgentKind)>; 2] {
    let owner = call
        .pointees
        .iter()
        .find(|pointee| pointee.word == 0 && !pointee.at_return);
    AGENT_WORDS.map(|at| {
        let PointeeData::Bytes(bytes) = &owner?.data else {
            return None;
        };
        let half = |from: usize| {
            let part = bytes.get(from..)?;
            let mut word = [0; 4];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            Some(u32::from_le_bytes(word))
        };
        // `core::Agent::DeviceType`.
        let kind = match half(at + 4)? {
            0 => AgentKind::Gpu,
            1 => AgentKind::Cpu,
            _ => return None,
        };
        Some((half(at)?, kind))
    })
}

#[cfg(test)]
mod tests;
