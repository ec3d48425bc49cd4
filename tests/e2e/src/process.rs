//! A running program whose output can be waited for.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open},
    time::{ClockId, clock_gettime},
};

/// How long a test waits for something that should come at once on an idle machine. Generous, because
/// only failing tests wait so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many times slower than a real processor this machine may be: `GPUTRACE_TEST_SLOWNESS`, which `cargo xtask vm`
/// sets, or 1. Every limit of a wait is for a real one.
fn on_this_machine(limit: Duration) -> Duration {
    let factor = std::env::var("GPUTRACE_TEST_SLOWNESS").ok();
    limit * factor.and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// `CLOCK_BOOTTIME` in ns: the clock of call logs and captures.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within `limit`; `what` names it.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let limit = on_this_machine(limit);
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {limit:?} in vain: {what}");
        // The things waited for here (files in /proc, say) cannot be blocked on.
        thread::sleep(Duration::from_millis(2));
    }
}

/// Lines that a program printed so far.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<(Mutex<Printed>, Condvar)>);

#[derive(Debug, Default)]
struct Printed {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn collect(source: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let (mine, mut source) = (lines.clone(), BufReader::new(source));
        thread::spawn(move || {
            let mut line = Vec::new();
            loop {
                line.clear();
                let more = source.read_until(b'\n', &mut line).is_ok_and(|length| length > 0);
                let mut printed = mine.0.0.lock().unwrap_or_else(PoisonError::into_inner);
                if more {
                    printed
                        .lines
                        .push(String::from_utf8_lossy(&line).trim_end().to_owned());
                } else {
                    printed.ended = true;
                }
                mine.0.1.notify_all();
                if !more {
                    break;
                }
            }
        });
        lines
    }

