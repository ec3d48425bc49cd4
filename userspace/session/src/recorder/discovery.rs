//! Finds out which libraries the targets map, and reports it.

use std::time::Duration;

use gputrace_abi::{
    domain::Domain,
    record::{Task, task_op},
};
use gputrace_capture::Meta;
use gputrace_collect::{Command, SizeLimit, clocks};
use gputrace_kfd::Paths;
use gputrace_loader::attach::Scope;
use gputrace_text::{
    Line,
    tables::{bytes, plural},
};
use gputrace_tracee::{
    library::LibraryFile,
    process::{self, ProcessError},
};

use super::{Recorder, gpus::Gpus};
use crate::{
    SessionError,
    probing::{
        constants,
        instruments::{Found, Rocm},
        report::AttachReport,
    },
    request::Targets,
    said::{NO_MORE, notice},
    targets::{before, holder::Released},
};

impl Recorder<'_> {
    /// Handles a process that has mapped libraries or code objects of interest, or executes another
    /// program. Its calls may be missing from `since` on, ns `CLOCK_BOOTTIME`.
    pub(crate) fn linker_changed(&mut self, task: &Task, since: u64) {
        let scope = self.request.scope(task.pid);
        let mut found = Found::default();
        match task.op {
            task_op::CODE_OBJECTS => {
                let is_read = self.code_objects(task.pid, Some(task.time));
                // A process that was held for this reading is not held for these loads again: the
                // next reading would fail as well.
                if is_read || task.held != 0 {
                    // If this fails, threads are held for nothing, but only briefly.
                    let _ = self.calls.has_read_loads(task.pid, task.parent);
                }
            }
            task_op::NEW_IMAGE => {
                // The process may have mapped libraries before its linker was watched, or its
                // program may itself be of interest.
                let is_new = self.targets.linkers.watch_process(task.pid, scope);
                if is_new || !self.request.extra.is_empty() {
                    found = self.try_process(task.pid, scope, None);
                }
            }
            _ => found = self.try_process(task.pid, scope, None),
        }
        // For a process that is not held, the collector has constants read when they are needed.
        if task.held != 0 && task.op != task_op::CODE_OBJECTS {
            constants::bring_in(task.pid);
        }
        let holder = self.targets.holder.as_ref().filter(|_| task.held != 0);
        let released = holder.map_or(Released::Unheld, |holder| {
            holder.release(task.pid, task.tid, task.time)
        });
        let is_launched = self.targets.holder.is_some();
        // Its libraries may have got their probes while another process was held.
        let is_missed = found.complete_since > since;
        match released {
            Released::InTime => {}
            Released::Late(late) if is_missed => self.tell_late(task.pid, late),
            Released::Unheld if is_missed => self.tell_missed(task.pid, since),
            // A thread that is seized while it ends has no memory any more.
            Released::Late(_) | Released::Unheld
                if !found.any && is_launched && task.op == task_op::LINKER =>
            {
                self.tell_ended(task.pid);
            }
            Released::Late(_) | Released::Unheld => {}
        }
        // Done after releasing the thread, which need not wait for it.
        if found.any {
            self.describe(task.pid);
        }
    }

    /// Reports that calls since the mapping of a library may be missing.
    fn tell_missed(&mut self, pid: u32, since: u64) {
        let missed = Duration::from_nanos(clocks::now().saturating_sub(since));
        self.tell_first_calls(
            pid,
            &format!(
                "that was not known before; calls that it made in the {missed:.0?} until the \
                 probes were on are not recorded"
            ),
        );
    }

    /// Reports that a process was held for its probes, but only after it had gone on.
    fn tell_late(&mut self, pid: u32, late: Duration) {
        self.tell_first_calls(
            pid,
            &format!(
                "that was not known before, and was held only {late:.0?} later; calls that it \
                 made before are not recorded"
            ),
        );
    }

    /// Reports a process that should have been held until the probes were on, but ended before.
    fn tell_ended(&mut self, pid: u32) {
        self.tell_first_calls(
            pid,
            "and ended before it could be held for the probes; if the library was not known \
             before, calls of it are not recorded",
        );
    }

    /// Reports a process that has mapped a library whose first calls may be missing, and counts it.
    fn tell_first_calls(&mut self, pid: u32, what: &str) {
        let text = format!("process {pid} mapped a library {what}");
        self.collector.append(notice(text.clone()));
        self.tell(&text);
        if self.told.late.insert(pid) {
            self.collector.send(Command::LateProcess);
        }
    }

    /// At the end of the recording: reports a process whose libraries nobody has looked at since it
    /// mapped one at `since`, ns `CLOCK_BOOTTIME`, unless all of them had their probes by then.
    pub(crate) fn tell_unseen(&mut self, pid: u32, since: u64) {
        // Then it is known why there is no call.
        self.instruments.rocm = Rocm {
            is_mapped: true,
            has_functions: true,
        };
        if self.instruments.had_probes(pid, since) {
            return;
        }
        self.tell_first_calls(
            pid,
            "just before the recording ended; if the library was not known before, calls of it \
             are not recorded",
        );
    }

    /// Writes the description of the GPUs into the capture, and `remarks` on what is missing.
    pub(crate) fn describe_gpus(&self, remarks: Vec<String>) {
        let agents: Vec<Meta> = match &self.gpus {
            Some(gpus) => gpus.agents().collect(),
            // Counters and allocations refer to agents, too.
            None if self.request.counter_rate.is_some()
                || self.request.domains.contains(&Domain::MemoryAllocation) =>
            {
                Gpus::describe()
            }
            None => return,
        };
        for agent in agents {
            self.collector.send(Command::Meta(Box::new(agent)));
        }
        for text in remarks {
            self.remark(text);
        }
    }

    /// Writes into the capture what the attached processes hold now (queues and memory).
    pub(crate) fn describe_held(&self) {
        let of_memory = self.request.domains.contains(&Domain::MemoryAllocation);
        let Targets::Attach { pids, .. } = &self.request.targets else {
            return;
        };
        if self.gpus.is_none() && !of_memory {
            return;
        }
        let paths = Paths::default();
        for text in pids.iter().filter_map(|pid| before::held(&paths, *pid)) {
            self.note(text);
        }
    }

    /// Describes code objects that a process has loaded since the last time; see
    /// [`Gpus::code_objects`] for `loaded`. Returns false if they cannot be read now.
    pub(crate) fn code_objects(&mut self, pid: u32, loaded: Option<u64>) -> bool {
        let Some(gpus) = &mut self.gpus else {
            return true;
        };
        let news = gpus.code_objects(pid, loaded);
        let is_read = news.is_some();
        for meta in news.into_iter().flatten() {
            self.collector.send(Command::Meta(Box::new(meta)));
        }
        is_read
    }

    /// Describes the code objects that all known GPU processes have loaded since the last time.
    pub(crate) fn all_code_objects(&mut self) {
        let users: Vec<u32> = self.gpus.iter().flat_map(Gpus::users).collect();
        for pid in users {
            self.code_objects(pid, None);
        }
    }

    /// Handles the first dispatch of a kernel. If its code object is unknown, it was loaded
    /// unnoticed.
    pub(crate) fn new_kernel(&mut self, pid: u32, kernel_object: u64) {
        if self
            .gpus
            .as_ref()
            .is_some_and(|gpus| !gpus.knows(pid, kernel_object))
        {
            self.code_objects(pid, None);
        }
    }

    pub(crate) fn forget_gpu(&mut self, pid: u32) {
        if let Some(gpus) = &mut self.gpus {
            gpus.ended(pid);
        }
    }

    /// Probes the libraries of a process, if it has any. If it may have called them before their
    /// probes were attached, reports that; `since` is the earliest time at which this was possible.
    pub(crate) fn try_process(&mut self, pid: u32, scope: Scope, since: Option<u64>) -> Found {
        let outcome = self.instruments.process(pid, scope, &self.collector);
        for text in self.instruments.take_untold() {
            self.tell(&text);
        }
        match outcome {
            Ok((reports, found)) => {
                if found.any {
                    self.sources.mapped(pid);
                }
                if let (Some(since), true) = (since, found.probed) {
                    self.tell_missed(pid, since);
                }
                self.announce(&reports);
                found
            }
            // Normal for most programs of a node, and for any program that has not mapped its
            // libraries yet.
            Err(SessionError::Process(
                ProcessError::NoRocmLibraries { .. } | ProcessError::NoSuchProcess { .. },
            )) => Found::default(),
            Err(error) => {
                let text = format!("process {pid}: {error}");
                if self.told.said.is_new(&text) {
                    self.tell(&text);
                    if self.told.said.is_full() {
                        self.tell(NO_MORE);
                    }
                }
                Found::default()
            }
        }
    }

    /// Looks for libraries whose mapping was not reported.
    pub(crate) fn look(&mut self) {
        let since = Some(std::mem::replace(
            &mut self.targets.last_look,
            clocks::now(),
        ));
        match &self.request.targets {
            // The scanner does this.
            Targets::Node => {}
            Targets::Launch { .. } => {
                for pid in self.calls.targets().unwrap_or_default() {
                    self.try_process(pid, Scope::EveryProcess, since);
                }
            }
            Targets::Attach { pids, .. } => {
                for pid in pids {
                    self.try_process(*pid, self.request.scope(*pid), since);
                }
            }
        }
    }

    /// Handles a process of the node that may have mapped code of interest; see
    /// [`Self::try_process`] for `since`.
    pub(crate) fn mapped(&mut self, pid: u32, since: Option<u64>) {
        if !self.try_process(pid, Scope::EveryProcess, since).any {
            return;
        }
        // Follows its threads and children from now on, which is no later than its first call.
        self.collector.send(Command::Process(pid));
        if self
            .targets
            .scanner
            .as_ref()
            .is_some_and(|scanner| scanner.blind().is_some())
        {
            self.targets.linkers.watch_process(pid, Scope::EveryProcess);
        }
        match since {
            Some(_) => {
                self.code_objects(pid, None);
            }
            None => self.targets.first_users.push(pid),
        }
        if !self.targets.described.contains(&pid) {
            self.describe(pid);
        }
    }

    /// Probes a file that a target may map later. A failure matters only if the file is mapped.
    pub(crate) fn try_candidate(&mut self, file: LibraryFile, scope: Scope) {
        let path = file.path().display().to_string();
        if let Err(error) = self.instruments.candidate(file, scope, &self.collector) {
            tracing::debug!("{path}: {error}");
        }
    }

    /// Writes the description of a process, from `/proc`, into the capture.
    pub(crate) fn describe(&mut self, pid: u32) {
        // The process may have ended already; then only its task events describe it.
        if let Ok(process) = process::describe(pid) {
            self.targets.described.insert(pid);
            self.collector.send(Command::Meta(Box::new(process.into())));
        }
    }

    /// Shows the user a line.
    pub(crate) fn tell(&self, text: &str) {
        (self.say)(&Line::new(text));
    }

    /// If no requested function has been found, tells the user why.
    pub(crate) fn tell_unmatched(&mut self) {
        for error in self.instruments.take_unmatched() {
            self.told.nothing_matched = true;
            self.remark(error.to_string());
            if matches!(error, SessionError::TooManyFunctions { .. }) {
                self.told.too_many.get_or_insert(error);
            }
        }
    }

    /// Reports processes whose memory or files cannot be read without long delays.
    pub(crate) fn tell_stuck(&self) {
        for pid in gputrace_reader::take_stuck() {
            self.remark(format!(
                "process {pid} does not answer when its memory is read (userfaultfd, or a file \
                 system that hangs): names and values from there are missing"
            ));
        }
        let unanswered = gputrace_reader::take_unanswered();
        if unanswered > 0 {
            self.remark(format!(
                "gputrace's own reader was stopped, or got no processor, during {}: names and \
                 values are missing",
                plural(unanswered, "read of a process", "reads of processes")
            ));
        }
    }

    /// Tells the user a line and puts it into the recording.
    pub(crate) fn remark(&self, text: String) {
        self.tell(&text);
        self.note(text);
    }

    /// Puts a notice into the recording.
    pub(super) fn note(&self, text: String) {
        self.collector.send(Command::Meta(Box::new(notice(text))));
    }

    /// Tells the user about newly probed libraries.
    pub(crate) fn announce(&self, reports: &[AttachReport]) {
        for library in reports {
            self.tell(&library.to_string());
        }
    }

    /// Tells the user that recording has begun.
    pub(crate) fn ready(&self, whom: &str) {
        let SizeLimit {
            bytes: size,
            events,
        } = self.request.size_limit;
        let limits = [
            self.request.duration.map(|time| format!("for {time:?}, ")),
            size.map(|size| format!("up to {}, ", bytes(size))),
            events.map(|events| format!("up to {}, ", plural(events, "event", "events"))),
        ];
        let limits: String = limits.into_iter().flatten().collect();
        let or = if limits.is_empty() { "" } else { "or " };
        self.tell(&format!(
            "recording {whom} by {} {limits}{or}until Ctrl-C",
            self.calls.backend()
        ));
    }
}
