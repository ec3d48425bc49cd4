//! Actions at functions that report the GPU's work: each such function has a [`role`].
//!
//! The role is all that is known about the called function. All data is read from the process's own
//! memory. This thread's function is about to read it as well, so it is resident.

use aya_ebpf::bindings::pt_regs;
use gputrace_abi::{cookie::Cookie, frame::Thread, gpu::role};

use crate::{
    copies::{batch, copy},
    frames::Frames,
    hit::{Hit, arguments},
    maps::paused,
    packets::{queue_destroyed, signal_stored},
    signals,
};

/// Does what the role of the function requires, in the thread whose open calls are in `thread`, if
/// it is known.
///
/// Not inlined, so that the object contains it once, and its variables are not on its callers'
/// stacks: before Linux 6.13, all functions that are active at one time share 512 bytes.
#[inline(never)]
pub(crate) fn observe(
    regs: *const pt_regs,
    id: u64,
    time: u64,
    cookie: u64,
    thread: *mut Thread,
) -> u64 {
    let cookie = Cookie(cookie);
    // SAFETY: the registers in the program's context.
    let [first, ..] = arguments(unsafe { &*regs });
    // Signals are read whoever uses them. Only work has an origin, which must be determined.
    match cookie.role() {
        role::REARM => return signals::rearmed(id, first),
        role::SIGNAL_DESTROY => return signals::destroyed(id, first),
        _ => {}
    }
    let frames = if thread.is_null() {
        None
    } else {
        Some(Frames::new(thread))
    };
    let hit = &Hit::new(regs, id, time, cookie, frames);
    match cookie.role() {
        role::DOORBELL => signal_stored(hit).map_or(0, |()| 1),
        role::QUEUE_DESTROY => queue_destroyed(hit, first).map_or(0, |()| 1),
        role::COPY | role::COPY_ON_ENGINE | role::COPY_RECT | role::COPY_BATCH if paused() => 0,
        role::COPY | role::COPY_ON_ENGINE | role::COPY_RECT => copy(hit),
        role::COPY_BATCH => batch(hit),
        _ => 0,
    }
}
