//! eBPF programs on kernel-side events; loaded with aya.
//!
//! | module | programs | what for |
//! |---|---|---|
//! | [`tasks`] | `task_newtask`, `sched_process_exec`, `sched_process_exit`, `task_rename` | names and lifetimes of processes and threads |
//!
//! They see every process of the node; the collector keeps what belongs to traced ones. Field offsets
//! come from the running kernel's `format` files.
//!
//! With `gputrace --debug-ebpf` the programs also log through aya-log. Without it the level that the
//! loader sets disables the log calls, and the verifier removes them as dead code.

#![no_std]
#![no_main]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "writing the fields of one record through one raw pointer is one operation in meaning"
)]
#![allow(missing_docs, reason = "a program has no public interface; its modules document themselves")]

mod tasks;

/// Never reached: the programs contain no operation that can panic, which the verifier confirms at
/// load time (a panic would be an endless loop, and it refuses those).
#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel lets only GPL-compatible programs call helpers such as `bpf_probe_read_kernel`.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
