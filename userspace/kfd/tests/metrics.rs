//! Counters and `gpu_metrics` in device directories like those of amdgpu.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

use std::fs;
use std::path::Path;

use gputrace_kfd::Paths;
use gputrace_kfd::metrics::{Detail, MetricsError, Unit, counters, gpu_metrics};

const DEVICE: &str = "sys/class/drm/renderD128/device";

fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(DEVICE).join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_file_that_is_there_is_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let paths = Paths::under(root);
    let nothing = counters(&paths, 128, Detail::All);
    assert!(nothing.values.is_empty() && nothing.problems.is_empty() && !nothing.asleep);

    write(root, "power/runtime_status", "active\n");
    write(root, "gpu_busy_percent", "97\n");
    write(root, "mem_info_vram_used", "68702699520\n");
    write(root, "pp_dpm_sclk", "0: 500Mhz\n1: 1700Mhz *\n");
    write(root, "pp_dpm_mclk", "0: 400Mhz\n1: 1600Mhz\n");
    write(root, "pcie_bw", "100 200 256\n");
    write(root, "hwmon/hwmon3/temp2_input", "-1500\n");
    write(root, "hwmon/hwmon3/temp2_label", "junction\n");
    write(root, "hwmon/hwmon3/power1_average", "250000000\n");
    write(root, "hwmon/hwmon3/temp2_crit", "110000\n");
    write(root, "hwmon/hwmon3/name", "amdgpu\n");
    let read = counters(&paths, 128, Detail::All);
    assert!(read.problems.is_empty(), "{:?}", read.problems);
    let shown: Vec<String> = read.values.iter().map(ToString::to_string).collect();
    let expected = [
        "gpu_busy_percent 97 %",
        "mem_info_vram_used 68702699520 B",
        "pp_dpm_sclk 1700 MHz",
        "pcie_bw received 100 ",
        "pcie_bw sent 200 ",
        "pcie_bw largest packet 256 B",
        "power1_average 250 W",
        "temp2_input (junction) -1.5 °C",
    ];
    assert_eq!(shown, expected);
    assert_eq!(counters(&paths, 128, Detail::Cheap).values.len(), 5);
}

#[test]
fn a_lie_is_named_and_the_rest_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(root, "gpu_busy_percent", "busy\n");
    write(root, "pp_dpm_sclk", "fast *\n");
    write(root, "mem_busy_percent", "3\n");
    let read = counters(&Paths::under(root), 128, Detail::Cheap);
    assert_eq!((read.values.len(), read.values[0].unit), (1, Unit::Percent));
    let names: Vec<_> = read
        .problems
        .iter()
        .map(|problem| problem.path().to_owned())
        .collect();
    let device = root.join(DEVICE);
    assert_eq!(
        names,
        [device.join("gpu_busy_percent"), device.join("pp_dpm_sclk")]
    );
}

#[test]
fn a_sleeping_device_is_left_asleep() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(root, "power/runtime_status", "suspended\n");
    write(root, "gpu_busy_percent", "0\n");
    write(root, "gpu_metrics", [1]);
    let paths = Paths::under(root);
    let read = counters(&paths, 128, Detail::All);
    assert!(read.asleep && read.values.is_empty());
    assert!(gpu_metrics(&paths, 128).unwrap().is_none());
}

#[test]
fn the_table_of_a_device_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let paths = Paths::under(root);
    assert!(gpu_metrics(&paths, 128).unwrap().is_none());
    // An MI200's table, which the driver fills with ones before the firmware fills in its part.
    let mut table = [0xff_u8; 120];
    table[..4].copy_from_slice(&[120, 0, 1, 3]);
    table[6..8].copy_from_slice(&61_u16.to_le_bytes());
    table[32..40].copy_from_slice(&5_000_000_000_u64.to_le_bytes());
    write(root, "gpu_metrics", table);
    let read = gpu_metrics(&paths, 128).unwrap().unwrap();
    assert_eq!((read.version, read.metrics.len()), ((1, 3), 2));
    assert_eq!(
        read.get("temperature_hotspot").unwrap().to_string(),
        "temperature_hotspot 61 °C"
    );
    table[3] = 77;
    write(root, "gpu_metrics", table);
    let unknown = gpu_metrics(&paths, 128).unwrap_err();
    assert!(matches!(
        unknown,
        MetricsError::UnknownVersion {
            format: 1,
            content: 77,
            size: 120
        }
    ));
}
