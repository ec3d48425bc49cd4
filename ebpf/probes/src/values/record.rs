//! The record of one value, and what it says of one that could not be read.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id,
    generated::{bpf_get_current_task, bpf_probe_read_kernel as read_kernel},
};
use gputrace_abi::{
    counters::DropReason,
    domain::Domain,
    record::{RecordHeader, kind},
    values::{LONG_BYTES, UNREAD_SIZE, Value, value_flags},
};

use crate::maps::{Counters, config};

/// Size of a long record.
pub(super) const LONG_RECORD: u16 = size_of::<Sized<LONG_BYTES>>() as u16;

/// A record in a ring.
#[repr(C)]
pub(super) struct Sized<const BYTES: usize> {
    value: Value,
    pub(super) bytes: [u8; BYTES],
}

/// A value to be read.
pub(super) struct Order {
    pub(super) correlation: u64,
    pub(super) address: u64,
    /// `tgid << 32 | tid`.
    pub(super) id: u64,
    /// Number of bytes; 0: a string.
    pub(super) bytes: u16,
    pub(super) word: u8,
    /// Bits of [`value_flags`].
    pub(super) flags: u8,
}

/// Counts a value as lost because the ring is full.
#[inline(always)]
pub(super) fn lost(counters: Counters) -> u64 {
    counters.seen(Domain::ArgumentData.id());
    counters.dropped(DropReason::RingFull, Domain::ArgumentData.id());
    0
}

/// Writes an [`Unread`].
///
/// # Safety
///
/// `words` must point to two writable words.
#[inline(always)]
pub(super) unsafe fn unread(words: *mut u64, address: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        words.write(address);
        stack_of_program(words.add(1));
    }
}

/// Writes [`Unread::stack`] to `place`, which also serves as a buffer for the reads that lead
/// there.
///
/// # Safety
///
/// `place` must be writable.
#[inline(always)]
pub(super) unsafe fn stack_of_program(place: *mut u64) {
    let config = config();
    // SAFETY: the caller's promise; the helper checks the addresses, and writes zeroes if it cannot
    // read.
    unsafe {
        place.write(0);
        if config.task_mm == 0 {
            return;
        }
        let task = bpf_get_current_task();
        let mm = (task + u64::from(config.task_mm)) as *const c_void;
        // A task without memory of its own (never one that these programs run in) yields an address
        // that is not mapped.
        read_kernel(place.cast(), 8, mm);
        let stack = (place.read() + u64::from(config.mm_start_stack)) as *const c_void;
        read_kernel(place.cast(), 8, stack);
    }
}

/// Fills in a [`Value`] of which `read` bytes were read, including the NUL of a string; negative if
/// none could be read.
///
/// # Safety
///
/// `record` must be writable.
#[inline(always)]
pub(super) unsafe fn describe(record: *mut Value, size: u16, order: &Order, read: i64, flags: u8) {
    let is_string = order.bytes == 0;
    let (length, flags) = match read {
        ..0 => (UNREAD_SIZE as u16, flags | value_flags::UNREADABLE),
        0 => (0, flags),
        _ if is_string => (read as u16 - 1, flags),
        _ => (read as u16, flags),
    };
    let flags = if is_string {
        flags | value_flags::STRING
    } else {
        flags
    };
    // SAFETY: the caller's promise; a helper without arguments.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size,
            kind: kind::VALUE,
            domain: Domain::ArgumentData.id(),
            cpu: bpf_get_smp_processor_id(),
        });
        (&raw mut (*record).correlation).write(order.correlation);
        (&raw mut (*record).pid).write((order.id >> 32) as u32);
        (&raw mut (*record).length).write(length);
        (&raw mut (*record).word).write(order.word);
        (&raw mut (*record).flags).write(order.flags | flags);
    }
}
