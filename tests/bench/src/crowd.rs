//! Simulates a crowded node: many processes with many mappings, programs that start and end, and
//! users of a library.

use std::{
    io::{Read as _, Write as _, stdin, stdout},
    os::fd::AsRawFd as _,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::library::{EMULATED, Site};

/// Be a crowd, until standard input ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Crowd {
    /// Processes that do nothing
    #[arg(long)]
    processes: u32,
    /// Mappings of files that each of them has
    #[arg(long)]
    mappings: u32,
    /// Programs executed per second
    #[arg(long)]
    execs: u32,
    /// Processes created per second besides
    #[arg(long)]
    forks: u32,
}

/// Use a library, until standard input ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Hold {
    library: PathBuf,
}

/// Map a library, and say after how long its function has a breakpoint, ns.
#[derive(Debug, clap::Args)]
pub(crate) struct Fresh {
    library: PathBuf,
}

/// Interval of checking what is due.
const STEP: Duration = Duration::from_millis(1);

/// Maximum wait for a breakpoint.
const PATIENCE: Duration = Duration::from_secs(20);

impl Crowd {
    /// Prints `ready`, and at the end the number of programs executed and processes created per
    /// second.
    ///
    /// # Errors
    ///
    /// When the machine has no room for it.
    pub(crate) fn run(&self) -> Result<()> {
        map_often(self.mappings)?;
        for _ in 0..self.processes {
            create(|| {
                loop {
                    // SAFETY: a system call without arguments.
                    unsafe { libc::pause() };
                }
            })?;
        }
        say("ready")?;
        let (mut execs, mut forks) = (0, 0);
        let begin = Instant::now();
        while !is_over() {
            let due = |rate: u32| (begin.elapsed().as_secs_f64() * f64::from(rate)) as u64;
            // Work that a busy machine could not do in time is not caught up on.
            let due_execs = due(self.execs).min(execs + 10);
            while execs < due_execs {
                let mut child = Command::new("/bin/true").stdin(Stdio::null()).spawn()?;
                child.wait()?;
                execs += 1;
            }
            let due_forks = due(self.forks).min(forks + 10);
            while forks < due_forks {
                create(|| {})?;
                forks += 1;
            }
            reap();
            thread::sleep(STEP);
        }
        let time = begin.elapsed().as_secs_f64();
        say(&format!(
            "{:.0} {:.0}",
            execs as f64 / time,
            forks as f64 / time
        ))
    }
}

impl Hold {
    /// Prints `ready` when the library is mapped, and calls it once a second.
    ///
    /// # Errors
    ///
    /// When it is not such a library.
    pub(crate) fn run(&self) -> Result<()> {
        let site = Site::load(&self.library, EMULATED)?;
        say("ready")?;
        let mut steps = 0;
        while !is_over() {
            if steps % 100 == 0 {
                site.call(1);
            }
            steps += 1;
            thread::sleep(10 * STEP);
        }
        Ok(())
    }
}

impl Fresh {
    /// Prints the time since `dlopen` returned.
    ///
    /// # Errors
    ///
    /// When it is not such a library, or it gets no probes.
    pub(crate) fn run(&self) -> Result<()> {
        let site = Site::load(&self.library, EMULATED)?;
        let begin = Instant::now();
        while !site.has_breakpoint() {
            ensure!(
                begin.elapsed() < PATIENCE,
                "nobody has probed {}",
                self.library.display()
            );
            thread::sleep(Duration::from_micros(100));
        }
        say(&begin.elapsed().as_nanos().to_string())
    }
}

/// Maps this program's file repeatedly. Neighbouring mappings have different protections, so that
/// the kernel does not merge them.
fn map_often(count: u32) -> Result<()> {
    let file = std::fs::File::open("/proc/self/exe")?;
    for number in 0..count {
        let rights = match number % 4 {
            0 => libc::PROT_READ | libc::PROT_EXEC,
            1 => libc::PROT_READ,
            2 => libc::PROT_READ | libc::PROT_WRITE,
            _ => libc::PROT_NONE,
        };
        // SAFETY: a new mapping at any address, which nothing accesses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                rights,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        ensure!(
            address != libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
    }
    Ok(())
}

/// Creates a process that ends with this one.
fn create(then: impl FnOnce()) -> Result<()> {
    // SAFETY: this program has one thread, so the child can continue normally; it ends without
    // returning.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: a system call that takes integers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        then();
        // SAFETY: ends this process without running its creator's exit handlers.
        unsafe { libc::_exit(0) };
    }
    Ok(())
}

/// Reaps children that have ended.
fn reap() {
    loop {
        // SAFETY: no status is requested.
        let child = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        if child <= 0 {
            return;
        }
    }
}

/// Prints a line for the parent process.
fn say(line: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Whether standard input has ended.
fn is_over() -> bool {
    let mut poll = libc::pollfd {
        fd: stdin().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, which is alive during the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    // Nothing is ever written to it, so readable means closed.
    ready > 0 && stdin().read(&mut [0]).unwrap_or(0) == 0
}
