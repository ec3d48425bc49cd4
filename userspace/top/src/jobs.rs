//! Recordings and dumps that the user starts from the screen, as processes of their own.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// How long recordings may take to end with the screen.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often to look whether one has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What a user can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A recording of this process.
    Record(u32),
    /// Dumps of all flight recorders.
    DumpFlight,
}

/// Makes the command for a task, and says where its result will be.
pub type Starter = fn(Task) -> io::Result<(Command, String)>;

/// A process that does a task.
#[derive(Debug)]
struct Job {
    task: Task,
    child: Child,
    /// Where its result will be.
    result: String,
}

/// The tasks that are being done.
#[derive(Debug)]
pub(crate) struct Jobs {
    start: Starter,
    running: Vec<Job>,
}

impl Jobs {
    pub(crate) fn new(start: Starter) -> Self {
        Self {
            start,
            running: Vec::new(),
        }
    }

    /// The processes that are being recorded.
    pub(crate) fn recorded(&self) -> Vec<u32> {
        let tasks = self.running.iter().map(|job| job.task);
        tasks
            .filter_map(|task| match task {
                Task::Record(pid) => Some(pid),
                Task::DumpFlight => None,
            })
            .collect()
    }

    /// Starts a task, or ends it if it is being done. Returns what the user is told.
    pub(crate) fn toggle(&mut self, task: Task) -> String {
        if let Some(job) = self.running.iter().find(|job| job.task == task) {
            job.stop();
            return match task {
                Task::Record(pid) => format!("the recording of process {pid} ends"),
                Task::DumpFlight => "a dump is being asked for".to_owned(),
            };
        }
        let started = (self.start)(task).and_then(|(mut command, result)| {
            // The screen has the terminal.
            let quiet = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            // A recording must not go on unseen when the screen is gone.
            let follow = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
            // SAFETY: between fork and exec, it only makes one system call.
            unsafe { quiet.pre_exec(follow) };
            Ok((quiet.spawn()?, result))
        });
        match started {
            Ok((child, result)) => {
                let told = match task {
                    Task::Record(pid) => {
                        format!("recording process {pid} to {result}; r ends it")
                    }
                    Task::DumpFlight => "asked flight recorders for a dump".to_owned(),
                };
                self.running.push(Job {
                    task,
                    child,
                    result,
                });
                told
            }
            Err(error) => format!("gputrace cannot be started: {error}"),
        }
    }

    /// Takes out tasks that are done. Returns what the user is told of each.
    pub(crate) fn ended(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        self.running.retain_mut(|job| {
            let ended = job.ended();
            let goes_on = ended.is_none();
            told.extend(ended);
            goes_on
        });
        told
    }

    /// Ends all recordings, and waits for them. Returns what the user is told of each.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        self.running.iter().for_each(Job::stop);
        let begin = Instant::now();
        let mut told = Vec::new();
        while !self.running.is_empty() && begin.elapsed() < PATIENCE {
            let ended = self.ended();
            if ended.is_empty() {
                std::thread::sleep(LOOK);
            }
            told.extend(ended);
        }
        let left = self.running.drain(..);
        told.extend(
            left.map(|job| format!("process {} still writes {}", job.child.id(), job.result)),
        );
        told
    }
}

impl Job {
    /// Ends a recording as Ctrl-C does. SIGINT itself may be ignored, as by programs that a shell
    /// has started in the background.
    fn stop(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(pid), Task::Record(_)) = (pid, self.task) {
            // An error means that it has ended. It has not been waited for, so its id is its own.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// What the user is told if it has ended.
    fn ended(&mut self) -> Option<String> {
        let status = match self.child.try_wait() {
            Ok(status) => status?,
            Err(error) => return Some(format!("{}: {error}", self.result)),
        };
        Some(match (self.task, status.success()) {
            (Task::Record(pid), true) => format!("recorded process {pid}: {}", self.result),
            (Task::Record(pid), false) => format!(
                "process {pid} could not be recorded ({status}): `gputrace -p {pid}` says why"
            ),
            (Task::DumpFlight, true) => "flight recorders were asked for a dump".to_owned(),
            (Task::DumpFlight, false) => "no dump: `gputrace dump-flight` says why".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    /// Exists as soon as a recording listens to SIGTERM.
    fn ready() -> PathBuf {
        std::env::temp_dir().join(format!("gputrace-top-{}", std::process::id()))
    }

    /// Ends with success when it is asked to; fails for process 2; cannot be started for 3.
    #[expect(clippy::unnecessary_wraps, reason = "a starter can fail")]
    fn start(task: Task) -> io::Result<(Command, String)> {
        let script = match task {
            Task::Record(1) => "trap 'exit 0' TERM; touch \"$0\"; while :; do sleep 0.01; done",
            Task::Record(2) => "exit 3",
            _ => "exit 0",
        };
        let program = if task == Task::Record(3) {
            "/none"
        } else {
            "sh"
        };
        let mut command = Command::new(program);
        command.args(["-c", script]).arg(ready());
        Ok((command, format!("{task:?}")))
    }

    /// Starts a recording, and waits until it listens.
    fn record(jobs: &mut Jobs) -> String {
        let _ = fs::remove_file(ready());
        let told = jobs.toggle(Task::Record(1));
        while !ready().exists() {
            std::thread::sleep(LOOK);
        }
        fs::remove_file(ready()).unwrap();
        told
    }

    fn wait(jobs: &mut Jobs) -> String {
        loop {
            if let Some(told) = jobs.ended().pop() {
                return told;
            }
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_recording_ends_when_it_is_asked_for_again_or_with_the_screen() {
        let mut jobs = Jobs::new(start);
        let told = record(&mut jobs);
        assert!(told.contains("recording process 1 to Record(1)"), "{told}");
        assert_eq!(jobs.recorded(), [1]);
        assert!(jobs.ended().is_empty());
        assert!(jobs.toggle(Task::Record(1)).contains("ends"));
        let told = wait(&mut jobs);
        assert_eq!(told, "recorded process 1: Record(1)");
        assert!(jobs.recorded().is_empty());

        record(&mut jobs);
        jobs.toggle(Task::Record(2));
        let told = jobs.finish();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told.contains(&"recorded process 1: Record(1)".to_owned()),
            "{told:?}"
        );
    }

    #[test]
    fn what_fails_is_told() {
        let mut jobs = Jobs::new(start);
        jobs.toggle(Task::Record(2));
        let told = wait(&mut jobs);
        assert!(told.contains("`gputrace -p 2` says why"), "{told}");
        assert!(jobs.toggle(Task::Record(3)).contains("cannot be started"));
        assert!(jobs.ended().is_empty());
        jobs.toggle(Task::DumpFlight);
        assert_eq!(wait(&mut jobs), "flight recorders were asked for a dump");
    }
}
