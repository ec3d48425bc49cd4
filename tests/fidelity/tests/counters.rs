//! `--counters` with kernels on a real runtime: the values read while each kernel ran. The driver's
//! files are simulated, in a mount namespace of the test.

#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, path::Path, process::Command};

use gputrace_capture::{Block, CaptureReader, Meta};
use serde_json::Value;

use support::{gputrace, program, record_by, release};

/// Long enough for several readings, even on a busy machine.
const SETTINGS: &str = "default_duration = { fixed_ns = 200_000_000 }\n";

/// Puts files of the software GPU's driver where amdgpu has them, and then runs the rest. KFD's own
/// files are those of the software GPU.
const FILES: &str = r#"
set -e
mount -t tmpfs none /sys/class
device=/sys/class/drm/renderD128/device
mkdir -p $device/hwmon/hwmon0 $device/power
echo active > $device/power/runtime_status
echo 5 > $device/gpu_busy_percent
echo 250500000 > $device/hwmon/hwmon0/power1_average
exec "$@"
"#;

/// The time ranges in which the GPU's files were read.
fn reads(capture: &Path) -> Vec<(u64, u64)> {
    let mut reader = CaptureReader::open(capture).expect("the capture");
    let mut group = None;
    let mut reads = Vec::new();
    while let Some(block) = reader.next_block().expect("a whole capture") {
        match block {
            Block::Meta(Meta::Counter(counter)) if counter.name == "power1_average" => {
                group = counter.group;
            }
            Block::Meta(Meta::CounterValues(values)) => {
                let read = values.read.expect("what was read");
                if Some(read.group) == group {
                    reads.push((values.time - read.before, values.time + read.after));
                }
            }
            _ => {}
        }
    }
    reads
}

#[test]
fn kernels_have_what_was_read_while_they_ran() {
    let Some(release) = release("6.4.3") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let mut recorder = Command::new("unshare");
    recorder
        .args(["-m", "/bin/sh", "-c", FILES, "sh"])
        .arg(gputrace());
    let program = program(&release, "many_kernels", &["6"]);
    let options = ["-r", "--counters=100", "-f", "csv,json,rocpd"];
    record_by(recorder, &program, place, SETTINGS, &options);

    let reads = reads(&place.join("out/run.gtcap"));
    let text = fs::read_to_string(place.join("out/run_results.json")).expect("the document");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let processes = document["rocprofiler-sdk-tool"]
        .as_array()
        .expect("processes");
    let mut rows = 0;
    let (mut kernels, mut unread) = (0, 0);
    for process in processes {
        let name = |id: &Value| {
            let mut counters = process["counters"].as_array().expect("counters").iter();
            let counter = counters
                .find(|counter| counter["id"] == *id)
                .expect("the counter");
            counter["name"].as_str().expect("a name")
        };
        let collection = process["callback_records"]["counter_collection"].as_array();
        let collection = collection.expect("what was counted");
        for kernel in process["buffer_records"]["kernel_dispatch"]
            .as_array()
            .expect("kernels")
        {
            let time = |end: &str| kernel[end].as_u64().expect("a time");
            let (begin, end) = (time("start_timestamp"), time("end_timestamp"));
            let within = reads
                .iter()
                .filter(|(from, to)| begin <= *from && *to <= end)
                .count();
            let id = &kernel["dispatch_info"]["dispatch_id"];
            let of_kernel =
                |one: &&Value| one["dispatch_data"]["dispatch_info"]["dispatch_id"] == *id;
            let found: Vec<&Value> = collection.iter().filter(of_kernel).collect();
            // The recorder may have had no processor for as long as the kernel ran.
            if within == 0 {
                assert!(
                    found.is_empty(),
                    "nothing was read from {begin} to {end}: {found:?}"
                );
                unread += 1;
                continue;
            }
            let [found] = found[..] else {
                panic!("{found:?}")
            };
            assert_eq!(found["dispatch_data"]["start_timestamp"], begin);
            let records = found["records"].as_array().expect("records").iter();
            let mut values: Vec<(&str, f64, u64)> = records
                .map(|one| {
                    let readings = one["gputrace"]["readings"].as_u64().expect("a number");
                    (
                        name(&one["counter_id"]),
                        one["value"].as_f64().expect("a value"),
                        readings,
                    )
                })
                .collect();
            values.sort_by_key(|(name, ..)| *name);
            let within = within as u64;
            assert_eq!(
                values,
                [
                    ("gpu_busy_percent", 5.0, within),
                    ("power1_average", 250.5, within)
                ]
            );
            rows += values.len();
            kernels += 1;
        }
    }
    assert!(
        kernels >= 1 && kernels + unread >= 6,
        "{kernels} kernels, {unread} unread"
    );
    println!("figure fidelity.counters.unread = {unread} kernels");
    let csv = fs::read_to_string(place.join("out/run_counter_collection.csv")).expect("the table");
    assert_eq!(csv.lines().count(), rows + 1, "{csv}");
    assert_eq!(
        csv.matches(",\"power1_average\",250.500000,").count(),
        kernels
    );
    // Nothing was late, and nothing is missing.
    assert!(!text.contains("counter collection"), "a remark");
}
