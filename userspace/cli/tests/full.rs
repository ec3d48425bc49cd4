//! Runs every command with a standard output that cannot be written: `/dev/full` answers like a
//! full disk. A truncated output must not look like a complete one.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test code outside of #[test] functions"
)]

mod common;

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    process::{Command, Output, Stdio},
};

use common::{BOOT, capture, stderr};
use tempfile::TempDir;

/// Exit status if an output cannot be written.
const OUTPUT: i32 = 8;

fn run(arguments: &[&str], stdout: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
    let child = command
        .args(arguments)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn();
    child.unwrap().wait_with_output().unwrap()
}

fn full() -> Stdio {
    let full = OpenOptions::new().write(true).open("/dev/full");
    full.expect("/dev/full").into()
}

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// The commands that `gputrace --help` lists.
fn commands() -> BTreeSet<String> {
    let help = run(&["-h"], Stdio::piped());
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).expect("a list");
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    lines
        // Others continue the line before.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// A library that every process has: its name and build id are listed.
fn library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let mut found = paths.filter(|path| path.contains("/libc.so") || path.contains("/libc-"));
    found.next().expect("a C library").to_owned()
}

#[test]
fn no_command_hides_that_its_output_was_not_written() {
    let directory = TempDir::new().unwrap();
    let (one, other) = (
        capture(directory.path(), "a", BOOT, 0),
        capture(directory.path(), "b", BOOT, 9),
    );
    let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
    let library = library();
    let nowhere = directory.path().join("out");
    let nowhere = nowhere.to_str().unwrap();
    let mut untried = commands();
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help"],
        &["help", "export"],
        &["export", "--help"],
        &["export", one, "-o", "-", "-f", "text"],
        &["export", one, "-o", "-", "-f", "ndjson"],
        &[
            "export",
            one,
            "-d",
            nowhere,
            "-f",
            "csv",
            "-S",
            "--summary-output-file",
            "stdout",
        ],
        &["merge", one, other, "-o", "-", "-f", "text"],
        &[
            "merge",
            one,
            other,
            "-d",
            nowhere,
            "-f",
            "csv",
            "-D",
            "--summary-output-file",
            "stdout",
        ],
        &["summary", one],
        &["summary", one, "-D"],
        &["report", one, "-o", "-"],
        &["query", one, "SELECT * FROM regions"],
        &["query", one, "SELECT * FROM regions", "--format", "csv"],
        &["query", one, "SELECT * FROM regions", "--format", "json"],
        &["diff", one, other],
        &["diff", one, other, "--json"],
        &["dump", one],
        &["list", "--library", &library],
        &["list", "--rocprofv3"],
        &["topology", "--json"],
        &["ps", "--json"],
        &["status", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["verify"],
        &["completions", "bash"],
        &["man"],
    ] {
        untried.remove(arguments[0]);
        let output = run(arguments, full());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(OUTPUT), "{arguments:?}: {said}");
        let cause = "standard output cannot be written: No space left on device";
        assert_eq!(said.matches(cause).count(), 1, "{arguments:?}: {said}");
        // A reader that goes away has seen enough.
        let output = run(arguments, closed());
        let said = stderr(&output);
        assert_ne!(output.status.code(), Some(OUTPUT), "{arguments:?}: {said}");
        assert!(!said.contains("cannot be written"), "{arguments:?}: {said}");
    }
    // It prints as `ps` does, if there is a GPU.
    untried.remove("kfd");
    // It traces: `tests/e2e` tries it.
    untried.remove("top");
    // It prints only messages.
    untried.remove("dump-flight");
    assert_eq!(untried, BTreeSet::new());
}

#[test]
fn what_cannot_be_a_file_is_an_output_that_cannot_be_written() {
    let directory = TempDir::new().unwrap();
    let one = capture(directory.path(), "a", BOOT, 0);
    let one = one.to_str().unwrap();
    for place in [".", "..", "/", directory.path().to_str().unwrap()] {
        let output = run(&["report", one, "-o", place, "--force"], Stdio::piped());
        assert_eq!(
            output.status.code(),
            Some(OUTPUT),
            "{place}: {}",
            stderr(&output)
        );
    }
    let page = run(&["report", one, "-o", "-"], Stdio::piped());
    assert!(page.status.success(), "{}", stderr(&page));
    assert!(page.stdout.starts_with(b"<!DOCTYPE html>"));
    assert!(!directory.path().join("-").exists());
}
