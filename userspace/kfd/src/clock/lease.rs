//! Reads the GPUs' clocks in a separate process.
//!
//! KFD lists a process from the moment it opens `/dev/kfd` until its memory is freed: closing the
//! device does not remove it from the list (`kfd_process_notifier_release` in `kfd_process.c`).
//! While any process is listed, GPUs cannot be repartitioned (`kgd2kfd_check_and_lock_kfd`), and
//! the driver cannot be replaced. A recording of days must not prevent that, so the clocks are read
//! by a child that exits when no GPU is in use.
//!
//! If the driver hangs, as during a GPU reset, only the child is blocked.

use std::{
    ffi::CString,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    ClockError, ClockSample,
    sampler::{classify, counters, sample},
};
use crate::paths::Paths;

/// Maximum wait for an answer. An answer takes microseconds per GPU.
const PATIENCE: Duration = Duration::from_millis(500);

/// The child's answer for a GPU: 0 or an error number, the count, its time and its uncertainty.
type Answer = [u64; 4];

/// Size of an answer, bytes.
const ANSWER: usize = size_of::<Answer>();

/// Error number for a GPU that KFD does not know.
const UNKNOWN: u64 = u64::MAX;

/// A child process that has `/dev/kfd` open and reads the clocks of some GPUs. It exits when this
/// is dropped.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    gpu_ids: Vec<u32>,
    child: libc::pid_t,
    /// Both ends are present until this is dropped.
    questions: Option<PipeWriter>,
    answers: PipeReader,
}

impl Lease {
    /// Starts the child, which opens KFD's device.
    ///
    /// # Errors
    ///
    /// [`ClockError`]: as for [`Sampler::open`](super::Sampler::open), or the process cannot be
    /// created.
    pub fn open(paths: &Paths, gpu_ids: Vec<u32>) -> Result<Self, ClockError> {
        let path = paths.dev_kfd.clone();
        let failed = |error: &io::Error| ClockError::Failed {
            path: path.clone(),
            error: Errno::from_io_error(error).unwrap_or(Errno::IO),
        };
        let device =
            CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(&error.into()))?;
        let (asked, questions) = io::pipe().map_err(|error| failed(&error))?;
        let (answers, answering) = io::pipe().map_err(|error| failed(&error))?;
        // SAFETY: the child makes only async-signal-safe calls and ends with _exit.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(failed(&io::Error::last_os_error())),
            0 => {
                serve(&device, &gpu_ids, asked.as_raw_fd(), answering.as_raw_fd());
                // SAFETY: exits without running any of the parent's exit handlers.
                unsafe { libc::_exit(0) }
            }
            child => child,
        };
        drop((asked, answering));
        let mut lease = Self {
            path,
            gpu_ids,
            child,
            questions: Some(questions),
            answers,
        };
        match lease.answers(1)?.first() {
            Some([0, ..]) => Ok(lease),
            Some([error, ..]) => Err(classify(errno(*error), lease.path.clone())),
            None => Err(lease.broken(Errno::PIPE)),
        }
    }

    /// Takes one sample of every GPU, each with its own result.
    ///
    /// # Errors
    ///
    /// [`ClockError`] if the child does not answer; it is unusable then.
    pub fn sample_all(&mut self) -> Result<Vec<Result<ClockSample, ClockError>>, ClockError> {
        let asked = match &mut self.questions {
            Some(questions) => questions.write_all(&[1]),
            None => return Err(self.broken(Errno::PIPE)),
        };
        asked.map_err(|error| self.broken(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let answers = self.answers(self.gpu_ids.len())?;
        let results = self.gpu_ids.iter().zip(answers).map(|(&gpu_id, answer)| {
            let [status, gpu_tick, boottime_ns, uncertainty_ns] = answer;
            match status {
                0 => Ok(ClockSample {
                    gpu_id,
                    gpu_tick,
                    boottime_ns,
                    uncertainty_ns,
                    ..ClockSample::default()
                }),
                UNKNOWN => Err(ClockError::UnknownGpu { gpu_id }),
                error => Err(classify(errno(error), self.path.clone())),
            }
        });
        Ok(results.collect())
    }

    /// Process id of the child.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.unsigned_abs()
    }

    fn broken(&self, error: Errno) -> ClockError {
        ClockError::Failed {
            path: self.path.clone(),
            error,
        }
    }

    /// Reads `count` answers.
    fn answers(&mut self, count: usize) -> Result<Vec<Answer>, ClockError> {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = vec![0; count * ANSWER];
        let mut done = 0;
        while done < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| self.broken(Errno::INVAL))?;
            let mut watched = [PollFd::from_borrowed_fd(
                self.answers.as_fd(),
                PollFlags::IN,
            )];
            match poll(&mut watched, Some(&left)) {
                Ok(0) => return Err(self.broken(Errno::TIMEDOUT)),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(self.broken(error)),
            }
            match self.answers.read(bytes.get_mut(done..).unwrap_or_default()) {
                Ok(0) => return Err(self.broken(Errno::PIPE)),
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(self.broken(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
                }
            }
        }
        let answer = |bytes: &[u8]| {
            let mut words = bytes.chunks_exact(8).map(|word| {
                let word = word.try_into().unwrap_or_default();
                u64::from_ne_bytes(word)
            });
            std::array::from_fn(|_| words.next().unwrap_or(0))
        };
        Ok(bytes.chunks_exact(ANSWER).map(answer).collect())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        const TRIES: u32 = 40;
        // The end of the pipe makes the child exit, unless it hangs in the driver.
        self.questions = None;
        for _ in 0..TRIES {
            // SAFETY: waits for a child of this process and stores no status.
            if unsafe { libc::waitpid(self.child, std::ptr::null_mut(), libc::WNOHANG) } != 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A child that hangs in the kernel ends when the kernel lets it; nobody should wait for
        // that.
        // SAFETY: the child has not been waited for, so its id has not been reused.
        unsafe { libc::kill(self.child, libc::SIGKILL) };
    }
}

