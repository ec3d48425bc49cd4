//! Notices libraries that a process maps. The dynamic linker keeps a list of the libraries of its
//! process, and calls a function for debuggers when the list has changed. The probe there is hit
//! when a process's initial libraries are mapped and no constructor has run, and after each
//! `dlopen`. New libraries are at the end of the list. The program here checks their file names, so
//! that a library of no interest costs only a microsecond.

use core::ffi::c_void;

use aya_ebpf::{
    btf_maps::{HashMap, LruHashMap},
    helpers::{
        bpf_get_current_pid_tgid, bpf_probe_read_user,
        generated::{bpf_loop, bpf_probe_read_user_str},
    },
    macros::{btf_map, uprobe},
    programs::ProbeContext,
};
use gputrace_abi::{
    linker::{KEY_BYTES, LinkMap, LinkerCookie, MAX_INTERESTS, RDebug, RT_CONSISTENT},
    record::task_op,
};

use crate::{
    cookie::cookie_of,
    hold::{Place, report},
    maps::{config, over, target},
    ring::Slot,
};

/// File names of interest, by [`gputrace_abi::linker::key`]. The value has no meaning.
#[btf_map]
static INTERESTS: HashMap<u64, u32, MAX_INTERESTS> = HashMap::new();

/// How far the list of a process has been examined: its last library, by tgid.
#[btf_map]
static LISTS: LruHashMap<u32, u64, 16384> = LruHashMap::new();

/// Maximum number of libraries of one process that are examined in a row.
const MOST: u32 = 1 << 14;

/// Maximum length of a path in bytes. A longer one counts as possibly of interest.
const PATH_BYTES: usize = 256;

/// Maximum length of a file name in bytes, with the same consequence as [`PATH_BYTES`].
const NAME_BYTES: usize = 64;

/// At the place where a dynamic linker has changed its list: tells the collector if a library of
/// interest has been mapped.
#[uprobe]
pub(crate) fn linker_changed(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let flags = target((id >> 32) as u32)?;
    let cookie = cookie_of(&ctx);
    // SAFETY: the registers that the kernel passes to this program.
    let place = unsafe {
        Place {
            at: (*ctx.regs).rip,
            stack: (*ctx.regs).rsp,
            ..Place::ANY
        }
    };
    if of_interest((id >> 32) as u32, LinkerCookie(cookie), place.at) {
        report(id, flags, task_op::LINKER, 0, place)?;
    }
    Some(())
}

/// Forgets the list of a process that executes another program: it starts again.
#[inline(always)]
pub(crate) fn forget(tgid: u32) {
    // Nothing is stored if no linker of the process was hit.
    let _ = LISTS.remove(tgid);
}

/// A walk over the part of a list that has not been examined.
struct Walk {
    /// The next library to examine, 0 at the end of the list.
    next: u64,
    /// The last library examined, 0 at the beginning.
    last: u64,
    /// Whether to examine names.
    names: bool,
    /// Whether a name is of interest or cannot be read.
    found: bool,
}

/// Whether a library of interest may have been mapped in the process `tgid`, whose linker was hit
/// at the address `at`.
#[inline(always)]
fn of_interest(tgid: u32, cookie: LinkerCookie, at: u64) -> bool {
    let Some(distance) = cookie.distance() else {
        return true;
    };
    let debug = at.wrapping_add(distance as u64) as *const RDebug;
    // SAFETY: the helper checks the address.
    let Ok(debug) = (unsafe { bpf_probe_read_user(debug) }) else {
        return true;
    };
    if cookie.checks_state() && debug.state != RT_CONSISTENT {
        return false;
    }
    if config().every_library != 0 || debug.version > 1 {
        // Several namespaces (`dlmopen`) have several lists.
        return true;
    }
    let mut walk = Walk {
        next: debug.map,
        last: 0,
        names: true,
        found: false,
    };
    if let Some(last) = LISTS.get_ptr(tgid) {
        // SAFETY: the pointer is that of a live map element.
        let last = unsafe { last.read_volatile() };
        match successor(last) {
            Some(next) => (walk.next, walk.last) = (next, last),
            // The last examined library was unloaded, so nothing new follows: only the new end of
            // the list is looked for.
            None => walk.names = false,
        }
    }
    // SAFETY: `step` has the signature that the helper requires, and `walk` lives through the call.
    unsafe { bpf_loop(MOST, step as *mut c_void, (&raw mut walk).cast(), 0) };
    // A full map evicts another process, whose list is then examined from the beginning.
    let _ = LISTS.insert(tgid, walk.last, 0);
    // A list without an end is not understood, so it may contain a library of interest.
    walk.found || walk.next != 0
}

