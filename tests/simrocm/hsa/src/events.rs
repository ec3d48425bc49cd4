//! Events that the GPU's interrupts set and that host threads wait for, in place of KFD's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gputrace_simrocm_core::abi::SharedSignal;

use crate::memory;

/// `KFD_SIGNAL_EVENT_LIMIT`: event numbers are 1 to 4095; each has a word of the mailbox page.
const LIMIT: u32 = 4096;

/// A counter that is incremented when the event is set, and the number of threads waiting for it.
#[derive(Debug)]
struct Event {
    count: AtomicU32,
    sleepers: AtomicU32,
}

static EVENTS: [Event; LIMIT as usize] = [const {
    Event {
        count: AtomicU32::new(0),
        sleepers: AtomicU32::new(0),
    }
}; LIMIT as usize];

/// Set whenever any event is set; the thread of the asynchronous handlers waits for it.
static ANY: Event = Event {
    count: AtomicU32::new(0),
    sleepers: AtomicU32::new(0),
};

#[derive(Debug)]
struct Pool {
    free: Vec<u32>,
    next: u32,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    next: 1,
});

/// Takes an event for a signal; returns its number and the address of its mailbox. `None` when all
/// are in use; the signal is then polled, as in ROCr.
pub(crate) fn take() -> Option<(u32, u64)> {
    static MAILBOXES: OnceLock<Option<u64>> = OnceLock::new();
    let page = *MAILBOXES.get_or_init(|| Some(memory::map(u64::from(LIMIT) * 8)?.address()));
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let id = match pool.free.pop() {
        Some(id) => id,
        None if pool.next < LIMIT => {
            pool.next += 1;
            pool.next - 1
        }
        None => return None,
    };
    Some((id, page? + u64::from(id) * 8))
}

/// Returns an event to the pool.
pub(crate) fn give_back(id: u32) {
    if id != 0 {
        POOL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(id);
    }
}

/// Sets an event.
pub(crate) fn set(id: u32) {
    if let Some(event) = EVENTS.get(id as usize) {
        event.set();
    }
    ANY.set();
}

/// Waits until the event of `signal` is set, unless `done` is already true; at most `longest`.
pub(crate) fn sleep_on(signal: &SharedSignal, longest: Duration, done: impl Fn() -> bool) {
    let id = signal.event_id.load(Ordering::Relaxed);
    match EVENTS.get(id as usize).filter(|_| id != 0) {
        Some(event) => event.sleep(longest, done),
        None => std::thread::sleep(longest.min(POLL)),
    }
}

/// Waits until any event is set, unless `done` is already true; at most `longest`.
pub(crate) fn sleep_on_any(longest: Duration, done: impl Fn() -> bool) {
    ANY.sleep(longest, done);
}

/// Polling interval of a signal without an event.
pub(crate) const POLL: Duration = Duration::from_micros(50);

impl Event {
    fn set(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            futex(&self.count, libc::FUTEX_WAKE, i32::MAX.unsigned_abs(), None);
        }
    }

    fn sleep(&self, longest: Duration, done: impl Fn() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.count.load(Ordering::SeqCst);
        if !done() {
            futex(&self.count, libc::FUTEX_WAIT, seen, Some(longest));
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is valid, the time null or valid. Spurious wake-ups are handled.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, time) };
}

/// A unique number, for queues and the runtime's own objects.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
