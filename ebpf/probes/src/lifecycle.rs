//! What must be known of processes and threads at the very moment, in the kernel: children of traced
//! processes are traced from their first instruction, and a thread that ends leaves no open calls.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, generated::bpf_ktime_get_boot_ns},
    macros::tracepoint,
    programs::TracePointContext,
};
use gputrace_abi::{
    config::CLONE_THREAD,
    frame::MAX_DEPTH,
    record::{kind, span_flags, task_op},
};

use crate::{
    frames::Frames,
    linker::report,
    maps::{TARGETS, THREADS, config, stopped, target},
    ring::{Outcome, finish},
};

/// A traced process created another one: trace that too, if children are to be followed. Runs in the
/// creator, before the new task first runs.
#[tracepoint(category = "task", name = "task_newtask")]
pub(crate) fn task_created(ctx: TracePointContext) -> Option<()> {
    let config = config();
    if config.follow_forks == 0 || stopped() {
        return None;
    }
    let flags = target((bpf_get_current_pid_tgid() >> 32) as u32)?;
    // SAFETY: the helper behind it checks the address.
    let clone_flags: u64 = unsafe { ctx.read_at(config.newtask_clone_flags as usize) }.ok()?;
    if clone_flags & CLONE_THREAD != 0 {
        return None;
    }
    // SAFETY: the helper behind it checks the address.
    let child: u32 = unsafe { ctx.read_at(config.newtask_pid as usize) }.ok()?;
    TARGETS.insert(child, flags, 0).ok()
}

/// A task ends: its open calls are unfinished for good.
#[tracepoint(category = "sched", name = "sched_process_exit")]
pub(crate) fn task_exited(_ctx: TracePointContext) -> Option<()> {
    close(bpf_get_current_pid_tgid(), span_flags::THREAD_EXITED)
}

/// A process executes another program. The other threads have ended already; the calling one takes
/// over the process id as its thread id, so its open calls may be under the id it had before.
///
/// If it is a target by name (not only as one of every process), the collector is told before the new
/// program's first instruction: it may run under a dynamic linker that is not watched yet, e.g. in a
/// container.
#[tracepoint(category = "sched", name = "sched_process_exec")]
pub(crate) fn task_executed(ctx: TracePointContext) -> Option<()> {
    let id = bpf_get_current_pid_tgid();
    // SAFETY: the helper behind it checks the address.
    let old: u32 = unsafe { ctx.read_at(config().exec_old_pid as usize) }.ok()?;
    close(id & !0xffff_ffff | u64::from(old), span_flags::EXECUTED);
    if stopped() {
        return None;
    }
    // SAFETY: the pointer is that of a live map element.
    let flags = unsafe { *TARGETS.get_ptr((id >> 32) as u32)? };
    report(id, flags, task_op::NEW_IMAGE, task_op::NEW_IMAGE_STOPPED)
}

/// Writes the open calls of the thread `id` as unfinished and forgets the thread.
#[inline(always)]
fn close(id: u64, flags: u16) -> Option<()> {
    if stopped() {
        return None;
    }
    let mut frames = Frames::find(id)?;
    // SAFETY: a helper without arguments.
    let end = unsafe { bpf_ktime_get_boot_ns() };
    for _ in 0..MAX_DEPTH {
        let Some(frame) = frames.top() else { break };
        frames.depth -= 1;
        let outcome = Outcome {
            kind: kind::UNFINISHED,
            flags: u32::from(flags),
            id,
            depth: frames.depth,
            end,
            result: 0,
        };
        // SAFETY: a frame of this thread.
        unsafe { finish(frame, &outcome) };
    }
    THREADS.remove(id).ok()
}
