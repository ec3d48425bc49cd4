//! Runs the bundled program under recording, in each mode.
//!
//! The recorder is gputrace itself in its own process, with the options that a user would give, so
//! that the code that is verified is the code that users run.

use std::{
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use gputrace_session::User;
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

use crate::log::Said;

/// Maximum total time of a recording.
const PATIENCE: Duration = Duration::from_secs(120);
/// What gputrace prints when it has attached its probes to the HSA runtime.
const FOLLOWS: &str = "following the GPU's work";
/// Maximum time in which a recorder of the whole node notices a new library.
const NOTICED: Duration = Duration::from_secs(10);
/// Time for a process to end when it is told to.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Interval of checking whether a process has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Interval of checking whether the user has interrupted.
const SLICE: Duration = Duration::from_millis(100);
/// gputrace's hidden command that runs the program.
pub const COMMAND: &str = "verify-work";
/// The program's option to wait until it is told to go on.
pub const WAITS: &str = "--wait";
/// The program's option to do only copies.
pub const COPIES_ONLY: &str = "--copies-only";
/// The program's option for a stream of kernels that is long enough for estimates.
pub const STREAMS: &str = "--streams";
/// The program's option for the GPU: KFD's topology node.
pub const NODE: &str = "--node";
/// The program's option for the runtime's library.
pub const LIBRARY: &str = "--hsa-library";
/// The program's option to only report whether the driver can be used.
pub const TRY: &str = "--try";

/// How a recording is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// gputrace starts the program.
    Launch,
    /// As [`Mode::Launch`], with SDMA switched off: kernels copy.
    KernelCopies,
    /// gputrace attaches to the running program.
    Attach,
    /// gputrace records the whole node; the program starts and ends meanwhile.
    Node,
}

impl Mode {
    /// All modes, in the order in which they are run.
    pub const ALL: [Self; 4] = [Self::Launch, Self::KernelCopies, Self::Attach, Self::Node];

    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "Launch",
            Self::KernelCopies => "Launch, copies by kernels",
            Self::Attach => "Attach",
            Self::Node => "Whole node",
        }
    }

    /// Whether the program has used its queues before the recorder sees what it does: while a node
    /// is recorded, a newly loaded library gets its probes some milliseconds later.
    pub(crate) const fn comes_late(self) -> bool {
        matches!(self, Self::Attach | Self::Node)
    }

    const fn file(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::KernelCopies => "kernel-copies",
            Self::Attach => "attach",
            Self::Node => "node",
        }
    }
}

/// Why a recording failed.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A process could not be started or communicated with.
    #[error("{0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The recorder did not begin.
    #[error("gputrace did not begin to record; it said: {0}")]
    NotBegun(String),
    /// The recorder failed.
    #[error("gputrace failed ({status}); it said: {said}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// Its last messages.
        said: String,
    },
    /// Something took too long.
    #[error("{0} did not end in time")]
    TooLong(&'static str),
    /// The user has interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl RecordError {
    /// A short description, without messages of processes.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Io(..) => "a process could not be started or talked to",
            Self::NotBegun(_) => "gputrace did not begin to record",
            Self::Failed { .. } => "gputrace failed",
            Self::TooLong(_) => "it did not end in time",
            Self::Interrupted => "it was interrupted",
        }
    }
}

/// Where and as which user processes run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Path of this program.
    pub gputrace: PathBuf,
    /// The runtime's library; `None` to search for it.
    pub library: Option<PathBuf>,
    /// The user as whom the bundled program runs; `None` for this process's user.
    pub user: Option<User>,
    /// Directory for captures.
    pub directory: PathBuf,
    /// KFD's topology node of the GPU to verify; the runtime's first one if `None`.
    pub node: Option<u32>,
    /// Set when the user has interrupted.
    pub interrupted: Arc<AtomicBool>,
}

impl Setting {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// A completed recording.
#[derive(Debug)]
pub(crate) struct Made {
    /// Messages of the program.
    pub(crate) said: Vec<Said>,
    /// Path of the capture.
    pub(crate) capture: PathBuf,
}

/// A process that is either waited for, or ended when this is dropped.
struct Process {
    what: &'static str,
    child: Child,
    ended: bool,
    interrupted: Arc<AtomicBool>,
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended {
            // Given time, a recorder ends what it has started.
            self.interrupt();
            let deadline = Instant::now() + LAST_WORDS;
            while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(LOOK);
            }
            // It may have ended by itself.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Process {
    fn start(
        setting: &Setting,
        what: &'static str,
        command: &mut Command,
    ) -> Result<Self, RecordError> {
        takes_signals(command);
        let child = command
            .spawn()
            .map_err(|error| RecordError::Io(what, error))?;
        Ok(Self {
            what,
            child,
            ended: false,
            interrupted: Arc::clone(&setting.interrupted),
        })
    }

