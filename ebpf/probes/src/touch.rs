//! Brings in what calls point to and is not in memory: constants in pages of a program's file that nothing has touched yet.
//!
//! The text of a marker is most often such a constant, and a library that does nothing with it does not touch it either.
//! Programs that trace calls cannot wait for a page to be read; this one can (Linux 6.0), and does nothing else. Whether it runs
//! before [`crate::calls::call_enter`] or after it, the page is there when the function returns at the latest, which is when
//! a string that could not be read is tried again.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{
        bpf_get_current_pid_tgid,
        generated::{bpf_copy_from_user, bpf_get_attach_cookie},
    },
    macros::uprobe,
    programs::ProbeContext,
};
use gputrace_abi::values::{LONG_BYTES, annotation, touch};

use crate::{
    calls::arguments,
    maps::{stopped, target},
};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// At the entry of functions that are given strings or annotations; [`touch`] is about its cookies.
#[uprobe(sleepable)]
pub(crate) fn constants_touched(ctx: ProbeContext) -> Option<()> {
    if stopped() {
        return None;
    }
    target((bpf_get_current_pid_tgid() >> 32) as u32)?;
    // SAFETY: the context of this program, and its registers.
    let (cookie, arguments) = unsafe { (bpf_get_attach_cookie(ctx.as_ptr()), arguments(&*ctx.regs)) };
    // No function has more than one of them.
    let mut annotated = 0;
    for (word, address) in arguments.into_iter().enumerate() {
        if touch::has_string(cookie, word) {
            text(address);
        }
        if touch::has_annotations(cookie, word) {
            annotated = address;
        }
    }
    if annotated != 0 {
        annotations(annotated);
    }
    Some(())
}

/// Touches the first bytes of annotations, their names and values.
#[inline(always)]
fn annotations(first: u64) {
    for index in 0..annotation::MOST {
        let mut given = [0_u64; 3];
        let from = (first + index * annotation::SIZE) as *const _;
        // SAFETY: the helper checks the address and writes as much as there is room for.
        let failed = unsafe { bpf_copy_from_user((&raw mut given).cast(), annotation::SIZE as u32, from) };
        // How many there are the other programs look at: behind the last there is no name, or something that is read
        // without harm.
        if failed != 0 || given[0] == 0 {
            return;
        }
        byte(given[0]);
        byte(given[2]);
    }
}

/// Touches a string that may be as long as a record takes.
#[inline(always)]
fn text(address: u64) {
    byte(address);
    let next = (address | (PAGE - 1)) + 1;
    if next - address < LONG_BYTES as u64 {
        byte(next);
    }
}

#[inline(always)]
fn byte(address: u64) {
    if address == 0 {
        return;
    }
    let mut byte = 0_u8;
    // SAFETY: the helper checks the address.
    unsafe { bpf_copy_from_user((&raw mut byte).cast(), 1, address as *const _) };
}
