//! Text chosen by traced programs cannot name files elsewhere and has no effect on a terminal;
//! output files belong to their owner.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure is what a test is for"
)]

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use gputrace_e2e::{Bench, Outputs, Running, bench::skipped};
use gputrace_text::acts;
use gputrace_timeline::{Timeline, event::Event};
use rustix::process::Signal;

/// A user without any rights.
const NOBODY: u32 = 65534;

/// All files and directories below a directory.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found
}

/// Copies the hostile program to a place that everybody can access.
fn reachable(bench: &Bench) -> PathBuf {
    let from = bench.program("hostile_text");
    let to = bench.path().join("hostile");
    fs::create_dir(&to).unwrap();
    for name in ["hostile", "libamdhip64.so.99"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for path in [bench.path(), to.as_path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    to.join("hostile")
}

/// Starts the hostile program as a user without rights.
fn unprivileged(bench: &Bench, variables: &[(&str, &str)]) -> Running {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(reachable(bench))
        .envs(variables.iter().copied());
    let running = Running::start("hostile", &mut command);
    running.wait_for_stdout("ready");
    running
}

/// Records a few calls of a running program.
fn record(bench: &Bench, outputs: &Outputs, options: &[&str], program: &mut Running) {
    let mut gputrace = bench.attach(outputs, options, &[program.pid()]);
    assert_eq!(program.ask("go"), "done");
    gputrace.signal(Signal::INT);
    gputrace.finish();
}

#[test]
fn an_environment_names_no_file_elsewhere() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let victim = bench.path().join("victim");
    fs::create_dir(&victim).unwrap();
    let mut program = unprivileged(
        &bench,
        &[
            ("SLURM_JOB_ID", "x/../../victim/pwn"),
            ("SLURM_PROCID", "../../victim/rank"),
            ("ROCPROF_DATE_FORMAT", "../victim/date"),
            ("ROCPROF_TIME_FORMAT", "../victim/time"),
            ("HIDDEN", ".profile"),
            ("LONG", &"/../victim".repeat(100)),
        ],
    );
    let outputs = bench.outputs(0);
    fs::create_dir(outputs.directory()).unwrap();
    for name in [
        "run.%job%",
        "run.%j%rank%",
        "%job%/run",
        "%launch_date%",
        "%launch_time%",
        "%env{HIDDEN}%",
        "%env{LONG}%",
    ] {
        record(
            &bench,
            &outputs,
            &["-o", name, "-f", "ndjson"],
            &mut program,
        );
        assert_eq!(below(&victim), [] as [PathBuf; 0], "{name}");
    }
    program.close_stdin();
    program.finish();
    let made = below(outputs.directory());
    // A capture and an NDJSON file for each, and one directory.
    assert_eq!(made.len(), 7 * 2 + 1, "{made:?}");
    assert!(
        made.iter()
            .any(|path| path.ends_with("run.x_.._.._victim_pwn.gtcap")),
        "{made:?}"
    );
    assert!(
        made.iter()
            .any(|path| path.ends_with("x_.._.._victim_pwn/run_results.ndjson")),
        "{made:?}"
    );
    let hidden = |path: &PathBuf| path.file_name().unwrap().as_bytes().starts_with(b".");
    assert!(!made.iter().any(hidden), "{made:?}");
    let elsewhere: Vec<_> = fs::read_dir(bench.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(
        elsewhere.len(),
        4,
        "program, logs, outputs, victim: {elsewhere:?}"
    );
}

#[test]
fn files_are_private_and_of_the_user_behind_sudo() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let program = reachable(&bench);
    for (number, umask) in [(0, "0"), (1, "022")] {
        let outputs = bench.outputs(number);
        let gputrace = bench.gputrace(&outputs);
        let run = |command: &Command, more: &[&OsStr]| {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"])
                .arg(command.get_program())
                .args(command.get_args())
                .args(more)
                .current_dir(bench.path())
                .env("SUDO_UID", NOBODY.to_string())
                .env("SUDO_GID", NOBODY.to_string());
            Running::start("gputrace", &mut shell).finish();
        };
        let options = [
            "-f",
            "csv,json,pftrace,rocpd,text",
            "-S",
            "--summary-output-file",
            "sum",
        ];
        let more: Vec<&OsStr> = options
            .iter()
            .map(OsStr::new)
            .chain([OsStr::new("--"), program.as_os_str(), OsStr::new("once")])
            .collect();
        // The program runs as the user, who must be able to access it.
        run(&gputrace, &more);
        let later = outputs.directory().join("later/csv");
        let capture = outputs.capture();
        let bare = bench.gputrace_bare();
        run(
            &bare,
            &[
                "export".as_ref(),
                capture.as_os_str(),
                "-f".as_ref(),
                "csv".as_ref(),
                "-d".as_ref(),
                later.as_os_str(),
            ],
        );
        let page = outputs.directory().join("page.html");
        run(
            &bare,
            &[
                "report".as_ref(),
                capture.as_os_str(),
                "-o".as_ref(),
                page.as_os_str(),
            ],
        );
        let made = below(outputs.directory());
        assert!(made.len() > 9 && made.contains(&page), "{made:?}");
        for path in made
            .iter()
            .map(PathBuf::as_path)
            .chain([outputs.directory()])
        {
            let metadata = fs::symlink_metadata(path).unwrap();
            let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
            let mode = metadata.permissions().mode() & 0o7777;
            assert_eq!(
                mode,
                expected,
                "{mode:o} with umask {umask}: {}",
                path.display()
            );
            assert_eq!(
                (metadata.uid(), metadata.gid()),
                (NOBODY, NOBODY),
                "{}",
                path.display()
            );
        }
    }
}

/// Asserts that output is safe for a terminal: it contains no control sequences, and all lines are
/// gputrace's own.
#[track_caller]
fn assert_quiet(what: &str, bytes: &[u8]) {
    let text = str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    for line in text.lines() {
        assert!(!line.contains(acts), "{what}: {line:?}");
        for forged in ["  0.000001  1/1", "gputrace: forged", "9.9 forged"] {
            assert!(!line.starts_with(forged), "{what}: {line:?}");
        }
    }
    assert!(!text.contains('\r'), "{what}: {text:?}");
}

/// Runs gputrace, checks that its output is safe, and returns standard output.
#[track_caller]
fn quiet(bench: &Bench, arguments: &[&OsStr]) -> String {
    let output = bench.gputrace_bare().args(arguments).output().unwrap();
    let what = format!("{:?}", arguments.first().unwrap());
    assert_quiet(&what, &output.stdout);
    assert_quiet(&what, &output.stderr);
    assert!(
        output.status.success(),
        "{what}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nothing_of_a_program_acts_on_a_terminal() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // The program and its library are in a directory whose name contains control sequences and a
    // second line.
    let place = bench
        .path()
        .join(OsStr::from_bytes(b"e\x1b[2J\x07\xc2\x9b31m\n9.9 forged"));
    fs::create_dir(&place).unwrap();
    for name in ["hostile", "libamdhip64.so.99"] {
        fs::copy(
            bench.program(&format!("hostile_text/{name}")),
            place.join(name),
        )
        .unwrap();
    }
    let program = place.join("hostile");
    let once: [&OsStr; 3] = ["--".as_ref(), program.as_os_str(), "once".as_ref()];
    let with = |options: &[&'static str]| -> Vec<&OsStr> {
        let options = options.iter().map(|option| OsStr::new(*option));
        options.chain(once).collect()
    };

    // Shown while it is being recorded.
    let lines = quiet(
        &bench,
        &with(&["-f", "text", "-o", "-", "-S", "--log-level", "trace"]),
    );
    assert!(
        lines.contains("k\\x1b]0;pwned\\x07\\x1b[2J\\n  0.000001  1/1  hipFree("),
        "{lines}"
    );
    assert!(lines.contains("\\u{9b}2J \\u{202e}gpj.elif"), "{lines}");
    let lines = quiet(&bench, &with(&["-f", "ndjson", "-o", "-"]));
    let exact = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let exact = exact.filter(|line| {
        line.to_string().contains("hipModuleLoad") && line.to_string().contains("pwned")
    });
    assert!(exact.count() == 1, "JSON keeps the text: {lines}");

    // Text files, tables, and outputs made from captures.
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command.args(with(&[
        "-f",
        "csv,text",
        "--csv-arguments",
        "--stats",
        "-S",
        "-D",
        "--wall-clock",
    ]));
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_quiet("stderr", &output.stderr);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("e\\x1b[2J\\x07"),
        "the program is named"
    );
    let mut files = 0;
    for path in below(outputs.directory()) {
        if path
            .extension()
            .is_some_and(|ending| ending == "csv" || ending == "txt")
        {
            assert_quiet(&path.display().to_string(), &fs::read(&path).unwrap());
            files += 1;
        }
    }
    assert!(files > 3, "{files}");
    let arguments = fs::read_to_string(outputs.file("_arguments.csv")).unwrap();
    assert!(
        arguments.contains("\"'=cmd|' /C calc'!A0\"") && !arguments.contains("\"=cmd"),
        "{arguments}"
    );
    assert!(arguments.contains("pwned"), "{arguments}");

    let capture = outputs.capture();
    let capture = capture.as_os_str();
    let sql: &OsStr = "SELECT * FROM rocpd_arg ORDER BY value".as_ref();
    quiet(&bench, &["summary".as_ref(), capture]);
    quiet(&bench, &["diff".as_ref(), capture, capture]);
    quiet(&bench, &["dump".as_ref(), capture]);
    let page = outputs.directory().join("page.html");
    quiet(
        &bench,
        &["report".as_ref(), capture, "-o".as_ref(), page.as_os_str()],
    );
    assert_quiet("page", &fs::read(&page).unwrap());
    for format in ["table", "csv", "json"] {
        quiet(
            &bench,
            &[
                "query".as_ref(),
                capture,
                sql,
                "--format".as_ref(),
                format.as_ref(),
            ],
        );
    }
    quiet(
        &bench,
        &[
            "export".as_ref(),
            capture,
            "-f".as_ref(),
            "text".as_ref(),
            "-o".as_ref(),
            "-".as_ref(),
        ],
    );
    quiet(
        &bench,
        &[
            "list".as_ref(),
            "--library".as_ref(),
            place.join("libamdhip64.so.99").as_os_str(),
            "--probes".as_ref(),
        ],
    );

    // What other commands show about a running process.
    let mut running = Running::start("hostile", Command::new(&program).arg("on"));
    running.wait_for_stdout("ready");
    quiet(&bench, &["ps".as_ref()]);
    let table = quiet(&bench, &["list".as_ref()]);
    assert!(table.contains(&running.pid().to_string()), "{table}");
    quiet(&bench, &["ps".as_ref(), "--json".as_ref()]);
    running.close_stdin();
    running.finish();
}

/// Time in hundredths of a second during which CPUs were idle (proc_stat(5)).
fn idle() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let all = text.lines().next().unwrap();
    all.split_whitespace().nth(4).unwrap().parse().unwrap()
}