    fn wait(&mut self, deadline: Instant) -> Result<ExitStatus, RecordError> {
        loop {
            let status = self.child.try_wait();
            if let Some(status) = status.map_err(|error| RecordError::Io(self.what, error))? {
                self.ended = true;
                return Ok(status);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(RecordError::Interrupted);
            }
            if Instant::now() > deadline {
                return Err(RecordError::TooLong(self.what));
            }
            thread::sleep(LOOK);
        }
    }

    fn interrupt(&self) {
        // The child has not been waited for, so the process id is still its own. It is no failure
        // if it has just ended.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
    }
}

/// Lines of a pipe, collected by a thread as they come.
struct Lines {
    lines: Receiver<String>,
    all: Vec<String>,
    interrupted: Arc<AtomicBool>,
}

impl Lines {
    /// Maximum length of a line of gputrace or the program, in bytes.
    const LONGEST: u64 = 1 << 20;
    /// Maximum number of lines of either. The program may belong to another user.
    const MOST: usize = 1 << 16;

    fn of(setting: &Setting, pipe: impl Read + Send + 'static) -> Self {
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            for _ in 0..Self::MOST {
                let mut line = Vec::new();
                let read = (&mut pipe).take(Self::LONGEST).read_until(b'\n', &mut line);
                if !read.is_ok_and(|length| length > 0) {
                    break;
                }
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            lines,
            all: Vec::new(),
            interrupted: Arc::clone(&setting.interrupted),
        }
    }

