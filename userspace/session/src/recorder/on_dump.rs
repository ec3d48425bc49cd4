//! Runs the user's command when a dump was written.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use gputrace_text::{Line, tables::plural};
use tokio::process::Child;

use super::Say;
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

    /// Starts the command for a dump. Returns what to tell the user: that it was not started, and
    /// which earlier ones have failed.
    pub(crate) fn start(&mut self, dump: &Path) -> Vec<String> {
        let mut remarks = self.reap();
        if self.running.len() >= RUNNING {
            remarks.push(format!(
                "the command of --on-dump was not run for {}: it is still running for {RUNNING} \
                 other dumps",
                dump.display()
            ));
            return remarks;
        }
        match self.spawn(dump) {
            Ok(child) => self.running.push(child),
            Err(error) => remarks.push(format!("the command of --on-dump was not run: {error}")),
        }
        remarks
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

    /// Forgets those that have ended. Returns what to tell the user of those that failed.
    fn reap(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        self.running.retain_mut(|child| match child.try_wait() {
            Ok(Some(status)) => {
                failed.extend(failure(status));
                false
            }
            Ok(None) => true,
            Err(_) => false,
        });
        failed
    }

    /// Waits for those that run, and tells the user that, and which ones failed.
    pub(crate) async fn finish(&mut self, say: Say<'_>) {
        for text in self.reap() {
            say(&Line::new(&text));
        }
        let running = self.running.len() as u64;
        if running > 0 {
            let commands = plural(running, "command", "commands");
            let text = format!("waiting for {commands} of --on-dump to end (Ctrl-C: do not wait)");
            say(&Line::new(&text));
        }
        for child in &mut self.running {
            let status = child.wait().await.ok();
            if let Some(text) = status.and_then(failure) {
                say(&Line::new(&text));
            }
        }
    }
}

fn failure(status: ExitStatus) -> Option<String> {
    (!status.success()).then(|| format!("the command of --on-dump failed: {status}"))
}
