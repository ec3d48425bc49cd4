//! Tests what happens to existing files, unfinished files, and incomplete captures.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

mod common;

use std::{
    fs,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{BOOT, START, capture, gputrace, stderr, stdout};
use gputrace_abi::domain::Domain;
use gputrace_capture::{
    Meta,
    meta::{ClockSnapshot, End, Mode, Recording},
};
use gputrace_timeline::{
    event::Call,
    synthetic::{Synthetic, call},
};
use tempfile::TempDir;

/// Time after which a test fails.
const DEADLINE: Duration = Duration::from_secs(120);

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn reports_replace_neither_captures_nor_other_files() {
    let directory = TempDir::new().unwrap();
    let path = capture(directory.path(), "a", BOOT, 0);
    let other = capture(directory.path(), "b", BOOT, 0);
    let whole = fs::read(&path).unwrap();
    fs::hard_link(&path, directory.path().join("same.html")).unwrap();
    let path = path.to_str().unwrap();
    for target in [
        path,
        other.to_str().unwrap(),
        directory.path().join("same.html").to_str().unwrap(),
    ] {
        for force in [&[][..], &["--force"]] {
            let refused = gputrace(&[&["report", path, "-o", target], force].concat());
            assert_eq!(refused.status.code(), Some(14), "{}", stderr(&refused));
            assert!(
                stderr(&refused).contains("is a capture"),
                "{}",
                stderr(&refused)
            );
        }
    }
    assert_eq!(fs::read(path).unwrap(), whole);

    let page = directory.path().join("page.html");
    fs::write(&page, "mine").unwrap();
    let page = page.to_str().unwrap();
    let refused = gputrace(&["report", path, "-o", page]);
    assert_eq!(refused.status.code(), Some(14));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(page).unwrap(), "mine");
    let done = gputrace(&["report", path, "-o", page, "--force"]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );
}

