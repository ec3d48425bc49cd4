//! Scheduling of traced threads: when they have no processor, whether they were waiting for one,
//! and which thread woke them.
//!
//! An off-CPU period begins when a thread leaves its processor, and is counted then, on that
//! processor. Its record is written when the thread comes back. Periods that have not ended at the
//! end of the recording are read from the map.
//!
//! The programs are on raw tracepoints, for the reason that [`crate::lifecycle`] gives: an ordinary
//! tracepoint missed 301 switches within 14 s on two busy processors.

use aya_ebpf::{
    btf_maps::HashMap,
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id, generated::bpf_ktime_get_boot_ns,
    },
    macros::{btf_map, raw_tracepoint},
    programs::RawTracePointContext,
};
use gputrace_abi::{
    config::target_flags::STARTER,
    counters::DropReason,
    domain::Domain,
    record::{RecordHeader, kind},
    sched::{OFF_CPU_SIZE, OffCpu, STATE_GONE, STATE_WAITING},
};

use crate::{
    lifecycle::task_id,
    maps::{Counters, TARGETS, THREADS, config, paused, stopped},
    ring::Slot,
};

/// Traced threads without a processor, by thread id.
#[btf_map]
pub(crate) static OFF_CPU: HashMap<u32, OffCpu, 1> = HashMap::new();

/// When a processor switches from one thread to another; runs in the thread that leaves.
#[raw_tracepoint(tracepoint = "sched_switch")]
pub(crate) fn sched_switched(ctx: RawTracePointContext) -> Option<()> {
    if stopped() {
        return None;
    }
    // SAFETY: a helper without arguments.
    let time = unsafe { bpf_ktime_get_boot_ns() };
    let (is_preempted, next, state) = (ctx.arg::<u8>(0), ctx.arg(2), ctx.arg(3));
    arrives(task_id(next, config().task_pid)?, time);
    if paused() {
        return None;
    }
    leaves(if is_preempted == 0 { state } else { 0 }, time)
}

/// When a thread becomes runnable.
#[raw_tracepoint(tracepoint = "sched_wakeup")]
pub(crate) fn sched_woken(ctx: RawTracePointContext) -> Option<()> {
    if stopped() {
        return None;
    }
    let tid = task_id(ctx.arg(0), config().task_pid)?;
    let off = OFF_CPU.get_ptr_mut(tid)?;
    // SAFETY: a live map element; a thread is woken by one processor at a time, and gets a
    // processor after that.
    unsafe {
        if (*off).woken == 0 {
            (*off).woken = bpf_ktime_get_boot_ns();
            (*off).waker = bpf_get_current_pid_tgid() as u32;
        }
    }
    Some(())
}

/// The current thread leaves its processor.
#[inline(always)]
fn leaves(state: u32, time: u64) -> Option<()> {
    let id = bpf_get_current_pid_tgid();
    let (pid, tid) = ((id >> 32) as u32, id as u32);
    // The idle task of each processor has the id 0, which stands for every process in `TARGETS`.
    if tid == 0 {
        return None;
    }
    if state & STATE_GONE != 0 {
        return None;
    }
    // On a whole node, only threads that have called a traced function count.
    match TARGETS.get_ptr(pid) {
        // SAFETY: a live map element.
        Some(flags) if unsafe { *flags } & STARTER != 0 => return None,
        None if THREADS.get_ptr(id).is_none() => return None,
        Some(_) | None => {}
    }
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let counters = Counters::of(cpu)?;
    counters.seen(Domain::Sched.id());
    if let Some(old) = OFF_CPU.get_ptr(tid) {
        // SAFETY: a live map element.
        lost(unsafe { (*old).header.cpu }, DropReason::LostReturn);
    }
    let off = OffCpu {
        header: RecordHeader {
            size: OFF_CPU_SIZE as u16,
            kind: kind::OFF_CPU,
            domain: Domain::Sched.id(),
            cpu,
        },
        pid,
        tid,
        begin: time,
        woken: if state & STATE_WAITING == 0 { time } else { 0 },
        end: 0,
        waker: 0,
        state: state & STATE_WAITING,
    };
    if OFF_CPU.insert(tid, off, 0).is_err() {
        counters.dropped(DropReason::ThreadMapFull, Domain::Sched.id());
    }
    Some(())
}

/// A thread gets a processor.
#[inline(always)]
fn arrives(tid: u32, time: u64) -> Option<()> {
    let off = OFF_CPU.get_ptr_mut(tid)?;
    // SAFETY: a live map element.
    let cpu = unsafe { (*off).header.cpu };
    match Slot::<OffCpu>::reserve() {
        Some(mut slot) => {
            // SAFETY: a live map element, and a slot of the same type.
            unsafe {
                (*off).end = time;
                slot.as_mut_ptr().write(*off);
            }
            // Does not wake the collector: that would take locks of the scheduler.
            slot.submit(false);
        }
        None => lost(cpu, DropReason::RingFull),
    }
    OFF_CPU.remove(tid).ok()
}

/// Counts an off-CPU period that began on `cpu` as lost.
#[inline(always)]
fn lost(cpu: u32, reason: DropReason) {
    if let Some(counters) = Counters::of(cpu) {
        counters.dropped(reason, Domain::Sched.id());
    }
}
