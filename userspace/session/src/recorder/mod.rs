//! The course of a recording: it is set up (`setup`), gets its probes (`begin`), waits and takes care
//! of what happens meanwhile (`wait`, `discovery`), and ends (`ending`, `closing`, `detach`).

mod begin;
mod closing;
mod detach;
mod discovery;
pub(crate) mod ending;
mod gpus;
pub(crate) mod periods;
mod setup;
mod wait;

use std::{path::PathBuf, process::ExitStatus, sync::Arc};

use gputrace_capture::{ledger::Ledger, meta::EndReason};
use gputrace_collect::CollectorHandle;
use gputrace_export::OutputDir;
use gputrace_loader::calls::Calls;
use gputrace_text::Line;

pub use self::setup::record;
use self::{gpus::Gpus, periods::Course};
use crate::{
    inbox::Inbox,
    outputs::{Outputs, live::Live},
    probing::instruments::Instruments,
    request::Request,
    said::Said,
    sources::Sources,
    targets::Traced,
};

/// What a recording left behind.
#[derive(Debug)]
pub struct Finished {
    /// The capture; empty if it had no name.
    pub capture: PathBuf,
    /// Where the outputs are.
    pub directory: OutputDir,
    /// How their names begin.
    pub name: String,
    /// The process launched, or the first of those attached to.
    pub main_pid: Option<u32>,
    /// When it began, ns `CLOCK_BOOTTIME`.
    pub began: u64,
    /// When it ended, ns `CLOCK_BOOTTIME`.
    pub ended: u64,
    /// The final accounts.
    pub ledger: Ledger,
    /// The outputs.
    pub outputs: Outputs,
    /// Why it ended.
    pub reason: EndReason,
    /// How the launched program ended, if there was one and it has.
    pub program: Option<ExitStatus>,
    /// First failure to write the capture, if any.
    pub capture_failure: Option<String>,
    /// Whether libraries or functions that were asked for were not found, which the user has been told.
    pub nothing_matched: bool,
}

/// Shows the user a line about the course of the recording.
pub type Say<'a> = &'a dyn Fn(&Line);

/// A running recording.
pub(crate) struct Recorder<'a> {
    pub(crate) request: &'a Request,
    pub(crate) say: Say<'a>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) collector: CollectorHandle,
    pub(crate) inbox: Inbox,
    pub(crate) instruments: Instruments,
    pub(crate) targets: Traced,
    /// If the GPU's work is traced.
    pub(crate) gpus: Option<Gpus>,
    pub(crate) sources: Sources,
    pub(crate) told: Told,
    /// What shows the recording while it goes on.
    pub(crate) live: Option<Live>,
    pub(crate) course: Course,
}

/// What went wrong so far, and what the user has been told of it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Remarks on processes.
    pub(crate) said: Said,
    /// First failure to write the capture.
    pub(crate) failure: Option<String>,
    /// Whether libraries or functions that were asked for were not found.
    pub(crate) nothing_matched: bool,
}
