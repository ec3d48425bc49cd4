//! Telling the collector at once, and holding the thread meanwhile.
//!
//! A thread that has mapped a library must not call it before its probes are on. It is held here: the
//! program waits, for a bounded time, until gputrace says that it may go on. No signal is sent, so
//! neither the program nor its parent can see anything but the time that passes. The price is a CPU
//! that is busy meanwhile, and on kernels that do not preempt themselves runs nothing else. So a
//! thread is held only for what gputrace must see first, at most as many threads as leave gputrace a
//! CPU, and never longer than [`LINK_NS`].

use core::ffi::c_void;

use aya_ebpf::{
    btf_maps::HashMap,
    helpers::{
        bpf_get_current_comm, bpf_get_smp_processor_id,
        generated::{bpf_ktime_get_boot_ns, bpf_loop},
    },
    macros::btf_map,
};
use gputrace_abi::{
    config::target_flags::HOLD,
    record::{RecordHeader, TASK_SIZE, Task, kind},
};

use crate::{maps::config, maps::stopped, ring::Slot};

/// Threads that wait, by `tgid << 32 | tid`; 0 until they are released. The loader makes room for one
/// less than there are CPUs.
#[btf_map]
static HOLDS: HashMap<u64, u32, 1> = HashMap::new();

/// How long a thread waits at most for the probes on its libraries: 582 functions take 10 to 40 ms.
pub(crate) const LINK_NS: u64 = 100_000_000;

/// How long a program that was just executed waits at most for the probe in its dynamic linker. The
/// kernel does not preempt programs of tracepoints.
pub(crate) const NEW_IMAGE_NS: u64 = 5_000_000;

/// How long a thread waits at most for its code objects to be read.
pub(crate) const CODE_OBJECTS_NS: u64 = 10_000_000;

/// Looks at [`HOLDS`] and the clock before a wait is given up, whatever the clock says. One look takes
/// 30 ns or more, the kernel allows 8 million (`BPF_MAX_LOOPS`).
const LOOKS: u32 = 4 << 20;

/// `BPF_NOEXIST` of `linux/bpf.h`.
const NO_EXIST: u64 = 1;

/// Tells the collector of `op`, a [`gputrace_abi::record::task_op`] about the current thread. If its
/// process is one that may be held, the thread waits until it is released, `limit` ns at most.
#[inline(always)]
pub(crate) fn report(id: u64, flags: u32, op: u8, limit: u64) -> Option<()> {
    // A thread is held only if the collector is sure to learn of it.
    let mut slot = Slot::<Task>::reserve()?;
    let held = flags & HOLD != 0 && config().may_hold != 0 && HOLDS.insert(id, 0, NO_EXIST).is_ok();
    let record = slot.as_mut_ptr();
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    // SAFETY: the slot is as large as a `Task`; helpers without arguments.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: TASK_SIZE as u16,
            kind: kind::LINKER,
            domain: 0,
            cpu: bpf_get_smp_processor_id(),
        });
        (&raw mut (*record).time).write(now);
        (&raw mut (*record).pid).write((id >> 32) as u32);
        (&raw mut (*record).tid).write(id as u32);
        (&raw mut (*record).parent).write(0);
        (&raw mut (*record).op).write(op);
        (&raw mut (*record).held).write(u8::from(held));
        (&raw mut (*record).reserved).write([0; 2]);
        (&raw mut (*record).comm).write(bpf_get_current_comm().unwrap_or([0; 16]));
    }
    slot.submit_now();
    if held {
        wait(id, now + limit);
    }
    Some(())
}

/// A thread that waits.
struct Waiting {
    id: u64,
    /// When it goes on in any case, ns `CLOCK_BOOTTIME`.
    until: u64,
}

/// Waits until the thread `id` is released, or `until`.
#[inline(always)]
fn wait(id: u64, until: u64) {
    let mut waiting = Waiting { id, until };
    // SAFETY: `look` has the signature that the helper asks for, and what is handed to it lives
    // through the call.
    unsafe { bpf_loop(LOOKS, look as *mut c_void, (&raw mut waiting).cast(), 0) };
    // Gone already if gputrace removes what waits too long.
    let _ = HOLDS.remove(id);
}

/// Looks once whether to go on. Not 0 ends the wait.
extern "C" fn look(_index: u32, waiting: *mut Waiting) -> i64 {
    // SAFETY: the helper hands over what was given to it.
    let waiting = unsafe { &*waiting };
    let released = match HOLDS.get_ptr(waiting.id) {
        // SAFETY: the pointer is that of a live map element, which only gputrace changes.
        Some(word) => unsafe { word.read_volatile() != 0 },
        None => true,
    };
    // SAFETY: a helper without arguments.
    let late = unsafe { bpf_ktime_get_boot_ns() } >= waiting.until;
    i64::from(released || late || stopped())
}
