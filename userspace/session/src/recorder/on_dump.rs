//! Runs the user's command when a dump was written.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};

use gputrace_text::tables::plural;
use tokio::process::Child;

use crate::targets::{descriptors, signals, user::User};

/// Maximum number of commands that run at the same time.
const RUNNING: usize = 4;

/// The variable in which the command finds the path of the dump.
const PATH: &str = "GPUTRACE_DUMP";

/// The user's command, and the processes that run it.
#[derive(Debug)]
pub(crate) struct OnDump {
    command: OsString,
    /// User to run it as, if not gputrace's own.
    user: Option<User>,
    before: descriptors::Before,
    running: Vec<Child>,
}

impl OnDump {
    /// A command for the shell, which runs as `user`, with the limit on open files of `before`.
    pub(crate) fn new(command: OsString, user: Option<User>, before: descriptors::Before) -> Self {
        Self {
            command,
            user,
            before,
            running: Vec::new(),
        }
    }

    /// Starts the command for a dump. Returns what to tell the user: that it was not started, or
    /// that one before it has failed.
    pub(crate) fn start(&mut self, dump: &Path) -> Option<String> {
        let failed = self.reap();
        if self.running.len() >= RUNNING {
            return Some(format!(
                "the command of --on-dump was not run for {}: it still runs for {RUNNING} others",
                dump.display()
            ));
        }
        match self.spawn(dump) {
            Ok(child) => self.running.push(child),
            Err(error) => return Some(format!("the command of --on-dump was not run: {error}")),
        }
        failed
    }

    fn spawn(&self, dump: &Path) -> std::io::Result<Child> {
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(&self.command)
            .env(PATH, dump)
            .stdin(Stdio::null());
        if let Some(user) = &self.user {
            user.describe(&mut command);
        }
        let (user, before) = (self.user.clone(), self.before);
        let prepare = move || {
            before.restore()?;
            user.as_ref().map_or(Ok(()), User::become_user)?;
            signals::restore()
        };
        // SAFETY: only async-signal-safe calls on memory allocated before.
        unsafe { command.pre_exec(prepare) };
        tokio::process::Command::from(command).spawn()
    }

    /// Forgets those that have ended. Returns what to tell the user if one failed.
    fn reap(&mut self) -> Option<String> {
        let mut failed = None;
        self.running.retain_mut(|child| match child.try_wait() {
            Ok(Some(status)) => {
                failed = failure(status).or(failed.take());
                false
            }
            Ok(None) => true,
            Err(_) => false,
        });
        failed
    }

    /// Waits for those that run. Returns what to tell the user if one failed.
    pub(crate) async fn finish(&mut self) -> Option<String> {
        let mut failed = None;
        for child in &mut self.running {
            let status = child.wait().await.ok();
            failed = status.and_then(failure).or(failed);
        }
        failed
    }

    /// What to tell the user before waiting; `None` if nothing runs.
    pub(crate) fn waits(&mut self) -> Option<String> {
        self.reap();
        let running = self.running.len() as u64;
        (running > 0).then(|| {
            let commands = plural(running, "command", "commands");
            format!("waiting for {commands} of --on-dump to end (Ctrl-C: do not wait)")
        })
    }
}

fn failure(status: std::process::ExitStatus) -> Option<String> {
    (!status.success()).then(|| format!("the command of --on-dump failed: {status}"))
}