/// The library that follows `last` in its list, 0 at the end; `None` if `last` is no longer in a
/// list.
#[inline(always)]
fn successor(last: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    let map = unsafe { bpf_probe_read_user(last as *const LinkMap) }.ok()?;
    // SAFETY: as above.
    let previous = unsafe { bpf_probe_read_user(map.previous as *const LinkMap) }.ok()?;
    (previous.next == last).then_some(map.next)
}

/// Examines one library of a list. Returns non-zero at its end.
extern "C" fn step(_index: u32, walk: *mut Walk) -> i64 {
    // SAFETY: the helper passes the pointer that was given to it.
    let walk = unsafe { &mut *walk };
    if walk.next == 0 {
        return 1;
    }
    // SAFETY: the helper checks the address.
    let Ok(map) = (unsafe { bpf_probe_read_user(walk.next as *const LinkMap) }) else {
        walk.found = true;
        return 1;
    };
    if walk.names && is_named(map.name) {
        walk.found = true;
    }
    walk.last = walk.next;
    walk.next = map.next;
    0
}

/// Whether the path at this address has a file name of interest, or cannot be read.
#[inline(always)]
fn is_named(path: u64) -> bool {
    // The path is read into a ring slot, which is discarded: Linux 6.1 allows no reading of the
    // stack at variable offsets.
    let Some(mut slot) = Slot::<[u8; PATH_BYTES]>::reserve() else {
        return true;
    };
    let named = is_path_named(slot.as_mut_ptr().cast(), path);
    slot.discard();
    named
}

/// Like [`is_named`]; `bytes` is a buffer of [`PATH_BYTES`] bytes.
#[inline(always)]
fn is_path_named(bytes: *mut u8, path: u64) -> bool {
    // SAFETY: the buffer has that much room, and the helper checks the address.
    let read =
        unsafe { bpf_probe_read_user_str(bytes.cast(), PATH_BYTES as u32, path as *const c_void) };
    // The length includes the NUL. The list contains the program itself, with an empty name.
    if read == 1 {
        return false;
    }
    if read < 1 || read >= PATH_BYTES as i64 {
        return true;
    }
    let mut begin = read as usize - 1;
    for _ in 0..NAME_BYTES {
        if begin == 0 || byte(bytes, begin - 1) == b'/' {
            break;
        }
        begin -= 1;
    }
    if begin != 0 && byte(bytes, begin - 1) != b'/' {
        return true;
    }
    let mut key = 0_u64;
    for at in 0..KEY_BYTES {
        let letter = byte(bytes, begin + at);
        if letter == 0 {
            break;
        }
        key |= u64::from(letter) << (8 * at);
    }
    INTERESTS.get_ptr(key).is_some()
}

/// A byte of a path; the mask shows the verifier that the index is in bounds.
#[inline(always)]
fn byte(bytes: *const u8, at: usize) -> u8 {
    // SAFETY: the mask keeps the index in bounds (the size is a power of two).
    unsafe { bytes.add(at & (PATH_BYTES - 1)).read_volatile() }
}

const _: () = assert!(PATH_BYTES.is_power_of_two());
