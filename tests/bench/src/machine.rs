//! CPUs, clocks and /proc.

use std::{fs, io, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use rustix::{
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

/// CPUs that this process may use, and those of the two sides of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus {
    /// Runs the traced program.
    pub(crate) caller: usize,
    /// Runs the collector; equals `caller` if there is only one CPU.
    pub(crate) collector: usize,
}

impl Cpus {
    /// The last two CPUs of this process, because the first ones serve more interrupts.
    ///
    /// # Errors
    ///
    /// When the system call fails.
    pub(crate) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("which CPUs may be used?")?;
        let mut usable = (0..CpuSet::MAX_CPU)
            .rev()
            .filter(|cpu| allowed.is_set(*cpu));
        let caller = usable.next().unwrap_or(0);
        Ok(Self {
            caller,
            collector: usable.next().unwrap_or(caller),
        })
    }
}

/// Keeps the calling thread, and threads that it starts, on one CPU until dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Pins the calling thread.
    ///
    /// # Errors
    ///
    /// When there is no such CPU.
    pub(crate) fn to(cpu: usize) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).with_context(|| format!("cannot run on CPU {cpu}"))?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // These CPUs were allowed before; if one is no longer there, any will do.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// CPU time of the calling thread. Unlike elapsed time, it does not advance while another program
/// has the CPU.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is ever negative.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// CPU time that the thread called `name` of this process has used.
pub(crate) fn thread_time(name: &str) -> Option<Duration> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let task = tasks.flatten().map(|entry| entry.path()).find(|path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    })?;
    // The first number: ns on a CPU.
    let statistics = fs::read_to_string(task.join("schedstat")).ok()?;
    Some(Duration::from_nanos(
        statistics.split(' ').next()?.parse().ok()?,
    ))
}

/// Resident memory of a process, bytes; `None` if the process has ended.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    status(pid, "VmRSS:")
}

/// Maximum resident memory of a process since its exec, bytes; `None` if the process has ended.
/// (`ru_maxrss` is unsuitable: it begins with the parent's value at the fork.)
pub(crate) fn most_resident(pid: u32) -> Option<u64> {
    status(pid, "VmHWM:")
}

fn status(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Resources used by a child process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// CPU time, user and system together.
    pub(crate) cpu: Duration,
    /// Whether it ended successfully.
    pub(crate) success: bool,
}

/// Waits for a child process and returns the resources that it used.
///
/// # Errors
///
/// When it is not a child of this process.
pub(crate) fn wait(pid: u32) -> io::Result<Used> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: a struct of plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both point to variables that are alive during the call.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let time = |time: libc::timeval| {
        Duration::new(
            time.tv_sec.unsigned_abs(),
            u32::try_from(time.tv_usec * 1000).unwrap_or(0),
        )
    };
    Ok(Used {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        success: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
    })
}

/// A place for captures that avoids the disk's delays, if there is one.
pub(crate) fn memory_file_system() -> Option<&'static Path> {
    let path = Path::new("/dev/shm");
    path.is_dir().then_some(path)
}
