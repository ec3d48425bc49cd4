//! The nodes of a machine as KFD describes them: CPUs and GPUs with memory, caches and links.
//!
//! They are read from `/sys/class/kfd/kfd/topology`. Names and meanings come from the kernel's
//! `kfd_topology.c` and `include/uapi/linux/kfd_sysfs.h`. [`Agent`] is a node as rocprofiler-sdk
//! presents it.

mod agent;
mod names;

use std::path::Path;

pub use agent::{Agent, AgentType, AgentValue, PciAddress};
pub use names::gfx_name;

use crate::files::{self, FileError, Properties};
use crate::paths::Paths;

/// Maximum number of attempts to read the tree without a change in between.
const ATTEMPTS: u32 = 3;

/// All nodes.
#[derive(Debug, Default)]
pub struct Topology {
    /// Number of changes of the tree. Absent if KFD has no topology, that is, without the driver.
    pub generation_id: Option<u64>,
    /// `platform_oem`, `platform_id`, `platform_rev`.
    pub system: Properties,
    /// Nodes, in order of id.
    pub nodes: Vec<Node>,
    /// Files that had invalid contents or could not be read. What they describe is missing from the
    /// other members.
    pub problems: Vec<FileError>,
}

/// A CPU or GPU, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Number of its directory. ROCr calls it the driver node id.
    pub id: u32,
    /// KFD's id of the GPU, the `gpu_id` of all ioctls and SMI events; 0 for a CPU.
    pub gpu_id: u32,
    /// Name of the chip, such as `vega20`, or `ip discovery` for newer ones. Empty for a CPU.
    pub name: String,
    /// All other properties.
    pub properties: Properties,
    /// Memory, in order of number.
    pub mem_banks: Vec<MemBank>,
    /// Caches, in order of number.
    pub caches: Vec<Cache>,
    /// Links to other nodes.
    pub io_links: Vec<Link>,
    /// Links to other GPUs that go through other nodes (Linux 5.19 and later).
    pub p2p_links: Vec<Link>,
}

/// One kind of memory of a node. Absent properties are 0, as for ROCm's readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemBank {
    /// Type: 0 system memory, 1 VRAM that the CPU can access, 2 VRAM that it cannot access, 3 GDS,
    /// 4 LDS, 5 scratch.
    pub heap_type: u64,
    /// Size, bytes.
    pub size_in_bytes: u64,
    /// Bit 0: hot-pluggable, bit 1: non-volatile.
    pub flags: u64,
    /// Width of the interface, bits.
    pub width: u64,
    /// Highest memory clock, MHz.
    pub mem_clk_max: u64,
}

/// A cache. Absent properties are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Id of the first processor or SIMD that uses it.
    pub processor_id_low: u64,
    /// Level: 1, 2 or 3.
    pub level: u64,
    /// Size, KiB.
    pub size: u64,
    /// Size of a line, bytes.
    pub cache_line_size: u64,
    /// Number of lines that share a tag.
    pub cache_lines_per_tag: u64,
    /// Number of ways.
    pub association: u64,
    /// Latency, ns.
    pub latency: u64,
    /// Type bits: bit 0 data, bit 1 instructions, bit 2 CPU, bit 3 SIMD.
    pub kind: u64,
    /// The processors or SIMDs, from `processor_id_low` on, that share it, as the kernel writes
    /// them: `1,0,...`.
    pub sibling_map: String,
}