    /// Waits for a line that `is_it` accepts; returns whether it has come.
    fn wait_for(&mut self, deadline: Instant, is_it: impl Fn(&str) -> bool) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.interrupted.load(Ordering::Relaxed) {
                return false;
            }
            match self.lines.recv_timeout(left.min(SLICE)) {
                Ok(line) => {
                    let found = is_it(&line);
                    self.all.push(line);
                    if found {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Timeout) if left > SLICE => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Everything up to the end of the output.
    fn rest(&mut self, deadline: Instant) -> &[String] {
        self.wait_for(deadline, |_| false);
        &self.all
    }

    /// The last lines, for messages.
    fn last(&mut self) -> String {
        let all = self.rest(Instant::now() + Duration::from_secs(1));
        let from = all.len().saturating_sub(5);
        all.get(from..).unwrap_or_default().join(" | ")
    }
}

/// The command line of the program.
fn work(setting: &Setting, mode: Mode) -> Vec<std::ffi::OsString> {
    let mut words = vec![setting.gputrace.clone().into_os_string(), COMMAND.into()];
    if let Some(library) = &setting.library {
        words.extend([LIBRARY.into(), library.into()]);
    }
    if let Some(node) = setting.node {
        words.extend([NODE.into(), node.to_string().into()]);
    }
    match mode {
        Mode::Attach => words.extend([WAITS.into(), STREAMS.into()]),
        Mode::Node => words.push(WAITS.into()),
        Mode::KernelCopies => words.push(COPIES_ONLY.into()),
        Mode::Launch => {}
    }
    words
}

/// The program as a process with the user's rights.
fn command(setting: &Setting, mode: Mode) -> Command {
    let words = work(setting, mode);
    let mut command = Command::new(&setting.gputrace);
    command.args(words.iter().skip(1));
    as_user(&mut command, setting.user.as_ref());
    command.stderr(Stdio::null());
    command
}

/// Unblocks all signals in the process: otherwise it would inherit those that this process has
/// blocked in order to wait for them.
fn takes_signals(command: &mut Command) {
    let unblock = || {
        // SAFETY: an all-zero set is a valid value of this plain C struct, and contains no signals.
        let none: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is alive; the old mask is not requested.
        let failed = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
        if failed == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(unblock) };
}

fn as_user(command: &mut Command, user: Option<&User>) {
    let Some(user) = user.cloned() else { return };
    command
        .env("HOME", &user.home)
        .env("USER", &user.name)
        .current_dir("/");
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(move || user.become_user()) };
}

/// Whether `user` can run the program and open the driver's device.
#[must_use]
pub fn can_use(gputrace: &Path, user: &User) -> bool {
    let mut command = Command::new(gputrace);
    command.args([COMMAND, TRY]);
    as_user(&mut command, Some(user));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The command that records with gputrace into the directory; the caller adds what to record.
fn recorder(setting: &Setting, mode: Mode) -> Command {
    let mut command = Command::new(&setting.gputrace);
    command
        .arg("-d")
        .arg(&setting.directory)
        .args(["-o", mode.file(), "-f", "csv"])
        .args([
            "--kernel-trace",
            "--memory-copy-trace",
            "--scratch-memory-trace",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    if setting.user.is_none() {
        // gputrace would start the program as that user, who might not be allowed to use the
        // driver.
        command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    }
    command
}

/// Makes a recording.
pub(crate) fn make(setting: &Setting, mode: Mode) -> Result<Made, RecordError> {
    if setting.is_interrupted() {
        return Err(RecordError::Interrupted);
    }
    let deadline = Instant::now() + PATIENCE;
    let said = match mode {
        Mode::Launch | Mode::KernelCopies => launch(setting, mode, deadline)?,
        Mode::Attach => attach(setting, deadline)?,
        Mode::Node => node(setting, deadline)?,
    };
    if setting.is_interrupted() {
        return Err(RecordError::Interrupted);
    }
    Ok(Made {
        said: said
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect(),
        capture: setting.directory.join(format!("{}.gtcap", mode.file())),
    })
}

fn pipe<T>(pipe: Option<T>, what: &'static str) -> Result<T, RecordError> {
    pipe.ok_or_else(|| RecordError::Io(what, io::ErrorKind::BrokenPipe.into()))
}

fn launch(setting: &Setting, mode: Mode, deadline: Instant) -> Result<Vec<String>, RecordError> {
    let mut command = recorder(setting, mode);
    command
        .arg("--")
        .args(work(setting, mode))
        .stdout(Stdio::piped());
    if mode == Mode::KernelCopies {
        command.env("HSA_ENABLE_SDMA", "0");
    }
    let mut recorder = Process::start(setting, "gputrace", &mut command)?;
    let mut said = Lines::of(setting, pipe(recorder.child.stdout.take(), "gputrace")?);
    let mut told = Lines::of(setting, pipe(recorder.child.stderr.take(), "gputrace")?);
    let status = recorder.wait(deadline)?;
    let said = said.rest(deadline).to_vec();
    // If the program failed, this is its status; then its messages count.
    if !status.success() && said.is_empty() {
        return Err(RecordError::Failed {
            status,
            said: told.last(),
        });
    }
    Ok(said)
}

/// Waits until the recorder reports that it is recording.
fn begun(told: &mut Lines, deadline: Instant) -> Result<(), RecordError> {
    if told.wait_for(deadline, |line| line.contains("recording")) {
        return Ok(());
    }
    Err(RecordError::NotBegun(told.last()))
}

fn finished(
    recorder: &mut Process,
    told: &mut Lines,
    deadline: Instant,
) -> Result<(), RecordError> {
    let status = recorder.wait(deadline)?;
    if status.success() {
        return Ok(());
    }
    Err(RecordError::Failed {
        status,
        said: told.last(),
    })
}

/// The started program, which waits.
struct Started {
    program: Process,
    said: Lines,
    go_on: ChildStdin,
    /// Whether it waits, and has not failed.
    ready: bool,
}

fn start(
    setting: &Setting,
    mode: Mode,
    what: &'static str,
    deadline: Instant,
) -> Result<Started, RecordError> {
    let mut program = command(setting, mode);
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Process::start(setting, what, &mut program)?;
    let mut said = Lines::of(setting, pipe(program.child.stdout.take(), what)?);
    let go_on = pipe(program.child.stdin.take(), what)?;
    let waits = serde_json::to_string(&Said::Ready).unwrap_or_default();
    let ready = said.wait_for(deadline, |line| line == waits);
    Ok(Started {
        program,
        said,
        go_on,
        ready,
    })
}

fn attach(setting: &Setting, deadline: Instant) -> Result<Vec<String>, RecordError> {
    const WHAT: &str = "the bundled program";
    let Started {
        mut program,
        mut said,
        mut go_on,
        ready,
    } = start(setting, Mode::Attach, WHAT, deadline)?;
    if !ready {
        // It has reported why not.
        return Ok(said.all);
    }
    let mut recorder = recorder(setting, Mode::Attach);
    recorder
        .arg("-p")
        .arg(program.child.id().to_string())
        .stdout(Stdio::null());
    let mut recorder = Process::start(setting, "gputrace", &mut recorder)?;
    let mut told = Lines::of(setting, pipe(recorder.child.stderr.take(), "gputrace")?);
    begun(&mut told, deadline)?;
    go_on
        .write_all(b"\n")
        .map_err(|error| RecordError::Io(WHAT, error))?;
    program.wait(deadline)?;
    // The recorder ends by itself when its target has ended.
    finished(&mut recorder, &mut told, deadline)?;
    Ok(said.rest(deadline).to_vec())
}

fn node(setting: &Setting, deadline: Instant) -> Result<Vec<String>, RecordError> {
    const WHAT: &str = "the bundled program";
    let mut recorder = recorder(setting, Mode::Node);
    recorder.arg("--all").stdout(Stdio::null());
    let mut recorder = Process::start(setting, "gputrace", &mut recorder)?;
    let mut told = Lines::of(setting, pipe(recorder.child.stderr.take(), "gputrace")?);
    begun(&mut told, deadline)?;
    let Started {
        mut program,
        mut said,
        mut go_on,
        ready,
    } = start(setting, Mode::Node, WHAT, deadline)?;
    if ready {
        let follows = |line: &str| line.contains(FOLLOWS);
        // If the message does not come, the rows will show what is missing.
        let _ = told.all.iter().any(|line| follows(line))
            || told.wait_for(Instant::now() + NOTICED, follows);
        go_on
            .write_all(b"\n")
            .map_err(|error| RecordError::Io(WHAT, error))?;
    }
    program.wait(deadline)?;
    recorder.interrupt();
    finished(&mut recorder, &mut told, deadline)?;
    Ok(said.rest(deadline).to_vec())
}
