//! Byte offsets of the fields of ROCr's shared structures.
//!
//! Source: `amd_hsa_queue.h` and `amd_hsa_signal.h`, and `SharedSignal` of ROCr's
//! `core/inc/signal.h`; the same from ROCm 5.2 to 7.

/// `amd_queue_t`, whose first 40 bytes are the public `hsa_queue_t`.
pub mod queue {
    /// Address of the ring of packets.
    pub const BASE_ADDRESS: u64 = 8;
    /// Number of packets in the ring, a power of two (u32).
    pub const SIZE: u64 = 24;
    /// The queue's HSA id.
    pub const ID: u64 = 32;
    /// Index one past the last reserved packet.
    pub const WRITE_DISPATCH_ID: u64 = 56;
    /// Index one past the last consumed packet. KFD's `read_pointer_address` points here.
    pub const READ_DISPATCH_ID: u64 = 128;
    /// Address of the scratch memory.
    pub const SCRATCH_LOCATION: u64 = 160;
    /// Size of the scratch memory in bytes.
    pub const SCRATCH_BYTES: u64 = 168;
    /// Current scratch bytes per lane of a 64-wide wave (u32).
    pub const SCRATCH_WAVE64_LANE_BYTE_SIZE: u64 = 176;
    /// Properties (u32).
    pub const PROPERTIES: u64 = 180;
    /// Signal through which the packet processor asks the runtime for scratch memory or reports an
    /// error.
    pub const INACTIVE_SIGNAL: u64 = 192;

    /// Property: write start and end ticks into completion signals.
    pub const ENABLE_PROFILING: u32 = 1 << 3;
    /// Property: give scratch memory back after the dispatch that asked for it.
    pub const USE_SCRATCH_ONCE: u32 = 1 << 4;
}

/// `amd_signal_t`.
pub mod signal {
    /// Kind (i64): 1 for a user signal, -1 for a doorbell.
    pub const KIND: u64 = 0;
    /// The value (i64), or the address of the doorbell.
    pub const VALUE: u64 = 8;
    /// Address to which the event's number is written for an interrupt; 0 for none.
    pub const EVENT_MAILBOX: u64 = 16;
    /// The event's number (u32).
    pub const EVENT_ID: u64 = 24;
    /// Start, in ticks.
    pub const START_TS: u64 = 32;
    /// End, in ticks.
    pub const END_TS: u64 = 40;
}
