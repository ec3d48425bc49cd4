//! `gputrace top`: its screen, and what it refuses.
#![expect(clippy::expect_used, reason = "tests")]

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench, Terminal, Trace,
    process::{PATIENCE, eventually},
};
use rustix::process::Signal;

/// What a terminal is sent when a screen is left.
const LEFT: &str = "\u{1b}[?1049l";

/// Runs `gputrace top` on a terminal, for one process.
fn on_a_terminal(bench: &Bench, pid: u32) -> Terminal {
    let mut command = bench.gputrace_bare();
    command.args(["top", "-p", &pid.to_string()]);
    Terminal::start(command)
}

#[test]
fn a_screen_shows_who_calls_and_obeys_keys() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let mut top = on_a_terminal(&bench, program.pid());
    // It comes with the first interval, in which the program called.
    top.wait_for(&program.pid().to_string());
    top.wait_for("hip_calls");
    // The table of functions, and those of this process alone.
    top.press("3\r");
    top.wait_for("hipModuleLaunchKernel");
    top.press("q");
    let status = top.wait();
    let text = top.text();
    assert!(status.success(), "{status}: {text:?}");
    // The screen is left, and what was recorded is told after that.
    let (_, after) = text.rsplit_once(LEFT).expect("the screen is left");
    assert!(after.contains("none lost"), "{after}");
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
}

#[test]
fn gputrace_alone_on_a_terminal_is_top() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let mut top = Terminal::start(bench.gputrace_bare());
    top.wait_for("hip_calls");
    top.press("q");
    let status = top.wait();
    let text = top.text();
    assert!(status.success(), "{status}: {text:?}");
    assert!(text.contains(LEFT), "{text:?}");
    program.close_stdin();
    program.finish();
}

#[test]
fn a_key_records_a_process() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let pid = program.pid();
    let mut top = on_a_terminal(&bench, pid);
    top.wait_for("hip_calls");
    top.press("r");
    top.wait_for("RECORDING");
    let mut captures = Vec::new();
    eventually("a capture with something in it", PATIENCE, || {
        let entries = std::fs::read_dir(bench.path()).expect("the directory");
        let paths = entries.flatten().map(|entry| entry.path());
        captures = paths
            .filter(|path| path.extension().is_some_and(|end| end == "gtcap"))
            .collect();
        let sizes = captures.iter().filter_map(|path| path.metadata().ok());
        sizes.map(|file| file.len()).sum::<u64>() > 1 << 16
    });
    // The end of the screen ends it, and says so.
    top.press("q");
    let status = top.wait();
    let text = top.text();
    assert!(status.success(), "{status}: {text:?}");
    let [capture] = &captures[..] else {
        panic!("{captures:?}")
    };
    let name = capture.file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with(&format!("gputrace-{pid}-")), "{name}");
    assert!(
        text.contains(&format!("recorded process {pid}: {name}")),
        "{text:?}"
    );
    let trace = Trace::read(capture);
    trace.assert_sound(&EndReason::Interrupted);
    assert!(!trace.calls.is_empty());
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
    let mut top = on_a_terminal(&bench, program.pid());
    top.wait_for("hip_calls");
    top.signal(Signal::TERM);
    top.wait();
    let text = top.text();
    assert!(text.contains(LEFT), "{text:?}");
    program.close_stdin();
    program.finish();
}

#[test]
fn a_screen_ends_with_its_terminal() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let mut top = on_a_terminal(&bench, program.pid());
    top.wait_for("hip_calls");
    // It ends by itself. That its last words cannot be written is no failure.
    let status = top.hang_up();
    assert!(status.success(), "{status}");
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
}

/// One interval of a process, as a page.
fn page(bench: &Bench, pid: &str) -> String {
    let output = bench
        .gputrace_bare()
        .args(["top", "--once", "--interval", "500ms", "-p", pid])
        .output()
        .expect("gputrace");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let page = String::from_utf8(output.stdout).expect("text");
    // Shown if the test fails.
    eprintln!("{page}");
    page
}

#[test]
fn one_interval_without_a_terminal_is_a_page() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let pid = program.pid().to_string();
    let mut last = String::new();
    // On a busy machine, gputrace may end an interval late, and the program call nothing in it.
    eventually("half a second with a process", PATIENCE, || {
        last = page(&bench, &pid);
        let first = last.lines().next().unwrap_or_default();
        first.contains("UTC, 0.5 s: 1 process, 0 events lost")
    });
    let row = last
        .lines()
        .find(|line| line.contains("hip_calls loop 500"));
    assert!(row.is_some_and(|row| row.contains(&pid)));
    assert!(last.contains("hipModuleLaunchKernel"));
    assert!(!last.contains('\u{1b}'));
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
