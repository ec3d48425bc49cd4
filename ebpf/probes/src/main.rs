//! eBPF half of call tracing: programs on the entries and returns of API functions.
//!
//! | module | programs | purpose |
//! |---|---|---|
//! | [`calls`] | `call_enter`, `call_leave` | one record per finished call |
//! | [`calls`] | `call_exit` | the same at instructions that leave a function |
//! | [`calls`] | `call_enter_only` | one record, without an end, at the entry of a function |
//! | [`roles`] | `gpu_enter` | packets ([`packets`]), copies ([`copies`]) and completion signals ([`signals`]), at functions that are not traced as calls |
//! | [`values`] | `call_enter`, `call_leave` | strings passed to calls, results that they store |
//! | [`signals`] | `process_exits` | read what the GPU has written before the process's memory goes |
//! | [`ioctls`] | `kfd_…` | requests to the driver |
//! | [`sched`] | `sched_…` | traced threads without a processor |
//! | [`tracepoint`] | `trace_event`, `kernel_function` | any tracepoint, or function, of the kernel |
//! | [`lifecycle`] | `task_created`, `task_exited`, `task_executed` | follow children; close the open calls of threads that end |
//! | [`stacks`] | `stack_enter` | after `call_enter`: who called the function |
//! | [`cookie`] | `cookie_tried` | the number of the probe that was hit, and a trial of it |
//! | [`linker`] | `linker_changed`, `code_objects_changed` | report that a process may have mapped another library, or loaded a code object |
//!
//! Modules use each other in one direction:
//!
//! ```text
//! calls -> stacks -> roles -> packets, copies -> agents, signals
//!     -> hit, frames -> cookie, ring, maps
//! ```
//!
//! Rules that keep the accounts exact:
//!
//! * Programs can be preempted by each other on one CPU, so nothing is kept in per-CPU scratch
//!   memory, and counters change by atomic addition only.
//! * Only a thread's own programs touch its [`gputrace_abi::frame::Thread`].
//! * A call is counted as seen exactly once, at its entry ([`calls`]). From then on it ends in
//!   exactly one place: a record, one drop counter, or (still open at stop) the map that the
//!   collector reads.
//!
//! Another rule protects other users of BPF:
//!
//! * No program may sleep. A program that waits for a page of a target would let the target block
//!   whoever waits for a grace period of tasks-trace RCU: the stop of this recording, and every
//!   other user of BPF on the node.
//!
//! The object is loaded with libbpf. That needs BTF maps throughout and rings typed
//! `RingBuf<(), N>`.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics, asm_experimental_arch))]
#![cfg_attr(
    target_arch = "bpf",
    allow(internal_features, reason = "see maps::fetch_add")
)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "reading and writing the fields of one kernel object through one raw pointer is one operation in meaning"
)]
#![allow(
    missing_docs,
    reason = "a program has no public interface; its modules document themselves"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "the macros that make programs hand contexts over by value"
)]

mod agents;
mod call_rate;
mod calls;
mod cookie;
mod copies;
mod frames;
mod hit;
mod hold;
mod inside;
mod ioctls;
mod lifecycle;
mod linker;
mod maps;
mod objects;
mod packets;
mod ring;
mod roles;
mod sched;
mod signals;
mod stacks;
mod tracepoint;
mod values;

gputrace_abi::ebpf_object!();
