//! ROCr's own objects behind handles, as far as other programs read them.
//!
//! The handle of an agent is the address of a `core::Agent`, and a `SharedQueue` ends with the
//! address of a `core::Queue`. Tracers and debuggers read there which GPU a queue belongs to. Each
//! object begins with its virtual function table and an id by which it is recognised. Sources:
//! ROCr's `core/inc/checked.h`, `agent.h`, `queue.h`; the offsets of the fields are those of ROCm
//! 5.2 to 6.4.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{abi::AgentHandle, newer::Newer};

/// `CheckedType` of `core::Checked` for agents.
const AGENT_MARK: u64 = 0xf6bc_25eb_17e6_f917;
/// `CheckedType` of `core::Checked` for queues.
const QUEUE_MARK: u64 = 0xfa39_06a6_79f9_db49;

/// The beginning of every object.
#[derive(Debug)]
#[repr(C)]
struct Checked {
    /// Virtual function table; there is none.
    functions: AtomicU64,
    /// The address of this word XOR the id of the class.
    id: AtomicU64,
}

impl Checked {
    const fn new() -> Self {
        Self {
            functions: AtomicU64::new(0),
            id: AtomicU64::new(0),
        }
    }

    /// Sets the id of the object, which must not move afterwards.
    fn mark(&self, mark: u64) {
        let mark = if Newer::MovedFields.wanted() {
            !mark
        } else {
            mark
        };
        let own = std::ptr::from_ref(&self.id) as u64;
        self.id.store(own ^ mark, Ordering::Relaxed);
    }
}

/// Kind of agent, `core::Agent::DeviceType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    /// A GPU.
    Gpu = 0,
    /// A CPU.
    Cpu = 1,
}

/// `core::Agent`.
#[derive(Debug)]
#[repr(C)]
pub struct CoreAgent {
    checked: Checked,
    public_handle: AtomicU64,
    /// KFD's topology node number; the upper half is the [`DeviceType`].
    node: AtomicU64,
    /// Other fields.
    rest: [AtomicU64; 4],
}

impl CoreAgent {
    /// An agent without a topology node.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            checked: Checked::new(),
            public_handle: AtomicU64::new(0),
            node: AtomicU64::new(0),
            rest: [const { AtomicU64::new(0) }; 4],
        }
    }

    /// Makes it the agent of a topology node. May be repeated.
    pub fn describe(&'static self, node: u32, device: DeviceType) {
        let device = (device as u64) << 32;
        self.node.store(device | u64::from(node), Ordering::Relaxed);
        self.public_handle.store(self.handle().0, Ordering::Relaxed);
        self.checked.mark(AGENT_MARK);
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&'static self) -> AgentHandle {
        AgentHandle(std::ptr::from_ref(self) as u64)
    }
}

impl Default for CoreAgent {
    fn default() -> Self {
        Self::new()
    }
}

/// `core::Queue`, with the relevant field of `AqlQueue`: its agent.
#[derive(Debug)]
#[repr(C)]
pub struct CoreQueue {
    checked: Checked,
    /// Other fields.
    rest: [AtomicU64; 14],
    agent: AtomicU64,
}

impl CoreQueue {
    /// The object of a queue of this agent. It does not move.
    #[must_use]
    pub fn new(agent: AgentHandle) -> Arc<Self> {
        let queue = Arc::new(Self {
            checked: Checked::new(),
            rest: [const { AtomicU64::new(0) }; 14],
            agent: AtomicU64::new(agent.0),
        });
        queue.checked.mark(QUEUE_MARK);
        queue
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn objects_are_laid_out_as_in_rocr() {
        assert_eq!(offset_of!(CoreAgent, public_handle), 16);
        assert_eq!(offset_of!(CoreAgent, node), 24);
        assert_eq!(offset_of!(CoreQueue, agent), 16 * 8);
    }

    #[test]
    fn an_object_bears_its_mark() {
        static AGENT: CoreAgent = CoreAgent::new();
        AGENT.describe(3, DeviceType::Cpu);
        let id = AGENT.handle().0 + 8;
        assert_eq!(AGENT.checked.id.load(Ordering::Relaxed), id ^ AGENT_MARK);
        assert_eq!(AGENT.node.load(Ordering::Relaxed), 0x1_0000_0003);
        let queue = CoreQueue::new(AGENT.handle());
        let id = queue.address() + 8;
        assert_eq!(queue.checked.id.load(Ordering::Relaxed), id ^ QUEUE_MARK);
    }
}
