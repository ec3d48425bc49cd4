//! Times when threads of the targets have no processor (`--sched`).

use std::sync::Arc;

use gputrace_abi::domain::Domain;
use gputrace_capture::Meta;
use gputrace_loader::{ProbeError, calls::Calls, sched::Sched};

use super::{Source, Wanted};
use crate::said::notice;

pub(super) fn source(wanted: &Wanted<'_>) -> Option<Box<dyn Source>> {
    let request = wanted.request;
    request.domains.contains(&Domain::Sched).then(|| {
        Box::new(Scheduling {
            threads: request.max_threads,
            tried: false,
            programs: None,
        }) as Box<dyn Source>
    })
}

/// State of the programs that trace the scheduler.
#[derive(Debug)]
struct Scheduling {
    /// Maximum number of threads without a processor at the same time.
    threads: u32,
    tried: bool,
    programs: Option<Sched>,
}

impl Source for Scheduling {
    fn tick(&mut self, calls: &Arc<Calls>) -> Vec<Meta> {
        // A failure is permanent, so there is only one attempt.
        if std::mem::replace(&mut self.tried, true) {
            return Vec::new();
        }
        match Sched::attach(calls, self.threads) {
            Ok(programs) => {
                self.programs = Some(programs);
                Vec::new()
            }
            Err(error) => vec![notice(format!("scheduling is not recorded: {error}"))],
        }
    }

    fn open_records(&self) -> Result<Vec<u8>, ProbeError> {
        self.programs.as_ref().map_or(Ok(Vec::new()), Sched::open)
    }
}
