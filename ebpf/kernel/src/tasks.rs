//! Processes and threads: created, executed, renamed, ended.
//!
//! The programs are on raw tracepoints. On ordinary ones, the kernel skips programs while a thread
//! that works on a map by bpf(2) is preempted, and does not report it.
//!
//! They run at every fork, exec, exit and renaming on the node, so irrelevant events must end at
//! once: only events of the processes in [`KNOWN`] are written. User space adds processes; the
//! programs add their children.

use aya_ebpf::{
    EbpfContext as _, Global,
    bindings::BPF_RB_NO_WAKEUP,
    btf_maps::{HashMap, PerCpuArray, RingBuf},
    helpers::{
        bpf_get_smp_processor_id, bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes,
        generated::bpf_ktime_get_boot_ns,
    },
    macros::{btf_map, raw_tracepoint},
    programs::RawTracePointContext,
};
use aya_log_ebpf::debug;
use gputrace_abi::{
    config::{CLONE_THREAD, KNOWN_PROCESSES, KernelConfig},
    counters::TaskCounters,
    record::{RecordHeader, TASK_SIZE, Task, kind, task_op},
};

/// Facts about this kernel that the programs need.
#[unsafe(no_mangle)]
static KERNEL_CONFIG: Global<KernelConfig> = Global::new(KernelConfig {
    task_pid: 0,
    follow_forks: 0,
});

/// Processes whose events are written, by tgid. A non-zero value means that the processes it
/// creates become known, too.
#[btf_map]
static KNOWN: HashMap<u32, u32, { KNOWN_PROCESSES as usize }> = HashMap::new();

/// Task events of all CPUs: they are rare enough for one ring. The loader sets its size.
#[btf_map]
static TASK_RING: RingBuf<Task, { 1 << 20 }, 0> = RingBuf::new();

/// Raw tracepoint programs run with preemption off, so per-CPU counters need no atomic addition.
#[btf_map]
static TASK_COUNTERS: PerCpuArray<TaskCounters, 1> = PerCpuArray::new();

/// A new task; runs in its creator, before the new task first runs.
#[raw_tracepoint(tracepoint = "task_newtask")]
pub(crate) fn task_newtask(ctx: RawTracePointContext) -> Option<()> {
    let follow = known(ctx.tgid())?;
    let (tid, flags) = (task_id(ctx.arg(0))?, ctx.arg::<u64>(1));
    // A new task has its creator's name.
    let comm = ctx.command().ok()?;
    let creator = ctx.tgid();
    debug!(
        &ctx,
        "task {}: created by process {}, clone flags {:x}", tid, creator, flags
    );
    if flags & CLONE_THREAD == 0 {
        if follow != 0
            && KNOWN
                .insert(tid, KERNEL_CONFIG.load().follow_forks, 0)
                .is_err()
        {
            lost();
        }
        write(task_op::FORK, tid, tid, creator, comm)
    } else {
        write(task_op::THREAD, creator, tid, ctx.pid(), comm)
    }
}

/// A process executed another program.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn sched_process_exec(ctx: RawTracePointContext) -> Option<()> {
    known(ctx.tgid())?;
    let old: u32 = ctx.arg(1);
    debug!(
        &ctx,
        "process {}: executed another program (task was {})",
        ctx.tgid(),
        old
    );
    write(
        task_op::EXEC,
        ctx.tgid(),
        ctx.pid(),
        old,
        ctx.command().ok()?,
    )
}

/// A task ended.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn sched_process_exit(ctx: RawTracePointContext) -> Option<()> {
    known(ctx.tgid())?;
    debug!(&ctx, "task {} of process {}: ended", ctx.pid(), ctx.tgid());
    if ctx.pid() == ctx.tgid() {
        // Its id can be reused for another process.
        let _ = KNOWN.remove(ctx.tgid());
    }
    write(task_op::EXIT, ctx.tgid(), ctx.pid(), 0, ctx.command().ok()?)
}

/// A task got a new name, possibly from another task.
#[raw_tracepoint(tracepoint = "task_rename")]
pub(crate) fn task_rename(ctx: RawTracePointContext) -> Option<()> {
    known(ctx.tgid())?;
    let tid = task_id(ctx.arg(0))?;
    let mut comm = [0; 16];
    // SAFETY: the helper used for the read checks the address.
    unsafe { bpf_probe_read_kernel_str_bytes(ctx.arg(1), &mut comm) }.ok()?;
    // Reading the renamed task's process would cost another read, and is not needed: the current
    // process is the renamed task's process, whether a task renames itself (prctl,
    // pthread_setname_np on itself) or a thread renames a sibling. Nobody can rename a task of
    // another process.
    write(task_op::RENAME, ctx.tgid(), tid, 0, comm)
}

/// The value of a process in [`KNOWN`]; `None` if its events are of no interest.
#[inline(always)]
fn known(tgid: u32) -> Option<u32> {
    // SAFETY: the pointer is that of a live map element; a racing removal can at worst make the
    // value stale.
    KNOWN.get_ptr(tgid).map(|value| unsafe { *value })
}

/// Counts an event that cannot be reported.
#[inline(always)]
fn lost() {
    if let Some(counters) = TASK_COUNTERS.get_ptr_mut(0) {
        // SAFETY: this CPU's own element, see its map.
        unsafe {
            (*counters).seen += 1;
            (*counters).ring_full += 1;
        };
    }
}

/// Id of a kernel task.
#[inline(always)]
fn task_id(task: *const u8) -> Option<u32> {
    // SAFETY: the helper used for the read checks the address.
    unsafe {
        bpf_probe_read_kernel(
            task.wrapping_add(KERNEL_CONFIG.load().task_pid as usize)
                .cast(),
        )
    }
    .ok()
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
        (&raw mut (*record).held).write(0);
        (&raw mut (*record).reserved).write([0; 2]);
        (&raw mut (*record).comm).write(comm);
    }
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
    Some(())
}
