//! Starting a program so that its first call is seen.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::ExitStatus};

use gputrace_probe::calls::{Calls, FROM_START, STOP_ON_LINK};
use tokio::process::{Child, Command};

use crate::{SessionError, descriptors, user::User};

/// HIP's variable (5.4 and later) that makes it give every packet a completion signal, into which the GPU
/// writes when it began and ended. Without, only some packets have one.
pub(crate) const QUEUE_PROFILING: &str = "GPU_FORCE_QUEUE_PROFILING";

/// A program started by gputrace.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    pub(crate) pid: u32,
}

impl Program {
    /// Starts `command` (program and arguments) as `user`.
    ///
    /// The new process is a target from its first instruction on, because for the time of the fork
    /// gputrace itself is one and targets pass that on to their children in the kernel. When its dynamic
    /// linker has mapped the libraries it is stopped (if `stop`), and runs on once the probes are there.
    /// Its limit on open files is that from `before`.
    /// With `profiled` HIP is asked to give every kernel a completion signal ([`QUEUE_PROFILING`]).
    pub(crate) fn start(
        calls: &Calls,
        command: &[OsString],
        user: Option<&User>,
        before: descriptors::Before,
        stop: bool,
        profiled: bool,
    ) -> Result<Self, SessionError> {
        let [program, arguments @ ..] = command else {
            return Err(SessionError::NoTarget);
        };
        let mut std_command = std::process::Command::new(program);
        std_command.args(arguments);
        if profiled && std::env::var_os(QUEUE_PROFILING).is_none() {
            std_command.env(QUEUE_PROFILING, "1");
        }
        if let Some(user) = user {
            std_command
                .env("HOME", &user.home)
                .env("USER", &user.name)
                .env("LOGNAME", &user.name);
            for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
                std_command.env_remove(name);
            }
        }
        let user = user.cloned();
        let prepare = move || {
            // Ignored here (see the command line), but the program is to find it as usual.
            // SAFETY: async-signal-safe.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
            before.restore()?;
            user.as_ref().map_or(Ok(()), User::become_user)
        };
        // SAFETY: only async-signal-safe calls on memory allocated before.
        unsafe { std_command.pre_exec(prepare) };
        let me = std::process::id();
        calls.add_target(me, FROM_START | if stop { STOP_ON_LINK } else { 0 })?;
        let child = Command::from(std_command).spawn();
        calls.remove_target(me)?;
        let child = child.map_err(|cause| SessionError::Launch {
            program: program.to_string_lossy().into_owned(),
            cause,
        })?;
        let pid = child.id().unwrap_or(0);
        Ok(Self { child, pid })
    }

    /// Waits for the program's end.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Its status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

/// Sends a signal to a process; it is no error if it is gone.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return;
    };
    let _ = rustix::process::kill_process(pid, signal);
}
