//! A launched program, its parents and its shells behave as without gputrace, and even so the first
//! call of every library is recorded.
#![expect(clippy::expect_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench, Outputs, Running, Trace,
    bench::{figure, skipped},
    compare::{compare, compare_if},
    process::eventually,
};
use rustix::process::Signal;

/// Number of calls of each program.
const CALLS: &str = "30";

/// A program that starts others and prints all changes of state that it is notified of.
const TELLING_PARENT: &str = r#"
import os, signal, sys
told = []
signal.signal(signal.SIGCHLD, lambda *_: told.append("SIGCHLD"))
for _ in range(5):
    child = os.fork()
    if child == 0:
        os.execv(sys.argv[1], sys.argv[1:])
    while True:
        pid, status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED)
        print("stopped" if os.WIFSTOPPED(status) else "continued" if os.WIFCONTINUED(status) else "ended", status)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            break
print(len(told), "times SIGCHLD")
"#;

/// Ways to start a program: the arguments before it, and the program that they require.
fn launchers() -> Vec<(&'static str, Vec<String>)> {
    let shell = |script: &str| {
        let script = script.replace("RUN", &format!("\"$0\" shapes {CALLS}"));
        ["bash", "-c", &script].map(str::to_owned).to_vec()
    };
    let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
    vec![
        (
            "bash",
            shell("set -m; RUN; echo status $?; jobs -l | wc -l"),
        ),
        (
            "bash",
            shell("set -m; RUN & wait $!; echo status $?; fg 2>&1"),
        ),
        (
            "bash",
            shell("ps -o stat= -p $$ >/dev/null; RUN & RUN; wait; echo status $?"),
        ),
        ("bash", shell("trap 'echo told' CHLD; RUN; RUN; exit 3")),
        ("setsid", words("setsid -w PROGRAM")),
        ("timeout", words("timeout 100 PROGRAM")),
        ("timeout", words("timeout --foreground 100 PROGRAM")),
        ("nice", words("nice -n 5 env PROGRAM")),
        ("runuser", words("runuser -u nobody -- PROGRAM")),
        ("su", {
            let call = format!("exec \"$0\" shapes {CALLS}");
            ["su", "-s", "/bin/sh", "nobody", "-c", &call]
                .map(str::to_owned)
                .to_vec()
        }),
        ("script", words("script -qec COMMAND /dev/null")),
        ("sudo", words("sudo -n --preserve-env=WORKLOAD_LOG PROGRAM")),
        // If there is a terminal, sudo gives the program another one (`use_pty`) and monitors its
        // stops.
        (
            "sudo",
            [
                "script",
                "-qec",
                "sudo -n --preserve-env=WORKLOAD_LOG COMMAND",
                "/dev/null",
            ]
            .map(str::to_owned)
            .to_vec(),
        ),
        (
            "unshare",
            words("unshare --pid --fork --mount-proc PROGRAM"),
        ),
        (
            "xargs",
            shell("echo CALLS | xargs -P 2 -n 1 \"$0\" shapes; echo status $?"),
        ),
        (
            "make",
            shell(
                "printf 'all: a b c\\na b c:\\n\\t@%s shapes CALLS\\n' \"$0\" | make -s -j 3 -f -",
            ),
        ),
        ("python3", {
            let parent = ["python3", "-c", TELLING_PARENT, "PROGRAM"];
            parent.map(str::to_owned).to_vec()
        }),
        ("python3", {
            let parent = "import subprocess, sys; print([subprocess.run(sys.argv[1:]).returncode for _ in range(5)])";
            ["python3", "-c", parent, "PROGRAM"]
                .map(str::to_owned)
                .to_vec()
        }),
    ]
}

/// Output and exit status of a command.
fn outcome(command: &mut Command) -> (String, Option<i32>) {
    let mut running = Running::start("a program", command);
    let status = running.wait();
    (running.stdout(), status.code())
}

/// Whether these arguments run programs at the same time.
fn run_several(arguments: &[String]) -> bool {
    let ways = ["& \"$0\"", "xargs -P", "make -s -j"];
    arguments
        .iter()
        .any(|word| ways.iter().any(|way| word.contains(way)))
}

