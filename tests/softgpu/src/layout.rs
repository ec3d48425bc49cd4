//! Where the fields of ROCr's shared structures lie, in bytes from their start.
//!
//! Source: `amd_hsa_queue.h` and `amd_hsa_signal.h`, and `SharedSignal` of ROCr's `core/inc/signal.h`;
//! the same from ROCm 5.2 to 7.

/// `amd_queue_t`, whose first 40 bytes are the public `hsa_queue_t`.
pub mod queue {
    /// Address of the ring of packets.
    pub const BASE_ADDRESS: u64 = 8;
    /// Packets in the ring, a power of two (u32).
    pub const SIZE: u64 = 24;
    /// The number HSA gave the queue.
    pub const ID: u64 = 32;
    /// Index one past the last reserved packet.
    pub const WRITE_DISPATCH_ID: u64 = 56;
    /// Index one past the last consumed packet. KFD's `read_pointer_address` points here.
    pub const READ_DISPATCH_ID: u64 = 128;
    /// Where the scratch memory is.
    pub const SCRATCH_LOCATION: u64 = 160;
    /// Bytes of the scratch memory.
    pub const SCRATCH_BYTES: u64 = 168;
    /// Scratch bytes a lane of a 64-wide wave has now (u32).
    pub const SCRATCH_WAVE64_LANE_BYTE_SIZE: u64 = 176;
    /// Properties (u32).
    pub const PROPERTIES: u64 = 180;
    /// Signal by which the packet processor asks the runtime for scratch or reports an error.
    pub const INACTIVE_SIGNAL: u64 = 192;

    /// Property: write start and end ticks into completion signals.
    pub const ENABLE_PROFILING: u32 = 1 << 3;
    /// Property: give scratch back after the dispatch that asked for it.
    pub const USE_SCRATCH_ONCE: u32 = 1 << 4;
}

/// `amd_signal_t`.
pub mod signal {
    /// Kind (i64): 1 for a user signal, -1 for a doorbell.
    pub const KIND: u64 = 0;
    /// The value (i64), or the doorbell's address.
    pub const VALUE: u64 = 8;
    /// Where to write the event's number for an interrupt; 0 for none.
    pub const EVENT_MAILBOX: u64 = 16;
    /// The event's number (u32).
    pub const EVENT_ID: u64 = 24;
    /// Start, in ticks.
    pub const START_TS: u64 = 32;
    /// End, in ticks.
    pub const END_TS: u64 = 40;
}
