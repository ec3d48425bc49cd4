//! A program that leaves functions of real HSA runtimes by exceptions, which ROCr forwards from
//! callbacks, and that goes on with another stack inside a callback. It must behave under gputrace
//! as it does alone: a probe on the return of such a function would end it.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use gputrace_capture::meta::EndProbe;
use gputrace_e2e::{Running, Trace};
use gputrace_fidelity::{
    release::{Release, equip},
    run::ROOM,
};
use gputrace_timeline::event::CallEnd;

use support::{gputrace, program, release};

/// The program's exit status.
const STATUS: i32 = 7;

/// Records the program, and returns what it prints.
type Record = fn(&Release, &Path) -> String;

/// The functions that run callbacks before they return, as the program names them.
fn left(said: &str) -> BTreeSet<&str> {
    let words = said
        .lines()
        .filter_map(|line| line.strip_prefix("destroyed: "));
    words.collect()
}

/// The lines that the program prints.
fn said(stdout: &str) -> String {
    let words = [
        "destroyed:",
        "caught:",
        "not thrown:",
        "callers:",
        "returned in",
    ];
    let known = |line: &&str| words.iter().any(|word| line.starts_with(word));
    stdout
        .lines()
        .filter(known)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Runs a command on a software GPU, and returns what the program prints.
fn run(command: &mut Command, place: &Path) -> String {
    fs::write(place.join("softgpu.toml"), "").expect("the settings");
    equip(command, place).expect("the software GPU");
    let mut running = Running::start("the program", command);
    assert_eq!(
        running.wait().code(),
        Some(STATUS),
        "{}",
        running.describe()
    );
    said(&running.stdout())
}

fn workload(release: &Release) -> Command {
    program(release, "hsa_throws", &[])
}

fn launched(release: &Release, place: &Path) -> String {
    let mut command = Command::new(gputrace());
    command
        .args(["-s", "-o", "run", "-d"])
        .arg(place.join("out"))
        .args(ROOM)
        .arg("--")
        .arg(workload(release).get_program())
        .args(workload(release).get_args());
    run(&mut command, place)
}

fn attached(release: &Release, place: &Path) -> String {
    fs::write(place.join("softgpu.toml"), "").expect("the settings");
    let mut command = program(release, "hsa_throws", &["wait"]);
    equip(&mut command, place).expect("the software GPU");
    let mut target = Running::start("the program", &mut command);
    target.wait_for_stdout("ready");
    let mut command = Command::new(gputrace());
    command
        .args(["-s", "-o", "run", "-d"])
        .arg(place.join("out"))
        .args(ROOM)
        .args(["-p", &target.pid().to_string()]);
    let mut recorder = Running::start("gputrace", &mut command);
    recorder.wait_for_stderr("recording");
    target.send("go");
    assert_eq!(target.wait().code(), Some(STATUS), "{}", target.describe());
    recorder.finish();
    said(&target.stdout())
}

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let alone = run(&mut workload(&release), place.path());
    let functions = left(&alone);
    assert!(
        functions.len() == 4 && !alone.contains("not thrown"),
        "{alone}"
    );
    let ways: [(&str, Record); 2] = [("launched", launched), ("attached", attached)];
    for (way, record) in ways {
        let place = tempfile::tempdir().expect("a directory");
        let traced = record(&release, place.path());
        assert_eq!(traced, alone, "ROCm {name}, {way}");
        let trace = Trace::read(&place.path().join("out/run.gtcap"));
        trace.assert_lossless();
        for function in &functions {
            let calls: Vec<_> = trace.calls_of(function).collect();
            assert!(
                calls.len() >= 3,
                "ROCm {name}, {way}: {function}: {calls:?}"
            );
            // ROCr exports them as jumps through a table.
            for call in calls {
                assert_eq!(call.how, CallEnd::NotSeen, "ROCm {name}, {way}: {function}");
                let probe = trace.function(call).function.end_probe;
                assert_eq!(probe, EndProbe::NotSeen);
            }
        }
        // All others keep their ends.
        let mut returned = trace.calls_of("hsa_agent_get_info").peekable();
        assert!(returned.peek().is_some() || way == "attached");
        assert!(returned.all(|call| matches!(call.how, CallEnd::Returned(_))));
    }
}

gputrace_releases::on_each_release!(on);