fn errno(number: u64) -> Errno {
    Errno::from_raw_os_error(i32::try_from(number).unwrap_or(libc::EIO))
}

/// Main loop of the child: opens the device, reports whether that worked, and answers until nobody
/// asks any more. Allocates nothing and takes no lock: other threads may have held any at the time
/// of the fork.
#[expect(
    clippy::disallowed_methods,
    reason = "after a fork only system calls are allowed, and the path is the kernel's device"
)]
fn serve(device: &CString, gpu_ids: &[u32], asked: RawFd, answering: RawFd) {
    let Some((asked, answering)) = settle(asked, answering) else {
        return;
    };
    // SAFETY: a system call on a constant string.
    let kfd = unsafe { libc::open(device.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let status = if kfd < 0 {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        // GPU 0 is the CPU, which has no counter; the request succeeds nevertheless.
        counters(kfd, 0).map(|_| ())
    };
    let number = |error: Errno| u64::from(error.raw_os_error().unsigned_abs());
    let said = say(answering, [status.map_or_else(number, |()| 0), 0, 0, 0]);
    if !said || status.is_err() {
        return;
    }
    let mut word = 0_u8;
    loop {
        // SAFETY: reads into a local variable.
        match unsafe { libc::read(asked, (&raw mut word).cast(), 1) } {
            1 => {}
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => continue,
            _ => return,
        }
        for gpu_id in gpu_ids {
            let answer = match sample(kfd, *gpu_id) {
                Ok(Some(sample)) => [
                    0,
                    sample.gpu_tick,
                    sample.boottime_ns,
                    sample.uncertainty_ns,
                ],
                Ok(None) => [UNKNOWN, 0, 0, 0],
                Err(error) => [number(error), 0, 0, 0],
            };
            if !say(answering, answer) {
                return;
            }
        }
    }
}

/// Isolates the child: it keeps only its two pipes as descriptors, is ended by no signal but
/// SIGKILL, and ends with its parent.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a sequence of plain system calls with one and the same justification"
)]
fn settle(asked: RawFd, answering: RawFd) -> Option<(RawFd, RawFd)> {
    // SAFETY: async-signal-safe calls on integers, constant strings and local variables.
    unsafe {
        let mut every = std::mem::zeroed();
        libc::sigfillset(&mut every);
        libc::sigprocmask(libc::SIG_BLOCK, &every, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"gputrace-clocks".as_ptr());
        libc::setpgid(0, 0);
        // Moved out of the range of the lowest numbers.
        let asked = libc::fcntl(asked, libc::F_DUPFD_CLOEXEC, 10);
        let answering = libc::fcntl(answering, libc::F_DUPFD_CLOEXEC, 10);
        if asked < 0 || answering < 0 {
            return None;
        }
        libc::dup2(asked, 0);
        libc::dup2(answering, 1);
        // Not available before Linux 5.9; there the descriptors stay open as long as this child
        // lives.
        libc::syscall(libc::SYS_close_range, 2_u32, u32::MAX, 0_u32);
    }
    Some((0, 1))
}

/// Writes an answer, which is small enough for a pipe to take at once.
fn say(answering: RawFd, answer: Answer) -> bool {
    // SAFETY: writes from a local variable of this size.
    let written = unsafe { libc::write(answering, answer.as_ptr().cast(), ANSWER) };
    usize::try_from(written) == Ok(ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_child_says_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let mut paths = Paths::under(directory.path());
        let path = paths.dev_kfd.clone();
        let open = |paths: &Paths| Lease::open(paths, vec![1]).unwrap_err();
        assert_eq!(open(&paths), ClockError::NoDevice { path });
        paths.dev_kfd = "/dev/null".into();
        let path = paths.dev_kfd.clone();
        assert_eq!(open(&paths), ClockError::NotKfd { path });
    }
}
