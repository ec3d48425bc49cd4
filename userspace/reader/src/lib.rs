//! Reads other processes without ever waiting for them.
//!
//! Reading the memory of a process can block: a page may have to come from `userfaultfd`, a FUSE
//! file system or a dead NFS server, and `/proc/PID/maps` and `cmdline` wait for locks that the
//! process holds meanwhile. Some of these waits cannot be ended even by SIGKILL. So a thread cannot
//! do the reading: a process with such a thread cannot exit.
//!
//! Therefore a helper process does all reading; [`install`] makes the program itself serve as
//! helper. Each reading thread has one, started when it is first needed. A read that is not
//! answered within a fraction of a second fails with [`io::ErrorKind::TimedOut`], the helper is
//! killed and left behind, and the process that it read is skipped for a while: one second, then
//! twice as long each further time. The helper has no descriptor but its socket, so it keeps
//! nothing of gputrace's open.
//!
//! A program that has not called [`install`] reads directly.
//!
//! | what | filled by | when it is full | reported by |
//! |---|---|---|---|
//! | processes that do not answer | one wait each | the oldest is forgotten | [`take_stuck`] |
//! | reads that a helper was too late for | a helper that is stopped or gets no processor | the read fails | [`take_unanswered`] |
//! | helpers left behind | waits that SIGKILL does not end | nothing more is read | the error |

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod client;
mod direct;
mod message;
mod run;
mod serve;
mod stuck;

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

pub use message::PLACES;
pub use run::{LONGEST, LONGEST_SPELL, LOOKS, Look, Run, wake_in_time};
pub use serve::serve_if_asked;

static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Makes helper processes do all reading from now on. The program must call [`serve_if_asked`] at
/// its very beginning, because it is also the helpers' program.
pub fn install() {
    IS_INSTALLED.store(true, Ordering::Relaxed);
}

/// Whether helper processes do the reading.
#[must_use]
pub fn is_installed() -> bool {
    IS_INSTALLED.load(Ordering::Relaxed)
}

/// Starts this thread's helper, which takes some milliseconds, so that the thread's first read need
/// not wait for it.
///
/// # Errors
///
/// If no process can be started.
pub fn prepare() -> io::Result<()> {
    file(std::process::id(), "stat", 0).map(drop)
}

/// From `deadline` on, limits the wait for an unanswered read to a few milliseconds. This is for
/// the end of a recording, where the waits for all its processes must not add up.
pub fn hurry_from(deadline: Instant) {
    client::hurry_from(deadline);
}

/// Processes that have not answered since the last call of this function.
#[must_use]
pub fn take_stuck() -> Vec<u32> {
    stuck::take()
}

/// Number of requests, since the last call of this function, that got no answer because gputrace's
/// own helper was stopped or got no processor. Each failed with [`io::ErrorKind::TimedOut`].
#[must_use]
pub fn take_unanswered() -> u64 {
    client::take_unanswered()
}

/// Fills the beginning of `buffer` with the memory at `address` of process `pid`, up to the first
/// byte that cannot be read, and returns the number of bytes read.
///
/// Pages are copied by `process_vm_readv`. If that is refused (mappings of device memory have no
/// pages of their own), the bytes are read from `/proc/PID/mem`, which calls the driver.
///
/// # Errors
///
/// `TimedOut` if the process does not answer, or recently did not; otherwise the kernel's error.
pub fn memory(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    if is_installed() {
        client::memory(pid, address, buffer)
    } else {
        direct::memory(pid, address, buffer)
    }
}

/// Reads `N` bytes, at most 500, at each of several places in the memory of process `pid`. This is
/// cheaper than separate reads. `None` stands for places that cannot be read.
///
/// # Errors
///
/// As [`memory`].
pub fn places<const N: usize>(pid: u32, addresses: &[u64]) -> io::Result<Vec<Option<[u8; N]>>> {
    const { assert!(N <= 500) };
    let mut all = Vec::with_capacity(addresses.len());
    for some in addresses.chunks(PLACES) {
        let bytes = if is_installed() {
            client::places(pid, some, N)?
        } else {
            direct::places(pid, some.iter().copied(), N)?
        };
        all.extend(bytes.chunks_exact(N + 1).map(|place| {
            let (is_read, bytes) = place.split_first()?;
            bytes.try_into().ok().filter(|_| *is_read == 1)
        }));
    }
    Ok(all)
}

/// Repeatedly reads pairs of words. The words count what was requested and what was done. So a run
/// ends early when no second word is below its first, because nothing is outstanding then.
///
/// # Errors
///
/// `TimedOut` if a process does not answer. With several processes, it is unknown which one, and
/// none of them is skipped later. The pairs of a process that is being skipped, or is gone, are
/// `None`.
pub fn run(run: &Run) -> io::Result<Vec<Look>> {
    if is_installed() {
        client::run(run)
    } else {
        Ok(run.look())
    }
}

/// Processor time that this thread's helper has used; zero if there is none. A replacement helper
/// starts again from zero.
#[must_use]
pub fn helper_time() -> Duration {
    client::helper_time()
}

/// Reads `/proc/PID/NAME`, up to `limit` bytes.
///
/// # Errors
///
/// `TimedOut` if the process does not answer, or recently did not; otherwise the kernel's error.
pub fn file(pid: u32, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    if is_installed() {
        client::file(pid, name, limit)
    } else {
        direct::file(pid, name, limit)
    }
}

/// Checks that the memory of a process may be read.
///
/// # Errors
///
/// As [`memory`]: `PermissionDenied`, or `NotFound` if there is no such process.
pub fn may_read(pid: u32) -> io::Result<()> {
    file(pid, "mem", 0).map(drop)
}
