//! For tests: a machine with two GPUs and two processes, as files in the format of the kernel's
//! `kfd_topology.c` and `kfd_process.c`.

use std::{fs, path::Path};

/// Content of `/proc/PID/fdinfo` for a render node.
pub(super) const RENDER_NODE: &str = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0001:83:00.0\ndrm-client-id:\t17\n\
    drm-memory-vram:\t2048 KiB\ndrm-engine-dec:\t0 ns\n";

/// Writes a file of the tree.
pub(super) fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap_or(root)).unwrap();
    fs::write(path, text).unwrap();
}

/// A CPU and two MI210. Process 4711 uses both GPUs, process 8 only has the device open.
pub(super) fn two_gpus() -> tempfile::TempDir {
    const TOPOLOGY: &str = "sys/class/kfd/kfd/topology";
    const PROCESS: &str = "sys/class/kfd/kfd/proc/4711";
    let directory = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| write(directory.path(), path, text);
    let node = |path: &str, text: &str| file(&format!("{TOPOLOGY}/nodes/{path}"), text);
    file(&format!("{TOPOLOGY}/generation_id"), "2\n");
    node("0/gpu_id", "0\n");
    node(
        "0/properties",
        "cpu_cores_count 64\nsimd_count 0\ncpu_core_id_base 0\n",
    );
    for (id, gpu_id, location) in [(1, 10_321, 33_536), (2, 10_322, 33_792)] {
        node(&format!("{id}/gpu_id"), &format!("{gpu_id}\n"));
        node(&format!("{id}/name"), "aldebaran\n");
        let properties = format!(
            "cpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\nvendor_id 4098\n\
             device_id 29711\nlocation_id {location}\ndomain 1\ndrm_render_minor 128\nunique_id 1234\n"
        );
        node(&format!("{id}/properties"), &properties);
        let bank = "heap_type 1\nsize_in_bytes 68702699520\nwidth 4096\nmem_clk_max 1600\n";
        node(&format!("{id}/mem_banks/0/properties"), bank);
        for cache in 0..2 {
            let path = format!("{id}/caches/{cache}/properties");
            node(
                &path,
                &format!("processor_id_low {cache}\nlevel 1\nsize 16\ntype 9\n"),
            );
        }
    }
    node(
        "1/io_links/0/properties",
        "type 2\nnode_from 1\nnode_to 0\nweight 20\nflags 1\n",
    );
    node(
        "1/p2p_links/0/properties",
        "type 11\nnode_from 1\nnode_to 2\nweight 15\nmin_bandwidth 50000\nmax_bandwidth 200000\nflags 3\n",
    );
    file("sys/class/drm/renderD128/device/revision", "0x02\n");
    file(
        "usr/share/libdrm/amdgpu.ids",
        "1.0.0\n740F,\t02,\tAMD Instinct MI210\n",
    );
    file(
        "proc/cpuinfo",
        "processor\t: 0\ncpu family\t: 25\nmodel name\t: Made-up CPU\napicid\t\t: 0\n\n",
    );
    for (path, text) in [
        ("queues/0/gpuid", "10322\n"),
        ("queues/1/gpuid", "10321\n"),
        ("queues/1/size", "1048576"),
        ("queues/1/type", "0\n"),
        ("vram_10321", "68719476736\n"),
        ("sdma_10321", "1500\n"),
        ("stats_10321/evicted_ms", "12\n"),
        ("stats_10321/cu_occupancy", "104\n"),
        ("counters_10321/faults", "3\n"),
        ("vram_10322", "0\n"),
    ] {
        file(&format!("{PROCESS}/{path}"), text);
    }
    file("sys/class/kfd/kfd/proc/8/pasid", "32769\n");
    file("proc/4711/comm", "train\n");
    file(
        "proc/4711/status",
        "Name:\ttrain\nUid:\t424242\t424242\t424242\t424242\n",
    );
    let id = "0123456789abcdef".repeat(4);
    file(
        "proc/4711/cgroup",
        &format!("0::/system.slice/docker-{id}.scope\n"),
    );
    file("proc/4711/fdinfo/5", RENDER_NODE);
    directory
}
