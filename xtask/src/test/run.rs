//! One run of one test: a process of its own, with a limit, and what the machine did meanwhile.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::evidence::{Evidence, Watch};
use super::programs::TestId;
use crate::exec;

/// Marks the processes of one run in their environments.
const MARK: &str = "GPUTRACE_TEST_RUN";

/// Most bytes of a test's output that are kept: its end, where it says what failed.
const KEPT_OUTPUT: u64 = 1 << 20;

/// How long killed processes may take to end.
const GONE: Duration = Duration::from_secs(10);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    Failed(ExitStatus),
    /// It was killed at its limit.
    Hung,
}

/// One run of a test.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ended: Ended,
    /// What it printed, standard error included.
    pub(crate) output: String,
    pub(crate) evidence: Evidence,
    /// Where its processes were when it hung, or which ones it left behind.
    pub(crate) processes: Vec<String>,
}

impl Ran {
    pub(crate) fn passed(&self) -> bool {
        self.ended == Ended::Passed
    }

    /// Reasons for which it said that it was skipped, in whole or in part.
    pub(crate) fn skips(&self) -> impl Iterator<Item = &str> {
        // `SKIPPED TEST: REASON`, from `gputrace-skip`.
        self.output
            .lines()
            .filter_map(|line| line.split_once("SKIPPED "))
            .map(|(_, rest)| rest.split_once(": ").map_or(rest, |(_, reason)| reason))
    }
}

/// What all runs have in common.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    /// Environment of the tests.
    pub(crate) environment: Vec<(String, std::ffi::OsString)>,
    /// Where outputs go while tests run.
    pub(crate) outputs: PathBuf,
    /// A command in front of the test, which executes its arguments.
    pub(crate) prefix: Vec<String>,
}

impl Runner {
    /// Runs a test, `limit` at most. `slot` keeps the outputs of tests apart that run at once.
    ///
    /// # Errors
    ///
    /// When it cannot be started or followed; how it ended is no error.
    pub(crate) fn run(&self, id: &TestId<'_>, limit: Duration, slot: usize) -> Result<Ran> {
        let mark = format!("{}-{slot}.", std::process::id());
        let path = self.outputs.join(format!("{slot}.txt"));
        let output = File::create(&path).context("cannot write a test's output")?;
        let plain = id.program.command(id.name);
        let mut command = self.prefixed(plain);
        command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share a test's output")?)
            .stderr(output);
        let watch = Watch::start();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start `{}`", exec::describe(&command)))?;
        let in_time = ended_within(&child, limit)?;
        let mut processes = Vec::new();
        if !in_time {
            processes = kill_all(&mark, Some(&child));
        }
        let evidence = watch.finish(Pid::from_child(&child));
        let status = child.wait().context("cannot wait for a test")?;
        if in_time {
            processes = kill_all(&mark, None);
        }
        let ended = match (in_time, status.success()) {
            (false, _) => Ended::Hung,
            (true, true) => Ended::Passed,
            (true, false) => Ended::Failed(status),
        };
        Ok(Ran {
            ended,
            output: end_of(&path)?,
            evidence,
            processes,
        })
    }

    fn prefixed(&self, plain: Command) -> Command {
        let Some((program, arguments)) = self.prefix.split_first() else {
            return plain;
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(plain.get_program())
            .args(plain.get_args());
        if let Some(directory) = plain.get_current_dir() {
            command.current_dir(directory);
        }
        for (name, value) in plain.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command
    }
}

/// Waits until the process has ended, without taking its status; whether that was in time.
fn ended_within(child: &Child, limit: Duration) -> Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .context("cannot follow a test's process")?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut descriptors = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error).context("cannot wait for a test"),
        }
    }
}

/// The processes of all runs of this xtask.
pub(crate) fn marked_processes() -> Vec<u32> {
    processes_of(&format!("{}-", std::process::id()))
}

/// Kills the processes of a run, and `test` itself. Returns what each of them was doing.
fn kill_all(mark: &str, test: Option<&Child>) -> Vec<String> {
    let (mut known, mut found) = (HashSet::new(), Vec::new());
    let deadline = Instant::now() + GONE;
    // Those that a process starts between the look and its end are found by the next look. A killed
    // process takes a moment to end.
    loop {
        let pids = processes_of(mark);
        let new = pids.iter().filter(|pid| known.insert(**pid));
        found.extend(new.map(|pid| where_it_is(*pid)));
        for &pid in &pids {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                kill(pid);
            }
        }
        if pids.is_empty() || Instant::now() >= deadline {
            break;
        }
        sleep(Duration::from_millis(1));
    }
    if let Some(test) = test {
        // Its environment could not be read: it executes another program just now.
        kill(Pid::from_child(test));
    }
    found
}

