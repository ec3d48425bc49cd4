//! Small child processes of gputrace that do one thing when gputrace is done, or gone.

use std::{
    ffi::CStr,
    io::{self, PipeWriter, Write as _},
    os::fd::AsRawFd as _,
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
    /// Forks a child that waits, calls `then`, and ends. It has every descriptor that this process has
    /// now, but the null device as its standard streams, so that nobody waits for it to close them.
    ///
    /// `then` must be async-signal-safe: other threads may have held any lock at the time of the fork.
    pub(crate) fn fork(name: &'static CStr, then: impl FnOnce(Wake)) -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        // SAFETY: the child makes only async-signal-safe calls and ends with _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let wake = wait(name, reader.as_raw_fd(), pipe.as_raw_fd());
                then(wake);
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

/// The helper's waiting. Allocates nothing and takes no lock.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a sequence of plain system calls with one and the same justification"
)]
fn wait(name: &'static CStr, reader: libc::c_int, writer: libc::c_int) -> Wake {
    let mut said = 0u8;
    // SAFETY: async-signal-safe calls on integers, constant strings and a local variable.
    let read = unsafe {
        // Out of reach of the terminal's Ctrl-C, with a name of its own for `ps`.
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::close(writer);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
        loop {
            let count = libc::read(reader, (&raw mut said).cast(), 1);
            if count >= 0 || *libc::__errno_location() != libc::EINTR {
                break count;
            }
        }
    };
    if read == 0 { Wake::Gone } else { Wake::Dismissed }
}
