//! The cookie of the probe that was hit: it says which function is probed.
//!
//! The kernel passes it to programs of `uprobe_multi`. A tracefs event has one for all its probes,
//! so there the cookie stands in the definition of each probe: see [`CookiePlace`].

use aya_ebpf::{
    EbpfContext, Global,
    btf_maps::Array,
    helpers::{
        bpf_probe_read_kernel,
        generated::{bpf_get_attach_cookie, bpf_get_current_task},
    },
    macros::{btf_map, uprobe},
    programs::ProbeContext,
};
use gputrace_abi::config::CookiePlace;

use crate::maps::over;

/// Where cookies are. These settings are apart from the others, which are loaded as a whole in the
/// path of each call.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.cookie")]
static COOKIES: Global<CookiePlace> = Global::new(CookiePlace {
    task_utask: 0,
    utask_vaddr: 0,
    dispatch_tu: 0,
    tu_code: 0,
    code_immediate: 0,
    reserved: 0,
});

/// The cookie that [`cookie_tried`] has got.
#[btf_map]
static TRIED: Array<u64, 1> = Array::new();

/// The cookie if a definition cannot be read: no function has this number. It does not occur where
/// gputrace's trial has succeeded.
const UNKNOWN: u64 = 0xffff_ffff;

/// The cookie of the probe that runs this program.
#[inline(always)]
pub(crate) fn cookie_of(context: &impl EbpfContext) -> u64 {
    // A constant when the program is loaded, so one of the two ways is removed.
    if is_passed() {
        // SAFETY: this program's own context, which the helper only reads.
        return unsafe { bpf_get_attach_cookie(context.as_ptr()) };
    }
    defined()
}

/// Whether the kernel passes the cookie.
#[inline(always)]
fn is_passed() -> bool {
    // SAFETY: read-only data of this object.
    let first = unsafe { (&raw const COOKIES).cast::<u32>().read_volatile() };
    first == 0
}

/// The cookie in the definition of the probe that the current task has hit.
///
/// Not inlined, so that its variables are not on its callers' stacks.
#[inline(never)]
fn defined() -> u64 {
    let place = COOKIES.load();
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    cookie_at(task, &place).unwrap_or(UNKNOWN)
}

#[inline(always)]
fn cookie_at(task: u64, place: &CookiePlace) -> Option<u64> {
    let utask = word(task, place.task_utask)?;
    let dispatch = word(utask, place.utask_vaddr)?;
    let definition = word(dispatch, place.dispatch_tu)?;
    let code = word(definition, place.tu_code)?;
    word(code, place.code_immediate)
}

/// The word at this address of the kernel.
#[inline(always)]
fn word(base: u64, offset: u32) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((base + u64::from(offset)) as *const u64) }.ok()
}

/// At a function of gputrace itself, to try whether cookies arrive.
#[uprobe]
pub(crate) fn cookie_tried(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let cookie = cookie_of(&ctx);
    let place = TRIED.get_ptr_mut(0)?;
    // SAFETY: a live, aligned array element.
    unsafe { place.write_volatile(cookie) };
    Some(())
}