/// Kills a process, which may have ended meanwhile.
fn kill(pid: Pid) {
    let _ended = kill_process(pid, Signal::KILL);
}

/// The processes with a mark in their environments that begins so; zombies have none.
fn processes_of(mark: &str) -> Vec<u32> {
    let entry = format!("{MARK}={mark}");
    let Ok(directory) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    directory
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|variable| variable.starts_with(entry.as_bytes()))
            })
        })
        .collect()
}

/// A process with its threads: state, and where in the kernel each of them is.
fn where_it_is(pid: u32) -> String {
    let read = |path: String| {
        let bytes = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
        text.trim().to_owned()
    };
    let mut text = format!("{pid}: {}", read(format!("/proc/{pid}/cmdline")));
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let place = task.path();
        let field = |name: &str| read(place.join(name).display().to_string());
        let state = field("status");
        let state = state.lines().find_map(|line| line.strip_prefix("State:"));
        text += &format!(
            "\n  {} {}: {}",
            task.file_name().to_string_lossy(),
            field("comm"),
            state.unwrap_or_default().trim()
        );
        for line in field("stack").lines() {
            text += &format!("\n    {line}");
        }
    }
    text
}

/// The end of a file, [`KEPT_OUTPUT`] at most.
fn end_of(path: &Path) -> Result<String> {
    let file = File::open(path).context("cannot read a test's output")?;
    let size = file
        .metadata()
        .context("cannot read a test's output")?
        .len();
    let kept = size.min(KEPT_OUTPUT);
    let mut bytes = vec![0; usize::try_from(kept).unwrap_or_default()];
    file.read_exact_at(&mut bytes, size - kept)
        .context("cannot read a test's output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::programs::Program;

    /// A program that is called as a test is: `--exact NAME --nocapture`.
    fn script(directory: &Path, text: &str) -> Program {
        use std::os::unix::fs::PermissionsExt as _;
        let file = directory.join("program");
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Program {
            file,
            ..Program::with_tests("p", &["t"])
        }
    }

    fn run(text: &str, limit: Duration, slot: usize) -> Ran {
        let directory = tempfile::tempdir().unwrap();
        let program = script(directory.path(), text);
        let runner = Runner {
            environment: vec![("GREETING".to_owned(), "hello".into())],
            outputs: directory.path().to_owned(),
            prefix: vec!["env".to_owned()],
        };
        runner.run(&program.id_of("t"), limit, slot).unwrap()
    }

    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn a_run_has_its_output_and_its_end() {
        let ran = run(
            "echo $GREETING $2; echo 'SKIPPED t: no GPU' >&2; exit 3",
            LONG,
            901,
        );
        assert!(matches!(ran.ended, Ended::Failed(status) if status.code() == Some(3)));
        assert_eq!(ran.output, "hello t\nSKIPPED t: no GPU\n");
        assert_eq!(ran.skips().collect::<Vec<_>>(), ["no GPU"]);
        assert!(run("true", LONG, 902).passed());
    }

    #[test]
    fn a_run_that_hangs_says_where_and_takes_its_processes_along() {
        // So long that a busy machine has started both by then: a second here, or more there.
        let seconds = [1, 4, 16, 64];
        let seen = seconds.into_iter().find_map(|seconds| {
            let ran = run("sleep 1000 & wait", Duration::from_secs(seconds), 903);
            assert_eq!(ran.ended, Ended::Hung);
            let places = ran.processes.join("\n");
            (places.contains("sleep 1000") && places.contains("S (sleeping)")).then_some(())
        });
        assert!(seen.is_some());
        let left = processes_of(&format!("{}-903.", std::process::id()));
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn what_a_run_leaves_behind_is_told_and_ended() {
        let started = "sleep 1001 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done";
        let ran = run(started, LONG, 904);
        assert!(ran.passed());
        assert!(ran.processes.join("\n").contains("sleep 1001"));
    }
}
