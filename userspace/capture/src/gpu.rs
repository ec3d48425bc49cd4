//! Metadata about GPUs: agents, their clocks, queues, code objects.
//!
//! Stored like the rest of [`crate::meta`], one JSON document per block.

use serde::{Deserialize, Serialize};

/// A CPU or GPU of the node as ROCm knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// KFD topology node.
    pub node_id: u32,
    /// KFD's id of a GPU, 0 for a CPU.
    pub gpu_id: u32,
    /// Which of the two.
    pub kind: AgentKind,
    /// `gfx90a` and the like; a CPU's model name.
    pub name: String,
    /// `AMD` or `CPU`.
    pub vendor_name: String,
    /// Name of the product for people.
    pub product_name: String,
    /// Name of the ASIC in the topology.
    pub model_name: String,
    /// The numeric columns of rocprofv3's `agent_info`, by their names there and in its order, and then what else its JSON
    /// says in numbers.
    pub info: Vec<(String, u64)>,
}

/// Kind of an [`Agent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// CPU.
    #[default]
    Cpu,
    /// GPU.
    Gpu,
}

/// The same moment on a GPU's clock and on the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuClock {
    /// Which GPU: [`Agent::gpu_id`].
    pub gpu_id: u32,
    /// Ticks of its clock.
    pub tick: u64,
    /// ns, `CLOCK_BOOTTIME`.
    pub boottime: u64,
    /// By how much `boottime` can be wrong, ns.
    pub uncertainty: u64,
    /// Samples were left out before this one, since the last that was written: at none of them the line between
    /// the two is off by more than this, ns. 0 if none were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off: u64,
    /// The longest time between two of these, ns; 0 if none were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub step: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A queue of a process, written when it is first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// When it was first seen, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// Address of its `hsa_queue_t`. Another queue may have it later.
    pub address: u64,
    /// `hsa_queue_t::id`, unique in the process.
    pub id: u64,
    /// KFD topology node of its agent; `None` if that could not be found out.
    pub node_id: Option<u32>,
    /// Packets that its ring holds.
    pub packets: u32,
}

/// What an `hsa_agent_t` of a process stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHandle {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// `hsa_agent_t::handle`.
    pub handle: u64,
    /// KFD topology node.
    pub node_id: u32,
}

/// A code object that a process has loaded, written when it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeObject {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// When it was found, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// Where it came from, as ROCr's loader says: `file://…` or `memory://…`.
    pub uri: String,
    /// First address of the loaded segments.
    pub load_base: u64,
    /// Bytes of them.
    pub load_size: u64,
    /// Load address minus the ELF's own addresses.
    pub load_delta: i64,
    /// Target, e.g. `amdgcn-amd-amdhsa--gfx90a:xnack-`.
    pub target: String,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
}

/// A kernel of a code object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// `kernel_object` in dispatch packets: where its descriptor is loaded.
    pub object: u64,
    /// Mangled name, without `.kd`.
    pub name: String,
    /// Bytes of arguments.
    pub kernarg_size: u32,
    /// Their alignment.
    pub kernarg_alignment: u32,
    /// Bytes of static group (LDS) memory.
    pub group_size: u32,
    /// Bytes of private (scratch) memory of a work-item.
    pub private_size: u32,
    /// Registers as rocprofv3 counts them.
    pub sgpr_count: u32,
    /// Architected vector registers.
    pub arch_vgpr_count: u32,
    /// Accumulation vector registers.
    pub accum_vgpr_count: u32,
}

/// Which process an address-space number of the GPUs stands for, written when it is found. The driver gives a number to
/// another process when this one has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pasid {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// The number: what interrupts carry.
    pub pasid: u64,
}

/// A line of what the driver tells of a GPU (`AMDKFD_IOC_SMI_EVENTS`), as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KfdEvent {
    /// Of which GPU: [`Agent::gpu_id`].
    pub gpu_id: u32,
    /// When it was read, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// The line, without its end.
    pub line: String,
}
