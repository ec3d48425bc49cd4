//! eBPF programs on kernel events of processes and threads; loaded with aya.
//!
//! | module | programs | purpose |
//! |---|---|---|
//! | [`tasks`] | `task_newtask`, `sched_process_exec`, `sched_process_exit`, `task_rename` | names and lifetimes of processes and threads |
//!
//! They run for every process of the node, and write only events of known processes; the collector
//! keeps those of traced ones.
//!
//! With `gputrace --debug-ebpf` the programs also log through aya-log. Without it, the level that
//! the loader sets disables the log calls, and the verifier removes them as dead code.

#![no_std]
#![no_main]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "writing the fields of one record through one raw pointer is one operation in meaning"
)]
#![allow(
    missing_docs,
    reason = "a program has no public interface; its modules document themselves"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "the macros that make programs hand contexts over by value"
)]

mod tasks;

gputrace_abi::ebpf_object!();
