//! Follows the loading and unloading of code objects. They contain the kernels' names, which the
//! collector reads from the memory of the process. A thread that loads code objects is not held. A
//! thread that unloads some, or that ends its process, is held if the collector has not yet read
//! everything loaded before.

use aya_ebpf::{
    btf_maps::LruHashMap,
    helpers::bpf_get_current_pid_tgid,
    macros::{btf_map, uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use gputrace_abi::{config::target_flags::HOLD, record::task_op};

use crate::{
    hold::{Place, report},
    maps::{over, target},
};

/// How often a process has loaded code objects, by tgid. A process evicted from the full map is not
/// held.
#[btf_map]
static LOADS: LruHashMap<u32, u32, 16384> = LruHashMap::new();

/// Number of the load, as counted by [`LOADS`], up to which the collector has read.
#[btf_map]
static READ_LOADS: LruHashMap<u32, u32, 16384> = LruHashMap::new();

/// At the return of `hsa_executable_freeze`: the process has loaded code objects.
#[uretprobe]
pub(crate) fn code_objects_changed(ctx: RetProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let flags = target((id >> 32) as u32)?;
    let process = (id >> 32) as u32;
    // Two threads that load at the same time may count as one load. Both loads precede whatever
    // either thread unloads.
    let loads = number(LOADS.get_ptr(process)).wrapping_add(1);
    // A full map evicts another process.
    let _ = LOADS.insert(process, loads, 0);
    report(id, flags & !HOLD, task_op::CODE_OBJECTS, loads, Place::ANY)
}

/// At the entry of `hsa_executable_destroy`: code objects are about to be unloaded.
#[uprobe]
pub(crate) fn code_objects_end(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    hold_unread(bpf_get_current_pid_tgid(), Place::ANY)
}

/// Holds the current thread if the collector has not read all code objects of its process.
#[inline(always)]
pub(crate) fn hold_unread(id: u64, place: Place) -> Option<()> {
    let process = (id >> 32) as u32;
    let flags = target(process)?;
    let loads = number(LOADS.get_ptr(process));
    if flags & HOLD == 0 || loads == number(READ_LOADS.get_ptr(process)) {
        return None;
    }
    report(id, flags, task_op::CODE_OBJECTS, loads, place)
}

/// Value of a map element; 0 if there is none.
#[inline(always)]
fn number(found: Option<*const u32>) -> u32 {
    // SAFETY: the pointer is that of a live map element.
    found.map_or(0, |number| unsafe { number.read_volatile() })
}
