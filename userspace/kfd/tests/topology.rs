//! The topology of the mock driver, of trees written by these tests, and of this machine.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

mod support;

use std::fs;
use std::path::Path;

use gputrace_kfd::topology::{Agent, AgentType, AgentValue, PciAddress, Topology};
use gputrace_kfd::{FileError, Paths};
use support::{on_softgpu, said};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const NODES: &str = "sys/class/kfd/kfd/topology/nodes";

/// A CPU, and an MI210 as Linux 6.1 describes it.
fn tree() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(root, "sys/class/kfd/kfd/topology/generation_id", "2\n");
    write(
        root,
        "sys/class/kfd/kfd/topology/system_properties",
        "platform_oem 1\nplatform_id 2\n",
    );
    write(root, &format!("{NODES}/0/gpu_id"), "0\n");
    write(root, &format!("{NODES}/0/name"), "\n");
    let cpu =
        "cpu_cores_count 64\nsimd_count 0\ncpu_core_id_base 3\nmax_engine_clk_ccompute 3675\n";
    write(root, &format!("{NODES}/0/properties"), cpu);
    write(root, &format!("{NODES}/1/gpu_id"), "10321\n");
    write(root, &format!("{NODES}/1/name"), "aldebaran\n");
    let gpu = "cpu_cores_count 0\nsimd_count 416\nmax_waves_per_simd 8\nlds_size_in_kb 64\nwave_front_size 64\n\
        array_count 8\nsimd_arrays_per_engine 1\ncu_per_simd_array 16\nsimd_per_cu 4\n\
        gfx_target_version 90010\nvendor_id 4098\ndevice_id 29711\nlocation_id 33536\ndomain 1\n\
        drm_render_minor 128\nhive_id 7\nmax_engine_clk_fcompute 1700\nfw_version 66636\n\
        capability 1218063488\nsdma_fw_version 8\nunique_id 1234\nmax_engine_clk_ccompute 3675\n";
    write(root, &format!("{NODES}/1/properties"), gpu);
    let bank = "heap_type 1\nsize_in_bytes 68702699520\nflags 0\nwidth 4096\nmem_clk_max 1600\n";
    write(root, &format!("{NODES}/1/mem_banks/0/properties"), bank);
    let cache = "processor_id_low 1\nlevel 1\nsize 16\ntype 9\nsibling_map 1,0,0\n";
    write(root, &format!("{NODES}/1/caches/0/properties"), cache);
    let link = "type 2\nnode_from 1\nnode_to 0\nweight 20\nflags 1\n";
    write(root, &format!("{NODES}/1/io_links/0/properties"), link);
    write(root, "sys/class/drm/renderD128/device/revision", "0x02\n");
    write(
        root,
        "usr/share/libdrm/amdgpu.ids",
        "1.0.0\n740F,\t02,\tAMD Instinct MI210\n",
    );
    let processor = |apic| {
        format!(
            "processor\t: {apic}\ncpu family\t: 25\nmodel name\t: CPU {apic}\napicid\t\t: {apic}\n\n"
        )
    };
    write(root, "proc/cpuinfo", &(processor(2) + &processor(3)));
    directory
}

fn column<'a>(agent: &'a Agent, name: &str) -> AgentValue<'a> {
    let columns = agent.columns();
    columns
        .into_iter()
        .find(|(column, _)| *column == name)
        .unwrap()
        .1
}