/// A link between two nodes. Absent properties are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// `HSA_IOLINKTYPE`: 2 PCI Express, 11 XGMI.
    pub kind: u64,
    /// Major version of the interface.
    pub version_major: u64,
    /// Minor version of the interface.
    pub version_minor: u64,
    /// Node at this end.
    pub node_from: u64,
    /// Node at the other end.
    pub node_to: u64,
    /// NUMA distance; 15 times the number of hops for XGMI.
    pub weight: u64,
    /// Minimum latency, ns; 0 if unknown.
    pub min_latency: u64,
    /// Maximum latency, ns; 0 if unknown.
    pub max_latency: u64,
    /// Minimum bandwidth, MB/s; 0 if unknown.
    pub min_bandwidth: u64,
    /// Maximum bandwidth, MB/s; 0 if unknown.
    pub max_bandwidth: u64,
    /// Recommended size of a transfer, bytes; 0 if unknown.
    pub recommended_transfer_size: u64,
    /// `HSA_LINKPROPERTY`: bit 0 override, 1 not coherent, 2 no 32-bit atomics, 3 no 64-bit
    /// atomics, 4 no peer DMA.
    pub flags: u64,
}

impl Topology {
    /// Reads the tree. Without the driver there are no nodes.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the tree as a whole cannot be read. Problems with single nodes are in
    /// [`problems`](Self::problems).
    pub fn read(paths: &Paths) -> Result<Self, FileError> {
        let root = paths.kfd.join("topology");
        let generation = || files::number(&root.join("generation_id"));
        let mut before = generation()?;
        let mut attempt = 1;
        loop {
            let mut topology = Self::read_once(&root)?;
            let after = generation()?;
            // Devices come and go; if the tree changed while it was read, the result may be a
            // mixture.
            if after == before || attempt == ATTEMPTS {
                topology.generation_id = after;
                return Ok(topology);
            }
            before = after;
            attempt += 1;
        }
    }

    fn read_once(root: &Path) -> Result<Self, FileError> {
        let mut topology = Self::default();
        let problems = &mut topology.problems;
        topology.system = kept(Properties::read(&root.join("system_properties")), problems);
        let nodes = root.join("nodes");
        for id in files::numbered(&nodes)? {
            let directory = nodes.join(id.to_string());
            match Node::read(id, &directory, problems) {
                Ok(node) => topology.nodes.extend(node),
                Err(error) => problems.push(error),
            }
        }
        Ok(topology)
    }

    /// KFD's ids of all GPUs, in order of node.
    #[must_use]
    pub fn gpu_ids(&self) -> Vec<u32> {
        let ids = self.nodes.iter().map(|node| node.gpu_id);
        ids.filter(|id| *id != 0).collect()
    }

    /// The node of a GPU.
    #[must_use]
    pub fn gpu(&self, gpu_id: u32) -> Option<&Node> {
        self.nodes
            .iter()
            .find(|node| gpu_id != 0 && node.gpu_id == gpu_id)
    }

    /// The nodes as rocprofiler-sdk presents them, with names from this machine.
    ///
    /// Nodes that are neither a CPU nor a GPU are agents, too, of type [`AgentType::Unknown`].
    #[must_use]
    pub fn agents(&self, paths: &Paths) -> Vec<Agent> {
        agent::agents(&self.nodes, paths)
    }
}

impl Node {
    /// Reads one node; `None` if the caller may not see it (its properties are then empty).
    fn read(
        id: u32,
        directory: &Path,
        problems: &mut Vec<FileError>,
    ) -> Result<Option<Self>, FileError> {
        let properties = Properties::read(&directory.join("properties"))?.unwrap_or_default();
        if properties.is_empty() {
            return Ok(None);
        }
        let gpu_id_file = directory.join("gpu_id");
        let gpu_id = files::number(&gpu_id_file)?.unwrap_or(0);
        let gpu_id = u32::try_from(gpu_id).map_err(|_| {
            FileError::malformed(&gpu_id_file, 1, format!("{gpu_id} has more than 32 bits"))
        })?;
        let name = match files::text(&directory.join("name")) {
            Ok(name) => name.unwrap_or_default(),
            Err(error) => {
                problems.push(error);
                String::new()
            }
        };
        Ok(Some(Self {
            id,
            gpu_id,
            name,
            properties,
            mem_banks: parts(&directory.join("mem_banks"), problems, MemBank::new),
            caches: parts(&directory.join("caches"), problems, Cache::new),
            io_links: parts(&directory.join("io_links"), problems, Link::new),
            p2p_links: parts(&directory.join("p2p_links"), problems, Link::new),
        }))
    }

