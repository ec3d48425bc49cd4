//! `gputrace top`: its screen, and what it refuses.

use std::{process::Command, time::Duration};

use gputrace_e2e::{Bench, Running, process::eventually};
use rustix::process::Signal;

/// Runs `gputrace top` on a terminal of 80 columns and 24 lines that `script` makes.
fn on_a_terminal(bench: &Bench, options: &str) -> Running {
    let bare = bench.gputrace_bare();
    let binary = bare.get_program().display();
    let shell = format!("stty rows 24 cols 80; exec {binary} top {options}");
    let mut command = Command::new("script");
    command.args(["-qefc", &shell, "/dev/null"]);
    for (name, value) in bare.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    Running::start("script", &mut command)
}

/// Waits until the terminal was sent `word`. A screen has no lines that end, and only what changes
/// is sent: words, but not the spaces between them.
fn wait_for(top: &Running, word: &str) {
    eventually(word, Duration::from_mins(1), || top.stdout().contains(word));
}

#[test]
fn a_screen_shows_who_calls_and_obeys_keys() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let mut top = on_a_terminal(&bench, &format!("-p {}", program.pid()));
    // It comes with the first interval, in which the program called.
    wait_for(&top, &program.pid().to_string());
    wait_for(&top, "hip_calls");
    // The table of functions, and those of this process alone.
    top.send("3");
    wait_for(&top, "hipModuleLaunchKernel");
    top.send("q");
    let status = top.wait();
    assert!(status.success(), "{status}: {}", top.describe());
    let text = top.stdout();
    // The screen is left, and what was recorded is told after that.
    let (_, after) = text
        .rsplit_once("\u{1b}[?1049l")
        .expect("the alternate screen is left");
    assert!(after.contains("none lost"), "{after}");
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
}

#[test]
fn a_terminal_is_restored_when_gputrace_is_ended() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let mut top = on_a_terminal(&bench, &format!("-p {}", program.pid()));
    wait_for(&top, "hip_calls");
    let children = Command::new("pgrep")
        .args(["-P", &top.pid().to_string()])
        .output()
        .expect("pgrep");
    let child = String::from_utf8_lossy(&children.stdout);
    let child = child
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let child = child.expect("gputrace below script");
    rustix::process::kill_process(child, Signal::TERM).expect("gputrace runs");
    top.wait();
    let text = top.stdout();
    assert!(text.contains("\u{1b}[?1049l"), "{text:?}");
    program.close_stdin();
    program.finish();
}

#[test]
fn one_interval_without_a_terminal_is_a_page() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let pid = program.pid().to_string();
    let output = bench
        .gputrace_bare()
        .args(["top", "--once", "--interval", "500ms", "-p", &pid])
        .output()
        .expect("gputrace");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let page = String::from_utf8_lossy(&output.stdout);
    let first = page.lines().next().unwrap_or_default();
    assert!(
        first.contains("UTC, 0.5 s: 1 process, 0 events lost"),
        "{page}"
    );
    let row = page
        .lines()
        .find(|line| line.contains("hip_calls loop 500"));
    assert!(row.is_some_and(|row| row.contains(&pid)), "{page}");
    assert!(page.contains("hipModuleLaunchKernel"), "{page}");
    assert!(!page.contains('\u{1b}'), "{page}");
    program.close_stdin();
    program.finish();
}

#[test]
fn mistakes_are_told() {
    let bench = Bench::new();
    for (options, status, part) in [
        (&["--interval", "1ms"][..], 2, "must be at least 100ms"),
        (&["--once", "--duration", "1s"], 2, "cannot be used with"),
        (&["-p", "1", "--", "true"], 2, "cannot be used with"),
        (&["--format", "xml"], 2, "possible values: text, json"),
    ] {
        let output = bench.gputrace_bare().arg("top").args(options).output();
        let output = output.expect("gputrace");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{options:?}: {said}");
        assert!(said.contains(part), "{options:?}: {said}");
        assert!(output.stdout.is_empty(), "{options:?}");
    }
}
