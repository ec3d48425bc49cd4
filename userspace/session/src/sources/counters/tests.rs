use std::{fs, path::Path};

use super::*;

struct These(Option<Vec<u32>>);

impl ProcessSet for These {
    fn pids(&self) -> Option<Vec<u32>> {
        self.0.clone()
    }
}

fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A node with one GPU and a process on it.
fn node(root: &Path) -> Book {
    let topology = "sys/class/kfd/kfd/topology";
    write(root, &format!("{topology}/generation_id"), "1\n");
    write(root, &format!("{topology}/nodes/1/gpu_id"), "51234\n");
    write(
        root,
        &format!("{topology}/nodes/1/properties"),
        "simd_count 416\nlocation_id 768\ndomain 0\ndrm_render_minor 128\n",
    );
    let device = "sys/class/drm/renderD128/device";
    write(root, &format!("{device}/gpu_busy_percent"), "97\n");
    write(root, &format!("{device}/mem_info_vram_used"), "4096\n");
    let mut table = [0xff_u8; 120];
    table[..4].copy_from_slice(&[120, 0, 1, 3]);
    table[6..8].copy_from_slice(&61_u16.to_le_bytes());
    write(root, &format!("{device}/gpu_metrics"), table);
    let process = "sys/class/kfd/kfd/proc/4711";
    write(root, &format!("{process}/vram_51234"), "8192\n");
    write(root, &format!("{process}/sdma_51234"), "5\n");
    write(root, &format!("{process}/stats_51234/evicted_ms"), "7\n");
    write(
        root,
        &format!("{process}/stats_51234/cu_occupancy"),
        "104\n",
    );
    write(
        root,
        "proc/4711/fdinfo/9",
        "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-memory-vram:\t2 KiB\n",
    );
    Book::new(places(&Topology::read(&Paths::under(root)).unwrap()))
}

/// Runs a round, and returns the names of new counters, the values by name, and the remarks.
fn round(
    book: &mut Book,
    root: &Path,
    pids: Option<Vec<u32>>,
) -> (Vec<Counter>, Vec<(u32, f64)>, Vec<String>) {
    let (mut counters, mut values, mut notices) = (Vec::new(), Vec::new(), Vec::new());
    book.round(
        &Paths::under(root),
        &These(pids),
        true,
        &mut |meta| match meta {
            Meta::Counter(counter) => counters.push(*counter),
            Meta::CounterValues(read) => values.extend(read.values),
            Meta::Notice(notice) => notices.push(notice.text),
            other => panic!("{other:?}"),
        },
    );
    (counters, values, notices)
}

#[test]
fn what_changes_is_written_and_what_is_missing_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut book = node(root);
    let (counters, values, notices) = round(&mut book, root, None);
    let shown: Vec<_> = counters
        .iter()
        .zip(&values)
        .map(|(counter, (number, value))| {
            assert_eq!((counter.number, counter.node_id), (*number, Some(1)));
            assert_eq!(counter.gpu_id, 51234);
            (
                counter.name.as_str(),
                counter.pid,
                *value,
                counter.unit.as_str(),
                counter.cumulative,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("gpu_busy_percent", 0, 97.0, "%", false),
            ("mem_info_vram_used", 0, 4096.0, "B", false),
            ("gpu_metrics.temperature_hotspot", 0, 61.0, "°C", false),
            ("vram", 4711, 8192.0, "B", false),
            ("sdma", 4711, 5e3, "ns", true),
            ("evicted", 4711, 7e6, "ns", true),
            ("cu_occupancy", 4711, 104.0, "", false),
            ("drm-memory-vram", 4711, 2048.0, "B", false),
        ]
    );
    assert_eq!(
        notices,
        [
            "GPU 51234 does not report mem_busy_percent, clocks (pp_dpm_*), power (hwmon): there \
             are no such counters"
        ]
    );
    // No change; then one value; then one counter that vanishes and another with invalid contents.
    assert_eq!(round(&mut book, root, None), (vec![], vec![], vec![]));
    let busy = "sys/class/drm/renderD128/device/gpu_busy_percent";
    write(root, busy, "12\n");
    assert_eq!(round(&mut book, root, None).1, [(0, 12.0)]);
    fs::remove_file(root.join("sys/class/drm/renderD128/device/gpu_metrics")).unwrap();
    write(root, busy, "lots\n");
    let (counters, values, notices) = round(&mut book, root, None);
    assert_eq!((counters, values), (vec![], vec![]));
    assert!(
        notices.len() == 1 && notices[0].contains("gpu_busy_percent"),
        "{notices:?}"
    );
    assert_eq!(round(&mut book, root, None).2, Vec::<String>::new());
}

