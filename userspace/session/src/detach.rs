//! Removing probes without making the user wait.

use std::{io, time::Duration};

use gputrace_probe::attach::PerfEvents;
use gputrace_probe::attach::Backend as _;

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
    let (reader, writer) = io::pipe()?;
    // SAFETY: the child makes only async-signal-safe calls and ends with _exit.
    match unsafe { libc::fork() } {
        -1 => {
            let error = io::Error::last_os_error();
            remove();
            Err(error)
        }
        0 => {
            use std::os::fd::AsRawFd as _;
            let (reader, writer) = (reader.as_raw_fd(), writer.as_raw_fd());
            // SAFETY: async-signal-safe calls on integers and on local variables only.
            unsafe {
                libc::setsid();
                libc::prctl(libc::PR_SET_NAME, c"gputrace-detach".as_ptr());
                libc::close(writer);
                // Not the terminal's, and no pipe that someone reads to its end.
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                for standard in 0..3 {
                    libc::dup2(null, standard);
                }
                // Ends when the parent has closed its side.
                let mut byte = 0u8;
                while libc::read(reader, (&raw mut byte).cast(), 1) < 0
                    && *libc::__errno_location() == libc::EINTR
                {}
                libc::_exit(0)
            }
        }
        pid => {
            remove();
            drop(writer);
            Ok(u32::try_from(pid).ok())
        }
    }
}
