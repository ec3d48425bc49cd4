//! Removes probes without making the user wait.

use std::{io, time::Duration};

use gputrace_loader::attach::{Backend as _, PerfEvents};

use crate::helper::{self, Helper};

/// Time that the kernel takes to remove one perf uprobe: a grace period of tasks-trace RCU (0.11 s
/// measured on 6.18).
const PER_PERF_PROBE: Duration = Duration::from_millis(113);

/// If removal takes longer than this, it is done in the background.
const PATIENCE: Duration = Duration::from_millis(500);

/// Estimates how long it takes to remove `links` probes of a back-end. The few links of the
/// `uprobe_multi` back-end are removed in milliseconds.
pub(crate) fn estimate(backend: &str, links: usize) -> Duration {
    if backend == PerfEvents.name() {
        PER_PERF_PROBE.saturating_mul(u32::try_from(links).unwrap_or(u32::MAX))
    } else {
        Duration::ZERO
    }
}

/// Runs `remove`, which closes the descriptors of probes. If that would take long, a child process
/// first inherits them, so that closing them here returns at once. The child then closes them by
/// exiting, which blocks only itself. Returns the child's process id.
///
/// The programs are frozen by then, so only breakpoints without effect remain for a while.
pub(crate) fn remove(estimate: Duration, remove: impl FnOnce()) -> io::Result<Option<u32>> {
    if estimate <= PATIENCE {
        remove();
        return Ok(None);
    }
    // The helper's exit closes the descriptors that it holds.
    let helper = io::pipe().and_then(|(reader, writer)| {
        Helper::fork(c"gputrace-detach", (writer.into(), reader.into()), |end| {
            // Waits for the end of the pipe: nobody writes to it.
            let _ = helper::read(end, &mut [0]);
        })
    });
    remove();
    // Dropping the helper lets it exit.
    helper.map(|helper| u32::try_from(helper.pid).ok())
}