    /// Whether it has CPU cores.
    #[must_use]
    pub fn has_cpu(&self) -> bool {
        self.properties.or_zero("cpu_cores_count") > 0
    }

    /// Whether it has SIMDs.
    #[must_use]
    pub fn has_gpu(&self) -> bool {
        self.properties.or_zero("simd_count") > 0
    }

    /// Minor number of the render node, 128 and more; `None` for a CPU.
    #[must_use]
    pub fn drm_render_minor(&self) -> Option<u32> {
        let minor = self.properties.get("drm_render_minor")?;
        u32::try_from(minor).ok().filter(|minor| *minor >= 128)
    }

    /// PCI address of a GPU; `None` for a CPU.
    #[must_use]
    pub fn pci_address(&self) -> Option<PciAddress> {
        let location = self
            .properties
            .get("location_id")
            .filter(|_| self.has_gpu())?;
        PciAddress::new(self.properties.or_zero("domain"), location)
    }
}

/// Reads the parts of a node, each of which has a properties file in a numbered directory.
fn parts<T>(directory: &Path, problems: &mut Vec<FileError>, new: fn(&Properties) -> T) -> Vec<T> {
    let numbers = kept(files::numbered(directory).map(Some), problems);
    let mut parts = Vec::new();
    for number in numbers {
        let file = directory.join(number.to_string()).join("properties");
        match Properties::read(&file) {
            Ok(properties) => parts.extend(properties.as_ref().map(new)),
            Err(error) => problems.push(error),
        }
    }
    parts
}

/// The value; the default if it is absent or could not be read. A failure is added to `problems`.
fn kept<T: Default>(read: Result<Option<T>, FileError>, problems: &mut Vec<FileError>) -> T {
    match read {
        Ok(value) => value.unwrap_or_default(),
        Err(error) => {
            problems.push(error);
            T::default()
        }
    }
}

impl MemBank {
    fn new(properties: &Properties) -> Self {
        Self {
            heap_type: properties.or_zero("heap_type"),
            size_in_bytes: properties.or_zero("size_in_bytes"),
            flags: properties.or_zero("flags"),
            width: properties.or_zero("width"),
            mem_clk_max: properties.or_zero("mem_clk_max"),
        }
    }
}

impl Cache {
    fn new(properties: &Properties) -> Self {
        Self {
            processor_id_low: properties.or_zero("processor_id_low"),
            level: properties.or_zero("level"),
            size: properties.or_zero("size"),
            cache_line_size: properties.or_zero("cache_line_size"),
            cache_lines_per_tag: properties.or_zero("cache_lines_per_tag"),
            association: properties.or_zero("association"),
            latency: properties.or_zero("latency"),
            kind: properties.or_zero("type"),
            sibling_map: match (
                properties.text("sibling_map"),
                properties.get("sibling_map"),
            ) {
                (Some(list), _) => list.to_owned(),
                // A list with one element looks like a number.
                (None, Some(single)) => single.to_string(),
                (None, None) => String::new(),
            },
        }
    }
}

impl Link {
    fn new(properties: &Properties) -> Self {
        Self {
            kind: properties.or_zero("type"),
            version_major: properties.or_zero("version_major"),
            version_minor: properties.or_zero("version_minor"),
            node_from: properties.or_zero("node_from"),
            node_to: properties.or_zero("node_to"),
            weight: properties.or_zero("weight"),
            min_latency: properties.or_zero("min_latency"),
            max_latency: properties.or_zero("max_latency"),
            min_bandwidth: properties.or_zero("min_bandwidth"),
            max_bandwidth: properties.or_zero("max_bandwidth"),
            recommended_transfer_size: properties.or_zero("recommended_transfer_size"),
            flags: properties.or_zero("flags"),
        }
    }
}
