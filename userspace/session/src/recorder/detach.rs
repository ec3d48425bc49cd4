//! Removing probes without making the user wait.

use std::{io, time::Duration};

use gputrace_loader::attach::{Backend as _, PerfEvents};

use crate::helper::{self, Helper};

/// What the kernel takes to remove one perf uprobe: a grace period of its tasks-trace RCU flavour
/// (0.11 s measured on 6.18).
const PER_PERF_PROBE: Duration = Duration::from_millis(113);

/// Above this, removal goes to the background.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long removing `links` probes of a back-end takes, roughly. The multi back-end's few links go in
/// milliseconds.
pub(crate) fn estimate(backend: &str, links: usize) -> Duration {
    if backend == PerfEvents.name() {
        PER_PERF_PROBE.saturating_mul(u32::try_from(links).unwrap_or(u32::MAX))
    } else {
        Duration::ZERO
    }
}

/// Lets `remove` close descriptors of probes. If that would take long, a child process keeps them open
/// over the closing here, so that this process goes on at once; the child then closes them by ending,
/// which blocks only itself. Returns the child's process id.
///
/// The programs are frozen by then, so what remains for a while are breakpoints that do nothing.
pub(crate) fn remove(estimate: Duration, remove: impl FnOnce()) -> io::Result<Option<u32>> {
    if estimate <= PATIENCE {
        remove();
        return Ok(None);
    }
    // Ending closes what the helper holds.
    let helper = io::pipe().and_then(|(reader, writer)| {
        Helper::fork(c"gputrace-detach", (writer.into(), reader.into()), |end| {
            // Until the end of the pipe: nobody writes.
            let _ = helper::read(end, &mut [0]);
        })
    });
    remove();
    // Dropping the helper lets it go.
    helper.map(|helper| u32::try_from(helper.pid).ok())
}
