//! Limits the rate of functions that are called too often, to protect the rings, the disk and the
//! reader.
//!
//! The functions of an API are called at a program's own pace and are never limited, only counted
//! if user space wants to know how often. Functions that a user chose by a regular expression can
//! be called millions of times per second.

use aya_ebpf::helpers::generated::bpf_ktime_get_boot_ns;
use gputrace_abi::{
    config::ProbeConfig, cookie::Cookie, counters::RATE_WINDOW_SHIFT, domain::Domain,
};

use crate::maps::{CALL_RATES, config, fetch_add};

/// Whether calls of a domain's functions are lost if there are too many.
#[inline(always)]
const fn has_limit(domain: u8) -> bool {
    domain == Domain::Library.id() || domain == Domain::Function.id()
}

/// Whether to record one more call of a function. Counts the call, and whether it is lost.
///
/// Programs on other CPUs may begin a window at the same time; then a few calls more or less are
/// admitted, but each is either recorded or counted.
#[inline(always)]
pub(crate) fn admits(cookie: Cookie) -> bool {
    let ProbeConfig {
        calls_per_window, ..
    } = config();
    let Some(rate) = CALL_RATES.get_ptr_mut(cookie.function()) else {
        return true;
    };
    if !has_limit(cookie.domain()) {
        // SAFETY: as below.
        unsafe { fetch_add(&raw mut (*rate).calls, 1) };
        return true;
    }
    // SAFETY: a helper without arguments.
    let window = unsafe { bpf_ktime_get_boot_ns() } >> RATE_WINDOW_SHIFT;
    // SAFETY: a live, 8-byte aligned map element; the counters are changed atomically, or set when
    // a window begins.
    unsafe {
        if (&raw const (*rate).window).read_volatile() != window {
            (&raw mut (*rate).window).write_volatile(window);
            (&raw mut (*rate).before).write_volatile((&raw const (*rate).calls).read_volatile());
        }
        let before = (&raw const (*rate).before).read_volatile();
        if fetch_add(&raw mut (*rate).calls, 1).wrapping_sub(before) < calls_per_window {
            return true;
        }
        fetch_add(&raw mut (*rate).dropped, 1);
    }
    false
}
