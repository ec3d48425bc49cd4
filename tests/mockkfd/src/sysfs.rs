//! The KFD topology and the driver's module directory, as files in a directory.
//!
//! The tree depends only on the configuration, so its directory is named after the tree's hash and
//! shared by all processes and runs. Names and meanings of the keys: libhsakmt's `topology.c`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gputrace_softgpu::config::{AgentConfig, Config};

use crate::kfd::gpu_id;

/// First minor number of a render node.
pub(crate) const FIRST_RENDER_MINOR: u32 = 128;

/// Directories of the real sysfs, and their places in the tree.
///
/// `/proc/modules` is included for rocminfo, which asks libkmod whether the driver is loaded.
pub(crate) const DIRECTORIES: [(&str, &str); 4] = [
    ("/sys/devices/virtual/kfd/kfd", "kfd"),
    ("/sys/class/kfd/kfd", "kfd"),
    ("/sys/module/amdgpu", "amdgpu"),
    ("/proc/modules", "modules"),
];

/// A file: its path in the tree and its text. A path ending in `/` is an empty directory.
type Entry = (String, String);

/// Creates the tree and returns its directory; on error, the path that failed.
pub(crate) fn install(config: &Config) -> Result<PathBuf, (PathBuf, io::Error)> {
    let tree = tree(config);
    let mut hasher = DefaultHasher::new();
    tree.hash(&mut hasher);
    let user = rustix::process::geteuid().as_raw();
    let name = format!("softgpu-sysfs-{user}-{:016x}", hasher.finish());
    let directory = std::env::temp_dir().join(&name);
    if directory.is_dir() {
        return Ok(directory);
    }
    // Written to a temporary directory and renamed: other processes see all of it or nothing.
    let making = std::env::temp_dir().join(format!("{name}.{}", std::process::id()));
    for (path, text) in &tree {
        let path = making.join(path);
        write(&path, text).map_err(|error| (path, error))?;
    }
    match std::fs::rename(&making, &directory) {
        Ok(()) => Ok(directory),
        // Another process was faster.
        Err(_) if directory.is_dir() => {
            let _ = std::fs::remove_dir_all(&making);
            Ok(directory)
        }
        Err(error) => Err((directory, error)),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match path.as_os_str().as_bytes() {
        [.., b'/'] => std::fs::create_dir(path),
        _ => std::fs::write(path, text),
    }
}

/// All files of the tree.
fn tree(all: &Config) -> Vec<Entry> {
    let mut tree = vec![
        ("amdgpu/initstate".to_owned(), "live\n".to_owned()),
        (
            "modules".to_owned(),
            "amdgpu 1048576 0 - Live 0x0000000000000000\n".to_owned(),
        ),
        ("amdgpu/holders/".to_owned(), String::new()),
        ("amdgpu/version".to_owned(), "6.7.0\n".to_owned()),
        ("kfd/topology/generation_id".to_owned(), "1\n".to_owned()),
        (
            "kfd/topology/system_properties".to_owned(),
            properties(&[("platform_oem", 0), ("platform_id", 0), ("platform_rev", 1)]),
        ),
    ];
    cpu_node(&mut tree, all);
    for (agent, config) in (0..).zip(&all.agent) {
        let peers = (0..).zip(&all.agent).filter(|(peer, other)| {
            *peer != agent && config.hive != 0 && other.hive == config.hive
        });
        let peers: Vec<u32> = peers.map(|(peer, _)| peer + 1).collect();
        gpu_node(&mut tree, agent, config, &peers);
    }
    tree
}

/// Lines of `key value`, as libhsakmt parses them.
fn properties(pairs: &[(&str, u64)]) -> String {
    pairs
        .iter()
        .map(|(key, value)| format!("{key} {value}\n"))
        .collect()
}

fn node_file(tree: &mut Vec<Entry>, node: u32, path: &str, text: String) {
    tree.push((format!("kfd/topology/nodes/{node}/{path}"), text));
}

/// Node 0: the CPU.
fn cpu_node(tree: &mut Vec<Entry>, config: &Config) {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    // Without a link from the CPU, the runtime knows that it cannot map the GPU's memory. With a
    // link and a small BAR, it would try and crash.
    let links: Vec<u32> = (0..)
        .zip(&config.agent)
        .filter(|(_, agent)| agent.large_bar)
        .map(|(agent, _)| agent + 1)
        .collect();
    node_file(tree, 0, "gpu_id", "0\n".to_owned());
    node_file(tree, 0, "name", "\n".to_owned());
    let of_node = [
        ("cpu_cores_count", cores),
        ("simd_count", 0),
        ("mem_banks_count", 1),
        // With none, libhsakmt 5.2 looks into /sys/devices/system, and fails if there are none
        // either.
        ("caches_count", 1),
        ("io_links_count", links.len() as u64),
        ("p2p_links_count", 0),
        // An APIC id in /proc/cpuinfo, by which the model's name is found.
        ("cpu_core_id_base", 0),
        ("simd_id_base", 0),
        ("max_engine_clk_ccompute", 3_000),
    ];
    node_file(tree, 0, "properties", properties(&of_node));
    let bank = [
        ("heap_type", 0),
        ("size_in_bytes", 32 << 30),
        ("flags", 0),
        ("width", 64),
        ("mem_clk_max", 2_400),
    ];
    node_file(tree, 0, "mem_banks/0/properties", properties(&bank));
    node_file(tree, 0, "caches/0/properties", cache(0, 32, CPU_DATA));
    for (index, node) in (0..).zip(links) {
        link(tree, index, PCIE, 0, node);
    }
}

/// `HsaCacheType`: a data cache of a CPU, and of a GPU's compute units. ROCr looks for the latter
/// at the GPU's first SIMD.
const CPU_DATA: u64 = 1 | 1 << 2;
const GPU_DATA: u64 = 1 | 1 << 3;

fn cache(first_processor: u64, kib: u64, kind: u64) -> String {
    let of_cache = [
        ("processor_id_low", first_processor),
        ("level", 1),
        ("size", kib),
        ("cache_line_size", 64),
        ("cache_lines_per_tag", 1),
        ("association", 8),
        ("latency", 1),
        ("type", kind),
    ];
    properties(&of_cache) + "sibling_map 1,0,0,0\n"
}

/// `HSA_IOLINKTYPE`.
const PCIE: u64 = 2;
const XGMI: u64 = 11;

fn link(tree: &mut Vec<Entry>, index: u32, kind: u64, from: u32, to: u32) {
    let of_link = [
        ("type", kind),
        ("version_major", 0),
        ("version_minor", 0),
        ("node_from", from.into()),
        ("node_to", to.into()),
        ("weight", if kind == XGMI { 15 } else { 20 }),
        ("min_latency", 0),
        ("max_latency", 0),
        ("min_bandwidth", 312),
        ("max_bandwidth", 16_000),
        ("recommended_transfer_size", 0),
        ("flags", 1),
    ];
    node_file(
        tree,
        from,
        &format!("io_links/{index}/properties"),
        properties(&of_link),
    );
}

/// A GPU's node, and the nodes whose memory it can access.
fn gpu_node(tree: &mut Vec<Entry>, agent: u32, config: &AgentConfig, peers: &[u32]) {
    // Doorbells of type 2, which AQL needs, and watch points. No SVM, no debugger.
    const CAPABILITY: u64 = 2 << 12 | 1 << 7 | 2 << 8;
    const HEAP_PUBLIC: u64 = 1;
    const HEAP_PRIVATE: u64 = 2;
    let node = agent + 1;
    let simd_id_base = 0x8000_1000 + 0x100 * u64::from(agent);
    let version = u64::from(config.target_version().unwrap_or_default());
    // RDNA has waves of 32 and two compute units in a group.
    let wave = if version >= 100_000 { 32 } else { 64 };
    node_file(tree, node, "gpu_id", format!("{}\n", gpu_id(agent)));
    node_file(tree, node, "name", format!("{}\n", config.name));
    let of_node = [
        ("cpu_cores_count", 0),
        ("simd_count", 240),
        ("mem_banks_count", 1),
        ("caches_count", 1),
        ("io_links_count", 1 + peers.len() as u64),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", simd_id_base),
        ("max_waves_per_simd", 10),
        ("lds_size_in_kb", 64),
        ("gds_size_in_kb", 0),
        ("num_gws", 64),
        ("wave_front_size", wave),
        ("array_count", 4),
        ("simd_arrays_per_engine", 1),
        ("cu_per_simd_array", 15),
        ("simd_per_cu", 4),
        ("max_slots_scratch_cu", 32),
        ("gfx_target_version", version),
        ("vendor_id", 0x1002),
        ("device_id", config.device_id.into()),
        ("location_id", u64::from(node) << 8),
        ("domain", 0),
        ("drm_render_minor", (FIRST_RENDER_MINOR + agent).into()),
        ("hive_id", config.hive),
        ("num_sdma_engines", 2),
        ("num_sdma_xgmi_engines", 0),
        ("num_sdma_queues_per_engine", 8),
        ("num_cp_queues", 24),
        ("max_engine_clk_fcompute", 1_700),
        ("local_mem_size", 0),
        ("fw_version", 470),
        ("capability", CAPABILITY),
        ("debug_prop", 0),
        ("sdma_fw_version", 145),
        ("unique_id", 0x50f7_0000_0000_0001 + u64::from(agent)),
        ("num_xcc", 1),
        ("max_engine_clk_ccompute", 3_000),
    ];
    node_file(tree, node, "properties", properties(&of_node));
    let heap = if config.large_bar {
        HEAP_PUBLIC
    } else {
        HEAP_PRIVATE
    };
    let bank = [
        ("heap_type", heap),
        ("size_in_bytes", config.vram_mib << 20),
        ("flags", 0),
        ("width", 4_096),
        ("mem_clk_max", 1_000),
    ];
    node_file(tree, node, "mem_banks/0/properties", properties(&bank));
    node_file(
        tree,
        node,
        "caches/0/properties",
        cache(simd_id_base, 16, GPU_DATA),
    );
    link(tree, 0, PCIE, node, 0);
    for (index, peer) in (1..).zip(peers) {
        link(tree, index, XGMI, node, *peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_a_node_per_agent() {
        let large = AgentConfig {
            large_bar: true,
            ..AgentConfig::default()
        };
        let config = Config {
            agent: vec![AgentConfig::default(), large],
            ..Config::default()
        };
        let tree = tree(&config);
        let text = |path: &str| {
            tree.iter()
                .find(|(name, _)| name == path)
                .map(|(_, text)| text.as_str())
        };
        assert_eq!(text("kfd/topology/nodes/2/gpu_id"), Some("31001\n"));
        assert!(
            text("kfd/topology/nodes/1/properties")
                .unwrap()
                .contains("gfx_target_version 90006\n")
        );
        assert!(
            text("kfd/topology/nodes/1/mem_banks/0/properties")
                .unwrap()
                .contains("heap_type 2\n")
        );
        assert!(
            text("kfd/topology/nodes/0/io_links/0/properties")
                .unwrap()
                .contains("node_to 2\n")
        );
        assert_eq!(text("kfd/topology/nodes/0/io_links/1/properties"), None);
        assert_eq!(text("kfd/topology/nodes/1/io_links/1/properties"), None);
    }

    #[test]
    fn gpus_of_a_hive_are_linked() {
        let of_hive = |hive| AgentConfig {
            hive,
            ..AgentConfig::default()
        };
        let config = Config {
            agent: [7, 0, 7].map(of_hive).into(),
            ..Config::default()
        };
        let tree = tree(&config);
        let link = |node: u32, link: u32| {
            let path = format!("kfd/topology/nodes/{node}/io_links/{link}/properties");
            tree.iter()
                .find(|(name, _)| *name == path)
                .map(|(_, text)| text.as_str())
        };
        let peer = link(1, 1).unwrap();
        assert!(
            peer.contains("type 11\n") && peer.contains("node_to 3\n"),
            "{peer}"
        );
        assert!(link(3, 1).unwrap().contains("node_to 1\n"));
        assert_eq!((link(2, 1), link(1, 2)), (None, None));
    }

    #[test]
    fn installing_twice_gives_the_same_directory() {
        let config = Config {
            seed: 1,
            ..Config::default()
        };
        let first = install(&config).unwrap();
        assert_eq!(install(&config).unwrap(), first);
        assert_eq!(
            std::fs::read_to_string(first.join("amdgpu/initstate")).unwrap(),
            "live\n"
        );
    }
}