/// Like [`outcome`]. If these arguments run programs at the same time, their lines come in any
/// order, and are sorted.
fn outcome_of(arguments: &[String], command: &mut Command) -> (String, Option<i32>) {
    let (text, status) = outcome(command);
    if !run_several(arguments) {
        return (text, status);
    }
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    (lines.join("\n"), status)
}

/// Signals that a caller may ignore and block, compared through `/proc/PID/status` of the program.
#[test]
fn the_program_finds_signals_as_it_would_alone() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let ways = [
        "exec \"$@\"",
        "trap '' HUP INT QUIT PIPE XFSZ USR1 TERM; exec \"$@\"",
        "exec nohup \"$@\"",
        "exec setsid -w \"$@\" & wait",
        "exec python3 -c 'import os, signal, sys; \
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGCHLD, 40]); \
            os.execvp(sys.argv[1], sys.argv[1:])' \"$@\"",
    ];
    let shown = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    for (number, way) in (0..).zip(ways) {
        let alone = outcome(Command::new("sh").args(["-c", way, "sh"]).args(shown));
        let outputs = bench.outputs(number);
        let gputrace = bench.gputrace(&outputs);
        let mut traced = Command::new("sh");
        traced
            .args(["-c", way, "sh"])
            .arg(gputrace.get_program())
            .args(gputrace.get_args())
            .args(["-s", "--"])
            .args(shown);
        traced.current_dir(bench.path());
        for (name, value) in gputrace.get_envs() {
            match value {
                Some(value) => traced.env(name, value),
                None => traced.env_remove(name),
            };
        }
        assert_eq!(outcome(&mut traced), alone, "{way}");
    }
}

/// A test directory that everybody may use, containing a program that is linked with a library in a
/// place unknown to gputrace.
fn open_bench() -> Option<(Bench, PathBuf)> {
    let bench = Bench::privileged()?;
    let library = bench.copy_synthetic();
    let mut open = Command::new("chmod");
    let opened = open.args(["-R", "a+rwX"]).arg(bench.path()).status();
    assert!(opened.expect("chmod").success());
    Some((bench, library.with_file_name("synthetic")))
}

fn assert_complete(bench: &Bench, trace: &Trace, what: &str) {
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    let log = bench.log();
    assert!(!log.is_empty(), "{what}: no call was made");
    // In its own pid namespace, a program knows itself by another id.
    if what.contains("--pid") {
        assert_eq!(trace.calls.len(), log.len(), "{what}");
    } else {
        // Shown if the comparison fails.
        eprintln!("{what}: {:?}", trace.notices);
        compare(&log, trace).assert_exact();
    }
}

/// As [`assert_complete`], for programs that run at the same time: a process that could not be held,
/// because no helper got a processor in time, is named with a notice. Nobody else loses a call.
/// Returns how many are named.
fn assert_complete_or_named(bench: &Bench, mut trace: Trace) -> usize {
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    let mut log = bench.log();
    assert!(!log.is_empty(), "no call was made");
    compare_if(&log, &trace, |_| false).assert_right();
    let is_named = |pid: u32| {
        let name = format!("process {pid} mapped a library ");
        let mut notices = trace.notices.iter();
        notices.any(|notice| notice.text.starts_with(&name) && notice.text.contains("not recorded"))
    };
    let named: Vec<u32> = log
        .processes()
        .into_iter()
        .filter(|pid| is_named(*pid))
        .collect();
    // Others, such as a shell, map no library of interest.
    assert_eq!(trace.final_ledger().late_processes, named.len() as u64);
    log.threads.retain(|(pid, _), _| !named.contains(pid));
    trace.calls.retain(|call| !named.contains(&call.pid));
    compare(&log, &trace).assert_exact();
    named.len()
}

