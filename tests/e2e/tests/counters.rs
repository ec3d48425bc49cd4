//! `--counters` on a synthetic sysfs: amdgpu's files in a mount namespace of the test.

use std::collections::BTreeMap;

use gputrace_e2e::{Bench, bench::with_own_mounts, process::Running};
use gputrace_timeline::{Timeline, event::Event};

/// Creates a node with one GPU in place of the driver's files, and then runs the rest.
const NODE: &str = r#"
set -e
mount -t tmpfs none /sys/class
topology=/sys/class/kfd/kfd/topology
device=/sys/class/drm/renderD128/device
mkdir -p $topology/nodes/0 $topology/nodes/1 $device/hwmon/hwmon0 $device/power
echo 1 > $topology/generation_id
echo 0 > $topology/nodes/0/gpu_id
printf 'cpu_cores_count 2\nsimd_count 0\n' > $topology/nodes/0/properties
echo 51234 > $topology/nodes/1/gpu_id
printf 'simd_count 1216\nsimd_per_cu 4\nlocation_id 768\ndomain 0\ndrm_render_minor 128\n' > $topology/nodes/1/properties
echo active > $device/power/runtime_status
echo 5 > $device/gpu_busy_percent
echo 250000000 > $device/hwmon/hwmon0/power1_average
exec "$@"
"#;

/// Simulates growing use of the GPU, and prints its process id. Before each step it waits until
/// gputrace has read the last one: then the file was accessed later than written.
const USER: &str = r#"
mine=/sys/class/kfd/kfd/proc/$$
device=/sys/class/drm/renderD128/device
until_read() {
    until [ -n "$(find "$1" -neweram "$1")" ]; do sleep 0.02; done
}
mkdir -p $mine/stats_51234
for busy in 20 40 60; do
    echo $busy > $device/gpu_busy_percent
    echo ${busy}00 > $mine/vram_51234
    until_read $device/gpu_busy_percent
    until_read $mine/vram_51234
done
rm $device/hwmon/hwmon0/power1_average
echo 60 > $device/gpu_busy_percent
until_read $device/gpu_busy_percent
"#;

#[test]
fn what_changes_is_a_counter_of_the_gpu_and_of_the_process() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let gputrace = bench.gputrace(&outputs);
    let mut command = with_own_mounts(NODE);
    command
        .arg(gputrace.get_program())
        .args(gputrace.get_args())
        .args([
            "--counters=10",
            "-S",
            "-f",
            "csv,pftrace,json,ndjson,rocpd",
            "--",
        ])
        .args(["/bin/sh", "-c", USER]);
    Running::start("gputrace", &mut command).finish();

    let mut values: BTreeMap<(String, bool), Vec<f64>> = BTreeMap::new();
    let mut notices = Vec::new();
    let mut pid = 0;
    for event in Timeline::open(&outputs.capture()).unwrap() {
        match event.unwrap() {
            Event::Recording(recording) => pid = recording.main_pid.unwrap(),
            Event::Counter(sample) => {
                let counter = &sample.counter;
                assert_eq!((counter.gpu_id, counter.node_id), (51234, Some(1)));
                assert!([0, pid].contains(&counter.pid));
                let key = (counter.name.clone(), counter.pid != 0);
                values.entry(key).or_default().push(sample.value);
            }
            Event::Notice(notice) => notices.push(notice.text),
            _ => {}
        }
    }
    let of = |name: &str, process| values[&(name.to_owned(), process)].clone();
    // The first value may be gone before gputrace reads it.
    for (name, process, steps) in [
        ("gpu_busy_percent", false, &[5.0, 20.0, 40.0, 60.0][..]),
        ("vram", true, &[2000.0, 4000.0, 6000.0]),
    ] {
        let mut seen = of(name, process);
        seen.dedup();
        assert!(steps.ends_with(&seen) && seen.len() >= 3, "{seen:?}");
    }
    assert_eq!(of("power1_average", false), [250.0]);
    let missing =
        |text: &&String| text.contains("GPU 51234 does not report gpu_metrics, mem_busy_percent");
    assert_eq!(notices.iter().filter(missing).count(), 1, "{notices:?}");
}
