//! Processes in directory trees like those of the kernel's `kfd_process.c`.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

use std::fs;
use std::path::Path;

use gputrace_kfd::Paths;
use gputrace_kfd::processes::{self, Detail, GpuUse, Queue, queue_type_name};

const PROC: &str = "sys/class/kfd/kfd/proc";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(PROC).join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn tree() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for (path, text) in [
        ("4711/pasid", "32770\n"),
        ("4711/queues/1/gpuid", "31000\n"),
        ("4711/queues/1/size", "1048576"),
        ("4711/queues/1/type", "0\n"),
        ("4711/queues/0/gpuid", "31001\n"),
        ("4711/vram_31000", "68719476736\n"),
        ("4711/sdma_31000", "1500\n"),
        ("4711/stats_31000/evicted_ms", "12\n"),
        ("4711/stats_31000/cu_occupancy", "104\n"),
        ("4711/counters_31000/faults", "3\n"),
        ("4711/counters_31000/page_in", "4\n"),
        ("4711/counters_31000/page_out", "5\n"),
        ("4711/vram_31001", "0\n"),
        // Without a GPU: the files of Linux 6.1 on a machine without one.
        ("8/pasid", "32769\n"),
    ] {
        write(root, path, text);
    }
    directory
}

#[test]
fn a_process_has_queues_and_gpus() {
    let directory = tree();
    let paths = Paths::under(directory.path());
    assert_eq!(processes::pids(&paths).unwrap(), [8, 4711]);
    let process = processes::process(&paths, 4711, Detail::All)
        .unwrap()
        .unwrap();
    assert!(process.problems.is_empty(), "{:?}", process.problems);
    assert_eq!((process.pid, process.pasid), (4711, Some(32_770)));
    let queue = Queue {
        id: 1,
        gpu_id: Some(31_000),
        size: Some(1 << 20),
        kind: Some(0),
    };
    assert_eq!(process.queues[1], queue);
    assert_eq!(
        (process.queues[0].gpu_id, process.queues[0].kind),
        (Some(31_001), None)
    );
    let first = GpuUse {
        vram_bytes: Some(64 << 30),
        sdma_us: Some(1_500),
        evicted_ms: Some(12),
        cu_occupancy: Some(104),
        faults: Some(3),
        page_in: Some(4),
        page_out: Some(5),
    };
    assert_eq!(process.gpus[&31_000], first);
    assert_eq!(process.gpus[&31_001].vram_bytes, Some(0));

    let cheap = processes::process(&paths, 4711, Detail::Cheap)
        .unwrap()
        .unwrap();
    let gpu = &cheap.gpus[&31_000];
    assert_eq!(
        (gpu.sdma_us, gpu.cu_occupancy, gpu.evicted_ms),
        (None, None, Some(12))
    );
    let without = processes::process(&paths, 8, Detail::All).unwrap().unwrap();
    assert!(without.gpus.is_empty() && without.queues.is_empty());
}

#[test]
fn who_is_not_listed_is_none_and_lies_are_named() {
    let directory = tree();
    let root = directory.path();
    let paths = Paths::under(root);
    assert!(
        processes::process(&paths, 5, Detail::All)
            .unwrap()
            .is_none()
    );
    write(root, "9/vram_31000", "much\n");
    write(root, "9/vram_99999999999", "1\n");
    let process = processes::process(&paths, 9, Detail::All).unwrap().unwrap();
    assert_eq!(process.gpus[&31_000], GpuUse::default());
    assert_eq!(process.gpus.len(), 1);
    assert_eq!(process.problems.len(), 1);
    assert_eq!(
        process.problems[0].path(),
        root.join(PROC).join("9/vram_31000")
    );
    let nowhere = Paths::under(&root.join("nowhere"));
    assert_eq!(processes::pids(&nowhere).unwrap(), Vec::<u32>::new());
}

#[test]
fn queue_types_are_the_drivers() {
    assert_eq!(queue_type_name(0), Some("COMPUTE"));
    assert_eq!(queue_type_name(4), Some("SDMA_XGMI"));
    assert_eq!(queue_type_name(99), None);
}
