//! Small child processes of gputrace that do one thing when gputrace is done, or gone.

use std::{
    ffi::CStr,
    io::{self, PipeWriter, Write as _},
    os::fd::{AsRawFd as _, RawFd},
};

/// Why a helper stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// gputrace dismissed it.
    Dismissed,
    /// gputrace is gone, or has dropped the helper without a word.
    Gone,
}

/// A waiting helper.
#[derive(Debug)]
pub(crate) struct Helper {
    /// Its process id.
    pub(crate) pid: libc::pid_t,
    pipe: PipeWriter,
}

impl Helper {
    /// Forks a child that calls `first`, waits, calls `then`, and ends. It has every descriptor that this
    /// process has now, but the null device as its standard streams, so that nobody waits for it to close
    /// them, and every signal blocked that can be.
    ///
    /// `first` and `then` must be async-signal-safe: other threads may have held any lock at the time of the
    /// fork. `first` is given the descriptor on which the child waits.
    pub(crate) fn fork(
        name: &'static CStr,
        first: impl FnOnce(RawFd),
        then: impl FnOnce(Wake),
    ) -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        // SAFETY: the child makes only async-signal-safe calls and ends with _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let reader = reader.as_raw_fd();
                settle(name, pipe.as_raw_fd());
                first(reader);
                then(wait(reader));
                // SAFETY: ends this process without running anything of the parent's.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { pid, pipe }),
        }
    }

    /// Tells the helper that all is well.
    pub(crate) fn dismiss(mut self) {
        // If it is gone already, there is nobody to dismiss.
        let _ = self.pipe.write_all(&[1]);
        // SAFETY: a child of this process; no status is wanted.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// Makes the child a helper. Allocates nothing and takes no lock.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a sequence of plain system calls with one and the same justification"
)]
#[expect(
    clippy::disallowed_methods,
    reason = "after a fork only system calls are allowed, and /dev/null is harmless"
)]
fn settle(name: &'static CStr, writer: RawFd) {
    // SAFETY: async-signal-safe calls on integers, constant strings and a local variable.
    unsafe {
        let mut every = std::mem::zeroed();
        libc::sigfillset(&mut every);
        libc::sigprocmask(libc::SIG_BLOCK, &every, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::close(writer);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
    }
}

/// Waits for a word or the end of the pipe.
fn wait(reader: RawFd) -> Wake {
    let mut said = 0u8;
    loop {
        // SAFETY: reads into a local variable.
        let count = unsafe { libc::read(reader, (&raw mut said).cast(), 1) };
        // Does not allocate: it reads the thread's error number.
        if count >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return if count == 0 { Wake::Gone } else { Wake::Dismissed };
        }
    }
}

/// Puts the calling process into a process group of its own.
pub(crate) fn leave_group() {
    // SAFETY: a system call on integers.
    unsafe { libc::setpgid(0, 0) };
}
