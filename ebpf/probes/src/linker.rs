//! The dynamic linker keeps a list of the libraries of its process and tells debuggers when it has
//! changed; so it can tell us. Our probe is hit when a process's own libraries are mapped and no
//! constructor has run, and after each `dlopen`. What was added stands at the end of the list and is
//! looked at here, by its file name, so that libraries of no interest cost a microsecond and no more.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext as _,
    btf_maps::{HashMap, LruHashMap},
    helpers::{
        bpf_get_current_pid_tgid, bpf_probe_read_user,
        generated::{bpf_get_attach_cookie, bpf_loop, bpf_probe_read_user_str},
    },
    macros::{btf_map, uprobe},
    programs::ProbeContext,
};
use gputrace_abi::{
    linker::{KEY_BYTES, LinkMap, LinkerCookie, MAX_INTERESTS, RDebug, RT_CONSISTENT},
    record::task_op,
};

use crate::{
    hold::report,
    maps::{config, over, target},
    ring::Slot,
};

/// File names of interest, by [`gputrace_abi::linker::key`]. The value means nothing.
#[btf_map]
static INTERESTS: HashMap<u64, u32, MAX_INTERESTS> = HashMap::new();

/// How far the list of a process has been looked at: its last library, by tgid.
#[btf_map]
static LISTS: LruHashMap<u32, u64, 16384> = LruHashMap::new();

/// Libraries of one process that are looked at, one after the other.
const MOST: u32 = 1 << 14;

/// Bytes of a path; of a longer one nothing is known but that it may be of interest.
const PATH_BYTES: usize = 256;

/// Bytes of a file name, as for [`PATH_BYTES`].
const NAME_BYTES: usize = 64;

/// Where a dynamic linker has changed its list: tells the collector if something of interest has been
/// mapped.
#[uprobe]
pub(crate) fn linker_changed(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let flags = target((id >> 32) as u32)?;
    // SAFETY: the context of this program, and its registers.
    let (cookie, at) = unsafe { (bpf_get_attach_cookie(ctx.as_ptr()), (*ctx.regs).rip) };
    if of_interest((id >> 32) as u32, LinkerCookie(cookie), at) {
        report(id, flags, task_op::LINKER, 0)?;
    }
    Some(())
}

/// A process executes another program: its list begins anew.
#[inline(always)]
pub(crate) fn forget(tgid: u32) {
    // Nothing to forget if no linker told of it.
    let _ = LISTS.remove(tgid);
}

/// The end of a list, as far as it has been looked at.
struct Walk {
    /// The library to look at next, 0 at the end of the list.
    next: u64,
    /// The last that was looked at, 0 at the beginning.
    last: u64,
    /// Whether names are looked at.
    names: bool,
    /// Whether one of them is of interest, or cannot be read.
    found: bool,
}

/// Whether a library of interest may have been mapped in the process `tgid`, whose linker was hit `at`.
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
    // SAFETY: the pointer is that of a live map element.
    if let Some(last) = LISTS
        .get_ptr(tgid)
        .map(|last| unsafe { last.read_volatile() })
    {
        match successor(last) {
            Some(next) => (walk.next, walk.last) = (next, last),
            // It was unloaded, and what is there now was there before: only the new end is looked for.
            None => walk.names = false,
        }
    }
    // SAFETY: `step` has the signature that the helper asks for, and what is handed to it lives
    // through the call.
    unsafe { bpf_loop(MOST, step as *mut c_void, (&raw mut walk).cast(), 0) };
    // A full map forgets another process, which is then looked at as a whole.
    let _ = LISTS.insert(tgid, walk.last, 0);
    // A list without end is none that we know.
    walk.found || walk.next != 0
}

/// What follows `last` in its list, 0 at the end; `None` if it is in no list any more.
#[inline(always)]
fn successor(last: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    let map = unsafe { bpf_probe_read_user(last as *const LinkMap) }.ok()?;
    // SAFETY: as above.
    let previous = unsafe { bpf_probe_read_user(map.previous as *const LinkMap) }.ok()?;
    (previous.next == last).then_some(map.next)
}

/// Looks at one library of a list. Not 0 at its end.
extern "C" fn step(_index: u32, walk: *mut Walk) -> i64 {
    // SAFETY: the helper hands over what was given to it.
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

/// Whether the path at an address has a file name of interest, or one that cannot be read.
#[inline(always)]
fn is_named(path: u64) -> bool {
    // In the ring, and given back: Linux 6.1 lets nobody read its stack at places that vary.
    let Some(mut slot) = Slot::<[u8; PATH_BYTES]>::reserve() else {
        return true;
    };
    let named = is_path_named(slot.as_mut_ptr().cast(), path);
    slot.discard();
    named
}

/// As [`is_named`]; `bytes` are [`PATH_BYTES`] to read into.
#[inline(always)]
fn is_path_named(bytes: *mut u8, path: u64) -> bool {
    // SAFETY: there is that much room, and the helper checks the address.
    let read =
        unsafe { bpf_probe_read_user_str(bytes.cast(), PATH_BYTES as u32, path as *const c_void) };
    // With the NUL at the end. The program itself has no name there.
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

/// A byte of a path; the mask shows the verifier that it lies within.
#[inline(always)]
fn byte(bytes: *const u8, at: usize) -> u8 {
    // SAFETY: the mask keeps the index in bounds (the size is a power of two).
    unsafe { bytes.add(at & (PATH_BYTES - 1)).read_volatile() }
}

const _: () = assert!(PATH_BYTES.is_power_of_two());
