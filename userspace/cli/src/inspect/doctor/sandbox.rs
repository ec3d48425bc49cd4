//! Checks whether a sandboxed program survives tracing, by trying it on a child of gputrace.
//!
//! Since Linux 6.11, a probed function returns through a dedicated system call (`uretprobe`, and
//! `uprobe` since 6.18). Until that was fixed (6.12.14, 6.13.3), the seccomp filter of a traced
//! program saw these calls, and filters that do not know them refuse them or kill the program. So a
//! child forbids itself exactly these two calls, calls a probed function, and is then either alive
//! or not.

use std::{
    fs::File,
    hint, io,
    io::Write as _,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::Path,
};

use gputrace_loader::{
    ProbeError,
    attach::{Point, Scope, TracedFunction},
    calls::{BackendChoice, Calls},
    probes::Probes,
};

use super::bpf::{options, point, probed};

/// `uretprobe` and `uprobe` of the kernel's `syscall_64.tbl`.
const SYSTEM_CALLS: [u32; 2] = [335, 336];

/// Exit codes of the child.
const UNHARMED: libc::c_int = 0;
const WRONG_VALUE: libc::c_int = 4;
const NOT_TRIED: libc::c_int = 1;

/// Time in s after which the child gives up by itself.
const PATIENCE: libc::c_uint = 5;

/// Result of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The program continued normally.
    Unharmed,
    /// It was killed, or continued with a wrong value.
    Harmed,
    /// The trial was not possible.
    Unknown,
}

/// Runs the trial.
pub(super) fn outcome() -> Outcome {
    match attempt() {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::debug!("sandboxed program: {error}");
            Outcome::Unknown
        }
    }
}

fn attempt() -> Result<Outcome, ProbeError> {
    let failed = |action: &str, cause: io::Error| ProbeError::Refused {
        action: action.to_owned(),
        cause: cause.to_string(),
        log: Vec::new(),
    };
    let calls = Calls::load(&options(BackendChoice::Auto))?;
    calls.add_every_process()?;
    let point = point()?;
    let (child, go) = Child::start().map_err(|error| failed("start a process", error))?;
    let attached = attach(&calls, child.pid(), point);
    // If nothing is written, the child ends at once.
    let told = attached.and_then(|probes| {
        File::from(go)
            .write_all(b"!")
            .map_err(|error| failed("wake the process", error))?;
        Ok(probes)
    });
    let status = child
        .wait()
        .map_err(|error| failed("wait for a process", error))?;
    let _probes = told?;
    calls.stop()?;
    let seen: u64 = calls.counters()?.iter().flat_map(|cpu| cpu.seen).sum();
    Ok(judge(status, seen))
}

fn attach(calls: &Calls, pid: u32, point: Point) -> Result<Probes, ProbeError> {
    let function = TracedFunction::by_return(point);
    let mut probes = calls.attach(
        Path::new("/proc/self/exe"),
        Scope::Process(pid),
        &[function],
    )?;
    match probes.failures.pop() {
        Some(failure) => Err(failure.error),
        None => Ok(probes),
    }
}

/// Result by how the child ended, and how many of its calls were seen.
fn judge(status: libc::c_int, seen: u64) -> Outcome {
    let exited = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    match exited {
        // If no call was seen, the probe did not run.
        Some(UNHARMED) if seen == 1 => Outcome::Unharmed,
        Some(WRONG_VALUE) => Outcome::Harmed,
        Some(_) => Outcome::Unknown,
        None if libc::WTERMSIG(status) == libc::SIGALRM => Outcome::Unknown,
        None => Outcome::Harmed,
    }
}

/// A process that waits for a byte, installs its filter, and calls the probed function.
struct Child(libc::pid_t);

impl Child {
    fn start() -> io::Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created both, and nothing else owns them.
        let [word, go] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: the child only makes system calls and ends without returning; it takes no lock
        // and allocates no memory.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // Otherwise the child itself would keep that end of the pipe open.
                // SAFETY: the child does not use it, and ends without dropping it.
                unsafe { libc::close(go.as_raw_fd()) };
                live(word.as_raw_fd())
            }
            pid => Ok((Self(pid), go)),
        }
    }

    fn pid(&self) -> u32 {
        self.0.unsigned_abs()
    }

    /// Its status as returned by `wait(2)`.
    fn wait(self) -> io::Result<libc::c_int> {
        let mut status = 0;
        loop {
            // SAFETY: it is a child of this process that has not been waited for.
            if unsafe { libc::waitpid(self.0, &raw mut status, 0) } == self.0 {
                return Ok(status);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Code of the child: system calls, and one call of the probed function. It allocates no memory and
/// takes no lock, which other threads may have held at the fork.
fn live(word: libc::c_int) -> ! {
    let load_number = libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        // `nr` is the first member of `struct seccomp_data`.
        k: 0,
    };
    let is = |number, to_kill| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: to_kill,
        jf: 0,
        k: number,
    };
    let end = |verdict| libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: verdict,
    };
    let [first, second] = SYSTEM_CALLS;
    let mut filter = [
        load_number,
        is(first, 2),
        is(second, 1),
        end(libc::SECCOMP_RET_ALLOW),
        end(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let mut byte = 0_u8;
    // SAFETY: it takes a number.
    unsafe { libc::alarm(PATIENCE) };
    // SAFETY: the limit is above.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
    // SAFETY: the kernel writes one byte into a buffer of one byte.
    let told = unsafe { libc::read(word, (&raw mut byte).cast(), 1) } == 1;
    // SAFETY: it takes only numbers.
    let tame = told && unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the program and its instructions are alive.
    let filtered = tame
        && unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
        } == 0;
    let end = match filtered {
        false => NOT_TRIED,
        true if probed(hint::black_box(41)) == 41 => UNHARMED,
        true => WRONG_VALUE,
    };
    // SAFETY: it takes a number, and runs no code of this program.
    unsafe { libc::_exit(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_child_are_told_apart() {
        let exited = |code: libc::c_int| code << 8;
        for (status, seen, expected) in [
            (exited(UNHARMED), 1, Outcome::Unharmed),
            (exited(UNHARMED), 0, Outcome::Unknown),
            (exited(WRONG_VALUE), 1, Outcome::Harmed),
            (exited(NOT_TRIED), 0, Outcome::Unknown),
            (libc::SIGSYS, 1, Outcome::Harmed),
            (libc::SIGSEGV, 1, Outcome::Harmed),
            (libc::SIGALRM, 0, Outcome::Unknown),
        ] {
            assert_eq!(judge(status, seen), expected, "{status:#x} {seen}");
        }
    }
}
