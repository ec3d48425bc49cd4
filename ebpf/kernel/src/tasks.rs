//! Processes and threads: created, executed, renamed, ended.

use aya_ebpf::{
    EbpfContext as _, Global,
    bindings::BPF_RB_NO_WAKEUP,
    btf_maps::{PerCpuArray, RingBuf},
    helpers::{bpf_get_smp_processor_id, generated::bpf_ktime_get_boot_ns},
    macros::{btf_map, tracepoint},
    programs::TracePointContext,
};
use aya_log_ebpf::debug;
use gputrace_abi::{
    config::{CLONE_THREAD, KernelConfig},
    counters::TaskCounters,
    record::{RecordHeader, TASK_SIZE, Task, kind, task_op},
};

/// Offsets of the fields that the programs read.
#[unsafe(no_mangle)]
static KERNEL_CONFIG: Global<KernelConfig> = Global::new(KernelConfig {
    newtask_pid: 0,
    newtask_comm: 0,
    newtask_clone_flags: 0,
    exec_old_pid: 0,
    rename_pid: 0,
    rename_newcomm: 0,
});

/// Task events of all CPUs: they are rare enough for one ring. The loader sets its size.
#[btf_map]
static TASK_RING: RingBuf<Task, { 1 << 20 }, 0> = RingBuf::new();

/// Tracepoint programs run with preemption off, so per-CPU counters need no atomic addition.
#[btf_map]
static TASK_COUNTERS: PerCpuArray<TaskCounters, 1> = PerCpuArray::new();

/// A new task; runs in its creator.
#[tracepoint(category = "task", name = "task_newtask")]
pub(crate) fn task_newtask(ctx: TracePointContext) -> Option<()> {
    let config = KERNEL_CONFIG.load();
    // SAFETY: the helper behind each read checks the address.
    let (tid, flags, comm) = unsafe {
        (
            ctx.read_at::<u32>(config.newtask_pid as usize).ok()?,
            ctx.read_at::<u64>(config.newtask_clone_flags as usize).ok()?,
            ctx.read_at::<[u8; 16]>(config.newtask_comm as usize).ok()?,
        )
    };
    let creator = ctx.tgid();
    debug!(
        &ctx,
        "task {}: created by process {}, clone flags {:x}", tid, creator, flags
    );
    if flags & CLONE_THREAD == 0 {
        write(task_op::FORK, tid, tid, creator, comm)
    } else {
        write(task_op::THREAD, creator, tid, ctx.pid(), comm)
    }
}

/// A process executed another program.
#[tracepoint(category = "sched", name = "sched_process_exec")]
pub(crate) fn sched_process_exec(ctx: TracePointContext) -> Option<()> {
    // SAFETY: the helper behind it checks the address.
    let old: u32 = unsafe { ctx.read_at(KERNEL_CONFIG.load().exec_old_pid as usize) }.ok()?;
    debug!(
        &ctx,
        "process {}: executed another program (task was {})",
        ctx.tgid(),
        old
    );
    write(task_op::EXEC, ctx.tgid(), ctx.pid(), old, ctx.command().ok()?)
}

/// A task ended.
#[tracepoint(category = "sched", name = "sched_process_exit")]
pub(crate) fn sched_process_exit(ctx: TracePointContext) -> Option<()> {
    debug!(&ctx, "task {} of process {}: ended", ctx.pid(), ctx.tgid());
    write(task_op::EXIT, ctx.tgid(), ctx.pid(), 0, ctx.command().ok()?)
}

/// A task got a new name; another task may have given it.
#[tracepoint(category = "task", name = "task_rename")]
pub(crate) fn task_rename(ctx: TracePointContext) -> Option<()> {
    let config = KERNEL_CONFIG.load();
    // SAFETY: the helper behind each read checks the address.
    let (tid, comm) = unsafe {
        (
            ctx.read_at::<u32>(config.rename_pid as usize).ok()?,
            ctx.read_at::<[u8; 16]>(config.rename_newcomm as usize).ok()?,
        )
    };
    // Only the renamed task's own id is in the event. When a task renames itself (prctl,
    // pthread_setname_np on itself) the current process is its process; when a thread renames a sibling
    // it is so too. Nobody can rename a task of another process.
    write(task_op::RENAME, ctx.tgid(), tid, 0, comm)
}

#[inline(always)]
fn write(op: u8, pid: u32, tid: u32, parent: u32, comm: [u8; 16]) -> Option<()> {
    let counters = TASK_COUNTERS.get_ptr_mut(0)?;
    // SAFETY: this CPU's own element, see above.
    unsafe { (*counters).seen += 1 };
    let Some(mut entry) = TASK_RING.reserve(0) else {
        // SAFETY: as above.
        unsafe { (*counters).ring_full += 1 };
        return None;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the entry is as large as a `Task`; helpers without arguments.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: TASK_SIZE as u16,
            kind: kind::TASK,
            domain: 0,
            cpu: bpf_get_smp_processor_id(),
        });
        (&raw mut (*record).time).write(bpf_ktime_get_boot_ns());
        (&raw mut (*record).pid).write(pid);
        (&raw mut (*record).tid).write(tid);
        (&raw mut (*record).parent).write(parent);
        (&raw mut (*record).op).write(op);
        (&raw mut (*record).reserved).write([0; 3]);
        (&raw mut (*record).comm).write(comm);
    }
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
    Some(())
}
