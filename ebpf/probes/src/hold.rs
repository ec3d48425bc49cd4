//! Reports to the collector at once, and holds the thread meanwhile.
//!
//! A thread that has mapped a library must not call it before the library has its probes. No eBPF
//! program can make the thread sleep, and the thread's parent would notice a signal. So the thread
//! is held in two steps. The program here keeps the thread's CPU busy, for [`LIMIT_NS`] at most,
//! until a helper process of gputrace (`session/src/targets/holder.rs`) has seized the thread by
//! ptrace(2). The helper is woken at once and runs before all other threads. Then the program ends,
//! and the thread sleeps on its way back to user code or, if it ends its process, before the kernel
//! frees the process's memory.
//!
//! Each of the two helpers is bound to a CPU. A kernel without preemption runs nothing else on a
//! CPU that is kept busy, so only one of these two CPUs is kept busy at a time. A thread to be held
//! on the other one needs no busy CPU: the helper has been woken on that very CPU, and the kernel
//! runs it before the thread returns to user code.
//!
//! That is certain only of a helper with a real-time priority. Where the kernel refuses one, or
//! gputrace's processes get no processor in time, a helper seizes the thread as soon as it can, and
//! finds out whether the thread has gone on before ([`Place`]).

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_RB_FORCE_WAKEUP,
    btf_maps::{Array, HashMap, RingBuf},
    helpers::{
        bpf_get_current_comm, bpf_get_smp_processor_id,
        generated::{bpf_ktime_get_boot_ns, bpf_loop},
    },
    macros::btf_map,
};
use gputrace_abi::{
    config::target_flags::HOLD,
    hold::{HELPERS as MOST_HELPERS, Hold, hold_state},
    record::{RecordHeader, TASK_SIZE, Task, kind},
};

use crate::{
    maps::{Counters, config, fetch_add, stopped},
    ring::Slot,
};

/// Threads to be held, by `tgid << 32 | tid`.
#[btf_map]
static HOLDS: HashMap<u64, Hold, 1024> = HashMap::new();

/// CPUs of the helpers, see [`MOST_HELPERS`]. The helpers write them.
#[btf_map]
static HELPERS: Array<u64, { MOST_HELPERS as usize }> = Array::new();

/// Number of CPUs kept busy now: those with a helper, and the others.
#[btf_map]
static BUSY: Array<u64, 2> = Array::new();

/// Wakes the helpers after a thread was added to [`HOLDS`]. The contents have no meaning.
#[btf_map]
static CALLS_FOR_HOLD: RingBuf<(), 4096, 0> = RingBuf::new();

/// Maximum time that a thread waits here, ns. A helper takes some 50 us, and many times that in an
/// emulated machine.
const LIMIT_NS: u64 = 100_000_000;

/// Maximum number of looks at [`HOLDS`] and the clock before the wait is given up, whatever the
/// clock says. One look takes at least 30 ns; the kernel allows 8 million (`BPF_MAX_LOOPS`).
const LOOKS: u32 = 1 << 20;

/// `BPF_EXIST` of `linux/bpf.h`.
const EXIST: u64 = 2;

/// Where a thread is when it is to be held; see [`Hold::at`].
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) stack: u64,
    pub(crate) exits: bool,
}

impl Place {
    /// It does not matter whether the thread has gone on when it is seized.
    pub(crate) const ANY: Self = Self {
        at: 0,
        stack: 0,
        exits: false,
    };
    /// In `exit_group(2)`.
    pub(crate) const EXIT: Self = Self {
        exits: true,
        ..Self::ANY
    };
}

