//! Tells a library's own calls from those of its users.
//!
//! Two kinds of callers reach a function behind a table: users of the library, through the exported
//! stub that jumps there, and the library itself. Only the return address differs.

use aya_ebpf::{
    bindings::pt_regs, btf_maps::HashMap, helpers::bpf_probe_read_user, macros::btf_map,
};
use gputrace_abi::cookie::{Around, MAX_BEHIND};

/// Where the code of the library is, by number of the function. User space adds them.
#[btf_map]
static AROUND: HashMap<u32, Around, { MAX_BEHIND as usize }> = HashMap::new();

/// Whether the code of its own library has called the function. Returns 1 or 0.
///
/// Not inlined, so that its variables are not on its callers' stacks.
#[inline(never)]
pub(crate) fn is_inside(regs: *const pt_regs, function: u32) -> u64 {
    // SAFETY: the registers that the kernel passes to the program.
    let (at, stack) = unsafe { ((*regs).rip, (*regs).rsp) };
    let Some(around) = AROUND.get_ptr(function) else {
        return 0;
    };
    // SAFETY: a live map element, which is written once.
    let (before, size) = unsafe { ((*around).before, (*around).size) };
    // SAFETY: the helper checks the address.
    let Ok(caller) = (unsafe { bpf_probe_read_user(stack as *const u64) }) else {
        return 0;
    };
    u64::from(caller.wrapping_sub(at.wrapping_sub(before)) < size)
}
