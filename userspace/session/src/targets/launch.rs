//! Starting a program so that its first call is seen.
//!
//! The program's process is there before the program: it waits between fork and exec until the
//! libraries that the program is likely to map have their probes. Only gputrace, its parent, knows.

use std::{
    ffi::OsString,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::process::CommandExt as _,
    },
    process::ExitStatus,
    thread::JoinHandle,
};

use gputrace_loader::calls::{Calls, FROM_START, HOLD, STARTER};
use rustix::process::Signal;
use tokio::{
    process::{Child, Command},
    runtime::Handle,
};

use super::{descriptors, signals, user::User};
use crate::SessionError;

/// HIP's variable (5.4 and later) that makes it give every packet a completion signal, into which the GPU
/// writes when it began and ended. Without, only some packets have one.
pub(crate) const QUEUE_PROFILING: &str = "GPU_FORCE_QUEUE_PROFILING";

/// How to start a program.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// Program and arguments.
    pub(crate) command: &'a [OsString],
    /// As whom, if not as gputrace's own user.
    pub(crate) user: Option<&'a User>,
    /// Its limit on open files.
    pub(crate) before: descriptors::Before,
    /// Whether its threads are held while what they have mapped gets its probes.
    pub(crate) hold: bool,
    /// Whether HIP is asked to give every kernel a completion signal ([`QUEUE_PROFILING`]).
    pub(crate) profiled: bool,
}

/// A program started by gputrace.
#[derive(Debug)]
pub(crate) struct Program {
    state: State,
    pub(crate) pid: u32,
}

#[derive(Debug)]
enum State {
    /// The process waits. Who starts it, and the pipe through which it is told to go on.
    Prepared(JoinHandle<io::Result<Child>>, PipeWriter),
    Running(Child),
    /// It could not be started.
    Failed,
}

impl Program {
    /// Makes a process in which the program will run, and in which nothing of the program has run yet.
    ///
    /// The new process is a target from its first instruction on, because for the time of the fork
    /// gputrace itself is one and targets pass that on to their children in the kernel.
    pub(crate) fn prepare(calls: &Calls, start: &Start<'_>) -> Result<Self, SessionError> {
        let [program, arguments @ ..] = start.command else {
            return Err(SessionError::NoTarget);
        };
        let pipes = Pipes::new().map_err(|cause| failed(start.command, cause))?;
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        if start.profiled && std::env::var_os(QUEUE_PROFILING).is_none() {
            command.env(QUEUE_PROFILING, "1");
        }
        if let Some(user) = start.user {
            command
                .env("HOME", &user.home)
                .env("USER", &user.name)
                .env("LOGNAME", &user.name);
            for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
                command.env_remove(name);
            }
        }
        let (user, before) = (start.user.cloned(), start.before);
        let Pipes {
            mut told,
            tell,
            wait,
            go,
        } = pipes;
        let parents = go.as_raw_fd();
        let prepare = move || {
            say_who(&tell)?;
            before.restore()?;
            user.as_ref().map_or(Ok(()), User::become_user)?;
            wait_for(&wait, parents)?;
            // Last: what its caller ignores could not end it while it waits.
            signals::restore()
        };
        // SAFETY: only async-signal-safe calls on memory allocated before.
        unsafe { command.pre_exec(prepare) };
        let me = std::process::id();
        calls.add_target(me, STARTER | FROM_START | if start.hold { HOLD } else { 0 })?;
        let runtime = Handle::current();
        // A thread, because the standard library's call returns when the program has been executed.
        let spawn = move || {
            let _entered = runtime.enter();
            Command::from(command).spawn()
        };
        let starter = std::thread::Builder::new()
            .name("launch".to_owned())
            .spawn(spawn);
        let mut pid = [0; 4];
        let outcome = starter.and_then(|starter| match told.read_exact(&mut pid) {
            Ok(()) => Ok(starter),
            // The pipe has been closed without a word: there is no process, for the reason that the
            // thread knows.
            Err(error) => Err(starter.join().ok().and_then(Result::err).unwrap_or(error)),
        });
        calls.remove_target(me)?;
        let starter = outcome.map_err(|cause| failed(start.command, cause))?;
        Ok(Self {
            state: State::Prepared(starter, go),
            pid: u32::from_ne_bytes(pid),
        })
    }

    /// Has the process execute the program.
    pub(crate) fn execute(&mut self, command: &[OsString]) -> Result<(), SessionError> {
        if let State::Prepared(starter, mut go) = std::mem::replace(&mut self.state, State::Failed)
        {
            let outcome = go.write_all(&[1]).and_then(|()| {
                starter
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("the thread that starts it failed")))
            });
            self.state = State::Running(outcome.map_err(|cause| failed(command, cause))?);
        }
        Ok(())
    }

    /// Waits for the program's end.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.state {
            State::Running(child) => child.wait().await,
            State::Prepared(..) | State::Failed => std::future::pending().await,
        }
    }

    /// Its status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.state {
            State::Running(child) => child.try_wait().ok().flatten(),
            State::Prepared(..) | State::Failed => None,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The recording has failed before it began: the program does not run.
        if let State::Prepared(starter, _) = std::mem::replace(&mut self.state, State::Failed) {
            signal(self.pid, Signal::KILL);
            drop(starter.join());
        }
    }
}

fn failed(command: &[OsString], cause: io::Error) -> SessionError {
    let program = command
        .first()
        .map(|name| name.to_string_lossy().into_owned());
    SessionError::Launch {
        program: program.unwrap_or_default(),
        cause,
    }
}

/// Two pipes between gputrace and the process that is to execute the program.
struct Pipes {
    /// Where the process tells its id.
    told: PipeReader,
    tell: PipeWriter,
    /// Where the process waits.
    wait: PipeReader,
    go: PipeWriter,
}

impl Pipes {
    fn new() -> io::Result<Self> {
        let ((told, tell), (wait, go)) = (io::pipe()?, io::pipe()?);
        Ok(Self {
            told,
            tell,
            wait,
            go,
        })
    }
}

/// Tells gputrace the id of the calling process. Async-signal-safe.
fn say_who(tell: &PipeWriter) -> io::Result<()> {
    let pid = std::process::id().to_ne_bytes();
    let mut tell = tell;
    tell.write_all(&pid)
}

/// Waits until gputrace writes a byte, or is gone: then the program runs untraced, as it would later.
/// Async-signal-safe. `parents` is the descriptor of gputrace's end, of which this process has a copy.
fn wait_for(wait: &PipeReader, parents: RawFd) -> io::Result<()> {
    // SAFETY: a descriptor of this process, which is about to execute a program, that nothing here uses.
    unsafe { libc::close(parents) };
    let mut wait = wait;
    match wait.read_exact(&mut [0]) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(()),
    }
}

/// Sends a signal to a process; it is no error if it is gone.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    let _ = rustix::process::kill_process(pid, signal);
}
