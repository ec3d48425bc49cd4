//! Finding out which libraries the targets map, and telling about it.

use std::time::Duration;

use gputrace_abi::{
    domain::Domain,
    record::{Task, task_op},
};
use gputrace_capture::{Meta, meta::Notice};
use gputrace_collect::{Command, clocks};
use gputrace_probe::attach::Scope;
use gputrace_target::{
    library::LibraryFile,
    process::{self, ProcessError},
};
use rustix::process::Signal;

use crate::{SessionError, gpu::Gpus, launch, news::News, recorder::Recorder, request::Targets};

impl Recorder<'_> {
    /// A process has mapped or is about to map other libraries.
    pub(crate) fn linker_changed(&mut self, task: &Task) {
        let scope = self.request.scope(task.pid);
        if matches!(task.op, task_op::CODE_OBJECTS | task_op::CODE_OBJECTS_STOPPED) {
            self.code_objects(task.pid);
        } else {
            self.libraries_changed(task, scope);
        }
        if task_op::is_stopped(task.op) {
            launch::signal(task.pid, Signal::CONT);
        }
    }

    fn libraries_changed(&mut self, task: &Task, scope: Scope) {
        if matches!(task.op, task_op::NEW_IMAGE | task_op::NEW_IMAGE_STOPPED) {
            self.linkers.watch_process(task.pid, scope);
        }
        let since = (!task_op::is_stopped(task.op)).then_some(task.time);
        if self.try_process(task.pid, scope, since) {
            self.describe(task.pid);
        }
    }

    /// Writes what is known of GPUs into the capture, with `remarks` on what is not.
    pub(crate) fn describe_gpus(&self, remarks: Vec<String>) {
        let agents: Vec<Meta> = match &self.gpus {
            Some(gpus) => gpus.agents().collect(),
            // Counters and allocations are those of agents, too.
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
            self.tell(&text);
            let time = clocks::now();
            self.collector
                .send(Command::Meta(Box::new(Notice { time, text }.into())));
        }
    }

    /// Describes code objects that a process has loaded since the last time.
    pub(crate) fn code_objects(&mut self, pid: u32) {
        let Some(gpus) = &mut self.gpus else { return };
        for meta in gpus.code_objects(pid) {
            self.collector.send(Command::Meta(Box::new(meta)));
        }
    }

    /// Describes what all processes known to use GPUs have loaded since the last time.
    pub(crate) fn all_code_objects(&mut self) {
        let users: Vec<u32> = self.gpus.iter().flat_map(Gpus::users).collect();
        for pid in users {
            self.code_objects(pid);
        }
    }

    /// The first dispatch of a kernel: its code object must be known, or was loaded unnoticed.
    pub(crate) fn new_kernel(&mut self, pid: u32, kernel_object: u64) {
        if self
            .gpus
            .as_ref()
            .is_some_and(|gpus| !gpus.knows(pid, kernel_object))
        {
            self.code_objects(pid);
        }
    }

    pub(crate) fn forget_gpu(&mut self, pid: u32) {
        if let Some(gpus) = &mut self.gpus {
            gpus.ended(pid);
        }
    }

    /// Probes the libraries of a process, if it has any; true if so. Those that it may have called before
    /// their probes were on are named, with the time `since` which that could be.
    pub(crate) fn try_process(&mut self, pid: u32, scope: Scope, since: Option<u64>) -> bool {
        let before = self.instruments.probed;
        let outcome = self.instruments.process(pid, scope, &self.collector);
        for text in self.instruments.take_untold() {
            self.tell(&text);
        }
        match outcome {
            Ok(news) => {
                if let (Some(since), true) = (since, self.instruments.probed > before) {
                    let missed = Duration::from_nanos(clocks::now().saturating_sub(since));
                    let text = format!(
                        "process {pid} mapped a library that was not known before; calls that it made within {missed:.0?} \
                         until the probes were on are not recorded"
                    );
                    self.collector.append(
                        Notice {
                            time: clocks::now(),
                            text: text.clone(),
                        }
                        .into(),
                    );
                    self.tell(&text);
                }
                self.announce(&news);
                true
            }
            // Most programs on a node, and every program before it has mapped its libraries.
            Err(SessionError::Process(
                ProcessError::NoRocmLibraries { .. } | ProcessError::NoSuchProcess { .. },
            )) => false,
            Err(error) => {
                let text = format!("process {pid}: {error}");
                if !self.instruments.remarks.contains(&text) {
                    self.tell(&text);
                    self.instruments.remarks.push(text);
                }
                false
            }
        }
    }

    /// Looks for libraries that nothing told of.
    pub(crate) fn look(&mut self) {
        let since = Some(std::mem::replace(&mut self.last_look, clocks::now()));
        match &self.request.targets {
            Targets::Node => {
                if let Err(error) = self.scan_node(since) {
                    tracing::debug!("{error}");
                }
            }
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

    /// Probes the libraries of every process, and returns which have any; see [`Self::try_process`] for `since`.
    pub(crate) fn scan_node(&mut self, since: Option<u64>) -> Result<Vec<u32>, SessionError> {
        let mut users = Vec::new();
        if !self.request.others.is_empty() {
            // Others than ROCm's users may have the libraries.
            for pid in process::pids()? {
                // Those that may not be looked into are none that was asked for by name.
                if process::code_files(pid).is_ok() {
                    self.try_process(pid, Scope::EveryProcess, since);
                }
            }
        }
        for found in process::survey()?.processes {
            if self.try_process(found.pid, Scope::EveryProcess, since) {
                users.push(found.pid);
            }
            self.linkers.watch_process(found.pid, Scope::EveryProcess);
            self.describe(found.pid);
        }
        Ok(users)
    }

    /// Probes a file that a target may map later. That it cannot be probed matters only if it ever is.
    pub(crate) fn try_candidate(&mut self, file: &LibraryFile, scope: Scope) {
        let path = file.path().display().to_string();
        if let Err(error) = self.instruments.candidate(file, scope, &self.collector) {
            tracing::debug!("{path}: {error}");
        }
    }

    /// Writes what `/proc` says of a process into the capture.
    pub(crate) fn describe(&mut self, pid: u32) {
        // It may have ended already; then its task events tell what is known.
        if let Ok(process) = process::describe(pid) {
            self.described.insert(pid);
            self.collector.send(Command::Meta(Box::new(process.into())));
        }
    }

    pub(crate) fn tell(&self, text: &str) {
        (self.say)(text);
    }

    /// Tells why nothing has been found of the functions that were asked for, if so.
    pub(crate) fn tell_unmatched(&mut self) {
        for error in self.instruments.take_unmatched() {
            self.nothing_matched = true;
            self.remark(error.to_string());
        }
    }

    /// Tells, and puts it into the recording.
    pub(crate) fn remark(&self, text: String) {
        self.tell(&text);
        let time = clocks::now();
        self.collector
            .send(Command::Meta(Box::new(Notice { time, text }.into())));
    }

    /// Tells of libraries.
    pub(crate) fn announce(&self, news: &[News]) {
        for library in news {
            self.tell(&library.to_string());
        }
    }

    /// Tells that recording has begun.
    pub(crate) fn ready(&self, whom: &str) {
        let until = match self.request.duration {
            Some(duration) => format!("for {duration:?}, or until Ctrl-C"),
            None => "until Ctrl-C".to_owned(),
        };
        self.tell(&format!("recording {whom} by {} {until}", self.calls.backend()));
    }
}
