//! Runs the commands that inspect as users do: on this machine, with a mock GPU, and without
//! privilege.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const GPUTRACE: &str = env!("CARGO_BIN_EXE_gputrace");

/// Width of a terminal in columns.
const WIDTH: usize = 100;

fn gputrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(GPUTRACE);
    command.args(arguments).env_remove("NO_COLOR");
    command
}

/// gputrace as it would run on a machine with the mock's GPU.
fn with_gpu(arguments: &[&str]) -> Command {
    // Cargo builds the dependencies of a test into the same directory.
    let this = std::env::current_exe().unwrap();
    let library = this.parent().unwrap().join("libgputrace_mockkfd.so");
    assert!(library.exists(), "{} is not built", library.display());
    let mut command = gputrace(arguments);
    command.env("LD_PRELOAD", library);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_fits(output: &Output) {
    let text = text(output);
    let wide = text.lines().find(|line| line.chars().count() > WIDTH);
    // Paths cannot be wrapped.
    assert!(wide.is_none_or(|line| line.contains('/')), "{wide:?}");
    assert!(
        !text.contains('\x1b'),
        "no colour where nobody sees it: {text:?}"
    );
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_gpu_is_shown_with_its_memory_and_links() {
    let output = with_gpu(&["topology"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_fits(&output);
    let shown = text(&output);
    for expected in [
        "gfx906",
        "0000:01:00.0",
        "16.0 GiB",
        "Links between nodes",
        "PCIe",
    ] {
        assert!(shown.contains(expected), "{expected} is not in\n{shown}");
    }
    let verbose = text(&with_gpu(&["topology", "-v"]).output().unwrap());
    assert!(verbose.contains("Max_Waves_Per_Simd"), "{verbose}");
    let value = json(&with_gpu(&["topology", "--json"]).output().unwrap());
    assert_eq!(value["agents"][1]["name"], "gfx906");
    assert_eq!(
        value["agents"][1]["agent_info"]["Gpu_Id"],
        value["agents"][1]["gpu_id"]
    );
}

#[test]
fn the_doctor_reads_the_clock_of_a_gpu() {
    let value = json(&with_gpu(&["doctor", "--json"]).output().unwrap());
    let sections = value["sections"].as_array().unwrap();
    let checks = sections
        .iter()
        .flat_map(|section| section["checks"].as_array().unwrap());
    let clocks = checks
        .into_iter()
        .find(|check| check["name"] == "/dev/kfd and clocks")
        .unwrap();
    assert_eq!(clocks["status"], "ok", "{clocks}");
}

#[test]
fn a_machine_without_the_driver_is_no_failure() {
    if Path::new("/sys/class/kfd").exists() {
        gputrace_skip::skipped("this machine has the driver: none without it is here");
        return;
    }
    for (command, status) in [("topology", 0), ("ps", 0), ("kfd", 1)] {
        let mut arguments = vec![command];
        if command == "kfd" {
            arguments.push("1");
        }
        let output = gputrace(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{command}: {output:?}");
        assert!(
            !output.stderr.is_empty(),
            "{command} says why it shows nothing"
        );
        arguments.push("--json");
        let output = gputrace(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{command}: {output:?}");
    }
    assert_eq!(
        json(&gputrace(&["topology", "--json"]).output().unwrap())["agents"],
        Value::Array(vec![])
    );
}

#[test]
fn the_doctor_tries_and_tells_the_next_step() {
    let output = gputrace(&["doctor"]).output().unwrap();
    assert_fits(&output);
    let shown = text(&output);
    let ready = shown.contains("gputrace can record here");
    assert_eq!(ready, output.status.code() == Some(0), "{shown}");
    if std::env::var_os("GPUTRACE_REQUIRE_BPF").is_some() {
        assert!(ready, "{shown}");
    }
}

#[test]
fn without_privilege_it_says_what_is_missing() {
    let mut doctor = gputrace(&["doctor", "--json"]);
    if is_root() {
        // A copy that everybody may read, because only root may have access to the build directory.
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let copy = directory.path().join("gputrace");
        std::fs::copy(GPUTRACE, &copy).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).unwrap();
        doctor = Command::new(&copy);
        doctor
            .args(["doctor", "--json"])
            .current_dir("/")
            .uid(65_534)
            .gid(65_534);
        check_unprivileged(&doctor.output().unwrap());
    } else {
        check_unprivileged(&doctor.output().unwrap());
    }
}

fn check_unprivileged(output: &Output) {
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let value = json(output);
    assert_eq!(value["verdict"], "no_permission");
    let capabilities = &value["sections"][0]["checks"][0];
    assert_eq!(capabilities["status"], "missing");
    assert_eq!(capabilities["next"], "sudo gputrace doctor");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = gputrace(&["doctor"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), Some(0 | 1 | 6 | 7)), "{status}");
}

#[test]
fn a_wrong_process_is_a_status_of_its_own() {
    let output = gputrace(&["kfd", "4294967295", "--interval", "10ms"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let output = gputrace(&["kfd", "self"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_thread_is_told_from_its_process() {
    let own = std::process::id();
    // The thread must live as long as it is asked about.
    let asked = std::thread::spawn(move || {
        let tid = rustix::thread::gettid().as_raw_pid().to_string();
        let right = format!("{tid} is a thread of process {own}; give the process: {own}");
        let mut commands = vec![vec!["-p", &tid], vec!["-p", &tid, "--wait"]];
        // In a container, the ids of processes are not KFD's.
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
        if namespace == Path::new("pid:[4026531836]") {
            commands.push(vec!["kfd", &tid]);
        }
        for command in commands {
            let output = gputrace(&command).output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{command:?}: {output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(&right), "{said}");
        }
    });
    asked.join().unwrap();
}

/// A process that has ended, and that nobody has collected.
#[test]
fn nobody_waits_for_a_process_that_has_ended() {
    let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    while !state().contains(") Z") {
        std::thread::yield_now();
    }
    let output = gputrace(&["-p", &child.id().to_string(), "--wait"])
        .output()
        .unwrap();
    child.wait().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("it has ended"), "{said}");
}
