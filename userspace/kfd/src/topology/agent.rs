//! A node as rocprofiler-sdk presents it: the columns of rocprofv3's `agent_info`.
//!
//! The columns are derived from the properties as in rocprofiler-sdk's `linux_kfd_provider.cpp`;
//! their order is that of its `generateCSV.cpp`.

use std::fmt;

use super::{Node, names};
use crate::paths::Paths;

/// Type of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentType {
    /// The agent has CPU cores and no SIMDs.
    Cpu,
    /// The agent has SIMDs. An APU, which also has CPU cores, counts as a GPU.
    Gpu,
    /// The agent has neither.
    #[default]
    Unknown,
}

impl AgentType {
    /// Name as rocprofv3 writes it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Unknown => "UNK",
        }
    }
}

/// Address of a device on the PCI bus, shown as the kernel writes it: `0000:0a:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8. On newer kernels, the partitions of a GPU are numbered
    /// here.
    pub function: u8,
}

impl PciAddress {
    /// Decodes the properties `domain` and `location_id`: bus in bits 15 to 8, device in 7 to 3,
    /// function in 2 to 0. `None` if they have more bits.
    #[must_use]
    pub fn new(domain: u64, location_id: u64) -> Option<Self> {
        let domain = u32::try_from(domain).ok()?;
        let [bus, slot] = u16::try_from(location_id).ok()?.to_be_bytes();
        Some(Self {
            domain,
            bus,
            device: slot >> 3,
            function: slot & 7,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentValue<'a> {
    /// A number.
    Number(u64),
    /// Text, which rocprofv3 puts in quotes.
    Text(&'a str),
}

impl fmt::Display for AgentValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// A node as rocprofiler-sdk presents it. Values that the kernel does not provide, or that do not
/// apply to a CPU, are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// KFD's number of the node.
    pub node_id: u32,
    /// Number among the agents, from 0.
    pub logical_node_id: u64,
    /// CPU or GPU.
    pub agent_type: AgentType,
    /// Number among the agents of its type, from 0.
    pub logical_node_type_id: u64,
    /// CPU cores.
    pub cpu_cores_count: u64,
    /// SIMDs of all compute units.
    pub simd_count: u64,
    /// APIC id of the first core.
    pub cpu_core_id_base: u64,
    /// Number of the first SIMD.
    pub simd_id_base: u64,
    /// Maximum number of wavefronts on a SIMD.
    pub max_waves_per_simd: u64,
    /// LDS per compute unit, KiB.
    pub lds_size_in_kb: u64,
    /// GDS per wavefront, KiB.
    pub gds_size_in_kb: u64,
    /// Global wave syncs.
    pub num_gws: u64,
    /// Lanes of a wavefront.
    pub wave_front_size: u64,
    /// Accelerator complexes; 1 if the kernel does not say (before Linux 6.5).
    pub num_xcc: u64,
    /// Number of compute units: SIMDs divided by SIMDs per unit. For a CPU, its cores.
    pub cu_count: u64,
    /// SIMD arrays.
    pub array_count: u64,
    /// Number of shader engines: arrays divided by arrays per engine.
    pub num_shader_banks: u64,
    /// SIMD arrays of a shader engine.
    pub simd_arrays_per_engine: u64,
    /// Compute units of a SIMD array.
    pub cu_per_simd_array: u64,
    /// SIMDs of a compute unit.
    pub simd_per_cu: u64,
    /// Wavefronts with scratch memory per compute unit.
    pub max_slots_scratch_cu: u64,
    /// major × 10000 + minor × 100 + stepping, decimal; see [`gfx_name`](super::gfx_name).
    pub gfx_target_version: u64,
    /// PCI vendor.
    pub vendor_id: u64,
    /// PCI device.
    pub device_id: u64,
    /// Bus, device and function on the PCI bus; see [`PciAddress`].
    pub location_id: u64,
    /// PCI domain.
    pub domain: u64,
    /// Minor number of the render node.
    pub drm_render_minor: u64,
    /// SDMA engines for PCI.
    pub num_sdma_engines: u64,
    /// SDMA engines for XGMI.
    pub num_sdma_xgmi_engines: u64,
    /// Queues of an SDMA engine.
    pub num_sdma_queues_per_engine: u64,
    /// Compute queues.
    pub num_cp_queues: u64,
    /// Highest clock of the CPU, MHz.
    pub max_engine_clk_ccompute: u64,
    /// Highest clock of the GPU, MHz.
    pub max_engine_clk_fcompute: u64,
    /// Firmware of the SDMA engines: the low ten bits, as rocprofiler-sdk shows it.
    pub sdma_fw_version: u64,
    /// Firmware of the command processor: the low ten bits.
    pub fw_version: u64,
    /// `HSA_CAPABILITY` bits.
    pub capability: u64,
    /// Compute units of a shader engine.
    pub cu_per_engine: u64,
    /// Wavefronts of a compute unit.
    pub max_waves_per_cu: u64,
    /// For a GPU, amdgpu's chip family (`AMDGPU_FAMILY_*`); for a CPU, its family.
    pub family_id: u64,
    /// Maximum number of work-items in a workgroup.
    pub workgroup_max_size: u64,
    /// Maximum number of work-items in a grid, per dimension.
    pub grid_max_size: u64,
    /// VRAM according to KFD, bytes; most kernels say 0.
    pub local_mem_size: u64,
    /// XGMI hive.
    pub hive_id: u64,
    /// KFD's id of the GPU; 0 for a CPU.
    pub gpu_id: u32,
    /// Maximum number of work-items in a workgroup, by dimension.
    pub workgroup_max_dim: [u64; 3],
    /// Maximum number of work-items in a grid, by dimension.
    pub grid_max_dim: [u64; 3],
    /// For a GPU, its instruction set, such as `gfx90a`; for a CPU, its model.
    pub name: String,
    /// `AMD`, or `CPU`.
    pub vendor_name: String,
    /// Product name; `unknown` if it cannot be found.
    pub product_name: String,
    /// KFD's name of the chip, such as `vega20`; empty for a CPU.
    pub model_name: String,
    /// Number of the node's kinds of memory. Not a column of `agent_info`, like the next two.
    pub mem_banks_count: u64,
    /// Number of its caches.
    pub caches_count: u64,
    /// Number of its links to other nodes.
    pub io_links_count: u64,
    /// PCI address of a GPU. Not a column of `agent_info`.
    pub pci_address: Option<PciAddress>,
    /// Unique number of the GPU, the `GPU-...` of `ROCR_VISIBLE_DEVICES`; 0 if it has none. Not a
    /// column of `agent_info`.
    pub unique_id: u64,
}

impl Agent {
    /// All columns of `agent_info` in rocprofv3's order, with their names.
    #[must_use]
    pub fn columns(&self) -> Vec<(&'static str, AgentValue<'_>)> {
        use AgentValue::{Number, Text};
        let [
            workgroup_max_dim_x,
            workgroup_max_dim_y,
            workgroup_max_dim_z,
        ] = self.workgroup_max_dim;
        let [grid_max_dim_x, grid_max_dim_y, grid_max_dim_z] = self.grid_max_dim;
        vec![
            ("Node_Id", Number(self.node_id.into())),
            ("Logical_Node_Id", Number(self.logical_node_id)),
            ("Agent_Type", Text(self.agent_type.label())),
            ("Cpu_Cores_Count", Number(self.cpu_cores_count)),
            ("Simd_Count", Number(self.simd_count)),
            ("Cpu_Core_Id_Base", Number(self.cpu_core_id_base)),
            ("Simd_Id_Base", Number(self.simd_id_base)),
            ("Max_Waves_Per_Simd", Number(self.max_waves_per_simd)),
            ("Lds_Size_In_Kb", Number(self.lds_size_in_kb)),
            ("Gds_Size_In_Kb", Number(self.gds_size_in_kb)),
            ("Num_Gws", Number(self.num_gws)),
            ("Wave_Front_Size", Number(self.wave_front_size)),
            ("Num_Xcc", Number(self.num_xcc)),
            ("Cu_Count", Number(self.cu_count)),
            ("Array_Count", Number(self.array_count)),
            ("Num_Shader_Banks", Number(self.num_shader_banks)),
            (
                "Simd_Arrays_Per_Engine",
                Number(self.simd_arrays_per_engine),
            ),
            ("Cu_Per_Simd_Array", Number(self.cu_per_simd_array)),
            ("Simd_Per_Cu", Number(self.simd_per_cu)),
            ("Max_Slots_Scratch_Cu", Number(self.max_slots_scratch_cu)),
            ("Gfx_Target_Version", Number(self.gfx_target_version)),
            ("Vendor_Id", Number(self.vendor_id)),
            ("Device_Id", Number(self.device_id)),
            ("Location_Id", Number(self.location_id)),
            ("Domain", Number(self.domain)),
            ("Drm_Render_Minor", Number(self.drm_render_minor)),
            ("Num_Sdma_Engines", Number(self.num_sdma_engines)),
            ("Num_Sdma_Xgmi_Engines", Number(self.num_sdma_xgmi_engines)),
            (
                "Num_Sdma_Queues_Per_Engine",
                Number(self.num_sdma_queues_per_engine),
            ),
            ("Num_Cp_Queues", Number(self.num_cp_queues)),
            (
                "Max_Engine_Clk_Ccompute",
                Number(self.max_engine_clk_ccompute),
            ),
            (
                "Max_Engine_Clk_Fcompute",
                Number(self.max_engine_clk_fcompute),
            ),
            ("Sdma_Fw_Version", Number(self.sdma_fw_version)),
            ("Fw_Version", Number(self.fw_version)),
            ("Capability", Number(self.capability)),
            ("Cu_Per_Engine", Number(self.cu_per_engine)),
            ("Max_Waves_Per_Cu", Number(self.max_waves_per_cu)),
            ("Family_Id", Number(self.family_id)),
            ("Workgroup_Max_Size", Number(self.workgroup_max_size)),
            ("Grid_Max_Size", Number(self.grid_max_size)),
            ("Local_Mem_Size", Number(self.local_mem_size)),
            ("Hive_Id", Number(self.hive_id)),
            ("Gpu_Id", Number(self.gpu_id.into())),
            ("Workgroup_Max_Dim_X", Number(workgroup_max_dim_x)),
            ("Workgroup_Max_Dim_Y", Number(workgroup_max_dim_y)),
            ("Workgroup_Max_Dim_Z", Number(workgroup_max_dim_z)),
            ("Grid_Max_Dim_X", Number(grid_max_dim_x)),
            ("Grid_Max_Dim_Y", Number(grid_max_dim_y)),
            ("Grid_Max_Dim_Z", Number(grid_max_dim_z)),
            ("Name", Text(&self.name)),
            ("Vendor_Name", Text(&self.vendor_name)),
            ("Product_Name", Text(&self.product_name)),
            ("Model_Name", Text(&self.model_name)),
        ]
    }
}

impl Agent {
    /// Values that rocprofv3 writes about an agent in JSON but not in `agent_info`, with their
    /// names there.
    #[must_use]
    pub const fn counts(&self) -> [(&'static str, u64); 3] {
        [
            ("Mem_Banks_Count", self.mem_banks_count),
            ("Caches_Count", self.caches_count),
            ("Io_Links_Count", self.io_links_count),
        ]
    }
}

/// All agents: nodes in order, numbered as rocprofiler-sdk does.
pub(super) fn agents(nodes: &[Node], paths: &Paths) -> Vec<Agent> {
    let names = names::Names::new(paths);
    let (mut cpus, mut gpus, mut others) = (0, 0, 0);
    let mut agents = Vec::with_capacity(nodes.len());
    for (logical, node) in (0..).zip(nodes) {
        let mut agent = from_properties(node);
        let of_type = match agent.agent_type {
            AgentType::Gpu => {
                gpu(&mut agent, node, &names);
                &mut gpus
            }
            AgentType::Cpu => {
                cpu(&mut agent, &names);
                &mut cpus
            }
            AgentType::Unknown => &mut others,
        };
        agent.logical_node_id = logical;
        agent.logical_node_type_id = *of_type;
        *of_type += 1;
        agents.push(agent);
    }
    agents
}

/// Values that are derived in the same way for every node.
fn from_properties(node: &Node) -> Agent {
    let of = |key| node.properties.or_zero(key);
    let mut agent = Agent {
        node_id: node.id,
        gpu_id: node.gpu_id,
        agent_type: match (node.has_gpu(), node.has_cpu()) {
            (true, _) => AgentType::Gpu,
            (false, true) => AgentType::Cpu,
            (false, false) => AgentType::Unknown,
        },
        model_name: node.name.clone(),
        cpu_cores_count: of("cpu_cores_count"),
        simd_count: of("simd_count"),
        mem_banks_count: of("mem_banks_count"),
        caches_count: of("caches_count"),
        io_links_count: of("io_links_count"),
        cpu_core_id_base: of("cpu_core_id_base"),
        simd_id_base: of("simd_id_base"),
        max_waves_per_simd: of("max_waves_per_simd"),
        lds_size_in_kb: of("lds_size_in_kb"),
        gds_size_in_kb: of("gds_size_in_kb"),
        num_gws: of("num_gws"),
        wave_front_size: of("wave_front_size"),
        array_count: of("array_count"),
        simd_arrays_per_engine: of("simd_arrays_per_engine"),
        cu_per_simd_array: of("cu_per_simd_array"),
        simd_per_cu: of("simd_per_cu"),
        max_slots_scratch_cu: of("max_slots_scratch_cu"),
        gfx_target_version: of("gfx_target_version"),
        vendor_id: of("vendor_id"),
        device_id: of("device_id"),
        location_id: of("location_id"),
        domain: of("domain"),
        drm_render_minor: of("drm_render_minor"),
        num_sdma_engines: of("num_sdma_engines"),
        num_sdma_xgmi_engines: of("num_sdma_xgmi_engines"),
        num_sdma_queues_per_engine: of("num_sdma_queues_per_engine"),
        num_cp_queues: of("num_cp_queues"),
        max_engine_clk_ccompute: of("max_engine_clk_ccompute"),
        hive_id: of("hive_id"),
        num_xcc: node.properties.get("num_xcc").unwrap_or(1),
        ..Agent::default()
    };
    agent.max_waves_per_cu = agent.simd_per_cu.saturating_mul(agent.max_waves_per_simd);
    let units = agent.simd_count.checked_div(agent.simd_per_cu);
    agent.num_shader_banks = quotient(agent.array_count, agent.simd_arrays_per_engine);
    agent.cu_per_engine = quotient(units.unwrap_or(0), agent.num_shader_banks);
    agent
}

/// A quotient; 0 if the divisor is not known.
fn quotient(dividend: u64, divisor: u64) -> u64 {
    dividend.checked_div(divisor).unwrap_or(0)
}

fn gpu(agent: &mut Agent, node: &Node, names: &names::Names<'_>) {
    // Constants of the HSA runtime, the same for all GPUs.
    const WORKGROUP_MAX: u64 = 1024;
    const GRID_MAX: u64 = u32::MAX as u64;
    const GRID_MAX_DIM: [u64; 3] = [i32::MAX as u64, u16::MAX as u64, u16::MAX as u64];
    const FIRMWARE_MASK: u64 = 0x3ff;
    let of = |key| node.properties.or_zero(key);
    agent.max_engine_clk_fcompute = of("max_engine_clk_fcompute");
    agent.local_mem_size = of("local_mem_size");
    agent.capability = of("capability");
    agent.fw_version = of("fw_version") & FIRMWARE_MASK;
    agent.sdma_fw_version = of("sdma_fw_version") & FIRMWARE_MASK;
    agent.unique_id = of("unique_id");
    agent.workgroup_max_size = WORKGROUP_MAX;
    agent.workgroup_max_dim = [WORKGROUP_MAX; 3];
    agent.grid_max_size = GRID_MAX;
    agent.grid_max_dim = GRID_MAX_DIM;
    agent.cu_count = quotient(agent.simd_count, agent.simd_per_cu);
    agent.family_id = names::family_id(agent.gfx_target_version);
    agent.name = names::gfx_name(agent.gfx_target_version).unwrap_or_default();
    "AMD".clone_into(&mut agent.vendor_name);
    agent.product_name = names.product(node).unwrap_or_else(|| "unknown".to_owned());
    agent.pci_address = node.pci_address();
}

fn cpu(agent: &mut Agent, names: &names::Names<'_>) {
    agent.cu_count = agent.cpu_cores_count;
    "CPU".clone_into(&mut agent.vendor_name);
    if let Some(model) = names.cpu(agent.cpu_core_id_base) {
        agent.family_id = model.family;
        agent.name.clone_from(&model.name);
        agent.product_name.clone_from(&model.name);
    }
}
