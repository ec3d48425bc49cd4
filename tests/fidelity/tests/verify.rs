//! `gputrace verify` on the software GPU: without faults it must find nothing wrong, and for each
//! fault it must say what is wrong.
//!
//! What a run says about clocks and means is statistics: a single reading of a clock by a thread
//! that lost its CPU changes it. Tests assert those rows only if their names end in
//! `_by_the_figures`, and print the numbers behind them. All other rows hold on every machine,
//! however slow.

#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests, some of which print figures"
)]

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

/// The software GPU's settings for the kernels.
const KERNELS: &str = include_str!("../../workloads/verify/softgpu.toml");

/// The release used by the bundled program. This machine's C library must be able to load it.
const RELEASE: &str = "5.2.3";

/// Rows that are statistics of a run in real time.
const BY_THE_FIGURES: [&str; 6] = [
    "stamps",
    "exact times",
    "kernels' own clock",
    "clock conversion",
    "estimates",
    "status register",
];

/// Number of copies that the program requests.
const COPIES: u64 = 36;

/// The result of a run.
struct Verified {
    output: Output,
    report: Value,
    text: String,
}

/// Runs `gputrace verify` in some modes; `None` if the test is to be skipped. A fault is put before
/// or after the settings.
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
    let text = fs::read_to_string(place.join("report.json"))
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let report = serde_json::from_str(&text).expect("JSON");
    names_nobody(&text, place);
    Some(Verified {
        output,
        report,
        text,
    })
}

/// Checks that the report, which is sent to strangers, does not identify anybody.
fn names_nobody(text: &str, place: &Path) {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("the host's name");
    let place = place.to_string_lossy();
    for private in [&*place, "/tmp", "/home", "/root", "/usr", "libhsa"] {
        assert!(!text.contains(private), "{private} is in {text}");
    }
    // Short host names occur within words.
    let host = host.trim();
    assert!(
        host.len() < 6 || !text.contains(host),
        "{host} is in {text}"
    );
}

impl Verified {
    /// All rows, each with the name of its section.
    fn all(&self) -> impl Iterator<Item = (&Value, &Value)> {
        let sections = self.report["sections"].as_array().expect("sections");
        sections.iter().flat_map(|section| {
            let rows = section["rows"].as_array().expect("rows");
            rows.iter().map(|row| (&section["name"], row))
        })
    }

    /// Names of the rows with this status, with their counts.
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

    /// Checks that no window is violated.
    fn assert_windows_hold(&self) {
        assert_eq!(
            self.figure("windows", "violated") as u64,
            0,
            "INVARIANT: windows are violated: {}",
            self.text
        );
    }

    /// Checks that these rows are wrong, perhaps among others, and that the exit code shows it.
    fn assert_wrong(&self, rows: &[&str]) {
        let wrong = self.rows("wrong");
        for row in rows {
            assert!(
                wrong.contains_key(*row),
                "{row} is not wrong: {}",
                self.text
            );
        }
        assert_eq!(self.output.status.code(), Some(1), "{:?}", self.output);
        assert_eq!(self.report["verdict"], "wrong");
    }

    /// Only the rows that are wrong, because the whole report is longer than what is kept of a
    /// test's output.
    fn wrong(&self) -> Vec<(&Value, &Value)> {
        self.all()
            .filter(|(_, row)| row["status"] == "wrong")
            .collect()
    }

    /// Checks that the exit code and the verdict agree with the rows.
    fn assert_says(&self, right: bool) {
        let code = if right { 0 } else { 1 };
        assert_eq!(self.output.status.code(), Some(code), "{:?}", self.output);
        assert_eq!(
            self.report["verdict"],
            if right { "right" } else { "wrong" }
        );
    }

    /// Checks that nothing is wrong among the rows that hold on every machine.
    fn assert_right_but_for_figures(&self) {
        let all = self.wrong();
        let mut wrong = all.clone();
        wrong.retain(|(_, row)| !is_by_the_figures(row));
        assert!(wrong.is_empty(), "{wrong:#?}");
        self.assert_says(all.is_empty());
    }

    /// Nothing is wrong; prints the figures that say so.
    fn assert_right_by_the_figures(&self) {
        for (section, row) in self.all() {
            let name = row["name"].as_str().expect("a name");
            if BY_THE_FIGURES.contains(&name) {
                print_figures(section, row);
            }
        }
        let wrong = self.wrong();
        assert!(wrong.is_empty(), "{wrong:#?}");
        self.assert_says(true);
    }
}

/// Whether a row that is wrong is so for its statistics. Of copies, number, bytes and directions
/// hold anywhere, and that none has times when it cannot have run.
fn is_by_the_figures(row: &Value) -> bool {
    let name = row["name"].as_str().expect("a name");
    let number = |name: &str| row["figures"][name].as_f64();
    match (name, number("exact"), number("timed")) {
        ("copies" | "copies by kernels", Some(exact), Some(timed)) => {
            let found = row["found"].as_str().expect("what was found");
            let is_possible = !found.contains("impossible times");
            is_possible
                && (exact < timed * 0.95 || number("off_max_ns").is_some_and(|off| off > 1e5))
        }
        _ => BY_THE_FIGURES.contains(&name),
    }
}

