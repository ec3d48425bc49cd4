//! A child process of gputrace that keeps its descriptors open until gputrace lets it go, or is gone.

use std::{
    ffi::CStr,
    io::{self, PipeWriter},
    os::fd::{AsRawFd as _, RawFd},
};

/// A waiting helper. Dropping it lets it go.
#[derive(Debug)]
pub(crate) struct Helper {
    /// Its process id.
    pub(crate) pid: libc::pid_t,
    /// The helper ends when this is closed.
    _pipe: PipeWriter,
}

impl Helper {
    /// Forks a child that waits and ends. It has every descriptor that this process has now, but the null
    /// device as its standard streams, so that nobody waits for it to close them, every signal blocked
    /// that can be, and a process group of its own.
    pub(crate) fn fork(name: &'static CStr) -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        // SAFETY: the child makes only async-signal-safe calls and ends with _exit: other threads may
        // have held any lock at the time of the fork.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                settle(name, pipe.as_raw_fd());
                wait(reader.as_raw_fd());
                // SAFETY: ends this process without running anything of the parent's.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { pid, _pipe: pipe }),
        }
    }
}

/// Makes the child a helper. Allocates nothing and takes no lock.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a sequence of plain system calls with one and the same justification"
)]
fn settle(name: &'static CStr, writer: RawFd) {
    // SAFETY: async-signal-safe calls on integers, constant strings and a local variable.
    unsafe {
        let mut every = std::mem::zeroed();
        libc::sigfillset(&mut every);
        libc::sigprocmask(libc::SIG_BLOCK, &every, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::close(writer);
        libc::setpgid(0, 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
    }
}

/// Waits for the end of the pipe.
fn wait(reader: RawFd) {
    let mut said = 0u8;
    loop {
        // SAFETY: reads into a local variable.
        let count = unsafe { libc::read(reader, (&raw mut said).cast(), 1) };
        // Does not allocate: it reads the thread's error number.
        if count >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}
