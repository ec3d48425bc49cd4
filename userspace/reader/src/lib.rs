//! Reading other processes without ever waiting for them.
//!
//! Whoever reads the memory of a process may have to wait for it: a page can be one that
//! `userfaultfd`, a FUSE file system or a dead NFS server has to bring, and `/proc/PID/maps` and
//! `cmdline` wait for locks that the process holds meanwhile. Some of these waits cannot be ended
//! even by SIGKILL, so a thread will not do: a process with such a thread cannot end.
//!
//! So all of it is read by a helper process, which [`install`] makes the program itself: one for
//! each thread that reads, started when it is first needed. A read that is not answered within a
//! fraction of a second fails with [`io::ErrorKind::TimedOut`], the helper is killed and left
//! behind, and the process that it read is left alone for a while: a second, twice as long each
//! further time. The helper has no descriptor but its socket, so it holds nothing of gputrace's.
//!
//! A program that has not called [`install`] reads directly.
//!
//! | what | fills it | when it is full | told by |
//! |---|---|---|---|
//! | processes that do not answer | one wait each | the oldest is forgotten | [`take_stuck`] |
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

/// Has reads done by helper processes from now on. The program must call [`serve_if_asked`] at its
/// very beginning, because it is the helpers' program.
pub fn install() {
    IS_INSTALLED.store(true, Ordering::Relaxed);
}

/// Whether reads are done by helper processes.
#[must_use]
pub fn is_installed() -> bool {
    IS_INSTALLED.load(Ordering::Relaxed)
}

/// Starts this thread's helper, so that its first read does not have to wait for that: some milliseconds.
///
/// # Errors
///
/// If no process can be started.
pub fn prepare() -> io::Result<()> {
    file(std::process::id(), "stat", 0).map(drop)
}

/// From this moment on a read that is not answered waits for a few milliseconds at most: for the
/// end of a recording, which must not add up the waits for all its processes.
pub fn hurry_from(deadline: Instant) {
    client::hurry_from(deadline);
}

/// Processes that have not answered since this was last asked.
#[must_use]
pub fn take_stuck() -> Vec<u32> {
    stuck::take()
}

/// Fills the beginning of `buffer` with what is at `address` in the memory of process `pid`, up to
/// the first byte that cannot be read, and returns how many bytes that was.
///
/// Pages are copied by `process_vm_readv`. Where that is refused (mappings of device memory have no
/// pages of their own) the same bytes are asked of `/proc/PID/mem`, which goes through the driver.
///
/// # Errors
///
/// `TimedOut` if the process does not answer, or did not lately; else what the kernel says.
pub fn memory(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    if is_installed() {
        client::memory(pid, address, buffer)
    } else {
        direct::memory(pid, address, buffer)
    }
}

/// Reads `N` bytes, at most 500, at each of several places in the memory of process `pid`: cheaper than one after the other.
/// `None` stands for those that cannot be read.
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

/// Looks at pairs of words again and again. A run ends before its time when no second word is below its first, because
/// nothing is expected then: words that count what was asked for, and what was done of it.
///
/// # Errors
///
/// `TimedOut` if a process does not answer; which one of several is not known then, and none of them is left alone. A
/// process that was left alone before, or is gone, gives `None` for its pairs.
pub fn run(run: &Run) -> io::Result<Vec<Look>> {
    if is_installed() {
        client::run(run)
    } else {
        Ok(run.look())
    }
}

/// The time of a processor that this thread's helper has had; zero if there is none. Another helper that takes its place
/// begins anew.
#[must_use]
pub fn helper_time() -> Duration {
    client::helper_time()
}

/// Reads `/proc/PID/NAME`, at most `limit` bytes of it.
///
/// # Errors
///
/// `TimedOut` if the process does not answer, or did not lately; else what the kernel says.
pub fn file(pid: u32, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    if is_installed() {
        client::file(pid, name, limit)
    } else {
        direct::file(pid, name, limit)
    }
}

/// Whether the memory of a process may be read.
///
/// # Errors
///
/// As [`memory`]: `PermissionDenied`, or `NotFound` if there is no such process.
pub fn may_read(pid: u32) -> io::Result<()> {
    file(pid, "mem", 0).map(drop)
}
