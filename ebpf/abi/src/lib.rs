//! Definitions shared by the kernel half and the user-space half of gputrace.
//!
//! Everything that is exchanged between an eBPF program and the collector is defined here, once:
//!
//! * [`domain`]: the API domains, numbered, with the names that rocprofiler prints;
//! * [`cookie`]: the 64-bit value attached to each probe, from which a program knows what was
//!   called;
//! * [`record`]: the records that programs write into the ring buffers;
//! * [`kinds`]: their kinds, one row with all facts about each;
//! * [`gpu`]: records about the GPU's work, and the roles of the functions that report it;
//! * [`kfd`]: requests to the driver;
//! * [`tracepoint`]: records of the kernel's tracepoints;
//! * [`sched`]: threads without a processor;
//! * [`values`]: values that pointer arguments of calls point to, and which of them are read;
//! * [`frame`]: the per-thread stack of open calls, a map value that the collector reads at stop;
//! * [`counters`]: what was seen and what was lost, per CPU, domain and reason;
//! * [`config`]: the read-only settings with which a program is loaded.
//!
//! The crate is `no_std` and has no dependencies on the eBPF side. With the feature `user`, every
//! structure can be decoded from untrusted bytes with `zerocopy`. Layouts are asserted at compile
//! time; changing one of them requires a new [`ABI_VERSION`], which captures contain.
//!
//! Times are nanoseconds of `CLOCK_BOOTTIME` everywhere: KFD's system clock and rocprofiler use
//! that clock, so host and GPU times need no conversion between them.

#![no_std]
// Without zerocopy's derive macros, no unsafe code is needed.
#![cfg_attr(not(feature = "user"), forbid(unsafe_code))]

/// Defines a structure shared by both sides: C layout, plain data, decodable from bytes in user
/// space.
macro_rules! shared {
    ($(#[$attribute:meta])* pub struct $name:ident { $($(#[$field_attribute:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            feature = "user",
            derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
        )]
        #[repr(C)]
        pub struct $name { $($(#[$field_attribute])* pub $field: $type,)* }
    };
}

pub mod config;
pub mod cookie;
pub mod counters;
pub mod domain;
pub mod frame;
pub mod gpu;
pub mod hold;
pub mod kfd;
pub mod kinds;
pub mod linker;
pub mod record;
pub mod sched;
pub mod stack;
pub mod tracepoint;
pub mod values;

/// Version of every layout in this crate. Captures store it; a reader refuses a newer one.
pub const ABI_VERSION: u32 = 3;

/// Number of integer registers that carry arguments in the System V x86-64 calling convention (rdi,
/// rsi, rdx, rcx, r8, r9), in that order.
pub const REGISTER_ARGS: usize = 6;

/// Maximum number of words of stack arguments in a record. The longest known function of ROCm's
/// API, `hipExtModuleLaunchKernel`, has eight.
pub const STACK_ARGS: usize = 8;

/// Defines what every eBPF object of gputrace needs besides its programs and maps.
#[macro_export]
macro_rules! ebpf_object {
    () => {
        /// Never reached: the programs contain no operation that can panic. The verifier confirms
        /// this at load time, because a panic would be an endless loop, which it refuses.
        #[cfg(not(test))]
        #[panic_handler]
        fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }

        /// The kernel lets only GPL-compatible programs call helpers such as `bpf_probe_read_user`.
        #[unsafe(link_section = "license")]
        #[unsafe(no_mangle)]
        static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
    };
}
