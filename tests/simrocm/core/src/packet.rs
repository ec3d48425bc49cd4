//! Barrier packets to write. The formats of kernel dispatches are in [`gputrace_softgpu::packet`].

use zerocopy::{Immutable, IntoBytes};

use crate::abi::Signal;

/// `hsa_barrier_and_packet_t` (`hsa.h`).
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub struct Barrier {
    /// Type, barrier bit, fences.
    pub header: u16,
    /// Reserved.
    pub reserved: [u16; 3],
    /// Signals to wait for, 0 for none.
    pub dependencies: [Signal; 5],
    /// Reserved.
    pub reserved2: u64,
    /// Completion signal, 0 for none.
    pub completion: Signal,
}

/// Header bits 9 and 10, 11 and 12: acquire and release fences of system scope.
pub const SYSTEM_FENCES: u16 = 2 << 9 | 2 << 11;

const _: () = assert!(size_of::<Barrier>() == 64);
