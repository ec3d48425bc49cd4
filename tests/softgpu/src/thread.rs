//! Threads of the packet processors: they block signals, wake up quickly, and sleep when idle.

use std::thread::JoinHandle;
use std::time::Duration;

use crate::{clock::boottime_ns, config::QueueConfig};

/// Starts a thread to which none of the program's signals are delivered.
///
/// # Errors
///
/// If the system cannot start another thread.
pub(crate) fn spawn(
    name: String,
    realtime: bool,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let before = block_signals();
    let handle = std::thread::Builder::new().name(name).spawn(move || {
        be_prompt(realtime);
        body();
    });
    restore_signals(&before);
    handle
}

/// Blocks every signal in this thread, so that threads started by it inherit that.
fn block_signals() -> libc::sigset_t {
    let mut all = empty_set();
    let mut before = empty_set();
    // SAFETY: `all` is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are valid.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set was filled by `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a signal set is plain bits; all of them zero is the empty set on Linux.
    unsafe { std::mem::zeroed() }
}

/// Short sleeps should stay short, and host threads that spin on a signal must not keep this one
/// from completing it. Neither is guaranteed: an unprivileged process gets no real-time scheduling.
fn be_prompt(realtime: bool) {
    // SAFETY: sets a number of this thread, the timer slack in ns.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
    if realtime {
        let lowest = libc::sched_param { sched_priority: 1 };
        // SAFETY: `lowest` is valid; 0 means this thread.
        unsafe {
            libc::sched_setscheduler(
                0,
                libc::SCHED_RR | libc::SCHED_RESET_ON_FORK,
                &raw const lowest,
            )
        };
    }
}

/// Waits between looks at something that changes without notice. Spins at first, then sleeps longer
/// and longer.
#[derive(Debug)]
pub(crate) struct Patience {
    looks: u32,
    longest_ns: u64,
    /// How much longer than requested sleeps have taken, ns: a decaying maximum.
    late_ns: u64,
    is_punctual: bool,
    /// When it began to wait, ns `CLOCK_BOOTTIME`; 0 if something has just happened.
    since_ns: u64,
}

/// Number of looks that only spin: a few microseconds, in which a busy queue gets its next packet.
const SPINS: u32 = 64;
/// A shorter sleep would take longer than the event it waits for.
const SHORTEST_SLEEP_NS: u64 = 50_000;
/// If a sleep exceeds the request by more than this, something else delayed it, ns.
const LATEST_NS: u64 = 80_000;
/// A queue that has been idle for this long, ns, is polled no more often than every
/// `LONG_IDLE_SLEEP_NS`. HIP keeps queues that it rarely uses. Two of them, each polled every few
/// microseconds by a real-time thread, kept two processors from the traced program.
const LONG_IDLE_NS: u64 = 10_000_000;
const LONG_IDLE_SLEEP_NS: u64 = 300_000;

impl Patience {
    pub(crate) const fn new(queue: &QueueConfig) -> Self {
        Self {
            looks: 0,
            longest_ns: queue.idle_sleep_ns,
            late_ns: 0,
            is_punctual: queue.punctual,
            since_ns: 0,
        }
    }

    /// Something happened: return to spinning.
    pub(crate) const fn reset(&mut self) {
        self.looks = 0;
        self.since_ns = 0;
    }

    /// Nothing happened: waits, at most until `until_ns` (`CLOCK_BOOTTIME`).
    pub(crate) fn wait(&mut self, until_ns: Option<u64>) {
        self.looks = self.looks.saturating_add(1);
        let now = boottime_ns();
        if self.since_ns == 0 {
            self.since_ns = now;
        }
        let longest_ns = if now.saturating_sub(self.since_ns) < LONG_IDLE_NS {
            self.longest_ns
        } else {
            self.longest_ns.max(LONG_IDLE_SLEEP_NS)
        };
        let step = match self.looks {
            0..=SPINS => 0,
            65..=84 => SHORTEST_SLEEP_NS,
            85..=104 => 100_000,
            105..=124 => 300_000,
            _ => longest_ns,
        }
        .min(longest_ns);
        // A kernel's end is logged as begin plus duration, so the next packet must not begin later
        // because this thread slept too long: that would look like a gap that some durations have
        // and others have not.
        let left = until_ns.map_or(step, |until| {
            until
                .saturating_sub(now)
                .saturating_sub(self.late_ns)
                .min(step)
        });
        if left < SHORTEST_SLEEP_NS.min(longest_ns) {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_nanos(left));
            if self.is_punctual {
                let late = boottime_ns()
                    .saturating_sub(now.saturating_add(left))
                    .min(LATEST_NS);
                self.late_ns = late.max(self.late_ns - self.late_ns / 16);
            }
        }
    }
}
