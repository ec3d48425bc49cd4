//! Keeps track of the completion signals in use, and reads them before their timestamps are lost:
//! when the runtime uses them again or destroys them, or when the process ends.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_probe_read_user,
        generated::{bpf_for_each_map_elem, bpf_ktime_get_boot_ns},
    },
    macros::{tracepoint, uprobe},
    programs::{ProbeContext, TracePointContext},
};
use gputrace_abi::{
    counters::DropReason,
    domain::Domain,
    gpu::{COMPLETION_SIZE, Completion, SDMA_UNKNOWN, SIGNAL_MARK, completion_reason},
    record::{RecordHeader, kind},
};

use crate::{
    hold::Place,
    maps::{Counters, Object, SIGNALLING, SIGNALS, over, stopped},
    objects::hold_unread,
    ring::Slot,
};

/// Notes that a packet or copy will complete the signal `key`.
#[inline(always)]
pub(crate) fn used(key: Object) {
    if is_used(key) || SIGNALS.insert(key, 0, u64::from(BPF_NOEXIST)).is_err() {
        return;
    }
    // Noted so that the end of other processes costs nothing. If there is no room, the collector
    // finds the completed signals.
    let _ = SIGNALLING.insert(key.process as u32, 0, 0);
}

/// The runtime is about to reset a signal to its initial value.
#[inline(always)]
pub(crate) fn rearmed(id: u64, signal: u64) -> u64 {
    let key = Object {
        process: id >> 32,
        address: signal,
    };
    if is_used(key) {
        harvest(id, signal, completion_reason::REARM)
    } else {
        0
    }
}

/// The runtime is about to destroy a signal.
#[inline(always)]
pub(crate) fn destroyed(id: u64, signal: u64) -> u64 {
    let key = Object {
        process: id >> 32,
        address: signal,
    };
    if is_used(key) {
        harvest(id, signal, completion_reason::DESTROY);
        let _ = SIGNALS.remove(key);
    }
    0
}

/// A process exits; its memory still exists.
#[tracepoint(category = "syscalls", name = "sys_enter_exit_group")]
pub(crate) fn process_exits(_ctx: TracePointContext) -> Option<()> {
    if stopped() {
        return None;
    }
    let _ = sweep();
    hold_unread(bpf_get_current_pid_tgid(), Place::EXIT)
}

/// At the entry of `hsa_shut_down`: the runtime is about to free signals that nobody has destroyed.
#[uprobe]
pub(crate) fn runtime_ends(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    sweep()
}

/// Reads every completion signal of the current process that is in use.
#[inline(always)]
fn sweep() -> Option<()> {
    let mut id = bpf_get_current_pid_tgid();
    // Nothing is read through the pointer.
    SIGNALLING.get_ptr((id >> 32) as u32)?;
    // SAFETY: the map can be walked, `visit` has the signature that the helper requires, and `id`
    // lives through the call.
    unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&SIGNALS).cast_mut().cast(),
            visit as *mut c_void,
            (&raw mut id).cast(),
            0,
        )
    };
    Some(())
}

/// Reads the signal `key` if it belongs to the process of thread `id`.
extern "C" fn visit(
    _map: *mut c_void,
    key: *const Object,
    _value: *mut u32,
    id: *const u64,
) -> i64 {
    // SAFETY: the helper passes a live key and the pointer that was given to it.
    let (key, id) = unsafe { (*key, *id) };
    // A complete signal holds nothing more to read, and its memory may be gone at the next sweep.
    if key.process == id >> 32 && harvest(id, key.address, completion_reason::EXIT) != 0 {
        let _ = SIGNALS.remove(key);
    }
    0
}

/// Writes the record of a completion signal in its current state, or counts it as lost. Returns
/// non-zero if the signal is complete.
#[inline(never)]
fn harvest(id: u64, signal: u64, reason: u32) -> u64 {
    let domain = Domain::Completion.id();
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let Some(counters) = Counters::of(cpu) else {
        return 0;
    };
    counters.seen(domain);
    // Reads `amd_signal_t` from its value on, and ROCr's own words that follow. The value is read
    // first: if it says that the work is done, the later reads return the work's final results.
    // SAFETY: the helper checks the addresses.
    let (Ok([value, _, _, start, end]), Ok([sdma_start, _, mark, _, sdma_end])) = (unsafe {
        (
            bpf_probe_read_user((signal + 8) as *const [u64; 5]),
            bpf_probe_read_user((signal + 64) as *const [u64; 5]),
        )
    }) else {
        counters.dropped(DropReason::MemoryUnreadable, domain);
        return 0;
    };
    // HSA defines the first structure; only ROCr defines the words after it.
    let (sdma_start, sdma_end) = if mark == SIGNAL_MARK {
        (sdma_start, sdma_end)
    } else {
        (SDMA_UNKNOWN, 0)
    };
    let Some(mut slot) = Slot::<Completion>::reserve() else {
        counters.dropped(DropReason::RingFull, domain);
        return 0;
    };
    let record = slot.as_mut_ptr();
    // Taken after the value: a complete signal proves that the work had ended by this time, not by
    // the call's beginning.
    // SAFETY: a helper without arguments.
    let time = unsafe { bpf_ktime_get_boot_ns() };
    // SAFETY: the slot is as large as a `Completion`.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: COMPLETION_SIZE as u16,
            kind: kind::COMPLETION,
            domain,
            cpu,
        });
        (&raw mut (*record).pid).write((id >> 32) as u32);
        (&raw mut (*record).reason).write(reason);
        (&raw mut (*record).time).write(time);
        (&raw mut (*record).signal).write(signal);
        (&raw mut (*record).value).write(value.cast_signed());
        (&raw mut (*record).start).write(start);
        (&raw mut (*record).end).write(end);
        (&raw mut (*record).sdma_start).write(sdma_start);
        (&raw mut (*record).sdma_end).write(sdma_end);
    }
    slot.submit(reason != completion_reason::EXIT);
    u64::from(value.cast_signed() <= 0)
}

/// Whether a signal is the completion signal of a packet or copy that was seen.
#[inline(always)]
fn is_used(key: Object) -> bool {
    SIGNALS.get_ptr(key).is_some()
}
