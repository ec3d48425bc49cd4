//! Output while the recording goes on.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    os::unix::fs::MetadataExt as _,
    process::{Command, Stdio},
};

use gputrace_e2e::{
    Bench, Running,
    process::{PATIENCE, eventually, unnamed},
};
use serde_json::Value;

#[test]
fn lines_that_cannot_be_written_are_a_failure() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    for options in [
        &["-f", "text", "-o", "-"][..],
        &["top", "--format", "text"],
        &["top", "--format", "json"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let output = bench
            .gputrace_bare()
            .args(options)
            .arg("--")
            .arg(bench.program("hip_calls"))
            .args(["single", "3"])
            .stdout(full.expect("/dev/full"))
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .expect("gputrace");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{options:?}: {said}");
        let cause = "standard output cannot be written: No space left on device";
        assert!(said.contains(cause), "{options:?}: {said}");
    }
}

#[test]
fn what_has_been_shown_takes_no_space() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    let mut command = bench.gputrace_bare();
    command
        .args(["top", "--format", "json", "-p", &program.pid().to_string()])
        .env("TMPDIR", bench.path());
    let mut gputrace = Running::start("gputrace", &mut command);
    // Space is given back 16 MiB at a time.
    eventually("what has been shown is given back", PATIENCE, || {
        unnamed(gputrace.pid(), bench.path())
            .is_some_and(|file| file.size() > 18 << 20 && file.blocks() * 512 < 12 << 20)
    });
    program.close_stdin();
    program.finish();
    gputrace.finish();
}

#[test]
fn lines_hold_every_call() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut command = bench.gputrace_bare();
    command
        .args(["-f", "ndjson", "-o", "-", "-S", "--"])
        .arg(bench.program("hip_calls"))
        .args(["threads", "3", "200"]);
    let output = command.output().expect("gputrace");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("none lost") && !said.contains("capture:"),
        "{said}"
    );
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect();
    let types: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["type"].as_str())
        .collect();
    assert_eq!(
        (types.first(), types.last()),
        (Some(&"recording"), Some(&"end"))
    );
    let mut shown: BTreeMap<(u64, String), usize> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["type"] == "call") {
        let name = line["function"].as_str().unwrap_or_default().to_owned();
        *shown
            .entry((line["tid"].as_u64().unwrap_or(0), name))
            .or_default() += 1;
    }
    let mut logged: BTreeMap<(u64, String), usize> = BTreeMap::new();
    for ((_, tid), calls) in &bench.log().threads {
        for call in calls {
            *logged
                .entry(((*tid).into(), call.name.clone()))
                .or_default() += 1;
        }
    }
    assert!(logged.values().sum::<usize>() > 1000, "{logged:?}");
    for (call, count) in &logged {
        // Libraries and the compiler make calls that are not logged.
        let found = shown.get(call).copied().unwrap_or(0);
        assert!(
            found >= *count || call.1.starts_with("__hip"),
            "{call:?}: {found} of {count}"
        );
    }
    // No file is left.
    let left: Vec<_> = std::fs::read_dir(bench.path())
        .expect("the directory")
        .collect();
    assert_eq!(left.len(), 1, "only the call logs: {left:?}");
}

#[test]
fn lines_come_while_the_program_runs_and_a_closed_pipe_ends_the_recording() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "200"]);
    let gputrace = bench.gputrace_bare();
    let line = format!(
        "'{}' -f text -o - -p {} | head -20",
        gputrace.get_program().to_string_lossy(),
        program.pid()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).current_dir(bench.path());
    let mut pipe = Running::start("a pipe", &mut shell);
    let status = pipe.wait();
    assert!(status.success(), "{}", pipe.describe());
    let text = pipe.stdout();
    assert_eq!(text.lines().count(), 20, "{text}");
    assert!(
        text.contains("hipMalloc(") && text.contains(" us>"),
        "{text}"
    );
    assert!(pipe.stderr().contains("none lost"), "{}", pipe.stderr());
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
}

#[test]
fn what_cannot_be_shown_is_said() {
    let bench = Bench::new();
    for (options, part) in [
        (&["-o", "-"][..], "-f text or -f ndjson"),
        (&["-o", "-", "-f", "text,csv"], "-f text or -f ndjson"),
        (
            &["-o", "-", "-f", "text", "--output-config"],
            "makes no files",
        ),
        (
            &[
                "-o",
                "-",
                "-f",
                "text",
                "-S",
                "--summary-output-file",
                "stdout",
            ],
            "send the summary to stderr",
        ),
    ] {
        let mut command = bench.gputrace_bare();
        let mut gputrace = Running::start("gputrace", command.args(options).args(["--", "true"]));
        let (status, said) = gputrace.fail();
        assert_eq!(status, 2, "{said}");
        assert!(said.contains(part), "{said}");
    }
}