#[test]
fn the_idle_task_is_not_recorded() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = Running::start(
        "hostile",
        &mut Command::new(bench.program("hostile_text/hostile")),
    );
    program.wait_for_stdout("ready");
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    let mut gputrace = Running::start(
        "gputrace",
        command.args(["-a", "--sched", "-r", "-f", "csv"]),
    );
    gputrace.wait_for_stderr("recording");
    // The idle tasks are scheduled while the program answers, unless the machine is too busy.
    let (before, deadline) = (idle(), Instant::now() + PATIENCE);
    let mut asked = 0;
    while asked < 20 || idle() < before + 5 && Instant::now() < deadline {
        assert_eq!(program.ask("go"), "done");
        asked += 1;
    }
    if idle() < before + 5 {
        skipped("the processors were never idle; only threads of programs were looked at");
    }
    gputrace.signal(Signal::INT);
    gputrace.finish();
    let mut threads = Vec::new();
    for event in Timeline::open(&outputs.capture()).unwrap() {
        if let Event::Observation(one) = event.unwrap() {
            threads.push((one.whose.pid, one.whose.tid));
        }
    }
    assert!(
        threads.contains(&(program.pid(), program.pid())),
        "{threads:?}"
    );
    let idle = threads
        .iter()
        .filter(|(pid, tid)| *pid == 0 || *tid == 0)
        .count();
    assert_eq!(idle, 0, "of {}", threads.len());
    program.close_stdin();
    program.finish();
}