#[test]
fn agents_are_computed_as_rocprofiler_computes_them() {
    let directory = tree();
    let paths = Paths::under(directory.path());
    let topology = Topology::read(&paths).unwrap();
    assert!(topology.problems.is_empty(), "{:?}", topology.problems);
    assert_eq!(topology.generation_id, Some(2));
    assert_eq!(topology.system.get("platform_id"), Some(2));
    assert_eq!(topology.gpu_ids(), [10_321]);
    let node = topology.gpu(10_321).unwrap();
    assert_eq!((node.id, node.name.as_str()), (1, "aldebaran"));
    assert_eq!(node.mem_banks[0].size_in_bytes, 68_702_699_520);
    assert_eq!(node.caches[0].sibling_map, "1,0,0");
    assert_eq!((node.io_links[0].node_to, node.io_links[0].weight), (0, 20));
    assert!(topology.gpu(0).is_none());

    let agents = topology.agents(&paths);
    let [cpu, gpu] = &agents[..] else {
        panic!("{agents:?}")
    };
    for (name, number) in [
        ("Node_Id", 1),
        ("Logical_Node_Id", 1),
        ("Num_Xcc", 1),
        ("Cu_Count", 104),
        ("Num_Shader_Banks", 8),
        ("Cu_Per_Engine", 13),
        ("Max_Waves_Per_Cu", 32),
        ("Family_Id", 141),
        ("Fw_Version", 66_636 & 0x3ff),
        ("Workgroup_Max_Dim_Z", 1_024),
        ("Grid_Max_Dim_X", 2_147_483_647),
        ("Grid_Max_Dim_Y", 65_535),
        ("Gpu_Id", 10_321),
        ("Hive_Id", 7),
    ] {
        assert_eq!(column(gpu, name), AgentValue::Number(number), "{name}");
    }
    for (name, text) in [
        ("Agent_Type", "GPU"),
        ("Name", "gfx90a"),
        ("Vendor_Name", "AMD"),
        ("Product_Name", "AMD Instinct MI210"),
        ("Model_Name", "aldebaran"),
    ] {
        assert_eq!(column(gpu, name), AgentValue::Text(text), "{name}");
    }
    assert_eq!(gpu.columns().len(), 53);
    assert_eq!(gpu.pci_address.unwrap().to_string(), "0001:83:00.0");
    assert_eq!(cpu.agent_type, AgentType::Cpu);
    assert_eq!(
        (cpu.name.as_str(), cpu.family_id, cpu.cu_count),
        ("CPU 3", 25, 64)
    );
    assert_eq!((cpu.vendor_name.as_str(), cpu.max_waves_per_cu), ("CPU", 0));
    assert_eq!((cpu.logical_node_type_id, gpu.logical_node_type_id), (0, 0));
}

#[test]
fn a_lying_node_is_named_and_the_others_stay() {
    let directory = tree();
    let root = directory.path();
    write(root, &format!("{NODES}/2/properties"), "simd_count\n");
    write(root, &format!("{NODES}/2/gpu_id"), "7\n");
    // A node hidden by a device cgroup.
    write(root, &format!("{NODES}/3/properties"), "");
    write(
        root,
        &format!("{NODES}/4/properties"),
        "simd_count 4\nsimd_per_cu 0\n",
    );
    write(root, &format!("{NODES}/4/gpu_id"), "4294967296\n");
    // A large SIMD count, and nothing to divide it by.
    write(
        root,
        &format!("{NODES}/5/properties"),
        "simd_count 18446744073709551615\nsimd_per_cu 0\n",
    );
    write(root, &format!("{NODES}/5/mem_banks/0/properties"), "\u{7f}");
    let topology = Topology::read(&Paths::under(root)).unwrap();
    let ids: Vec<u32> = topology.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 1, 5]);
    let paths: Vec<&Path> = topology.problems.iter().map(FileError::path).collect();
    let expected = ["2/properties", "4/gpu_id", "5/mem_banks/0/properties"];
    assert_eq!(paths, expected.map(|path| root.join(NODES).join(path)));
    let agents = topology.agents(&Paths::under(root));
    assert_eq!((agents[2].cu_count, agents[2].name.as_str()), (0, ""));
    assert_eq!(agents[2].product_name, "unknown");
}

#[test]
fn no_driver_is_no_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let topology = Topology::read(&Paths::under(directory.path())).unwrap();
    assert!(topology.nodes.is_empty() && topology.problems.is_empty());
    assert_eq!(topology.generation_id, None);
}

#[test]
fn pci_addresses_have_no_more_bits_than_pci() {
    let address = PciAddress::new(0, 0x83ff).unwrap();
    assert_eq!(address.to_string(), "0000:83:1f.7");
    assert_eq!(PciAddress::new(0, 0x1_0000), None);
    assert_eq!(PciAddress::new(1 << 32, 0), None);
}

#[test]
fn the_mock_drivers_tree_is_understood() {
    let toml = "[[agent]]\ngfx = \"gfx906\"\n[[agent]]\ngfx = \"gfx90a\"\nlarge_bar = true\n";
    let output = on_softgpu("child_lists_the_agents", toml);
    let agents = said(&output, "agent");
    assert_eq!(agents.len(), 3, "{output}");
    assert!(agents[0].starts_with("0 CPU 0 "), "{output}");
    assert_eq!(agents[1], "1 GPU 31000 gfx906 60 1");
    assert_eq!(agents[2], "2 GPU 31001 gfx90a 60 1");
}

#[test]
#[ignore = "the process of the_mock_drivers_tree_is_understood"]
fn child_lists_the_agents() {
    let paths = Paths::default();
    let topology = Topology::read(&paths).unwrap();
    assert!(topology.problems.is_empty(), "{:?}", topology.problems);
    for (agent, node) in topology.agents(&paths).iter().zip(&topology.nodes) {
        println!(
            "agent {} {} {} {} {} {}",
            agent.node_id,
            agent.agent_type.label(),
            agent.gpu_id,
            agent.name,
            agent.cu_count,
            node.mem_banks.len()
        );
    }
}
