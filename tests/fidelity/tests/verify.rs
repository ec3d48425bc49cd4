//! `gputrace verify` on the software GPU: it finds nothing wrong where nothing is, and with each fault it says what is wrong.

#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use gputrace_fidelity::release::equip;
use gputrace_harness::rocm::{LIBRARIES, root};
use serde_json::Value;

use support::{gputrace, release};

/// What the software GPU has to know of the kernels.
const KERNELS: &str = include_str!("../../workloads/verify/softgpu.toml");

/// The runtime that the bundled program loads: one that this machine's C library can load.
const RELEASE: &str = "5.2.3";

/// What came of it.
struct Verified {
    output: Output,
    report: Value,
    text: String,
}

/// Runs `gputrace verify` in some modes; `None` if the test is to be skipped. A fault is put before or behind the settings.
fn verify(modes: &str, before: &str, behind: &str) -> Option<Verified> {
    release(RELEASE)?;
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    fs::write(
        place.join("softgpu.toml"),
        format!("{before}\n{KERNELS}\n{behind}"),
    )
    .expect("the settings");
    fs::create_dir(place.join("truth")).expect("a directory for the GPU's logs");
    let mut command = Command::new(gputrace());
    command
        .args(["verify", "--mode", modes, "--output"])
        .arg(place.join("report.json"));
    let library = root(RELEASE)
        .expect("the release")
        .join(LIBRARIES)
        .join("libhsa-runtime64.so.1");
    command.arg("--hsa-library").arg(library);
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    equip(&mut command, place).expect("the software GPU");
    let output = command.output().expect("gputrace");
    let text =
        fs::read_to_string(place.join("report.json")).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let report = serde_json::from_str(&text).expect("JSON");
    names_nobody(&text, place);
    Some(Verified { output, report, text })
}

/// The report goes to strangers.
fn names_nobody(text: &str, place: &Path) {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("the host's name");
    let place = place.to_string_lossy();
    for private in [&*place, "/tmp", "/home", "/root", "/usr", "libhsa"] {
        assert!(!text.contains(private), "{private} is in {text}");
    }
    // Names of a few letters are in words.
    let host = host.trim();
    assert!(host.len() < 6 || !text.contains(host), "{host} is in {text}");
}

impl Verified {
    /// All rows, each behind the name of its section.
    fn all(&self) -> impl Iterator<Item = (&Value, &Value)> {
        let sections = self.report["sections"].as_array().expect("sections");
        sections.iter().flat_map(|section| {
            let rows = section["rows"].as_array().expect("rows");
            rows.iter().map(|row| (&section["name"], row))
        })
    }

    /// Names of the rows with this status, each with how often.
    fn rows(&self, status: &str) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for (_, row) in self.all().filter(|(_, row)| row["status"] == status) {
            let name = row["name"].as_str().expect("a name");
            *names.entry(name.to_owned()).or_default() += 1;
        }
        names
    }

    fn figure(&self, row: &str, figure: &str) -> f64 {
        let found = self.all().find(|(_, one)| one["name"] == row);
        let (_, row) = found.unwrap_or_else(|| panic!("no {row} in {}", self.text));
        row["figures"][figure]
            .as_f64()
            .unwrap_or_else(|| panic!("no {figure} in {row}"))
    }

    /// These rows are wrong, perhaps others, and the exit code says so.
    fn assert_windows_hold(&self) {
        assert_eq!(self.figure("windows", "violated") as u64, 0, "{}", self.text);
    }

    fn assert_wrong(&self, rows: &[&str]) {
        let wrong = self.rows("wrong");
        for row in rows {
            assert!(wrong.contains_key(*row), "{row} is not wrong: {}", self.text);
        }
        assert_eq!(self.output.status.code(), Some(1), "{:?}", self.output);
        assert_eq!(self.report["verdict"], "wrong");
    }

    /// Nothing is wrong.
    fn assert_right(&self) {
        // What is wrong alone: the whole report is longer than what is kept of a test's output.
        let wrong = self.all().filter(|(_, row)| row["status"] == "wrong");
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(self.output.status.code(), Some(0), "{:?}", self.output);
        assert_eq!(self.report["verdict"], "right");
    }
}

/// A `[[fault]]` that befalls the bundled program's kernels.
fn fault(kind: &str) -> String {
    format!("[[fault]]\nkind = {kind}\nkernel = \"gputrace_spin_*\"\n")
}