    /// Everything printed so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lines
            .join("\n")
    }

    fn count(&self) -> usize {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lines
            .len()
    }

    /// Waits until `condition` holds for what was printed; `None` if the output ends before, or after
    /// `limit`.
    fn wait<T>(&self, limit: Duration, mut condition: impl FnMut(&Printed) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + on_this_machine(limit);
        let mut printed = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = condition(&printed) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if printed.ended || left.is_zero() {
                return None;
            }
            printed = self
                .0
                .1
                .wait_timeout(printed, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Has a program begin as one that a terminal starts. Tests may themselves run in the background of a script, whose shell has
/// them ignore Ctrl-C, and below `nohup`.
fn signals_by_default() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// A program that runs, in a process group of its own. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    pidfd: OwnedFd,
    stdout: Lines,
    stderr: Lines,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts a program; `name` is for messages.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Self {
        // SAFETY: only calls that are async-signal-safe.
        unsafe { command.pre_exec(signals_by_default) };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        let pid = Pid::from_child(&child);
        let pidfd =
            pidfd_open(pid, PidfdFlags::empty()).expect("a handle of a child that was not waited for");
        let stdout = Lines::collect(child.stdout.take().expect("a pipe"));
        let stderr = Lines::collect(child.stderr.take().expect("a pipe"));
        Self {
            name: name.to_owned(),
            child,
            pidfd,
            stdout,
            stderr,
            status: None,
        }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far on standard output.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it printed so far on standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for a line on standard output that contains `part`.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_for_stdout(&self, part: &str) {
        self.wait_for(&self.stdout, "standard output", part);
    }

    /// Waits for a line on standard error that contains `part`.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_for_stderr(&self, part: &str) {
        self.wait_for(&self.stderr, "standard error", part);
    }

    /// Waits until nobody holds its standard output open any more: it, and every process that got it from it, has ended.
    ///
    /// # Panics
    /// If somebody does.
    pub fn wait_for_end_of_output(&self) {
        let ended = self.stdout.wait(PATIENCE, |printed| printed.ended.then_some(()));
        // `wait` also gives up when the output has ended without that which it waits for.
        assert!(ended.is_some(), "the output does not end: {}", self.describe());
    }

    fn wait_for(&self, lines: &Lines, stream: &str, part: &str) {
        let found = |printed: &Printed| printed.lines.iter().any(|line| line.contains(part)).then_some(());
        let found = lines.wait(PATIENCE, found).is_some();
        assert!(
            found,
            "{part:?} did not appear on {stream} of {}",
            self.describe()
        );
    }

    /// Gives it a line to read and returns the first line that it prints after that on standard output.
    ///
    /// # Panics
    /// If none comes.
    pub fn ask(&mut self, line: &str) -> String {
        let before = self.stdout.count();
        self.send(line);
        self.stdout
            .wait(PATIENCE, |printed| printed.lines.get(before).cloned())
            .unwrap_or_else(|| panic!("no answer to {line:?} from {}", self.describe()))
    }

    /// Gives it a line to read on standard input.
    ///
    /// # Panics
    /// If it does not read any more.
    pub fn send(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("standard input was closed");
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .expect("the program does not read its input");
    }

    /// Ends its standard input: most workloads then stop.
    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    /// If it is gone and was waited for.
    pub fn signal(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended already", self.name);
        kill_process(Pid::from_child(&self.child), signal).expect("a child that was not waited for");
    }

    /// Sends a signal to the process group, as the terminal does for Ctrl-C.
    ///
    /// # Panics
    /// If it is gone and was waited for.
    pub fn signal_group(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended already", self.name);
        kill_process_group(Pid::from_child(&self.child), signal).expect("a child that was not waited for");
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.status.is_none() && !self.ended_within(Duration::ZERO)
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end within `limit`.
    pub fn wait_within(&mut self, limit: Duration) -> ExitStatus {
        if let Some(status) = self.status {
            return status;
        }
        let limit = on_this_machine(limit);
        assert!(
            self.ended_within(limit),
            "still running after {limit:?}: {}",
            self.describe()
        );
        // Waiting would close its standard input, which a launched program may still read.
        let stdin = self.child.stdin.take();
        let status = self.child.wait().expect("a child that was not waited for");
        self.child.stdin = stdin;
        self.status = Some(status);
        // The last words may still be on their way through the pipe. A grandchild may hold it open, so not
        // for ever.
        for lines in [&self.stdout, &self.stderr] {
            lines.wait(Duration::from_millis(200), |printed| printed.ended.then_some(()));
        }
        status
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub fn wait(&mut self) -> ExitStatus {
        self.wait_within(PATIENCE)
    }

    /// Waits for its end, which must be success.
    ///
    /// # Panics
    /// If it fails or does not end.
    pub fn finish(&mut self) {
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.describe());
    }

    /// Waits for its end, which must be a failure of its own choice, and returns the exit status and
    /// what it said.
    ///
    /// # Panics
    /// If it succeeds, is killed by a signal (a panic would be an abort or 101) or does not end.
    pub fn fail(&mut self) -> (i32, String) {
        let status = self.wait();
        let code = status
            .code()
            .unwrap_or_else(|| panic!("killed by signal {:?}: {}", status.signal(), self.describe()));
        assert!(code != 0, "should have failed: {}", self.describe());
        assert!(code != 101, "panicked: {}", self.describe());
        (code, self.stderr())
    }

    fn ended_within(&self, limit: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&timeout)) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("cannot wait for {}: {error}", self.name),
            }
        }
    }

    /// Name and everything printed, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{} (pid {})\n--- standard output\n{}\n--- standard error\n{}\n---",
            self.name,
            self.pid(),
            self.stdout(),
            self.stderr()
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group may outlive its leader: a launched program, when gputrace was killed.
        if kill_process_group(Pid::from_child(&self.child), Signal::KILL).is_ok() && self.status.is_none() {
            // Errors cannot be acted upon; the process is dead either way.
            drop(self.child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status() {
        let mut shell = Running::start(
            "shell",
            Command::new("sh").args(["-c", "echo one; read x; echo got $x; exit 3"]),
        );
        shell.wait_for_stdout("one");
        assert!(shell.is_running());
        assert_eq!(shell.ask("two"), "got two");
        assert_eq!(shell.fail().0, 3);
        assert!(!shell.is_running());
    }

    #[test]
    #[should_panic(expected = "still running")]
    fn a_program_that_hangs_is_killed() {
        let mut shell = Running::start("sleep", Command::new("sleep").arg("1000"));
        shell.wait_within(Duration::from_millis(10));
    }
}
