//! Starts a program so that its first call is seen.
//!
//! The process exists before the program runs in it: it waits between fork and exec until the
//! libraries that the program is likely to map have their probes. Only gputrace, its parent,
//! notices.

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

/// HIP's variable (5.4 and later) for giving every packet a completion signal, into which the GPU
/// writes when the packet began and ended. Without it, only some packets have one.
pub(crate) const QUEUE_PROFILING: &str = "GPU_FORCE_QUEUE_PROFILING";

/// How to start a program.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// Program and arguments.
    pub(crate) command: &'a [OsString],
    /// User to run it as, if not gputrace's own.
    pub(crate) user: Option<&'a User>,
    /// Limit on open files to restore.
    pub(crate) before: descriptors::Before,
    /// Whether its threads are held while the libraries that they have mapped get probes.
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
    /// The process waits. Contains the thread that starts it, and the pipe that tells it to
    /// continue.
    Prepared(JoinHandle<io::Result<Child>>, PipeWriter),
    Running(Child),
    /// The program could not be started.
    Failed,
}

impl Program {
    /// Creates a process for the program, which waits before executing it.
    ///
    /// The new process is a target from its first instruction on: gputrace itself is a target
    /// during the fork, and the kernel-side programs make children of targets targets.
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
            user.describe(&mut command);
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
            // Done last: until then, signals that its caller ignores cannot end it while it waits.
            signals::restore()
        };
        // SAFETY: only async-signal-safe calls on memory allocated before.
        unsafe { command.pre_exec(prepare) };
        let me = std::process::id();
        calls.add_target(me, STARTER | FROM_START | if start.hold { HOLD } else { 0 })?;
        let runtime = Handle::current();
        // Needs a thread because the standard library's call returns only when the program has been
        // executed.
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
            // The pipe was closed without a process id, so there is no process. The thread knows
            // the reason.
            Err(error) => Err(starter.join().ok().and_then(Result::err).unwrap_or(error)),
        });
        calls.remove_target(me)?;
        let starter = outcome.map_err(|cause| failed(start.command, cause))?;
        Ok(Self {
            state: State::Prepared(starter, go),
            pid: u32::from_ne_bytes(pid),
        })
    }

    /// Makes the process execute the program.
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

    /// Waits for the end of the program.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.state {
            State::Running(child) => child.wait().await,
            State::Prepared(..) | State::Failed => std::future::pending().await,
        }
    }

    /// Exit status of the program, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.state {
            State::Running(child) => child.try_wait().ok().flatten(),
            State::Prepared(..) | State::Failed => None,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The recording has failed before it began, so the program must not run.
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
    /// Pipe on which the process sends its id.
    told: PipeReader,
    tell: PipeWriter,
    /// Pipe on which the process waits.
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

/// Sends the id of the calling process to gputrace. Async-signal-safe.
fn say_who(tell: &PipeWriter) -> io::Result<()> {
    let pid = std::process::id().to_ne_bytes();
    let mut tell = tell;
    tell.write_all(&pid)
}

/// Waits until gputrace writes a byte or is gone. If it is gone, the program runs untraced, as it
/// would if gputrace ended later. `parents` is gputrace's end of the pipe, of which this process
/// has inherited a copy. Async-signal-safe.
fn wait_for(wait: &PipeReader, parents: RawFd) -> io::Result<()> {
    // SAFETY: closes a descriptor that nothing uses in this process, which is about to execute a
    // program.
    unsafe { libc::close(parents) };
    let mut wait = wait;
    match wait.read_exact(&mut [0]) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(()),
    }
}

/// Sends a signal to a process. A process that is gone is not an error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    let _ = rustix::process::kill_process(pid, signal);
}
