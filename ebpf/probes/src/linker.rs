//! The dynamic linker calls an empty function, `_dl_debug_state`, before and after each change of its
//! list of libraries, so that debuggers can follow; so can we. After the first change of a process
//! (its own libraries are mapped, no constructor has run) and after each `dlopen`.

use aya_ebpf::{
    helpers::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_smp_processor_id,
        generated::{bpf_ktime_get_boot_ns, bpf_send_signal},
    },
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use gputrace_abi::{
    config::target_flags::STOP_ON_LINK,
    record::{RecordHeader, TASK_SIZE, Task, kind, task_op},
};

use crate::{
    maps::{over, target},
    ring::Slot,
};

/// `SIGSTOP` on x86-64.
const SIGSTOP: u32 = 19;

/// On entry of `_dl_debug_state`: tells the collector, and stops the process if it is to be stopped
/// until the probes are on.
#[uprobe]
pub(crate) fn linker_changed(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let flags = target((id >> 32) as u32)?;
    report(id, flags, task_op::LINKER, task_op::LINKER_STOPPED)
}

/// On return of `hsa_executable_freeze`: the process has loaded code objects. Theirs are the kernels'
/// names, which must be read before they are unloaded again.
#[uretprobe]
pub(crate) fn code_objects_changed(ctx: RetProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let flags = target((id >> 32) as u32)?;
    report(id, flags, task_op::CODE_OBJECTS, task_op::CODE_OBJECTS_STOPPED)
}

/// Tells the collector that the current process may have mapped other libraries. With
/// [`STOP_ON_LINK`] in `flags` the process is stopped, and `stopped_op` says so in place of `op`.
#[inline(always)]
pub(crate) fn report(id: u64, flags: u32, op: u8, stopped_op: u8) -> Option<()> {
    // A process is stopped only if the collector is sure to learn of it.
    let mut slot = Slot::<Task>::reserve()?;
    let record = slot.as_mut_ptr();
    // SAFETY: a helper that sends a signal to the current process.
    let halted = flags & STOP_ON_LINK != 0 && unsafe { bpf_send_signal(SIGSTOP) } == 0;
    // SAFETY: the slot is as large as a `Task`; helpers without arguments.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: TASK_SIZE as u16,
            kind: kind::LINKER,
            domain: 0,
            cpu: bpf_get_smp_processor_id(),
        });
        (&raw mut (*record).time).write(bpf_ktime_get_boot_ns());
        (&raw mut (*record).pid).write((id >> 32) as u32);
        (&raw mut (*record).tid).write(id as u32);
        (&raw mut (*record).parent).write(0);
        (&raw mut (*record).op).write(if halted { stopped_op } else { op });
        (&raw mut (*record).reserved).write([0; 3]);
        (&raw mut (*record).comm).write(bpf_get_current_comm().unwrap_or([0; 16]));
    }
    slot.submit_now();
    Some(())
}
