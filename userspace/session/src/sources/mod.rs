//! Sources of records other than calls and the GPU's work: the driver, the scheduler, the kernel's
//! tracepoints, files with counters.
//!
//! A source is a file or folder in this module with a type that implements [`Source`], and a row in
//! [`SOURCES`]. The recorder knows no source by name. Records go to the collector: from eBPF
//! programs through their rings, from threads through a [`CommandSender`].

mod counters;
mod ioctls;
mod kfd_events;
mod pasids;
mod sched;
mod stacks;
mod tracepoints;

use std::sync::Arc;

use gputrace_capture::Meta;
use gputrace_collect::{Command, CommandSender};
use gputrace_loader::{ProbeError, calls::Calls};

use crate::request::Request;

/// A source of records. By default, every method does nothing.
///
/// The metadata that a method returns goes into the capture; its notices are also shown to the
/// user.
pub(crate) trait Source {
    /// Attaches to what is available now. Called before the targets run, and then once a second,
    /// because a driver can be loaded later.
    fn tick(&mut self, _calls: &Arc<Calls>) -> Vec<Meta> {
        Vec::new()
    }

    /// Starts the threads of the source. Called when the collector accepts records.
    fn start(&mut self, _calls: &Arc<Calls>, _sender: &CommandSender) -> Vec<Meta> {
        Vec::new()
    }

    /// A process has mapped libraries of interest. If it is held for their probes, it goes on when
    /// this returns.
    fn mapped(&mut self, _pid: u32) {}

    /// Number of events for which the kernel did not run the source's programs.
    fn missed(&self) -> u64 {
        0
    }

    /// Ends the threads. Everything they have read has then been sent to the collector.
    fn stop(&mut self) {}

    /// Records of whatever has begun and not ended, one after the other; see [`Command::Open`].
    /// Called when the eBPF programs no longer run.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the programs' maps cannot be read.
    fn open_records(&self) -> Result<Vec<u8>, ProbeError> {
        Ok(Vec::new())
    }
}

/// Facts by which sources are chosen.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) request: &'a Request,
    /// Whether the GPUs' clocks are known only from the runtime's own requests, because gputrace
    /// cannot make such requests itself.
    pub(crate) clocks_of_runtimes: bool,
}

/// Creates a source if it is wanted.
type Make = fn(&Wanted<'_>) -> Option<Box<dyn Source>>;

/// All sources, in the order in which they begin.
const SOURCES: [Make; 7] = [
    sched::source,
    ioctls::source,
    tracepoints::source,
    kfd_events::source,
    counters::source,
    pasids::source,
    stacks::source,
];

/// The sources of a recording.
pub(crate) struct Sources(Vec<Box<dyn Source>>);

impl Sources {
    /// Creates the wanted sources. Nothing is attached yet.
    pub(crate) fn new(wanted: &Wanted<'_>) -> Self {
        Self(SOURCES.iter().filter_map(|make| make(wanted)).collect())
    }

    /// See [`Source::tick`].
    pub(crate) fn tick(&mut self, calls: &Arc<Calls>) -> Vec<Meta> {
        self.0
            .iter_mut()
            .flat_map(|source| source.tick(calls))
            .collect()
    }

    /// See [`Source::start`].
    pub(crate) fn start(&mut self, calls: &Arc<Calls>, sender: &CommandSender) -> Vec<Meta> {
        let sources = self.0.iter_mut();
        sources
            .flat_map(|source| source.start(calls, sender))
            .collect()
    }

    /// See [`Source::mapped`].
    pub(crate) fn mapped(&mut self, pid: u32) {
        for source in &mut self.0 {
            source.mapped(pid);
        }
    }

    /// See [`Source::missed`].
    pub(crate) fn missed(&self) -> u64 {
        self.0.iter().map(|source| source.missed()).sum()
    }

    /// See [`Source::stop`].
    pub(crate) fn stop(&mut self) {
        for source in &mut self.0 {
            source.stop();
        }
    }

    /// See [`Source::open_records`].
    ///
    /// # Errors
    ///
    /// The first [`ProbeError`].
    pub(crate) fn open_records(&self) -> Result<Command, ProbeError> {
        let mut open = Vec::new();
        for source in &self.0 {
            open.append(&mut source.open_records()?);
        }
        Ok(Command::Open(open))
    }
}
