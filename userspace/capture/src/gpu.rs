//! Metadata about GPUs: agents, their clocks, queues, code objects.
//!
//! Like the rest of [`crate::meta`], it is stored as one JSON document per block.

use serde::{Deserialize, Serialize};

/// A CPU or GPU of the node as ROCm knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// KFD topology node.
    pub node_id: u32,
    /// KFD's id of a GPU, 0 for a CPU.
    pub gpu_id: u32,
    /// CPU or GPU.
    pub kind: AgentKind,
    /// Instruction set, such as `gfx90a`; a CPU's model name.
    pub name: String,
    /// `AMD` or `CPU`.
    pub vendor_name: String,
    /// Product name.
    pub product_name: String,
    /// Name of the ASIC in the topology.
    pub model_name: String,
    /// The numeric columns of rocprofv3's `agent_info`, with their names and in their order there,
    /// followed by further numbers from its JSON.
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

/// Readings of a GPU's clock and the host's at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuClock {
    /// [`Agent::gpu_id`] of the GPU.
    pub gpu_id: u32,
    /// Ticks of its clock.
    pub tick: u64,
    /// Host time, ns `CLOCK_BOOTTIME`.
    pub boottime: u64,
    /// Maximum error of `boottime`, ns.
    pub uncertainty: u64,
    /// If samples were left out since the previous one: maximum distance of any of them from the
    /// line between the two, ns. 0 if none were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off: u64,
    /// Longest time between two of these samples, ns; 0 if none were left out.
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
    /// Address of its `hsa_queue_t`. Another queue may have the same address later.
    pub address: u64,
    /// `hsa_queue_t::id`, unique in the process.
    pub id: u64,
    /// KFD topology node of its agent; `None` if that is unknown.
    pub node_id: Option<u32>,
    /// Number of packets that its ring holds.
    pub packets: u32,
}

/// The agent that an `hsa_agent_t` of a process stands for.
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
    /// Origin of the code object according to ROCr's loader: `file://…` or `memory://…`.
    pub uri: String,
    /// First address of the loaded segments.
    pub load_base: u64,
    /// Size of the loaded segments, bytes.
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
    /// `kernel_object` in dispatch packets: the address of its descriptor.
    pub object: u64,
    /// Mangled name, without `.kd`.
    pub name: String,
    /// Size of its arguments, bytes.
    pub kernarg_size: u32,
    /// Alignment of its arguments, bytes.
    pub kernarg_alignment: u32,
    /// Static group (LDS) memory, bytes.
    pub group_size: u32,
    /// Private (scratch) memory per work-item, bytes.
    pub private_size: u32,
    /// Number of scalar registers, as rocprofv3 counts them.
    pub sgpr_count: u32,
    /// Number of architected vector registers.
    pub arch_vgpr_count: u32,
    /// Number of accumulation vector registers.
    pub accum_vgpr_count: u32,
}

/// The process to which a PASID (address-space id on the GPUs) belongs, written when it is found.
/// The driver reuses the number when the process has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pasid {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// The PASID, as in interrupts.
    pub pasid: u64,
}

/// An SMI event of the driver about a GPU (`AMDKFD_IOC_SMI_EVENTS`), as an unchanged line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KfdEvent {
    /// [`Agent::gpu_id`] of the GPU.
    pub gpu_id: u32,
    /// When it was read, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// The line, without its end.
    pub line: String,
}