#[test]
fn launchers_see_what_they_see_alone() {
    for (needed, words) in launchers() {
        let Some((bench, program)) = open_bench() else {
            return;
        };
        let found = Command::new("sh")
            .args(["-c", "command -v \"$0\" >/dev/null", needed])
            .status();
        if !found.is_ok_and(|status| status.success()) {
            skipped(&format!("{needed} is not installed"));
            continue;
        }
        let path = program.to_str().expect("a plain path");
        let mut arguments: Vec<String> = Vec::new();
        for word in &words {
            match word.as_str() {
                "PROGRAM" => arguments.extend([path, "shapes", CALLS].map(str::to_owned)),
                _ => {
                    let word = word.replace("COMMAND", &format!("{path} shapes CALLS"));
                    arguments.push(word.replace("CALLS", CALLS));
                }
            }
        }
        if needed == "bash" || needed == "xargs" || needed == "make" || needed == "su" {
            arguments.push(path.to_owned());
        }
        let alone = outcome_of(
            &arguments,
            Command::new(&arguments[0])
                .args(&arguments[1..])
                .env("WORKLOAD_LOG", bench.logs())
                .current_dir(bench.path()),
        );
        // Calls of the run without gputrace are not in the recording.
        fs::remove_dir_all(bench.logs()).expect("the logs");
        fs::create_dir(bench.logs()).expect("a directory for logs");
        let mut open = Command::new("chmod");
        open.arg("a+rwx").arg(bench.logs()).status().expect("chmod");

        let outputs = bench.outputs(0);
        let mut command = bench.gputrace(&outputs);
        let traced = outcome_of(&arguments, command.args(["-s", "--"]).args(&arguments));
        assert_eq!(traced, alone, "{arguments:?}");
        let trace = outputs.trace();
        if run_several(&arguments) {
            assert_complete_or_named(&bench, trace);
        } else {
            assert_complete(&bench, &trace, &format!("{arguments:?}"));
        }
    }
}

/// Copies of a program, each with its own libraries.
fn copies(bench: &Bench, program: &Path) -> Vec<PathBuf> {
    let place = program.parent().expect("a directory");
    let copies = (0..24).map(|number| {
        let copy = bench.path().join(format!("copy{number}"));
        let mut command = Command::new("cp");
        let status = command.arg("-r").arg(place).arg(&copy).status();
        assert!(status.expect("cp").success());
        copy.join("synthetic")
    });
    copies.collect()
}

/// A recording may end while threads that wait for their turn are held. gputrace then waits for the
/// program, so the program must not wait for gputrace.
#[test]
fn who_is_held_when_the_recording_ends_goes_on() {
    let Some((bench, program)) = open_bench() else {
        return;
    };
    let copies = copies(&bench, &program);
    let script = "for program; do \"$program\" shapes 1 & done; wait";
    for (index, ms) in (0..).zip([20, 35, 50, 75, 100, 150, 200, 300]) {
        let mut command = bench.gputrace(&bench.outputs(index));
        command.args([
            "-s",
            "--duration",
            &format!("{ms}ms"),
            "--",
            "sh",
            "-c",
            script,
            "sh",
        ]);
        command.args(&copies);
        let mut gputrace = Running::start("gputrace", &mut command);
        // They would go on by themselves after two minutes.
        let status = gputrace.wait_within(Duration::from_secs(100));
        assert!(status.success(), "{status}: {}", gputrace.describe());
    }
}

/// Each has its own library, so each is held, and more of them at a time than there are CPUs.
#[test]
fn programs_that_map_their_own_libraries_at_once_are_all_held() {
    let Some((bench, program)) = open_bench() else {
        return;
    };
    let outputs = bench.outputs(0);
    let command = bench.gputrace(&outputs);
    let named = not_held(&bench, &program, &outputs, command);
    figure("undisturbed.not_held_of_24", named as f64, "programs");
}

/// Without CAP_SYS_NICE, helpers may come late, and then a notice names the process.
#[test]
fn without_priorities_programs_are_held_or_named() {
    let Some((bench, program)) = open_bench() else {
        return;
    };
    let outputs = bench.outputs(0);
    let gputrace = bench.gputrace(&outputs);
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-sys_nice", "--inh-caps=-sys_nice"])
        .arg(gputrace.get_program())
        .args(gputrace.get_args())
        .current_dir(bench.path());
    for (name, value) in gputrace.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let named = not_held(&bench, &program, &outputs, command);
    figure(
        "undisturbed.not_held_of_24_without_priorities",
        named as f64,
        "programs",
    );
}

