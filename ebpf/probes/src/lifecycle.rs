//! Follows processes and threads in the kernel, where this must happen without delay: children of
//! traced processes are traced from their first instruction, and a thread that ends leaves no open
//! calls.
//!
//! All programs are on raw tracepoints. On an ordinary tracepoint, the kernel skips programs on a
//! processor where a thread was preempted while working on a map by bpf(2), and nobody would know
//! what was missed.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_probe_read_kernel,
        generated::{bpf_for_each_map_elem, bpf_get_current_task, bpf_ktime_get_boot_ns},
    },
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use gputrace_abi::{
    config::{CLONE_THREAD, target_flags::STARTER},
    frame::MAX_DEPTH,
    gpu::COPIES_PER_BATCH,
    record::{kind, span_flags, task_op},
};

use crate::{
    frames::Frames,
    hold::{Place, report},
    linker,
    maps::{Counters, STEPS, TARGETS, config, stopped},
    ring::{Outcome, finish},
};

/// When a traced process creates another one: traces that too, if children are to be followed. Runs
/// in the creator, before the new task first runs.
#[raw_tracepoint(tracepoint = "task_newtask")]
pub(crate) fn task_created(ctx: RawTracePointContext) -> Option<()> {
    let config = config();
    if config.follow_forks == 0 || stopped() {
        return None;
    }
    // If every process is a target, so is the child, without an entry for each process of the node.
    // SAFETY: the pointer is that of a live map element; a racing removal can at worst make the
    // value stale.
    let flags = unsafe { *TARGETS.get_ptr((bpf_get_current_pid_tgid() >> 32) as u32)? };
    let clone_flags: u64 = ctx.arg(1);
    if clone_flags & CLONE_THREAD != 0 {
        return None;
    }
    let child = task_id(ctx.arg(0), config.task_pid)?;
    if TARGETS.insert(child, flags & !STARTER, 0).is_err() {
        // SAFETY: a helper without arguments.
        Counters::of(unsafe { bpf_get_smp_processor_id() })?.untraced_process();
    }
    Some(())
}

/// Id of a kernel task, whose field `pid` is at `offset`.
#[inline(always)]
pub(crate) fn task_id(task: *const u8, offset: u32) -> Option<u32> {
    // SAFETY: the helper used for the read checks the address.
    unsafe { bpf_probe_read_kernel(task.wrapping_add(offset as usize).cast()) }.ok()
}

/// When a task ends: its open calls stay unfinished. A process ends with its last thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn task_exited(_ctx: RawTracePointContext) -> Option<()> {
    let id = bpf_get_current_pid_tgid();
    close(id, span_flags::THREAD_EXITED);
    if !stopped() && is_last_thread() {
        let _ = TARGETS.remove((id >> 32) as u32);
    }
    Some(())
}

/// Whether the current task is the last living thread of its process. False if this kernel's layout
/// is not known: user space looks for processes that are gone, too.
#[inline(always)]
fn is_last_thread() -> bool {
    let config = config();
    if config.task_signal == 0 {
        return false;
    }
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let place = (task + u64::from(config.task_signal)) as *const u64;
    // SAFETY: the helper used for the read checks the address.
    let Ok(signal) = (unsafe { bpf_probe_read_kernel(place) }) else {
        return false;
    };
    let place = (signal + u64::from(config.signal_live)) as *const u32;
    // The kernel has subtracted this thread before it calls the tracepoint (`do_exit`).
    // SAFETY: the helper used for the read checks the address.
    let living = unsafe { bpf_probe_read_kernel(place) };
    living == Ok(0)
}

/// When a process executes another program. The other threads have ended already; the calling one
/// takes over the process id as its thread id, so its open calls may be stored under its previous
/// id.
///
/// If the process is a target itself (not only because every process is), the collector is told
/// before the new program's first instruction, and the process is held meanwhile: for example, it
/// may run under a dynamic linker that is not watched yet, in another root directory.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn task_executed(ctx: RawTracePointContext) -> Option<()> {
    let id = bpf_get_current_pid_tgid();
    let old: u32 = ctx.arg(1);
    close(id & !0xffff_ffff | u64::from(old), span_flags::EXECUTED);
    if stopped() {
        return None;
    }
    // SAFETY: the pointer is that of a live map element.
    let flags = unsafe { *TARGETS.get_ptr((id >> 32) as u32)? };
    linker::forget((id >> 32) as u32);
    report(id, flags, task_op::NEW_IMAGE, 0, Place::ANY)
}

/// Writes the open calls of the thread `id` as unfinished, and removes the thread.
#[inline(always)]
fn close(id: u64, flags: u16) -> Option<()> {
    if stopped() {
        return None;
    }
    let frames = Frames::find(id)?;
    let mut closing = Closing {
        frames,
        id,
        // SAFETY: a helper without arguments.
        end: unsafe { bpf_ktime_get_boot_ns() },
        flags: u32::from(flags),
    };
    // This helper is used as a loop whose body the verifier follows once or twice. For an ordinary
    // loop, the verifier of Linux 6.1 does not notice that its state repeats, and gives up after a
    // million steps.
    // SAFETY: the map is an array, `close_top` has the signature that the helper requires, and
    // `closing` lives through the call.
    unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&STEPS).cast_mut().cast(),
            close_top as *mut c_void,
            (&raw mut closing).cast(),
            0,
        )
    };
    Frames::remove(id);
    Some(())
}

/// A thread whose open calls are being closed.
struct Closing {
    frames: Frames,
    id: u64,
    /// Time of the end, ns `CLOCK_BOOTTIME`.
    end: u64,
    /// Bits of [`span_flags`].
    flags: u32,
}

/// Writes the innermost open call as unfinished. Returns non-zero if there is none.
extern "C" fn close_top(
    _map: *mut c_void,
    _step: *const u32,
    _value: *mut u8,
    closing: *mut Closing,
) -> i64 {
    // SAFETY: the helper passes the pointer that was given to it.
    let closing = unsafe { &mut *closing };
    let Some(frame) = closing.frames.top() else {
        return 1;
    };
    closing.frames.depth -= 1;
    let outcome = Outcome {
        kind: kind::UNFINISHED,
        flags: closing.flags,
        id: closing.id,
        depth: closing.frames.depth,
        end: closing.end,
        result: 0,
    };
    // SAFETY: a frame of this thread.
    unsafe { finish(frame, &outcome) };
    0
}

const _: () = assert!(MAX_DEPTH <= COPIES_PER_BATCH, "a step for each open call");
