//! Code objects come and go. Theirs are the kernels' names, which the collector reads from the memory of
//! the process. A thread that loads some is not held; one that unloads some is, if the collector has
//! not read yet what was loaded before.

use aya_ebpf::{
    btf_maps::LruHashMap,
    helpers::bpf_get_current_pid_tgid,
    macros::{btf_map, uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use gputrace_abi::{config::target_flags::HOLD, record::task_op};

use crate::{
    hold::report,
    maps::{over, target},
};

/// How often a process has loaded code objects, by tgid. A process that is forgotten because there are too
/// many is not held.
#[btf_map]
static LOADS: LruHashMap<u32, u32, 16384> = LruHashMap::new();

/// The load, of those that [`LOADS`] counts, up to which the collector has read.
#[btf_map]
static READ_LOADS: LruHashMap<u32, u32, 16384> = LruHashMap::new();

/// On return of `hsa_executable_freeze`: the process has loaded code objects.
#[uretprobe]
pub(crate) fn code_objects_changed(ctx: RetProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let flags = target((id >> 32) as u32)?;
    let process = (id >> 32) as u32;
    // Two threads that load at the same time may count one load. Both come before what either unloads.
    let loads = number(LOADS.get_ptr(process)).wrapping_add(1);
    // A full map forgets another process.
    let _ = LOADS.insert(process, loads, 0);
    report(id, flags & !HOLD, task_op::CODE_OBJECTS, loads)
}

/// At the entry of `hsa_executable_destroy`: code objects are about to be unloaded.
#[uprobe]
pub(crate) fn code_objects_end(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    hold_unread(bpf_get_current_pid_tgid())
}

/// Holds the current thread if there are code objects of its process that the collector has not read.
#[inline(always)]
pub(crate) fn hold_unread(id: u64) -> Option<()> {
    let process = (id >> 32) as u32;
    let flags = target(process)?;
    let loads = number(LOADS.get_ptr(process));
    if flags & HOLD == 0 || loads == number(READ_LOADS.get_ptr(process)) {
        return None;
    }
    report(id, flags, task_op::CODE_OBJECTS, loads)
}

/// A number of a map; 0 if there is none.
#[inline(always)]
fn number(found: Option<*const u32>) -> u32 {
    // SAFETY: the pointer is that of a live map element.
    found.map_or(0, |number| unsafe { number.read_volatile() })
}