/// Starts 24 programs at once under `gputrace`, each with a library of its own. Returns how many
/// could not be held.
fn not_held(bench: &Bench, program: &Path, outputs: &Outputs, mut gputrace: Command) -> usize {
    let script = format!("for program; do \"$program\" shapes {CALLS} & done; wait");
    gputrace
        .args(["-s", "--", "sh", "-c", &script, "sh"])
        .args(copies(bench, program));
    Running::start("gputrace", &mut gputrace).finish();
    assert_eq!(bench.log().processes().len(), 24);
    assert_complete_or_named(bench, outputs.trace())
}

/// Copies a program and the libraries that it is linked with below another root directory.
fn copy_root(root: &Path, program: &Path) {
    let listed = Command::new("ldd").arg(program).output().expect("ldd");
    let listed = String::from_utf8(listed.stdout).expect("paths");
    let files = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    let library = program.with_file_name("libamdhip64.so.99");
    for file in files.map(Path::new).chain([program, &library]) {
        let copy = root.join(file.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(copy.parent().expect("a directory")).expect("a directory");
        fs::copy(file, &copy).expect("a copy");
    }
}

#[test]
fn below_another_root_the_dynamic_linker_is_found_in_time() {
    let Some((bench, program)) = open_bench() else {
        return;
    };
    let root = bench.path().join("root");
    copy_root(&root, &program);
    let logs = root.join(bench.logs().strip_prefix("/").expect("an absolute path"));
    fs::create_dir_all(&logs).expect("a directory for logs");
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(["-s", "--", "chroot"])
        .arg(&root)
        .arg(&program)
        .args(["shapes", CALLS]);
    // Without /proc, the dynamic linker does not know the program's directory.
    command.env("LD_LIBRARY_PATH", program.parent().expect("a directory"));
    Running::start("gputrace", &mut command).finish();
    for log in fs::read_dir(logs).expect("the logs") {
        let log = log.expect("a log");
        fs::copy(log.path(), bench.logs().join(log.file_name())).expect("a copy of the log");
    }
    assert_complete(&bench, &outputs.trace(), "chroot");
}

#[test]
fn what_another_tracer_has_runs_as_without_gputrace() {
    let Some((bench, program)) = open_bench() else {
        return;
    };
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped("strace is not installed");
    }
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(["-s", "--", "strace", "-f", "-o", "/dev/null"])
        .arg(&program)
        .args(["shapes", CALLS]);
    Running::start("gputrace", &mut command).finish();
    // The thread cannot be held, so calls may be missing; then a remark says so.
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    let log = bench.log();
    let is_told = trace
        .notices
        .iter()
        .any(|notice| notice.text.contains("not recorded"));
    assert!(
        trace.calls.len() == log.len() || is_told,
        "{} of {}",
        trace.calls.len(),
        log.len()
    );
}

/// Whether a process has a child with this name that has ended, and for which it has not waited
/// (proc_pid_stat(5)).
fn has_ended_child(parent: u32, name: &str) -> bool {
    let ended = format!("({name}) Z {parent} ");
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mut stats = processes.filter_map(|one| fs::read_to_string(one.path().join("stat")).ok());
    stats.any(|stat| stat.contains(&ended))
}

/// The recorder is stopped from before the program maps its library until it has ended, so it finds
/// the end of the program before the report of the library.
#[test]
fn who_maps_a_library_just_before_the_end_is_named() {
    let Some((bench, program)) = open_bench() else {
        return;
    };
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped("strace is not installed");
    }
    let outputs = bench.outputs(0);
    let script = format!(
        "echo ready; read line; strace -f -o /dev/null {} shapes {CALLS}; echo over",
        program.display()
    );
    let mut command = bench.gputrace(&outputs);
    command.args(["-s", "--", "sh", "-c", &script]);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.wait_for_stdout("ready");
    gputrace.signal(Signal::STOP);
    gputrace.send("go");
    gputrace.wait_for_stdout("over");
    let limit = Duration::from_secs(60);
    eventually("the program has ended", limit, || {
        has_ended_child(gputrace.pid(), "sh")
    });
    gputrace.signal(Signal::CONT);
    gputrace.close_stdin();
    gputrace.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    assert_eq!((trace.calls.len(), bench.log().is_empty()), (0, false));
    let is_named = |text: &str| text.contains("mapped a library") && text.contains("not recorded");
    assert!(
        trace.notices.iter().any(|notice| is_named(&notice.text)),
        "{:?}",
        trace.notices
    );
}