#[test]
fn without_faults_all_is_right_in_every_mode() {
    let Some(verified) = verify("launch,kernel-copies,attach,node", "", "punctual = true\n") else {
        return;
    };
    verified.assert_right();
    assert_eq!(verified.report["versions"]["gfx"], "gfx906");
    let ok = verified.rows("ok");
    for (row, modes) in [
        ("program", 4),
        ("account", 4),
        ("dispatches", 3),
        ("names and sizes", 3),
        ("order", 3),
        ("stamps", 3),
        ("exact times", 3),
        ("kernels' own clock", 3),
        ("clock conversion", 3),
        ("windows", 3),
        ("copies", 3),
        ("copies by kernels", 1),
    ] {
        assert_eq!(ok.get(row), Some(&modes), "{row}: {}", verified.text);
    }
    // The exact numbers are the program's.
    assert_eq!(verified.figure("dispatches", "required") as u64, 1648);
    assert_eq!(verified.figure("copies", "exact") as u64, 36);
    let text = String::from_utf8_lossy(&verified.output.stdout);
    assert!(text.contains("  ok       exact times"), "{text}");
}

#[test]
fn another_clock_and_a_late_read_index_are_not_wrong() {
    let before = "[[agent]]\ngfx = \"gfx1030\"\ndevice_id = 0x73bf\nclock = { drift_ppb = 80_000, offset_ticks = 99 }\n";
    // The settings end in their table about queues.
    let behind = "read_index_step = 16\nread_index_delay_ns = 300_000\n";
    let Some(verified) = verify("launch,attach", before, behind) else {
        return;
    };
    verified.assert_right();
    assert_eq!(verified.report["versions"]["gfx"], "gfx1030");
    assert_eq!(verified.figure("read index", "ahead") as u64, 0);
}

#[test]
fn stamps_of_another_clock_are_told() {
    let Some(verified) = verify("launch", "[[agent]]\nstamps_fast_ppb = 10_000_000\n", "") else {
        return;
    };
    verified.assert_wrong(&["stamps", "exact times", "kernels' own clock"]);
}

#[test]
fn swapped_stamps_are_told() {
    let Some(verified) = verify(
        "launch",
        "",
        &fault("\"swapped_timestamps\"\nnth = 10\ncount = 20"),
    ) else {
        return;
    };
    verified.assert_wrong(&["stamps", "exact times"]);
    assert_eq!(verified.figure("stamps", "backwards") as u64, 20);
    verified.assert_windows_hold();
}

#[test]
fn missing_stamps_are_told() {
    let Some(verified) = verify("launch", "", &fault("\"no_timestamps\"\nnth = 10\ncount = 20")) else {
        return;
    };
    verified.assert_wrong(&["stamps", "exact times"]);
    assert_eq!(verified.figure("exact times", "exact") as u64, 158);
    verified.assert_windows_hold();
}

#[test]
fn a_late_completion_is_not_wrong() {
    let behind = fault("\"late_completion\"\ndelay_ns = 3_000_000\nnth = 10\ncount = 20");
    let Some(verified) = verify("launch", "", &behind) else {
        return;
    };
    verified.assert_right();
}

#[test]
fn what_never_completes_is_told() {
    for (kind, dispatches) in [
        ("\"lost_completion\"\nnth = 5", 5),
        ("\"never_ends\"\nnth = 3", 3),
    ] {
        let Some(verified) = verify("launch", "", &fault(kind)) else {
            return;
        };
        verified.assert_wrong(&["program"]);
        // What was submitted is in the recording all the same.
        assert_eq!(verified.rows("wrong").len(), 1, "{}", verified.text);
        assert_eq!(verified.figure("dispatches", "required") as u64, dispatches);
    }
}

#[test]
fn failing_queues_are_told() {
    for kind in ["\"queue_error\"\nnth = 50", "\"gpu_reset\"\nnth = 50"] {
        let Some(verified) = verify("launch", "", &fault(kind)) else {
            return;
        };
        verified.assert_wrong(&["program"]);
    }
}

#[test]
fn a_read_index_that_stands_still_is_told() {
    let Some(verified) = verify("launch", "", "read_index_step = 100_000\n") else {
        return;
    };
    // Right, but less is known.
    verified.assert_right();
    let warnings = verified.rows("warning");
    assert!(warnings.contains_key("read index"), "{}", verified.text);
}

#[test]
fn a_read_index_that_runs_ahead_is_told() {
    let Some(verified) = verify("launch", "", "read_index_ahead = 8\n") else {
        return;
    };
    verified.assert_wrong(&["windows", "read index"]);
}

#[test]
fn without_a_gpu_it_says_so_and_ends_with_2() {
    if Path::new("/sys/class/kfd/kfd/topology/nodes").exists() {
        gputrace_e2e::bench::skipped("this machine has KFD");
        return;
    }
    let output = Command::new(gputrace()).arg("verify").output().expect("gputrace");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("there is nothing to verify"), "{text}");
    assert!(
        text.contains("next: run this on a machine with an AMD GPU"),
        "{text}"
    );
}
