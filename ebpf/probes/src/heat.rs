//! Functions that are called too often: a guard for the rings, the disk and the reader.
//!
//! The functions of an API are called at a program's own pace and are never limited. Those that a user chose by a
//! regular expression can be called millions of times a second.

use aya_ebpf::helpers::generated::bpf_ktime_get_boot_ns;
use gputrace_abi::{config::ProbeConfig, counters::HEAT_WINDOW_SHIFT};

use crate::maps::{HEAT, config, fetch_add};

/// Whether one more call of `function` is to be recorded. Counts it if not.
///
/// Programs on other CPUs may begin a window at the same time; then a few calls more or less are admitted, but each is
/// either recorded or counted.
#[inline(always)]
pub(crate) fn admits(function: u32) -> bool {
    let ProbeConfig { calls_per_window, .. } = config();
    let Some(heat) = HEAT.get_ptr_mut(function) else {
        return true;
    };
    // SAFETY: a helper without arguments.
    let window = unsafe { bpf_ktime_get_boot_ns() } >> HEAT_WINDOW_SHIFT;
    // SAFETY: a live, 8-byte aligned map element; the counters are changed atomically, or set when a window begins.
    unsafe {
        if (&raw const (*heat).window).read_volatile() != window {
            (&raw mut (*heat).window).write_volatile(window);
            (&raw mut (*heat).before).write_volatile((&raw const (*heat).calls).read_volatile());
        }
        let before = (&raw const (*heat).before).read_volatile();
        if fetch_add(&raw mut (*heat).calls, 1).wrapping_sub(before) < calls_per_window {
            return true;
        }
        fetch_add(&raw mut (*heat).dropped, 1);
    }
    false
}
