//! What the kernel half and the user half of gputrace agree on.
//!
//! Everything that crosses the border between an eBPF program and the collector is defined here, once:
//!
//! * [`domain`]: the API domains, numbered, with the names that rocprofiler prints;
//! * [`cookie`]: the 64-bit value attached to each probe, from which a program knows what was called;
//! * [`record`]: the records that programs write into the ring buffers;
//! * [`frame`]: the per-thread stack of open calls, a map value that the collector reads at stop;
//! * [`counters`]: what was seen and what was lost, per CPU, domain and reason;
//! * [`config`]: the read-only settings a program is loaded with.
//!
//! The crate is `no_std` and has no dependencies on the eBPF side. With the feature `user` every
//! structure can be decoded from untrusted bytes with `zerocopy`. Layouts are asserted at compile
//! time; a change in one of them is a change of [`ABI_VERSION`], which captures carry.
//!
//! Times are nanoseconds of `CLOCK_BOOTTIME` everywhere: KFD's system clock and rocprofiler use that
//! clock, so host and GPU times need no conversion between them.

#![no_std]
// Lets the derive macros of zerocopy be optional.
#![cfg_attr(not(feature = "user"), forbid(unsafe_code))]

pub mod config;
pub mod cookie;
pub mod counters;
pub mod domain;
pub mod frame;
pub mod record;

/// Version of every layout in this crate. Captures store it; a reader refuses a newer one.
pub const ABI_VERSION: u32 = 1;

/// Integer registers that carry arguments in the System V x86-64 calling convention
/// (rdi, rsi, rdx, rcx, r8, r9), in that order.
pub const REGISTER_ARGS: usize = 6;

/// Words of stack arguments that a record can carry. The longest function of ROCm's API that we know,
/// `hipExtModuleLaunchKernel`, has eight.
pub const STACK_ARGS: usize = 8;
