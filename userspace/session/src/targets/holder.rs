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
//! A helper without a real-time priority may come late: the thread may have gone on. It is seized
//! all the same, unless it sleeps in a system call that would notice, and the helper reports how
//! late it was ([`Released::Late`]).
//!
//! The kernel ends the trace when the helper exits. The helper exits when gputrace is gone or was
//! stopped itself. The helpers are separate processes because a tracer waits for its threads, as
//! gputrace waits for the launched program.

mod server;

use std::{io, time::Duration};

use gputrace_loader::{helper::Helper, holds::Holds};
use rustix::{
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
        sockopt::{Timeout, set_socket_timeout},
    },
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_getaffinity},
};
use zerocopy::IntoBytes as _;

pub use self::server::run_first;

/// Maximum time for a helper to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// The helpers, and the map of holds that they share with the eBPF programs.
#[derive(Debug)]
pub(crate) struct Holder {
    helpers: Vec<Helper>,
    holds: Holds,
}

/// What became of a thread that was to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Released {
    /// It was not held.
    Unheld,
    /// It was held, but may have gone on for this long before.
    Late(Duration),
    /// It was held from the place on where its hold began.
    InTime,
}

impl Released {
    /// The answer of a helper, from [`Released::to_word`].
    const fn from_word(word: u64) -> Self {
        match word {
            0 => Self::InTime,
            u64::MAX => Self::Unheld,
            late => Self::Late(Duration::from_nanos(late)),
        }
    }

    /// The answer of a helper: ns, 0 or `u64::MAX`.
    fn to_word(self) -> u64 {
        match self {
            Self::InTime => 0,
            Self::Unheld => u64::MAX,
            Self::Late(late) => u64::try_from(late.as_nanos()).unwrap_or(u64::MAX).max(1),
        }
    }
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
                server::serve(end, &holds, (index, cpu));
            })
        });
        let helpers = helpers.collect::<io::Result<_>>()?;
        Ok(Self { helpers, holds })
    }

    /// Releases a thread whose hold began at `begin`, ns, or before.
    pub(crate) fn release(&self, pid: u32, tid: u32, begin: u64) -> Released {
        let id = u64::from(pid) << 32 | u64::from(tid);
        // Before the helpers are asked. A helper that answers before it has been called for this hold
        // would seize the thread afterwards, and nobody would let it go for two minutes.
        let waits = self.holds.forget(id, begin);
        let word: Word = [id, begin];
        let released = self.helpers.iter().map(|helper| {
            send(&helper.end, word.as_bytes(), SendFlags::NOSIGNAL)?;
            let mut said = [0; size_of::<u64>()];
            let (count, _) = recv(&helper.end, &mut said, RecvFlags::empty())?;
            Ok::<_, rustix::io::Errno>(match count {
                8 => Released::from_word(u64::from_ne_bytes(said)),
                _ => Released::Unheld,
            })
        });
        // If a helper is gone, its threads already run. Every helper is asked.
        let released = released.fold(Released::Unheld, |best, one| {
            best.max(one.unwrap_or(Released::Unheld))
        });
        if waits { Released::InTime } else { released }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_helpers_keep_their_meaning() {
        let late = Released::Late(Duration::from_micros(3));
        for released in [Released::Unheld, late, Released::InTime] {
            assert_eq!(Released::from_word(released.to_word()), released);
        }
        assert!(Released::Unheld < late && late < Released::InTime);
    }

    #[test]
    fn helpers_are_bound_to_cpus_that_are_allowed() {
        let allowed = sched_getaffinity(None).unwrap();
        assert!(two_cpus().into_iter().all(|cpu| allowed.is_set(cpu)));
    }
}
