//! A running program, with waiting for its output.

use std::{
    fs::{self, Metadata},
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionread, read},
    process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open},
    time::{ClockId, clock_gettime},
};

/// Time limit for something that happens at once on an idle machine. It is generous, because only
/// failing tests wait that long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Scales a time limit for this machine by `GPUTRACE_TEST_SLOWNESS` (1 if not set), which `cargo
/// xtask vm` sets because emulated CPUs are slower. All limits are for a real CPU.
#[must_use]
pub fn on_this_machine(limit: Duration) -> Duration {
    let factor = std::env::var("GPUTRACE_TEST_SLOWNESS").ok();
    limit * factor.and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// The file `/proc/PID/task/TID/NAME` of each thread of a process. A thread can end at any moment;
/// then it is left out.
///
/// # Errors
///
/// There is no such process.
pub fn of_threads(pid: u32, name: &str) -> io::Result<impl Iterator<Item = String>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    Ok(threads.filter_map(move |thread| fs::read_to_string(thread.path().join(name)).ok()))
}

/// CPU time of all threads that a process has, user and system.
///
/// # Errors
///
/// There is no such process, or the kernel does not count the time of threads.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut sum = 0;
    for text in of_threads(pid, "schedstat")? {
        let time = text.split_whitespace().next().unwrap_or_default();
        sum += time.parse::<u64>().map_err(io::Error::other)?;
    }
    Ok(Duration::from_nanos(sum))
}

/// `CLOCK_BOOTTIME` in ns, the clock of call logs and captures.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within `limit`; `what` describes it.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let limit = on_this_machine(limit);
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "waited {limit:?} in vain: {what}"
        );
        // There is no blocking wait for these conditions, for example about files in /proc.
        thread::sleep(Duration::from_millis(2));
    }
}

/// The file without a name that a process has open in this directory, if there is one.
#[must_use]
pub fn unnamed(pid: u32, directory: &Path) -> Option<Metadata> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    descriptors.flatten().find_map(|descriptor| {
        let file = fs::read_link(descriptor.path()).ok()?;
        let is_it = file.starts_with(directory) && file.to_string_lossy().ends_with(" (deleted)");
        is_it
            .then(|| fs::metadata(descriptor.path()).ok())
            .flatten()
    })
}

/// The lines that a program has printed so far.
#[derive(Clone, Debug)]
pub struct Lines(Arc<Output>);

#[derive(Debug)]
struct Output {
    /// Where the lines come from.
    pipe: OwnedFd,
    printed: Mutex<Printed>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Printed {
    lines: Vec<String>,
    /// What follows the last whole line.
    partial: Vec<u8>,
    ended: bool,
}

impl Printed {
    /// Takes what the pipe holds now, without waiting for more.
    fn take_from(&mut self, pipe: &OwnedFd) -> rustix::io::Result<()> {
        let mut bytes = vec![0; ioctl_fionread(pipe)?.try_into().unwrap_or(0)];
        let length = read(pipe, &mut bytes)?;
        self.partial.extend(&bytes[..length]);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.lines.push(line_of(&line));
        }
        Ok(())
    }

    /// The end of the pipe is the end of the last line.
    fn end(&mut self) {
        if !self.partial.is_empty() {
            self.lines.push(line_of(&self.partial));
            self.partial.clear();
        }
        self.ended = true;
    }
}

/// A line without its end.
fn line_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

