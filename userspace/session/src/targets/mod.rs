//! The processes that are recorded: a launched program, running processes, or the whole node.

pub(crate) mod before;
pub(crate) mod descriptors;
pub(crate) mod holder;
pub(crate) mod launch;
pub(crate) mod scan;
pub(crate) mod signals;
mod urgency;
pub(crate) mod user;

use std::collections::BTreeSet;

use gputrace_collect::clocks;

use self::{holder::Holder, launch::Program, scan::Scanner, urgency::Urgency};
use crate::{
    probing::linkers::Linkers,
    request::{Request, Targets},
};

/// State of the recorded processes.
#[derive(Debug)]
pub(crate) struct Traced {
    /// The launched program.
    pub(crate) program: Option<Program>,
    /// Holds threads, if that was requested.
    pub(crate) holder: Option<Holder>,
    /// Keeps gputrace's threads urgent while threads may be held.
    pub(crate) urgency: Option<Urgency>,
    /// The launched process, or the first of those attached to.
    pub(crate) main_pid: Option<u32>,
    /// The dynamic linkers that are watched.
    pub(crate) linkers: Linkers,
    /// Looks at all processes, if the whole node is recorded.
    pub(crate) scanner: Option<Scanner>,
    /// Number of the survey after which libraries without users are released.
    pub(crate) letting_go: Option<u64>,
    /// Processes with libraries of interest that existed before the recording of the node began.
    pub(crate) first_users: Vec<u32>,
    /// Processes whose description is in the capture.
    pub(crate) described: BTreeSet<u32>,
    /// When the targets' libraries were last searched without a report, ns `CLOCK_BOOTTIME`.
    pub(crate) last_look: u64,
    /// Approximate seconds of recording.
    pub(crate) ticks: u64,
}

impl Traced {
    pub(crate) fn new(
        request: &Request,
        linkers: Linkers,
        program: Option<Program>,
        holder: Option<Holder>,
        main_pid: Option<u32>,
    ) -> Self {
        Self {
            program,
            holder,
            // The program's process exists already and keeps its ordinary priority.
            urgency: matches!(request.targets, Targets::Launch { hold: true, .. })
                .then(Urgency::begin),
            main_pid,
            linkers,
            scanner: None,
            letting_go: None,
            first_users: Vec::new(),
            described: BTreeSet::new(),
            last_look: clocks::now(),
            ticks: 0,
        }
    }
}
