//! Signals: their memory, and waiting for them.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gputrace_simrocm_core::abi::{SharedSignal, Signal, cell64, signal_id, signal_kind};
use gputrace_simrocm_core::status::Status;
use gputrace_softgpu::clock::boottime_ns;

use crate::{events, memory};

/// Size of a signal in bytes.
const BYTES: u64 = size_of::<SharedSignal>() as u64;
/// Number of signals in the first block; each further block has twice as many (ROCr's
/// `SharedSignalPool_t`).
const FIRST_BLOCK: u64 = 16_384;

#[derive(Debug)]
struct Pool {
    free: Vec<u64>,
    /// The unused part of the newest block.
    fresh: std::ops::Range<u64>,
    block: u64,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    fresh: 0..0,
    block: FIRST_BLOCK,
});

/// How a signal notifies the host of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// By an interrupt; it has an event and a mailbox.
    Interrupt,
    /// Not at all; waiting threads must poll.
    None,
}

/// Makes a signal.
pub(crate) fn create(value: i64, notice: Notice) -> Option<Signal> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let address = match pool.free.pop() {
        Some(address) => address,
        None => {
            if pool.fresh.is_empty() {
                let bytes = pool.block * BYTES;
                let start = memory::map(bytes)?.address();
                pool.fresh = start..start + bytes;
                pool.block *= 2;
            }
            let address = pool.fresh.start;
            pool.fresh.start += BYTES;
            address
        }
    };
    drop(pool);
    Some(place(address, value, notice))
}

/// Creates a signal at this address.
pub(crate) fn place(address: u64, value: i64, notice: Notice) -> Signal {
    cell64(address + std::mem::offset_of!(SharedSignal, id) as u64)
        .store(signal_id(), Ordering::Relaxed);
    let handle = Signal(address);
    if let Some(signal) = handle.get() {
        let event = (notice == Notice::Interrupt).then(events::take).flatten();
        let (event, mailbox) = event.unwrap_or((0, 0));
        signal.event_id.store(event, Ordering::Relaxed);
        signal.event_mailbox.store(mailbox, Ordering::Relaxed);
        for stamp in [
            &signal.start_ts,
            &signal.end_ts,
            &signal.sdma_start_ts,
            &signal.sdma_end_ts,
            &signal.queue,
        ] {
            stamp.store(0, Ordering::Relaxed);
        }
        // The real runtime's object is elsewhere; readers only check that the pointer is not null.
        signal.core_signal.store(address, Ordering::Relaxed);
        signal.value.store(value, Ordering::Relaxed);
        signal.kind.store(signal_kind::USER, Ordering::Release);
    }
    handle
}

/// Ends the life of a signal. Whether its memory may be reused depends on where it is.
fn end(signal: &SharedSignal) {
    crate::handler::forget(signal.handle());
    events::give_back(signal.event_id.swap(0, Ordering::Relaxed));
    signal.event_mailbox.store(0, Ordering::Relaxed);
    signal.id.store(0, Ordering::Release);
}

/// Destroys a signal.
pub(crate) fn destroy(handle: Signal) -> Status {
    let Some(signal) = handle.get() else {
        return Status::INVALID_SIGNAL;
    };
    end(signal);
    if !crate::batch::released(handle) {
        POOL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(handle.0);
    }
    Status::SUCCESS
}

/// Notifies waiting threads that the host has changed a signal.
pub(crate) fn notify(signal: &SharedSignal) {
    let event = signal.event_id.load(Ordering::Relaxed);
    if event != 0 {
        events::set(event);
    }
}

/// Compares a value by an `hsa_signal_condition_t`.
pub(crate) fn holds(condition: u32, value: i64, with: i64) -> bool {
    match condition {
        0 => value == with,
        1 => value != with,
        2 => value < with,
        _ => value >= with,
    }
}

/// Number of polls before a blocked wait sleeps; short kernels end during them.
const LOOKS: u32 = 200;
/// `HSA_WAIT_STATE_BLOCKED`.
const BLOCKED: u32 = 0;
/// Maximum sleep between two polls. Interrupts wake earlier.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Waits until the value satisfies the condition, or for the given ns. Returns the value.
pub(crate) fn wait(
    signal: &SharedSignal,
    condition: u32,
    with: i64,
    timeout_ns: u64,
    state: u32,
) -> i64 {
    let value = || signal.value.load(Ordering::Acquire);
    let done = || holds(condition, value(), with);
    let deadline = (timeout_ns != u64::MAX).then(|| boottime_ns().saturating_add(timeout_ns));
    let mut looks = 0;
    while !done() {
        let left = deadline.map_or(u64::MAX, |deadline| deadline.saturating_sub(boottime_ns()));
        if left == 0 {
            break;
        }
        looks += 1;
        if looks < LOOKS || state != BLOCKED {
            std::thread::yield_now();
        } else {
            events::sleep_on(signal, LONGEST_SLEEP.min(Duration::from_nanos(left)), done);
        }
    }
    value()
}