/// Reports `op`, a [`gputrace_abi::record::task_op`] about the current thread, to the collector.
/// Holds the thread if its process may be held. `count` has further details for some operations.
#[inline(always)]
pub(crate) fn report(id: u64, flags: u32, op: u8, count: u32, place: Place) -> Option<()> {
    // A thread is held only if the collector is certain to receive the report.
    let Some(mut slot) = Slot::<Task>::reserve() else {
        // SAFETY: a helper without arguments.
        Counters::of(unsafe { bpf_get_smp_processor_id() })?.untold_library();
        return None;
    };
    let record = slot.as_mut_ptr();
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    let busy = if flags & HOLD != 0 { keep_busy() } else { None };
    let hold = Hold {
        begin: now,
        state: if busy.is_some() {
            hold_state::WAITS
        } else {
            hold_state::GOES_ON
        },
        exits: u32::from(place.exits),
        at: place.at,
        stack: place.stack,
    };
    // Replaces an earlier entry of this thread, for which no helper has seized it.
    let held = flags & HOLD != 0 && HOLDS.insert(id, hold, 0).is_ok();
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
        (&raw mut (*record).parent).write(count);
        (&raw mut (*record).op).write(op);
        (&raw mut (*record).held).write(u8::from(held));
        (&raw mut (*record).reserved).write([0; 2]);
        (&raw mut (*record).comm).write(bpf_get_current_comm().unwrap_or([0; 16]));
    }
    slot.submit_now();
    if held {
        call_helpers();
    }
    if let Some(count) = busy {
        if held {
            wait(id, hold);
        }
        end(count);
    }
    Some(())
}

/// Begins to keep this CPU busy, until [`end`] is called with the result. `None` if the helpers
/// could not run then, or if there is no need to, because one of them runs here before the thread
/// does.
#[inline(always)]
fn keep_busy() -> Option<*mut u64> {
    // SAFETY: a helper without arguments.
    let here = u64::from(unsafe { bpf_get_smp_processor_id() }) + 1;
    let is_here = |helper: u32| {
        // SAFETY: a live, aligned element; helpers write it once.
        HELPERS
            .get_ptr(helper)
            .is_some_and(|cpu| unsafe { cpu.read_volatile() } == here)
    };
    let most = u64::from(config().busy_cpus);
    let (kind, most) = if is_here(0) || is_here(1) {
        (0, most.min(1))
    } else {
        (1, most)
    };
    let count = BUSY.get_ptr_mut(kind)?;
    // SAFETY: a live, aligned array element that is changed by atomic addition only.
    if unsafe { fetch_add(count, 1) } < most {
        return Some(count);
    }
    end(count);
    None
}

/// Stops counting this CPU as busy.
#[inline(always)]
fn end(count: *mut u64) {
    // SAFETY: as in [`keep_busy`]; -1 in two's complement.
    unsafe { fetch_add(count, u64::MAX) };
}

/// Wakes the helpers. If the ring is full, they are awake already.
#[inline(always)]
fn call_helpers() {
    if let Some(entry) = CALLS_FOR_HOLD.reserve_untyped::<u64>(0) {
        entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
    }
}

/// A waiting thread.
struct Waiting {
    id: u64,
    /// When it continues in any case, ns `CLOCK_BOOTTIME`.
    until: u64,
    /// Whether nobody has seized it by then.
    is_late: bool,
}

/// Waits until the thread `id` is released, or until [`LIMIT_NS`] have passed. Then a helper may
/// still seize the thread.
#[inline(always)]
fn wait(id: u64, hold: Hold) {
    let mut waiting = Waiting {
        id,
        until: hold.begin + LIMIT_NS,
        is_late: true,
    };
    // SAFETY: `look` has the signature that the helper requires, and `waiting` lives through the
    // call.
    unsafe { bpf_loop(LOOKS, look as *mut c_void, (&raw mut waiting).cast(), 0) };
    // Both fail if gputrace has removed the hold because it is over.
    let _ = if waiting.is_late && !stopped() {
        let hold = Hold {
            state: hold_state::GOES_ON,
            ..hold
        };
        HOLDS.insert(id, hold, EXIST)
    } else {
        HOLDS.remove(id)
    };
}

/// Checks once whether to continue. A return value other than 0 ends the wait.
extern "C" fn look(_index: u32, waiting: *mut Waiting) -> i64 {
    // SAFETY: the helper passes the pointer that was given to it.
    let waiting = unsafe { &mut *waiting };
    let released = match HOLDS.get_ptr(waiting.id) {
        // SAFETY: the pointer is that of a live map element, which only gputrace changes.
        Some(hold) => unsafe { (&raw const (*hold).state).read_volatile() != hold_state::WAITS },
        None => true,
    };
    // SAFETY: a helper without arguments.
    let late = unsafe { bpf_ktime_get_boot_ns() } >= waiting.until;
    waiting.is_late = !released;
    i64::from(released || late || stopped())
}