/// A capture that takes a while to export.
fn long(directory: &Path) -> String {
    let mut made = Synthetic::new(&Recording {
        cpus: 1,
        ..Recording::default()
    });
    made.library("libamdhip64.so", &[("hipMemcpy", Domain::HipRuntime)]);
    for number in 0..300_000 {
        let begin = START + 1000 * number;
        made.call(&call(number + 1, begin, begin + 500));
    }
    made.meta(Meta::End(End::default()));
    let path = directory.join("long.gtcap");
    fs::write(&path, made.bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn unfinished(directory: &Path) -> bool {
    directory.exists() && names(directory).iter().any(|name| name.ends_with(".part"))
}

fn wait_until(child: &mut Child, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before {what}"
        );
        assert!(start.elapsed() < DEADLINE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kill(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: integers only; the child has not been waited for, so the id is its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn interrupted_commands_leave_nothing_behind() {
    let directory = TempDir::new().unwrap();
    let path = long(directory.path());
    for (number, (signal, code, arguments)) in [
        (
            libc::SIGINT,
            130,
            &["export", &path, "-f", "rocpd,pftrace,csv,json"][..],
        ),
        (libc::SIGTERM, 143, &["export", &path, "-f", "rocpd"]),
        (libc::SIGINT, 130, &["report", &path]),
    ]
    .into_iter()
    .enumerate()
    {
        let out = directory.path().join(format!("out{number}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
        command.args(arguments).stderr(Stdio::piped());
        if arguments[0] == "report" {
            command.arg("-o").arg(out.join("page.html"));
        } else {
            command.arg("-d").arg(&out);
        }
        // Background commands of a shell ignore the signal, and so do their children: gputrace
        // respects that.
        let by_default = || {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: `signal` may be called between fork and exec.
        unsafe { command.pre_exec(by_default) };
        let mut child = command.spawn().unwrap();
        wait_until(&mut child, "an unfinished file", || unfinished(&out));
        kill(&child, signal);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(
            (output.status.code(), output.status.signal()),
            (Some(code), None),
            "{said}"
        );
        assert!(said.contains("no file was left behind"), "{said}");
        assert_eq!(names(&out), Vec::<String>::new(), "{said}");
    }
    // There is nothing unfinished beside the capture either.
    assert!(!unfinished(directory.path()));
}

#[test]
fn captures_that_are_not_whole_have_a_status_of_their_own() {
    let directory = TempDir::new().unwrap();
    let path = capture(directory.path(), "a", BOOT, 0);
    let whole = fs::read(&path).unwrap();
    let other = capture(directory.path(), "b", BOOT, 0);
    let other = other.to_str().unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() - 100;
    damaged[middle] ^= 0xff;
    // As after `kill -9`: the last block is complete, but it is not the end mark.
    let mut killed = Synthetic::new(&Recording {
        hostname: "a".to_owned(),
        cpus: 1,
        clocks: ClockSnapshot {
            boottime: START,
            realtime: BOOT + START,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    });
    killed
        .library("libamdhip64.so", &[("hipMemcpy", Domain::HipRuntime)])
        .call(&call(1, START, START + 1));
    for (name, bytes, part) in [
        (
            "cut",
            whole[..whole.len() - 1].to_vec(),
            "ends inside a block",
        ),
        ("damaged", damaged, "damaged at byte"),
        ("killed", killed.bytes(), "no end mark"),
    ] {
        let path = directory.path().join(format!("{name}.gtcap"));
        fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        let out = directory.path().join(name);
        let out = out.to_str().unwrap();
        let page = format!("{out}.html");
        for arguments in [
            &["export", path, "-f", "csv", "-d", out][..],
            &["summary", path],
            &["query", path, "SELECT count(*) AS n FROM regions"],
            &["diff", path, other],
            &["diff", other, path],
            &["dump", path],
            &["merge", path, other, "-d", out],
            &["report", path, "-o", &page],
        ] {
            let done = gputrace(arguments);
            let said = stderr(&done);
            assert_eq!(done.status.code(), Some(15), "{arguments:?}: {said}");
            assert!(said.contains(part), "{arguments:?}: {said}");
        }
        // The data that exists is complete.
        let calls = fs::read_to_string(format!("{out}/{name}_hip_api_trace.csv")).unwrap();
        assert!(calls.lines().count() >= 2, "{calls}");
        assert!(
            fs::metadata(format!("{out}/merged_results.pftrace"))
                .unwrap()
                .len()
                > 0
        );
        assert!(
            fs::read_to_string(&page).unwrap().ends_with("</html>\n"),
            "{page}"
        );
        let count = "SELECT count(*) AS calls FROM regions WHERE category LIKE 'HIP%'";
        let rows = stdout(&gputrace(&["query", path, count, "--format", "csv"]));
        assert_eq!(rows, format!("calls\n{}\n", calls.lines().count() - 1));
    }
}

#[test]
fn the_summary_of_a_damaged_capture_does_not_blame_the_program() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("cut.gtcap");
    let mut made = Synthetic::new(&Recording::default());
    made.library("libamdhip64.so", &[("hipMemcpy", Domain::HipRuntime)]);
    let before = made.bytes().len();
    let bytes = made.call(&call(1, START, START + 1)).bytes();
    fs::write(&path, &bytes[..before + 20]).unwrap();
    let done = gputrace(&["summary", path.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(15), "{}", stderr(&done));
    let text = stdout(&done);
    assert!(
        text.contains("NOTHING COULD BE READ") && !text.contains("Did the program call"),
        "{text}"
    );
}

/// A recording of a program that selects only a part of its calls.
fn selective(directory: &Path, name: &str) -> String {
    let mut made = Synthetic::new(&Recording {
        hostname: "a".to_owned(),
        mode: Mode::Launch {
            command: vec![format!("/opt/{name}")],
        },
        cpus: 1,
        clocks: ClockSnapshot {
            boottime: START,
            realtime: BOOT + START,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    });
    made.library(
        "libamdhip64.so",
        &[
            ("hipMemcpy", Domain::HipRuntime),
            ("hipProfilerStart", Domain::MarkerControl),
        ],
    );
    for number in 0..10 {
        let begin = START + 1000 * number;
        made.call(&Call {
            function: u32::from(number == 6),
            domain: if number == 6 {
                Domain::MarkerControl.id()
            } else {
                Domain::HipRuntime.id()
            },
            ..call(number + 1, begin, begin + 500)
        });
    }
    made.meta(Meta::End(End {
        time: START + 10_000,
        ..End::default()
    }));
    let path = directory.join(format!("{name}.gtcap"));
    fs::write(&path, made.bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn merges_select_regions_and_know_placeholders_as_exports_do() {
    let directory = TempDir::new().unwrap();
    let (one, other) = (
        selective(directory.path(), "app"),
        selective(directory.path(), "other"),
    );
    let out = directory.path().join("%tag%");
    let calls = |command: &[&str], name: &str| {
        let fixed = ["-f", "csv", "-d", out.to_str().unwrap(), "-o", name];
        let done = gputrace(&[command, &fixed].concat());
        assert!(done.status.success(), "{}", stderr(&done));
        let file = format!("app/{}_hip_api_trace.csv", name.replace("%tag%", "app"));
        fs::read_to_string(directory.path().join(file))
            .unwrap()
            .lines()
            .count()
            - 1
    };
    assert_eq!(calls(&["export", &one], "all"), 9);
    assert_eq!(calls(&["export", &one, "--selected-regions"], "some"), 3);
    assert_eq!(calls(&["merge", &one, &other], "job.%tag%"), 18);
    assert_eq!(
        calls(&["merge", &one, &other, "--selected-regions"], "parts"),
        6
    );
    assert_eq!(names(directory.path()), ["app", "app.gtcap", "other.gtcap"]);
}

#[test]
fn outputs_go_where_they_are_sent() {
    let directory = TempDir::new().unwrap();
    let path = capture(directory.path(), "a", BOOT, 0);
    let path = path.to_str().unwrap();
    let to = |more: &[&str]| gputrace(&[&["export", path], more].concat());

    let shown = to(&["-f", "text", "-o", "-"]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    assert_eq!(
        stdout(&shown).matches("hipMemcpy(").count(),
        10,
        "{}",
        stdout(&shown)
    );
    let shown = gputrace(&["merge", path, path, "-f", "ndjson", "-o", "-"]);
    assert_eq!(shown.status.code(), Some(2), "the same capture twice");
    let shown = to(&["-f", "ndjson", "-o", "-"]);
    assert!(stdout(&shown).lines().all(|line| line.starts_with('{')));
    assert!(stdout(&shown).contains("hipMemcpy"));
    for more in [
        &["-o", "-"][..],
        &["-o", "-", "-f", "text,csv"],
        &[
            "-o",
            "-",
            "-f",
            "text",
            "-S",
            "--summary-output-file",
            "stdout",
        ],
        &["-o", "-", "-f", "text", "--wall-clock"],
        &["--output-config"],
        &["-o", ""],
        &["-o", "."],
        &["-o", "x/"],
    ] {
        let refused = to(more);
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{more:?}: {}",
            stderr(&refused)
        );
    }
    assert_eq!(names(directory.path()), ["a-0.gtcap"]);

    let done = to(&[
        "-d",
        directory.path().to_str().unwrap(),
        "-o",
        "sub/run",
        "-f",
        "csv",
        "json",
    ]);
    assert!(done.status.success(), "{}", stderr(&done));
    let made = names(&directory.path().join("sub"));
    assert!(
        made.contains(&"run_hip_api_trace.csv".to_owned()),
        "{made:?}"
    );
    assert!(made.contains(&"run_results.json".to_owned()), "{made:?}");

    let said = stderr(&to(&[
        "-o",
        "x",
        "-f",
        "json",
        "--stats",
        "--csv-arguments",
    ]));
    assert!(
        said.contains("--stats has no effect") && said.contains("--csv-arguments has no effect"),
        "{said}"
    );
}

#[test]
fn what_fails_makes_nothing_and_says_why_once() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("new");
    let out = out.to_str().unwrap();
    let page = format!("{out}/page.html");
    for arguments in [
        &["export", "/nowhere.gtcap", "-d", out][..],
        &["report", "/nowhere.gtcap", "-o", &page],
        &["merge", "/nowhere.gtcap", "/there.gtcap", "-d", out],
    ] {
        let failed = gputrace(arguments);
        let said = stderr(&failed);
        assert_eq!(failed.status.code(), Some(9), "{said}");
        assert_eq!(said.matches("No such file").count(), 1, "{said}");
        assert!(!Path::new(out).exists(), "{arguments:?}");
    }
    let text = directory.path().join("text");
    fs::write(&text, "x".repeat(1000)).unwrap();
    let said = stderr(&gputrace(&["summary", text.to_str().unwrap()]));
    assert_eq!(
        said.matches("is not a gputrace capture").count(),
        1,
        "{said}"
    );

    let path = capture(directory.path(), "a", BOOT, 0);
    let empty = gputrace(&["query", path.to_str().unwrap(), ""]);
    assert_eq!(empty.status.code(), Some(12), "{}", stderr(&empty));
}

#[test]
fn who_forgets_the_dashes_is_told() {
    let said = gputrace(&["./app", "-x"]);
    assert_eq!(said.status.code(), Some(2));
    assert!(
        stderr(&said).contains("gputrace -- ./app"),
        "{}",
        stderr(&said)
    );
}

#[test]
fn a_missing_library_is_told_before_the_program_starts() {
    let directory = TempDir::new().unwrap();
    // The dynamic linker finds these files first under these names, and cannot load them.
    for name in ["libotf2.so.10", "libopen-trace-format2.so.10"] {
        fs::write(directory.path().join(name), "not a library").unwrap();
    }
    let marker = directory.path().join("started");
    let refused = Command::new(env!("CARGO_BIN_EXE_gputrace"))
        .env("LD_LIBRARY_PATH", directory.path())
        .args(["-f", "csv,otf2", "-d"])
        .arg(directory.path())
        .args(["-o", "run", "--", "touch"])
        .arg(&marker)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(8), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("OTF2's library"),
        "{}",
        stderr(&refused)
    );
    assert!(!marker.exists(), "the program was started");
}