fn print_figures(section: &Value, row: &Value) {
    let word = |value: &Value| {
        value
            .as_str()
            .expect("a name")
            .to_lowercase()
            .replace([' ', ',', '\''], "_")
    };
    for (name, value) in row["figures"].as_object().into_iter().flatten() {
        let units = [
            ("_ns", "ns"),
            ("_hz", "Hz"),
            ("_ppm", "ppm"),
            ("_percent", "%"),
        ];
        let unit = units.iter().find(|(end, _)| name.ends_with(end));
        let unit = unit.map_or("of them", |(_, unit)| unit);
        println!(
            "figure verify.{}.{}.{name} = {value} {unit}",
            word(section),
            word(&row["name"])
        );
    }
}

/// A `[[fault]]` that affects the bundled program's kernels.
fn fault(kind: &str) -> String {
    format!("[[fault]]\nkind = {kind}\nkernel = \"gputrace_spin_*\"\n")
}

/// A run in every mode without faults.
fn without_faults() -> Option<Verified> {
    verify("launch,kernel-copies,attach,node", "", "punctual = true\n")
}

impl Verified {
    /// These rows are right in so many modes.
    fn assert_ok(&self, rows: &[(&str, usize)]) {
        let ok = self.rows("ok");
        for (row, modes) in rows {
            assert_eq!(ok.get(*row), Some(modes), "{row}: {}", self.text);
        }
    }
}

#[test]
fn without_faults_everything_is_recorded_in_every_mode() {
    let Some(verified) = without_faults() else {
        return;
    };
    verified.assert_right_but_for_figures();
    assert_eq!(verified.report["versions"]["gfx"], "gfx906");
    verified.assert_ok(&[
        ("program", 4),
        ("account", 4),
        ("dispatches", 3),
        ("names and sizes", 3),
        ("order", 3),
        ("windows", 3),
    ]);
    // The exact numbers are the program's.
    assert_eq!(verified.figure("dispatches", "required") as u64, 1800);
    for row in ["copies", "copies by kernels"] {
        assert_eq!(verified.figure(row, "required") as u64, COPIES);
    }
    let text = String::from_utf8_lossy(&verified.output.stdout);
    assert!(text.contains("  ok       dispatches"), "{text}");
}

#[test]
fn without_faults_all_is_right_by_the_figures() {
    let Some(verified) = without_faults() else {
        return;
    };
    verified.assert_right_by_the_figures();
    verified.assert_ok(&[
        ("stamps", 3),
        ("exact times", 3),
        ("kernels' own clock", 3),
        ("clock conversion", 3),
        ("copies", 3),
        ("copies by kernels", 1),
    ]);
    assert_eq!(verified.figure("copies", "exact") as u64, COPIES);
    let text = String::from_utf8_lossy(&verified.output.stdout);
    assert!(text.contains("  ok       exact times"), "{text}");
}

/// A run with another clock and a late read index.
fn another_clock() -> Option<Verified> {
    let before = "[[agent]]\ngfx = \"gfx1030\"\ndevice_id = 0x73bf\nclock = { drift_ppb = 80_000, offset_ticks = 99 }\n";
    // The settings end with their table about queues.
    let behind = "read_index_step = 16\nread_index_delay_ns = 300_000\n";
    verify("launch,attach", before, behind)
}

#[test]
fn another_clock_and_a_late_read_index_are_not_wrong() {
    let Some(verified) = another_clock() else {
        return;
    };
    verified.assert_right_but_for_figures();
    assert_eq!(verified.report["versions"]["gfx"], "gfx1030");
    assert_eq!(verified.figure("read index", "ahead") as u64, 0);
}

#[test]
fn another_clock_and_a_late_read_index_are_right_by_the_figures() {
    let Some(verified) = another_clock() else {
        return;
    };
    verified.assert_right_by_the_figures();
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

/// Dispatches that have stamps all the same.
const STAMPED: u64 = 234;

/// A run in which 20 dispatches have no stamps.
fn missing_stamps() -> Option<Verified> {
    verify(
        "launch",
        "",
        &fault("\"no_timestamps\"\nnth = 10\ncount = 20"),
    )
}

#[test]
fn missing_stamps_are_told() {
    let Some(verified) = missing_stamps() else {
        return;
    };
    verified.assert_wrong(&["stamps", "exact times"]);
    // A recorder without a processor may read one too late.
    let exact = verified.figure("exact times", "exact") as u64;
    assert!((STAMPED - 2..=STAMPED).contains(&exact), "{exact}");
    verified.assert_windows_hold();
}

#[test]
fn no_other_stamps_are_missing_by_the_figures() {
    let Some(verified) = missing_stamps() else {
        return;
    };
    assert_eq!(verified.figure("exact times", "exact") as u64, STAMPED);
}

/// A run in which 20 dispatches are seen to be complete 3 ms late.
fn late_completion() -> Option<Verified> {
    let behind = fault("\"late_completion\"\ndelay_ns = 3_000_000\nnth = 10\ncount = 20");
    verify("launch", "", &behind)
}

#[test]
fn a_late_completion_is_not_wrong() {
    let Some(verified) = late_completion() else {
        return;
    };
    verified.assert_right_but_for_figures();
}

#[test]
fn a_late_completion_is_right_by_the_figures() {
    let Some(verified) = late_completion() else {
        return;
    };
    verified.assert_right_by_the_figures();
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
        // Everything submitted is in the recording nevertheless.
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
    // Nothing is wrong, but less is known.
    verified.assert_right_but_for_figures();
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
    let output = Command::new(gputrace())
        .arg("verify")
        .output()
        .expect("gputrace");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("there is nothing to verify"), "{text}");
    assert!(
        text.contains("next: run this on a machine with an AMD GPU"),
        "{text}"
    );
}
