//! Whether a process sees the same files as gputrace.
//!
//! A program's dynamic linker is a path. Below the root directory and in the mount namespace of gputrace
//! it leads to a file that gputrace has found before; anywhere else it may be any file.

use aya_ebpf::{
    btf_maps::Array,
    helpers::{bpf_probe_read_kernel, generated::bpf_get_current_task},
    macros::btf_map,
};

use crate::maps::config;

/// What gputrace sees: addresses of its mount namespace and of its root directory, 0 if not known.
#[btf_map]
static HOME: Array<[u64; 2], 1> = Array::new();

/// Remembers what the current process sees, if nothing is remembered. The first process that creates a
/// traced one is gputrace itself, when it launches a program.
#[inline(always)]
pub(crate) fn remember() {
    let (Some(home), Some(seen)) = (HOME.get_ptr_mut(0), seen()) else {
        return;
    };
    // SAFETY: the pointer is that of a live map element; only the first write matters.
    unsafe {
        if (*home)[0] == 0 {
            *home = seen;
        }
    }
}

/// Whether the current process sees what gputrace sees.
#[inline(always)]
pub(crate) fn is_known() -> bool {
    let (Some(home), Some(seen)) = (HOME.get_ptr(0), seen()) else {
        return false;
    };
    // SAFETY: the pointer is that of a live map element.
    unsafe { *home == seen }
}

/// The current task's mount namespace and root directory.
#[inline(always)]
fn seen() -> Option<[u64; 2]> {
    let config = config();
    if config.task_fs == 0 {
        return None;
    }
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let fs = word(task, config.task_fs)?;
    let nsproxy = word(task, config.task_nsproxy)?;
    Some([word(nsproxy, config.nsproxy_mnt_ns)?, word(fs, config.fs_root)?])
}

/// The word of the kernel's memory at `offset` from `base`.
#[inline(always)]
fn word(base: u64, offset: u32) -> Option<u64> {
    let address = base.wrapping_add(u64::from(offset)) as *const u64;
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}
