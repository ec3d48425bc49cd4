//! The course of a recording: it is set up (`setup`), gets its first probes (`begin`), waits and
//! handles events (`wait`, `discovery`), and ends (`ending`, `closing`).

mod begin;
mod closing;
mod discovery;
pub(crate) mod ending;
pub(crate) mod flight;
mod gpus;
mod nothing;
mod on_dump;
pub(crate) mod periods;
mod setup;
mod wait;

use std::{collections::BTreeSet, path::PathBuf, process::ExitStatus, sync::Arc};

use gputrace_capture::{ledger::Ledger, meta::EndReason};
use gputrace_collect::{CollectorHandle, ReachedLimit};
use gputrace_export::OutputDir;
use gputrace_loader::calls::Calls;
use gputrace_text::Line;

pub use self::setup::{record, record_for};
use self::{flight::FlightRecorder, gpus::Gpus, periods::Course};
use crate::{
    SessionError,
    inbox::Inbox,
    outputs::{Outputs, live::Live},
    probing::instruments::Instruments,
    remote::Remote,
    request::Request,
    said::Said,
    sources::Sources,
    targets::Traced,
};

/// Result of a recording.
#[derive(Debug)]
pub struct Finished {
    /// Path of the capture; empty if it had no name.
    pub capture: PathBuf,
    /// Directory of the outputs.
    pub directory: OutputDir,
    /// First part of the names of the outputs.
    pub name: String,
    /// The launched process, or the first of those attached to.
    pub main_pid: Option<u32>,
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    pub began: u64,
    /// When the recording ended, ns `CLOCK_BOOTTIME`.
    pub ended: u64,
    /// The final accounts.
    pub ledger: Ledger,
    /// The outputs.
    pub outputs: Outputs,
    /// The dumps of a flight recorder; `None` if it was another recording.
    pub dumps: Option<Vec<PathBuf>>,
    /// Why the recording ended.
    pub reason: EndReason,
    /// Exit status of the launched program, if there was one and it has ended.
    pub program: Option<ExitStatus>,
    /// First failure to write the capture, if any.
    pub capture_failure: Option<String>,
    /// Whether requested libraries or functions were not found, or there was another reason for
    /// which no call was recorded. The user has been told.
    pub nothing_matched: bool,
    /// Why functions that were asked for are not traced although they exist: there are too many.
    pub too_many: Option<SessionError>,
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
    /// Set if the GPU's work is traced.
    pub(crate) gpus: Option<Gpus>,
    pub(crate) sources: Sources,
    pub(crate) told: Told,
    /// Output during the recording, if requested.
    pub(crate) live: Option<Live>,
    /// The program that reads and controls the recording, if there is one.
    pub(crate) remote: Option<Remote>,
    /// Set if only the last part of the recording is kept.
    pub(crate) flight: Option<FlightRecorder>,
    pub(crate) course: Course,
}

/// Failures so far, and what the user has been told about them.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Remarks on processes that have been made.
    pub(crate) said: Said,
    /// Processes whose first calls may be missing.
    pub(crate) late: BTreeSet<u32>,
    /// First failure to write the capture.
    pub(crate) failure: Option<String>,
    /// The size limit that the recording has reached.
    pub(crate) limit_reached: Option<ReachedLimit>,
    /// Whether requested libraries or functions were not found, or another reason was told for
    /// which no call was recorded.
    pub(crate) nothing_matched: bool,
    /// Whether the probes are gone, because the process that held them was killed.
    pub(crate) probes_gone: bool,
    /// The first file with too many functions that match.
    pub(crate) too_many: Option<SessionError>,
}
