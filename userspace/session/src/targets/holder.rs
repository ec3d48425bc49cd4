//! Holds a thread of a launched program while its libraries get their probes.
//!
//! An eBPF program keeps the CPU of such a thread busy (`hold.rs` of `ebpf/probes`). It cannot do
//! so for long: placing a probe takes a grace period of RCU, which the busy program delays, and on
//! kernels without preemption nothing else runs on that CPU.
//!
//! So the program wakes two helper processes of gputrace, each bound to a different CPU; one of
//! these CPUs is never kept busy. The first helper to run seizes the thread by ptrace(2) and lets
//! the eBPF program end. The thread then sleeps on its way back to user code, and continues when
//! gputrace has placed the probes. The thread's parent does not notice: a ptrace stop is reported
//! only to the tracer. Until the thread continues, `TracerPid` in `/proc/PID/status` shows the
//! helper.
//!
//! The kernel ends the trace when the helper exits. The helper exits when gputrace is gone or was
//! stopped itself. The helpers are separate processes because a tracer waits for its threads, as
//! gputrace waits for the launched program.

use std::{
    io,
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use gputrace_files::kernel;
use gputrace_loader::holds::{Held, Holds};
use rustix::{
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
        sockopt::{Timeout, set_socket_timeout},
    },
    process::{Pid, Signal, getppid, kill_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use zerocopy::IntoBytes as _;

use crate::helper::{self, Helper};

/// How often a helper checks whether gputrace still works, ms.
const LOOK: libc::c_int = 500;

/// Number of checks after gputrace's last message at which all threads are released: 2 minutes.
/// Placing the probes of a library takes seconds at most, but minutes in an emulated machine before
/// Linux 6.6.
const PATIENCE: u32 = 240;

/// How often a helper checks whether threads to be released have stopped, ms.
const STOPPING: libc::c_int = 1;

/// Maximum time for a helper to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// The helpers, and the map of holds that they share with the eBPF programs.
#[derive(Debug)]
pub(crate) struct Holder {
    helpers: Vec<Helper>,
    holds: Holds,
}

/// Message from gputrace to a helper: a thread, `tgid << 32 | tid`, and a time. Its holds that began
/// up to that time are over.
type Word = [u64; 2];

impl Holder {
    /// Starts the helpers, which seize the threads that appear in `holds`. Call it before other
    /// threads exist: the helpers are forks of this process.
    pub(crate) fn start(holds: Holds) -> io::Result<Self> {
        let helpers = (0..).zip(two_cpus()).map(|(index, cpu)| {
            let ends = socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            // A helper that somebody has stopped does not answer, and must not block gputrace.
            set_socket_timeout(&ends.0, Timeout::Recv, Some(ANSWER))?;
            Helper::fork(c"gputrace-hold", ends, |end| {
                serve(end, &holds, (index, cpu));
            })
        });
        let helpers = helpers.collect::<io::Result<_>>()?;
        Ok(Self { helpers, holds })
    }

    /// Releases a thread whose hold began at `begin`, ns, or before. Returns false if it was not held.
    pub(crate) fn release(&self, pid: u32, tid: u32, begin: u64) -> bool {
        let id = u64::from(pid) << 32 | u64::from(tid);
        // Before the helpers are asked. A helper that answers before it has been called for this hold
        // would seize the thread afterwards, and nobody would let it go for two minutes.
        let waits = self.holds.forget(id, begin);
        let word: Word = [id, begin];
        let released = self.helpers.iter().map(|helper| {
            send(&helper.end, word.as_bytes(), SendFlags::NOSIGNAL)?;
            let mut said = [0];
            let (count, _) = recv(&helper.end, &mut said, RecvFlags::empty())?;
            Ok::<_, rustix::io::Errno>(count == 1 && said == [1])
        });
        // If a helper is gone, its threads already run. Every helper is asked.
        let held = released.filter(|one| *one == Ok(true)).count() > 0;
        waits || held
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Threads that are still held continue when the helper is gone. SIGKILL also ends a stopped
        // helper.
        for helper in &self.helpers {
            if let Some(pid) = Pid::from_raw(helper.pid) {
                // This fails only if the helper has ended already.
                let _ = kill_process(pid, Signal::KILL);
            }
            // SAFETY: waits for a child of this process and stores no status.
            unsafe { libc::waitpid(helper.pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// The first and the last CPU on which this process may run.
fn two_cpus() -> [usize; 2] {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let first = cpus.next().unwrap_or(0);
    [first, cpus.next_back().unwrap_or(first)]
}

/// Main loop of a helper. `place` is its index and its CPU.
fn serve(end: RawFd, holds: &Holds, place: (u32, usize)) {
    let [map, ring, helpers] =
        [holds.map(), holds.ring(), holds.helpers()].map(|fd| fd.as_raw_fd());
    helper::close_all_but(&mut [end, map, ring, helpers]);
    let Ok(calls) = holds.listen() else { return };
    if hurry(place.1) {
        holds.set_helper(place.0, place.1 as u32);
    }
    let gputrace = getppid();
    let mut held: Vec<Held> = Vec::new();
    // Threads to be released that have not stopped yet.
    let mut stopping: Vec<u32> = Vec::new();
    let mut looks = 0;
    loop {
        let mut polls = [end, calls.epoll_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let timeout = if stopping.is_empty() { LOOK } else { STOPPING };
        // SAFETY: polls two descriptors, in a local variable.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), 2, timeout) };
        let [said, called] = polls.map(|poll| poll.revents != 0);
        if stopping.is_empty() {
            looks = if ready == 0 { looks + 1 } else { 0 };
        }
        if looks >= PATIENCE || looks > 0 && !held.is_empty() && is_stopped(gputrace) {
            stopping.extend(held.drain(..).map(|one| one.tid()));
        }
        if ready > 0 && called {
            // The contents of the ring do not matter; only the wake-up does.
            let _ = calls.poll(Duration::ZERO);
            for one in holds.waiting() {
                if seize(one.tid()) {
                    held.push(one);
                    holds.release(one);
                }
            }
        }
        if ready > 0 && said {
            let mut bytes = [0; size_of::<Word>()];
            if !helper::read(end, &mut bytes).is_ok_and(|count| count == bytes.len()) {
                break;
            }
            let [id, begin]: Word = zerocopy::transmute!(bytes);
            // With it those before: a helper that was late may have seized the thread for one of these.
            let over = |one: &mut Held| one.id == id && one.hold.begin <= begin;
            let count = stopping.len();
            stopping.extend(held.extract_if(.., over).map(|one| one.tid()));
            // Answers gputrace first: the thread may take a moment to stop.
            let answer = [u8::from(stopping.len() > count)];
            // SAFETY: writes from a local variable. A failed write means that gputrace is gone.
            unsafe { libc::write(end, answer.as_ptr().cast(), 1) };
        }
        stopping.retain(|tid| !let_go(*tid));
    }
    // When this process exits, the kernel releases the threads that are still held.
}

/// Whether a process is stopped, by a signal or by its tracer (proc_pid_stat(5)).
fn is_stopped(pid: Option<Pid>) -> bool {
    let Some(pid) = pid else { return false };
    let stat = kernel::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat
        .iter()
        .rposition(|byte| *byte == b')')
        .map(|close| close + 2);
    state
        .and_then(|at| stat.get(at))
        .is_some_and(|state| b"Tt".contains(state))
}

/// Binds this process to a CPU, with priority over all other threads: it does little, and somebody
/// waits for it. Returns false where that is not permitted.
fn hurry(cpu: usize) -> bool {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    // Priority over real-time threads, too: the thread to hold may be one.
    let priority = libc::sched_param { sched_priority: 90 };
    // SAFETY: a system call on a local variable.
    let is_first =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } == 0;
    sched_setaffinity(None, &cpus).is_ok() && is_first
}

/// Traces a thread and makes it stop when it leaves the kernel. Returns false if that fails: most
/// likely the other helper or another tracer has the thread already, or a security module forbids
/// it.
fn seize(tid: u32) -> bool {
    [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT]
        .into_iter()
        .all(|request| {
            // SAFETY: these requests access no memory of this process.
            unsafe { libc::ptrace(request, tid, 0, 0) == 0 }
        })
}

/// Ends the trace of a thread, if it has stopped. Returns true if that is done or the thread is
/// gone.
fn let_go(tid: u32) -> bool {
    let mut status = 0;
    let flags = libc::__WALL | libc::WNOHANG;
    // SAFETY: queries a thread that this process traces, into a local variable.
    match unsafe { libc::waitpid(tid.cast_signed(), &raw mut status, flags) } {
        0 => return false,
        ..0 => return true,
        _ => {}
    }
    if libc::WIFSTOPPED(status) {
        // A signal that arrived first is passed on. A ptrace event is not a signal.
        let event = status >> 16;
        let signal = if event == 0 {
            libc::WSTOPSIG(status)
        } else {
            0
        };
        // SAFETY: this request accesses no memory of this process.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0, signal) };
    }
    true
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        process::{Child, Command},
        time::{Duration, Instant},
    };

    use super::*;

    /// A program that only burns CPU time.
    struct Busy(Child);

    impl Busy {
        fn start() -> Self {
            let mut command = Command::new("sh");
            Self(command.args(["-c", "while :; do :; done"]).spawn().unwrap())
        }

        /// Waits until `/proc/PID/status` shows a state, and returns the tracer.
        fn wait_for(&self, state: &str) -> String {
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
                let field = |name| {
                    let mut lines = status.lines();
                    let found = lines.find_map(|line| line.strip_prefix(name));
                    found.unwrap().trim().to_owned()
                };
                if field("State:").starts_with(state) {
                    return field("TracerPid:");
                }
                assert!(Instant::now() < deadline, "{status}");
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn seized_threads_sleep_until_they_are_let_go() {
        let busy = Busy::start();
        let pid = busy.0.id();
        if !seize(pid) {
            return gputrace_skip::skipped("ptrace is not allowed here");
        }
        assert_ne!(busy.wait_for("t"), "0");
        assert!(!seize(pid), "it has a tracer");
        assert!(let_go(pid));
        assert_eq!(busy.wait_for("R"), "0");
        assert!(!seize(u32::MAX >> 1), "there is no such thread");
    }

    #[test]
    fn helpers_are_bound_to_cpus_that_are_allowed() {
        let allowed = sched_getaffinity(None).unwrap();
        assert!(two_cpus().into_iter().all(|cpu| allowed.is_set(cpu)));
    }
}