#[test]
fn each_reading_of_a_group_is_noted_with_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut book = node(root);
    let mut reads = || {
        let (mut counters, mut reads) = (Vec::new(), Vec::new());
        let before = clocks::now();
        book.round(
            &Paths::under(root),
            &These(None),
            true,
            &mut |meta| match meta {
                Meta::Counter(counter) => counters.push(*counter),
                Meta::CounterValues(values) => reads.push(*values),
                _ => {}
            },
        );
        let after = clocks::now();
        for values in &reads {
            let read = values.read.unwrap();
            assert!(values.time - read.before >= before && values.time + read.after <= after);
        }
        let reads: Vec<_> = reads
            .into_iter()
            .map(|values| (values.read.unwrap().group, values.values.len(), values.gone))
            .collect();
        (counters, reads)
    };
    let (counters, first) = reads();
    // Three groups: three counters of the GPU, four of the process from KFD, one of its
    // descriptors.
    assert_eq!(first, [(0, 3, vec![]), (1, 4, vec![]), (2, 1, vec![])]);
    let groups: Vec<_> = counters.iter().map(|counter| counter.group).collect();
    assert_eq!(
        groups,
        [
            Some(0),
            Some(0),
            Some(0),
            Some(1),
            Some(1),
            Some(1),
            Some(1),
            Some(2)
        ]
    );
    let unchanged = [(0, 0, vec![]), (1, 0, vec![]), (2, 0, vec![])];
    assert_eq!(reads().1, unchanged);
    let used = root.join("sys/class/drm/renderD128/device/mem_info_vram_used");
    fs::remove_file(&used).unwrap();
    fs::remove_dir_all(root.join("proc/4711")).unwrap();
    assert_eq!(
        reads().1,
        [(0, 0, vec![1]), (1, 0, vec![]), (2, 0, vec![7])]
    );
    // The counter is back with its previous value. A group of which nothing is read is not noted.
    fs::write(&used, "4096\n").unwrap();
    assert_eq!(reads().1, [(0, 1, vec![]), (1, 0, vec![])]);
}

#[test]
fn only_the_processes_asked_for_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut book = node(root);
    let (counters, ..) = round(&mut book, root, Some(vec![1]));
    assert!(counters.iter().all(|counter| counter.pid == 0));
    let (counters, ..) = round(&mut book, root, Some(vec![4711]));
    assert!(counters.iter().any(|counter| counter.pid == 4711));
    // A process that has ended is no problem.
    fs::remove_dir_all(root.join("sys/class/kfd/kfd/proc/4711")).unwrap();
    fs::remove_dir_all(root.join("proc/4711")).unwrap();
    assert_eq!(
        round(&mut book, root, Some(vec![4711])),
        (vec![], vec![], vec![])
    );
}

#[test]
fn a_sleeping_gpu_is_left_asleep_and_an_unknown_table_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut book = node(root);
    let device = "sys/class/drm/renderD128/device";
    write(
        root,
        &format!("{device}/power/runtime_status"),
        "suspended\n",
    );
    let (counters, _, notices) = round(&mut book, root, Some(vec![]));
    assert!(
        counters.is_empty() && notices.len() == 1 && notices[0].contains("asleep"),
        "{notices:?}"
    );
    write(root, &format!("{device}/power/runtime_status"), "active\n");
    write(root, &format!("{device}/gpu_metrics"), [4, 0, 9, 9]);
    let (counters, _, notices) = round(&mut book, root, Some(vec![]));
    assert_eq!(counters.len(), 2);
    assert!(
        notices.iter().any(|text| text.contains("version 9.9")),
        "{notices:?}"
    );
    assert_eq!(round(&mut book, root, Some(vec![])).2, Vec::<String>::new());
}
