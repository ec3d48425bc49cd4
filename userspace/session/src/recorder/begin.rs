//! Attaches the first probes of a recording.

use std::ffi::OsString;

use gputrace_collect::Command;
use gputrace_loader::attach::Scope;
use gputrace_tracee::process::ProcessError;

use super::Recorder;
use crate::{
    SessionError,
    remote::News,
    request::Targets,
    targets::scan::{self, Interest, Scanner},
};

impl Recorder<'_> {
    /// Probes everything that exists already.
    pub(super) fn begin(&mut self) -> Result<(), SessionError> {
        match &self.request.targets {
            Targets::Launch { command, .. } => self.begin_program(command),
            Targets::Attach { pids, wait } => self.begin_processes(pids, *wait),
            Targets::Node => self.begin_node(),
        }
    }

    /// Probes what the program is likely to map, and starts it.
    fn begin_program(&mut self, command: &[OsString]) -> Result<(), SessionError> {
        if let Some(pid) = self.targets.program.as_ref().map(|program| program.pid) {
            self.collector.send(Command::Process(pid));
            let name = command
                .first()
                .map(|name| name.to_string_lossy().into_owned());
            self.tell(&format!(
                "recording {} (process {pid}) by {}; Ctrl-C stops",
                name.unwrap_or_default(),
                self.calls.backend()
            ));
        }
        self.instruments
            .libraries_in_advance(Scope::EveryProcess, &self.collector);
        for file in self.targets.linkers.candidates_of(command) {
            self.try_candidate(file, Scope::EveryProcess);
        }
        if let Some(program) = &mut self.targets.program {
            program.execute(command)?;
        }
        self.remote_begins();
        Ok(())
    }

    /// Probes the libraries that running processes have mapped. With `wait`, they may have none
    /// yet.
    fn begin_processes(&mut self, pids: &[u32], wait: bool) -> Result<(), SessionError> {
        for pid in pids {
            let scope = self.request.scope(*pid);
            if !wait {
                self.instruments.check_libraries(*pid)?;
            }
            let outcome = self.instruments.process(*pid, scope, &self.collector);
            for text in self.instruments.take_untold() {
                self.tell(&text);
            }
            match outcome {
                Err(SessionError::Process(ProcessError::NoRocmLibraries { .. })) if wait => {}
                Err(error) => return Err(error),
                Ok((reports, _)) => self.announce(&reports),
            }
            if !wait && let Some(error) = self.instruments.take_unmatched().into_iter().next() {
                return Err(error);
            }
            self.instruments
                .libraries_in_advance(scope, &self.collector);
            for file in self.targets.linkers.candidates(Some(*pid)) {
                self.try_candidate(file, scope);
            }
            self.collector.send(Command::Process(*pid));
            self.describe(*pid);
        }
        for pid in pids {
            self.calls.add_target(*pid, 0)?;
            // Done only now: loads of a process that is not yet a target are not reported.
            self.code_objects(*pid, None);
        }
        let list: Vec<String> = pids.iter().map(u32::to_string).collect();
        self.ready(&format!("process {}", list.join(", ")));
        self.remote_begins();
        Ok(())
    }

    /// Lets the program that controls the recording know that it has begun.
    fn remote_begins(&self) {
        if let Some(remote) = &self.remote {
            remote.tell(News::Began);
        }
    }

    /// Requests a look at all processes. [`Self::node_surveyed`] continues when it is complete.
    fn begin_node(&mut self) -> Result<(), SessionError> {
        let interest = if self.request.extra.is_empty() {
            Interest::Rocm
        } else {
            // Processes that do not use ROCm may have the requested libraries.
            Interest::Any
        };
        let scanner =
            Scanner::start(interest, self.inbox.post()).map_err(|cause| SessionError::System {
                action: "look at all processes",
                cause,
            })?;
        if let Some(error) = scanner.blind() {
            tracing::debug!(
                "the kernel does not report mapped code ({error}): dynamic linkers are watched \
                 instead"
            );
            self.targets.linkers.watch_node();
        }
        self.targets.scanner = Some(scanner);
        Ok(())
    }

    /// Handles the end of a survey of all processes. Returns true for the first one, with which the
    /// recording begins.
    pub(super) fn node_surveyed(&mut self, number: u64) -> Result<bool, SessionError> {
        if self
            .targets
            .letting_go
            .take_if(|wanted| *wanted <= number)
            .is_some()
        {
            self.instruments.release();
        }
        if number != scan::FIRST {
            return Ok(false);
        }
        self.instruments
            .libraries_in_advance(Scope::EveryProcess, &self.collector);
        for file in self.targets.linkers.candidates(None) {
            self.try_candidate(file, Scope::EveryProcess);
        }
        self.calls.add_every_process()?;
        // Done only now: loads of a process that is not yet a target are not reported.
        for pid in std::mem::take(&mut self.targets.first_users) {
            self.code_objects(pid, None);
        }
        self.ready("every process of this node");
        self.remote_begins();
        Ok(true)
    }
}
