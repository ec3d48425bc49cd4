//! Who is recorded: a program that is launched, processes that run already, or all of the node.

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

/// What the recorder knows of the processes that it records.
#[derive(Debug)]
pub(crate) struct Traced {
    /// The launched program.
    pub(crate) program: Option<Program>,
    /// Who holds threads, if they are to be held.
    pub(crate) holder: Option<Holder>,
    /// While threads may be held.
    pub(crate) urgency: Option<Urgency>,
    /// The process launched, or the first of those attached to.
    pub(crate) main_pid: Option<u32>,
    /// The dynamic linkers that are watched.
    pub(crate) linkers: Linkers,
    /// Who looks at all processes, if they are the target.
    pub(crate) scanner: Option<Scanner>,
    /// The survey after which libraries that nobody uses any more are let go.
    pub(crate) letting_go: Option<u64>,
    /// Processes with libraries of interest that were there before the recording of the node began.
    pub(crate) first_users: Vec<u32>,
    /// Processes whose description is in the capture.
    pub(crate) described: BTreeSet<u32>,
    /// When the libraries of targets were last looked at without being told, ns `CLOCK_BOOTTIME`.
    pub(crate) last_look: u64,
    /// Seconds of recording, about.
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
            // The program's process is there already, and stays as it is.
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