impl Lines {
    /// Lines of a pipe from which nothing is read yet.
    fn of(pipe: OwnedFd) -> Self {
        Self(Arc::new(Output {
            pipe,
            printed: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    fn collect(pipe: OwnedFd) -> Self {
        let lines = Self::of(pipe);
        let mine = lines.clone();
        thread::spawn(move || while !mine.take_more() {});
        lines
    }

    /// Waits until there is more, and takes it. Returns whether that was all.
    fn take_more(&self) -> bool {
        let mut fds = [PollFd::new(&self.0.pipe, PollFlags::IN)];
        let polled = poll(&mut fds, None);
        if polled == Err(Errno::INTR) {
            return false;
        }
        let mut printed = self.printed();
        let outcome = polled.and_then(|_| printed.take_from(&self.0.pipe));
        // When nobody can write any more, the pipe held the last bytes.
        if outcome.is_err() || fds[0].revents().contains(PollFlags::HUP) {
            printed.end();
        }
        self.0.changed.notify_all();
        printed.ended
    }

    fn printed(&self) -> MutexGuard<'_, Printed> {
        self.0
            .printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was written so far, in place of the thread, which may not have come to it yet.
    fn catch_up(&self) {
        let mut printed = self.printed();
        if !printed.ended {
            // The thread meets the same error, which ends the lines.
            let _ = printed.take_from(&self.0.pipe);
            self.0.changed.notify_all();
        }
    }

    /// Everything printed so far.
    #[must_use]
    pub fn text(&self) -> String {
        let printed = self.printed();
        let mut text = printed.lines.join("\n");
        if !printed.partial.is_empty() {
            if !printed.lines.is_empty() {
                text.push('\n');
            }
            text.push_str(&line_of(&printed.partial));
        }
        text
    }

    fn count(&self) -> usize {
        self.printed().lines.len()
    }

    /// Waits until `condition` holds for the printed lines; `None` if the output ends before, or
    /// after `limit`.
    fn wait<T>(
        &self,
        limit: Duration,
        mut condition: impl FnMut(&Printed) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + on_this_machine(limit);
        let mut printed = self.printed();
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
                .changed
                .wait_timeout(printed, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Resets signals for a program to the defaults, as if started from a terminal. Tests may run in
/// the background of a script, whose shell makes them ignore Ctrl-C, or under `nohup`.
pub(crate) fn signals_by_default() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// A running program in its own process group. It is killed when this is dropped.
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
        // SAFETY: only makes async-signal-safe calls.
        unsafe { command.pre_exec(signals_by_default) };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .expect("a handle of a child that was not waited for");
        let stdout = Lines::collect(child.stdout.take().expect("a pipe").into());
        let stderr = Lines::collect(child.stderr.take().expect("a pipe").into());
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

    /// Its standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Its standard error so far.
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

    /// Waits until its standard output is closed: until it and all processes that inherited it have
    /// ended.
    ///
    /// # Panics
    /// If it stays open.
    pub fn wait_for_end_of_output(&self) {
        let ended = self
            .stdout
            .wait(PATIENCE, |printed| printed.ended.then_some(()));
        // `wait` also returns when the output has ended without the condition.
        assert!(
            ended.is_some(),
            "the output does not end: {}",
            self.describe()
        );
    }

    fn wait_for(&self, lines: &Lines, stream: &str, part: &str) {
        let found = |printed: &Printed| {
            printed
                .lines
                .iter()
                .any(|line| line.contains(part))
                .then_some(())
        };
        let found = lines.wait(PATIENCE, found).is_some();
        assert!(
            found,
            "{part:?} did not appear on {stream} of {}",
            self.describe()
        );
    }

    /// Sends a line to its standard input and returns the first line that it then prints on
    /// standard output.
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

    /// Sends a line to its standard input.
    ///
    /// # Panics
    /// If it no longer reads.
    pub fn send(&mut self, line: &str) {
        let stdin = self
            .child
            .stdin
            .as_mut()
            .expect("standard input was closed");
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .expect("the program does not read its input");
    }

    /// Closes its standard input, which makes most workloads stop.
    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    /// If it has ended and was waited for.
    pub fn signal(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended already", self.name);
        kill_process(Pid::from_child(&self.child), signal)
            .expect("a child that was not waited for");
    }

    /// Sends a signal to the process group, as a terminal does for Ctrl-C.
    ///
    /// # Panics
    /// If it has ended and was waited for.
    pub fn signal_group(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended already", self.name);
        kill_process_group(Pid::from_child(&self.child), signal)
            .expect("a child that was not waited for");
    }

    /// Whether it is still running.
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
        // The last output may still be in the pipe. Its end is not waited for: a grandchild may
        // hold the pipe open.
        for lines in [&self.stdout, &self.stderr] {
            lines.catch_up();
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

    /// Waits for its end, which must be successful.
    ///
    /// # Panics
    /// If it fails or does not end.
    pub fn finish(&mut self) {
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.describe());
    }

    /// Waits for its end, which must be a regular failure, and returns the exit status and its
    /// standard error.
    ///
    /// # Panics
    /// If it succeeds, is killed by a signal (a panic would be an abort or 101), or does not end.
    pub fn fail(&mut self) -> (i32, String) {
        let status = self.wait();
        let code = status.code().unwrap_or_else(|| {
            panic!(
                "killed by signal {:?}: {}",
                status.signal(),
                self.describe()
            )
        });
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
                Err(Errno::INTR) => {}
                Err(error) => panic!("cannot wait for {}: {error}", self.name),
            }
        }
    }

    /// Name and all output, for messages.
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
        // The group may outlive its leader: a launched program does if gputrace was killed.
        if kill_process_group(Pid::from_child(&self.child), Signal::KILL).is_ok()
            && self.status.is_none()
        {
            // Errors cannot be handled here; the process is dead in any case.
            drop(self.child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        assert!(cpu_time(pid).unwrap() > before);
    }

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
    fn output_is_whole_at_the_end_although_a_grandchild_holds_the_pipe() {
        let script = "sleep 1000 & i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done;
                      printf last; printf 'one\\ntwo' >&2";
        let expected: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        let expected = expected.join("\n") + "\nlast";
        for _ in 0..20 {
            let mut shell = Running::start("shell", Command::new("sh").args(["-c", script]));
            shell.finish();
            assert_eq!(shell.stdout(), expected);
            assert_eq!(shell.stderr(), "one\ntwo");
        }
    }

    #[test]
    fn output_is_whole_without_the_thread_that_reads() {
        let (pipe, program) = rustix::pipe::pipe().unwrap();
        let lines = Lines::of(pipe);
        let write = |text: &[u8]| assert_eq!(rustix::io::write(&program, text), Ok(text.len()));
        lines.catch_up();
        assert_eq!(lines.text(), "");
        write(b"one\n\ntw");
        lines.catch_up();
        assert_eq!((lines.text().as_str(), lines.count()), ("one\n\ntw", 2));
        write(b"o\xff");
        drop(program);
        assert!(lines.take_more());
        assert_eq!(
            (lines.text().as_str(), lines.count()),
            ("one\n\ntwo\u{fffd}", 3)
        );
        lines.catch_up();
        assert_eq!(lines.count(), 3);
    }

    #[test]
    #[should_panic(expected = "still running")]
    fn a_program_that_hangs_is_killed() {
        let mut shell = Running::start("sleep", Command::new("sleep").arg("1000"));
        shell.wait_within(Duration::from_millis(10));
    }
}
