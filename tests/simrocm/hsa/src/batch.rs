//! Signals created together (2026): one contiguous arena that is freed when its handle and all
//! members have been destroyed.
//!
//! Source: `SignalBatch` in ROCr's `core/inc/signal.h`. No published header that could be found has
//! the parameters of the exported functions; they are inferred from that class.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gputrace_simrocm_core::abi::{SharedSignal, Signal};
use gputrace_simrocm_core::ffi::{In, Out};
use gputrace_simrocm_core::status::Status;

use crate::memory;
use crate::signal::place;

/// An arena, with the number of its remaining holders: members and handle.
#[derive(Debug)]
struct Batch {
    bytes: u64,
    holders: u32,
    open: bool,
}

/// Arenas by address, which is also the handle.
static BATCHES: Mutex<BTreeMap<u64, Batch>> = Mutex::new(BTreeMap::new());

const BYTES: u64 = size_of::<SharedSignal>() as u64;

/// `hsa_amd_signal_batch_create(count, initial_values, attributes, batch, signals)`.
pub(crate) extern "C" fn create(
    count: u32,
    initial: In<i64>,
    attributes: u64,
    batch: Out<u64>,
    signals: Out<Signal>,
) -> Status {
    if count == 0 || batch.is_null() || signals.is_null() {
        return Status::INVALID_ARGUMENT;
    }
    let bytes = u64::from(count) * BYTES;
    let Some(arena) = memory::map(bytes) else {
        return Status::OUT_OF_RESOURCES;
    };
    let values = initial.list(count as usize);
    let notice = crate::signal_api::notice(attributes);
    for (index, at) in
        (0..count as usize).zip((arena.address()..).step_by(size_of::<SharedSignal>()))
    {
        let value = values.get(index).copied().unwrap_or(0);
        signals.element(index).put(place(at, value, notice));
    }
    let new = Batch {
        bytes,
        holders: count + 1,
        open: true,
    };
    BATCHES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(arena.address(), new);
    batch.put(arena.address()).into()
}

/// `hsa_amd_signal_batch_destroy(batch)`: releases the handle; members stay valid.
pub(crate) extern "C" fn destroy(batch: u64) -> Status {
    let mut batches = BATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    match batches.get_mut(&batch) {
        Some(found) if found.open => found.open = false,
        _ => return Status::INVALID_ARGUMENT,
    }
    release(&mut batches, batch);
    Status::SUCCESS
}

/// Notes that a signal was destroyed; returns true if it was a member of a batch, whose slots are
/// not reused.
pub(crate) fn released(signal: Signal) -> bool {
    let mut batches = BATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = batches.range(..=signal.0).next_back();
    let Some(batch) = found.filter(|(start, batch)| signal.0 - **start < batch.bytes) else {
        return false;
    };
    let start = *batch.0;
    release(&mut batches, start);
    true
}

fn release(batches: &mut BTreeMap<u64, Batch>, start: u64) {
    let Some(batch) = batches.get_mut(&start) else {
        return;
    };
    batch.holders -= 1;
    if batch.holders == 0 {
        let bytes = batch.bytes;
        batches.remove(&start);
        memory::unmap(start, bytes);
    }
}
