//! Small child processes of gputrace, some of which outlive it.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// A running helper, and gputrace's end of the connection to it. Dropping it closes that end.
#[derive(Debug)]
pub struct Helper {
    /// Process id of the helper.
    pub pid: libc::pid_t,
    /// gputrace's end of the connection.
    pub end: OwnedFd,
}

impl Helper {
    /// Forks a child that calls `work` with its own end of `ends` and then exits.
    ///
    /// The child inherits all descriptors of this process, except that its standard streams are the
    /// null device, so that nobody who waits for them to close has to wait for the child. It blocks
    /// every signal that can be blocked, and has a process group of its own.
    ///
    /// If this process has other threads, `work` must be async-signal-safe: they may have held any
    /// lock at the time of the fork.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn fork(
        name: &'static CStr,
        (end, helpers): (OwnedFd, OwnedFd),
        work: impl FnOnce(RawFd),
    ) -> io::Result<Self> {
        // SAFETY: the child makes only async-signal-safe calls and ends with _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                settle(name, end.as_raw_fd());
                work(helpers.as_raw_fd());
                // SAFETY: exits without running any of the parent's exit handlers.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { pid, end }),
        }
    }
}

/// Sets the child up as a helper. Allocates nothing and takes no lock.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a sequence of plain system calls with one and the same justification"
)]
#[expect(
    clippy::disallowed_methods,
    reason = "after a fork only system calls are allowed, and /dev/null is harmless"
)]
fn settle(name: &'static CStr, others: RawFd) {
    // SAFETY: async-signal-safe calls on integers, constant strings and a local variable.
    unsafe {
        let mut every = std::mem::zeroed();
        libc::sigfillset(&mut every);
        libc::sigprocmask(libc::SIG_BLOCK, &every, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::close(others);
        libc::setpgid(0, 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
    }
}

/// Reads until the end of the stream, or until `bytes` is full, and returns the number of bytes
/// read. Allocates nothing.
///
/// # Errors
///
/// The system's error.
pub fn read(from: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: reads into a buffer of this size.
        let count = unsafe { libc::read(from, bytes.as_mut_ptr().cast(), bytes.len()) };
        if count >= 0 {
            return Ok(count.cast_unsigned());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// Closes every descriptor above the standard streams, except those in `kept`.
pub fn close_all_but(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept.iter().copied().chain([RawFd::MAX]) {
        if from < fd {
            // SAFETY: descriptors of this process that nothing in it uses any more.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = from.max(fd.saturating_add(1));
    }
}

/// Whether a child of this process has ended. If so, nothing of it is left.
#[must_use]
pub fn has_ended(pid: libc::pid_t) -> bool {
    // SAFETY: looks after a child of this process and stores no status.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}
