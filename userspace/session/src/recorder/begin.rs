//! The first probes of a recording.

use std::ffi::OsString;

use gputrace_collect::Command;
use gputrace_loader::attach::{Backend as _, PerfEvents, Scope};
use gputrace_tracee::process::ProcessError;

use super::Recorder;
use crate::{
    SessionError,
    request::Targets,
    targets::scan::{self, Interest, Scanner},
};

impl Recorder<'_> {
    /// Puts probes onto what is there already.
    pub(super) fn begin(&mut self) -> Result<(), SessionError> {
        match &self.request.targets {
            Targets::Launch { command, .. } => self.begin_program(command),
            Targets::Attach { pids, wait } => self.begin_processes(pids, *wait),
            Targets::Node => self.begin_node(),
        }
    }

    /// Probes what the program will map, and has it run.
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
        // Perf events come and go slowly. Then it is better to hold whoever maps a library.
        if self.calls.backend() != PerfEvents.name() {
            for file in self.targets.linkers.candidates_of(command) {
                self.try_candidate(file, Scope::EveryProcess);
            }
        }
        if let Some(program) = &mut self.targets.program {
            program.execute(command)?;
        }
        Ok(())
    }

    /// Probes what running processes have mapped. With `wait` they may have nothing yet.
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
            // Not before: what a process that is no target yet loads, nobody tells of.
            self.code_objects(*pid);
        }
        let list: Vec<String> = pids.iter().map(u32::to_string).collect();
        self.ready(&format!("process {}", list.join(", ")));
        Ok(())
    }

    /// Has all processes looked at. The rest follows then: [`Self::node_surveyed`].
    fn begin_node(&mut self) -> Result<(), SessionError> {
        let interest = if self.request.extra.is_empty() {
            Interest::Rocm
        } else {
            // Others than ROCm's users may have the libraries.
            Interest::Any
        };
        let scanner =
            Scanner::start(interest, self.inbox.post()).map_err(|cause| SessionError::System {
                action: "look at all processes",
                cause,
            })?;
        if let Some(error) = scanner.blind() {
            tracing::debug!(
                "the kernel does not tell of mapped code ({error}): linkers are watched"
            );
            self.targets.linkers.watch_node();
        }
        self.targets.scanner = Some(scanner);
        Ok(())
    }

    /// All processes have been looked at. True if that was so for the first time: the recording begins.
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
        // Not before: what a process that is no target yet loads, nobody tells of.
        for pid in std::mem::take(&mut self.targets.first_users) {
            self.code_objects(pid);
        }
        self.ready("every process of this node");
        Ok(true)
    }
}
