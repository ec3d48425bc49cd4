//! Threads of the packet processors: deaf to signals, prompt to wake, patient when idle.

use std::thread::JoinHandle;
use std::time::Duration;

use crate::{clock::boottime_ns, config::QueueConfig};

/// Starts a thread that no signal of the program is delivered to.
///
/// # Errors
///
/// When the system has no thread left.
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

/// Blocks every signal in this thread, so that a thread it starts begins that way.
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

/// Short sleeps are to be short, and host threads that spin on a signal must not keep this one from
/// completing it. Both are only wishes: an unprivileged process gets no real-time class.
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

/// Waits between looks at something that nobody announces: spins at first, then sleeps longer and longer.
#[derive(Debug)]
pub(crate) struct Patience {
    looks: u32,
    longest_ns: u64,
    /// So much longer than asked for sleeps have taken, ns: the most, of which the last ones count most.
    late_ns: u64,
    is_punctual: bool,
}

/// Looks that only spin: a few microseconds, in which the next packet of a busy queue comes.
const SPINS: u32 = 64;
/// Below this a sleep takes longer than what it waits for.
const SHORTEST_SLEEP_NS: u64 = 50_000;
/// A sleep that was longer than asked for by more than this was delayed by something else, ns.
const LATEST_NS: u64 = 80_000;

impl Patience {
    pub(crate) const fn new(queue: &QueueConfig) -> Self {
        Self {
            looks: 0,
            longest_ns: queue.idle_sleep_ns,
            late_ns: 0,
            is_punctual: queue.punctual,
        }
    }

    /// Something happened: be quick again.
    pub(crate) const fn reset(&mut self) {
        self.looks = 0;
    }

    /// Nothing happened. Waits, at most until `until_ns` (`CLOCK_BOOTTIME`).
    pub(crate) fn wait(&mut self, until_ns: Option<u64>) {
        self.looks = self.looks.saturating_add(1);
        let step = match self.looks {
            0..=SPINS => 0,
            65..=84 => SHORTEST_SLEEP_NS,
            85..=104 => 100_000,
            105..=124 => 300_000,
            _ => self.longest_ns,
        }
        .min(self.longest_ns);
        // A kernel's end is logged as begin plus duration, so the next packet must not begin later because this thread
        // slept too long: that would look like a gap that some durations have and others have not.
        let now = boottime_ns();
        let left = until_ns.map_or(step, |until| {
            until
                .saturating_sub(now)
                .saturating_sub(self.late_ns)
                .min(step)
        });
        if left < SHORTEST_SLEEP_NS.min(self.longest_ns) {
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
