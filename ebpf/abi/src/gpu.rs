//! Records about the GPU's work, taken from a few HSA functions: packets that go to queues,
//! completion signals, copies.
//!
//! Layouts of `hsa_queue_t`, `amd_queue_t` and `amd_signal_t` are those of `hsa.h`,
//! `amd_hsa_queue.h` and `amd_hsa_signal.h`; they are part of the ABI between ROCr and the hardware
//! and have not changed from ROCm 5 to 7.

use crate::{cookie::Cookie, record::RecordHeader};

/// Size of an AQL packet, bytes.
pub const PACKET_SIZE: usize = 64;

/// Offset of `write_dispatch_id` in an `amd_queue_t`: packets with lower indices have been
/// reserved.
pub const QUEUE_WRITE_INDEX: u64 = 56;
/// Offset of `read_dispatch_id` in an `amd_queue_t`: packets with lower indices have been consumed.
pub const QUEUE_READ_INDEX: u64 = 128;

/// Offset of `scratch_backing_memory_location` in an `amd_queue_t`: an address, 0 while the queue
/// has no scratch memory. It is followed by `scratch_backing_memory_byte_size`,
/// `scratch_wave64_lane_byte_size` (u32) and `queue_properties` (u32).
pub const QUEUE_SCRATCH: u64 = 160;
/// Bit of `queue_properties`: the scratch memory is given back when the kernel that asked for it
/// has ended (`AMD_QUEUE_PROPERTIES_USE_SCRATCH_ONCE`).
pub const USE_SCRATCH_ONCE: u32 = 1 << 4;

/// Maximum number of packets per doorbell that a program reads by itself: as many as ROCm 7
/// announces at once. The collector reads the rest.
pub const PACKETS_PER_DOORBELL: usize = 256;

/// Packet types in the low byte of a packet's header (`hsa_packet_type_t`): vendor-specific,
/// invalid (or consumed), kernel dispatch.
pub const TYPE_VENDOR_SPECIFIC: u64 = 0;
/// See [`TYPE_VENDOR_SPECIFIC`].
pub const TYPE_INVALID: u64 = 1;
/// See [`TYPE_VENDOR_SPECIFIC`].
pub const TYPE_KERNEL_DISPATCH: u64 = 2;

/// Format byte, after the header, of AMD's vendor-specific packet that dispatches a kernel (ROCm
/// 7).
pub const FORMAT_EXT_KERNEL_DISPATCH: u64 = 3;

/// Whether a packet dispatches a kernel, even if its consumer has overwritten the type already: the
/// rest stays. No other packet has dimensions, a workgroup size, a grid size and a kernel in these
/// places.
#[must_use]
pub const fn is_kernel_dispatch(packet: &[u64; 8]) -> bool {
    let [head, grid, _, _, kernel, ..] = *packet;
    match head & 0xff {
        TYPE_KERNEL_DISPATCH => true,
        TYPE_VENDOR_SPECIFIC => (head >> 16) & 0xff == FORMAT_EXT_KERNEL_DISPATCH,
        TYPE_INVALID => {
            let (dimensions, workgroup) = ((head >> 16) & 3, (head >> 32) & 0xffff);
            dimensions != 0 && workgroup != 0 && grid >> 32 != 0 && kernel != 0
        }
        _ => false,
    }
}

/// Meaning of a probed function for GPU tracing; four bits of a [`Cookie`].
pub mod role {
    /// No role.
    pub const NONE: u8 = 0;
    /// `hsa_signal_store_*(signal, value)`: if the signal is a doorbell, packets go to its queue.
    pub const DOORBELL: u8 = 1;
    /// `hsa_signal_silent_store_*(signal, value)`: the runtime prepares a signal for its next use.
    /// Until then it has the stamps of the last use.
    pub const REARM: u8 = 2;
    /// `hsa_signal_destroy(signal)`.
    pub const SIGNAL_DESTROY: u8 = 3;
    /// `hsa_queue_destroy(queue)`.
    pub const QUEUE_DESTROY: u8 = 4;
    /// `hsa_amd_memory_async_copy(dst, dst_agent, src, src_agent, size, num_dep, dep*,
    /// completion)`.
    pub const COPY: u8 = 5;
    /// `hsa_amd_memory_async_copy_on_engine(…, completion, engine, force_sdma)`.
    pub const COPY_ON_ENGINE: u8 = 6;
    /// `hsa_amd_memory_async_copy_rect(dst*, dst_offset*, src*, src_offset*, range*, copy_agent,
    /// direction, num_dep, dep*, completion)`.
    pub const COPY_RECT: u8 = 7;
    /// `hsa_amd_memory_async_batch_copy(operations*, count, num_dep, dep*)` (ROCm 7).
    pub const COPY_BATCH: u8 = 8;
}

/// Maximum number of operations of a batch of copies that a program reads.
pub const COPIES_PER_BATCH: usize = 4096;
/// Size of an operation of a batch, `hsa_amd_memory_copy_op_t`, in bytes.
pub const COPY_OPERATION_SIZE: u64 = 128;
/// The kind of operation, `hsa_amd_memory_copy_op_type_t`, that copies from one address to another.
pub const COPY_LINEAR: u64 = 0;

shared! {
    /// A packet in a queue, when its doorbell rang; kind [`crate::record::kind::PACKET`].
    pub struct Packet {
        /// Domain `KernelDispatch` or `QueuePacket`.
        pub header: RecordHeader,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// Id of the thread that rang the doorbell; 0 with [`packet_flags::UNWITNESSED`].
        pub tid: u32,
        /// Time of the doorbell, before the store; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Address of the queue's `hsa_queue_t` in the process.
        pub queue: u64,
        /// `hsa_queue_t::id`.
        pub queue_id: u64,
        /// Address of the ring of packets.
        pub ring: u64,
        /// Number of packets that the ring holds, a power of two.
        pub ring_packets: u32,
        /// Bits of [`packet_flags`].
        pub flags: u32,
        /// Index of the packet: its place in the ring is this index modulo `ring_packets`.
        pub index: u64,
        /// Read index of the queue at `time`, as far as the hardware had reported it.
        pub read_index: u64,
        /// Correlation id of the innermost open call of the thread; 0 if none is recorded.
        pub innermost: u64,
        /// Correlation id of the outermost open call; 0 if none is recorded.
        pub outermost: u64,
        /// `hipStream_t` argument of an open call; only with [`packet_flags::STREAM`].
        pub stream: u64,
        /// The packet.
        pub packet: [u64; 8],
    }
}

/// Bits of [`Packet::flags`].
pub mod packet_flags {
    /// `stream` was an argument of an open call.
    pub const STREAM: u32 = 1 << 0;
    /// The packet precedes the one whose index was stored into the doorbell: either one doorbell
    /// covers several packets, or another thread's doorbell is about to ring.
    pub const BEFORE_DOORBELL: u32 = 1 << 1;
    /// The collector, not the program, read the packet from the ring, some ms later. Its header had
    /// been consumed; `time`, thread and calls are those of the later packet's doorbell.
    pub const READ_LATER: u32 = 1 << 2;
    /// The packet precedes the first doorbell seen of its queue, and had not been consumed: nobody
    /// saw who submitted it, or when. The record has no thread and no calls; at `time` the packet
    /// had still not been consumed.
    pub const UNWITNESSED: u32 = 1 << 3;
    /// Every doorbell of the queue has been seen, from packet 0 on.
    pub const SINCE_CREATION: u32 = 1 << 4;
    /// Only with `READ_LATER`: the packet was not valid when that doorbell rang. It had been taken,
    /// so an earlier doorbell announced it, which was not seen; or it was still to be written. The
    /// record has no thread and no calls.
    pub const OVERTAKEN: u32 = 1 << 5;
}

/// Why a signal was read; [`Completion::reason`].
pub mod completion_reason {
    /// The runtime prepared the signal for its next use.
    pub const REARM: u32 = 1;
    /// The runtime destroyed the signal.
    pub const DESTROY: u32 = 2;
    /// The runtime is being shut down, or the process is about to end.
    pub const EXIT: u32 = 3;
    /// The collector read the signal, at most [`POLL_SPREAD`](super::POLL_SPREAD) before the
    /// record's time.
    pub const POLL: u32 = 4;
}

/// Maximum time between the collector's reading of a signal and the time in its record, ns. If it
/// took longer, because the collector had to wait for a CPU, no record is written: the program may
/// have prepared the signal for its next use meanwhile.
pub const POLL_SPREAD: u64 = 1_000_000;

shared! {
    /// A reading of a completion signal; kind [`crate::record::kind::COMPLETION`]. The reader of
    /// the record must find out whether the stamps belong to the signal's latest use: they are not
    /// cleared in between.
    pub struct Completion {
        /// Domain `Completion`.
        pub header: RecordHeader,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// One of [`completion_reason`].
        pub reason: u32,
        /// Time of the reading; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Address of the `amd_signal_t`.
        pub signal: u64,
        /// Value of the signal: 0 when all work that it stands for is done.
        pub value: i64,
        /// `start_ts`, GPU ticks; 0 if it was never written.
        pub start: u64,
        /// `end_ts`, GPU ticks.
        pub end: u64,
        /// When an SDMA engine began, GPU ticks; 0 if none has used the signal, or none was asked
        /// for stamps. [`SDMA_UNKNOWN`] if ROCr's own words are not where they are expected;
        /// `sdma_end` is 0 then.
        pub sdma_start: u64,
        /// When the SDMA engine ended, GPU ticks.
        pub sdma_end: u64,
    }
}

shared! {
    /// A copy submitted to ROCr; kind [`crate::record::kind::COPY`].
    pub struct Copy {
        /// Domain `MemoryCopy`.
        pub header: RecordHeader,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// Thread id, initial pid namespace.
        pub tid: u32,
        /// Time of the call; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// As in [`Packet`].
        pub innermost: u64,
        /// As in [`Packet`].
        pub outermost: u64,
        /// As in [`Packet`].
        pub stream: u64,
        /// Bits of [`packet_flags`]; only `STREAM`.
        pub flags: u32,
        /// The [`role`] of the function.
        pub role: u32,
        /// Destination address.
        pub destination: u64,
        /// Source address.
        pub source: u64,
        /// `hsa_agent_t` of the destination; for [`role::COPY_RECT`] the agent that copies.
        pub destination_agent: u64,
        /// `hsa_agent_t` of the source; for [`role::COPY_RECT`] 0.
        pub source_agent: u64,
        /// Number of bytes to copy.
        pub bytes: u64,
        /// Completion signal (`hsa_signal_t`), 0 if none.
        pub signal: u64,
        /// Engine as one bit, [`role::COPY_ON_ENGINE`] only; otherwise 0.
        pub engine: u32,
        /// `hsa_amd_copy_direction_t`, [`role::COPY_RECT`] only; otherwise 0.
        pub direction: u32,
    }
}

shared! {
    /// A reading of a queue's indices; kind [`crate::record::kind::QUEUE`].
    pub struct QueueState {
        /// Domain 0; not counted in the ledger.
        pub header: RecordHeader,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// One of [`queue_reason`].
        pub reason: u32,
        /// Time just after the indices were read; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Address of the `hsa_queue_t`.
        pub queue: u64,
        /// `read_dispatch_id`: packets with lower indices have been consumed. The hardware may
        /// report it late.
        pub read_index: u64,
        /// `write_dispatch_id`: packets with lower indices have been reserved.
        pub write_index: u64,
        /// Time just before the previous reading of the indices, at which the read index was
        /// different; ns, `CLOCK_BOOTTIME`. 0 if there was none. Only the first record of a queue
        /// and the last one of a recording can have the same read index as the previous reading.
        pub looked: u64,
    }
}

shared! {
    /// The scratch memory of a queue after a change; kind [`crate::record::kind::SCRATCH`]. The
    /// collector makes this record at intervals: memory that comes and goes between two readings is
    /// not seen.
    pub struct ScratchState {
        /// Domain `ScratchMemory`.
        pub header: RecordHeader,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// `queue_properties`.
        pub properties: u32,
        /// Time just after the reading; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Address of the `hsa_queue_t`.
        pub queue: u64,
        /// Time of the previous reading, at which the values were different; ns, `CLOCK_BOOTTIME`.
        /// 0 if there was none.
        pub looked: u64,
        /// `scratch_backing_memory_location`; 0 for none.
        pub location: u64,
        /// `scratch_backing_memory_byte_size`.
        pub bytes: u64,
        /// `scratch_wave64_lane_byte_size`: the maximum size per work-item.
        pub lane_bytes: u32,
        /// Unused, 0.
        pub reserved: u32,
    }
}

shared! {
    /// A reading of whether a GPU is active; kind [`crate::record::kind::ACTIVITY`]. The collector
    /// makes this record at random moments while a GPU may be at work.
    pub struct Activity {
        /// Domain 0; not counted in the ledger.
        pub header: RecordHeader,
        /// KFD's id of the GPU.
        pub gpu_id: u32,
        /// One of [`activity`].
        pub state: u32,
        /// Time just after the reading; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Mean pause before readings or spells like this one, ns: the time that it stands for. 0
        /// for a reading that stands for nothing: one of a spell, or the first or last one.
        pub stands_for: u64,
        /// The register, as read; 0 if it could not be read. Of a spell that is over, the share of
        /// its time in which the GPU was active, millionths.
        pub register: u32,
        /// How much later than planned it was read, ns: when the reader has to wait for a
        /// processor, the moment is not random. For a reading of a spell, how long it took: the
        /// register had this state at some moment within as many ns before `time`. Of a spell that
        /// is over, the share of its time in which the reader was interrupted, millionths.
        pub late: u32,
    }
}

impl Activity {
    /// Of a reading of a spell: the times before and after it, ns, and whether the GPU was at work.
    /// `None` for everything else.
    #[must_use]
    pub const fn of_spell(&self) -> Option<(u64, u64, bool)> {
        let is_active = match self.state {
            activity::ACTIVE => true,
            activity::IDLE => false,
            _ => return None,
        };
        if self.stands_for != 0 {
            return None;
        }
        let before = self.time.saturating_sub(self.late as u64);
        Some((before, self.time, is_active))
    }
}

/// What a reading found; [`Activity::state`].
pub mod activity {
    /// The GPU was idle, and readings go on.
    pub const IDLE: u32 = 0;
    /// Some unit of the GPU was at work.
    pub const ACTIVE: u32 = 1;
    /// Readings begin: work may have begun before.
    pub const BEGIN: u32 = 2;
    /// Readings end, because the GPU was idle and nothing was submitted for a while.
    pub const END: u32 = 3;
    /// The register cannot be read, so that nothing more is known.
    pub const REFUSED: u32 = 4;
    /// A spell of readings is over.
    pub const SPELL: u32 = 5;
}

/// The mark of ROCr's `core::SharedSignal`: its field `id`. That object has the stamps of SDMA
/// engines after the `amd_signal_t`. If the mark is missing, the runtime lays signals out
/// differently, or the signal no longer exists.
pub const SIGNAL_MARK: u64 = 0x71fc_ca6a_3d5d_5276;

/// Value of [`Completion::sdma_start`] if the signal does not bear [`SIGNAL_MARK`].
pub const SDMA_UNKNOWN: u64 = u64::MAX;

/// Offsets, in ROCr's agent object, of the word with its topology node (low half) and its kind
/// (high half; `core::Agent::DeviceType`: 0 a GPU, 1 a CPU): up to ROCm 6.2, and later.
pub const AGENT_WORDS: [u64; 2] = [24, 48];

shared! {
    /// A queue's agent, or an agent alone, seen for the first time; kind
    /// [`crate::record::kind::DESCRIBED`], never in a capture.
    pub struct Described {
        /// Domain 0; not counted in the ledger.
        pub header: RecordHeader,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// Number of packets that the queue's ring holds.
        pub ring_packets: u32,
        /// Time; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Address of the `hsa_queue_t`; 0 for an agent alone.
        pub queue: u64,
        /// `hsa_queue_t::id`.
        pub queue_id: u64,
        /// `hsa_agent_t`; 0 if it was not found.
        pub agent: u64,
        /// Words of the agent's object at [`AGENT_WORDS`].
        pub words: [u64; 2],
    }
}

/// Why a queue was read; [`QueueState::reason`].
pub mod queue_reason {
    /// The collector watches its read index.
    pub const SAMPLE: u32 = 1;
    /// `hsa_queue_destroy` was called; another queue may get the address afterwards.
    pub const DESTROY: u32 = 2;
}

/// The part of a cookie for GPU tracing: the role, and the function's stream argument.
impl Cookie {
    const ROLE_SHIFT: u32 = 40;
    const STREAM_SHIFT: u32 = 56;

    /// Adds the [`role`] of the function.
    #[must_use]
    pub const fn with_role(self, role: u8) -> Self {
        Self(self.0 | (role as u64 & 0xf) << Self::ROLE_SHIFT)
    }

    /// One of [`role`].
    #[must_use]
    pub const fn role(self) -> u8 {
        (self.0 >> Self::ROLE_SHIFT) as u8 & 0xf
    }

    /// Adds the position of the function's `hipStream_t` argument: 0 to 5 for the argument
    /// registers, from 6 on for the words of stack arguments.
    #[must_use]
    pub const fn with_stream(self, word: u8) -> Self {
        Self(self.0 | (word as u64 + 1) << Self::STREAM_SHIFT)
    }

    /// Position of the function's `hipStream_t` argument; `None` if it has none.
    #[must_use]
    pub const fn stream(self) -> Option<u8> {
        match (self.0 >> Self::STREAM_SHIFT) as u8 {
            0 => None,
            word => Some(word - 1),
        }
    }
}

/// `size` of a [`Packet`].
pub const PACKET_RECORD_SIZE: usize = size_of::<Packet>();
/// `size` of a [`Completion`].
pub const COMPLETION_SIZE: usize = size_of::<Completion>();
/// `size` of a [`struct@Copy`].
pub const COPY_SIZE: usize = size_of::<Copy>();
/// `size` of a [`Described`].
pub const DESCRIBED_SIZE: usize = size_of::<Described>();
/// `size` of a [`QueueState`].
pub const QUEUE_STATE_SIZE: usize = size_of::<QueueState>();
/// `size` of an [`Activity`].
pub const ACTIVITY_SIZE: usize = size_of::<Activity>();
/// `size` of a [`ScratchState`].
pub const SCRATCH_SIZE: usize = size_of::<ScratchState>();

const _: () = assert!(PACKET_RECORD_SIZE == 160);
const _: () = assert!(SCRATCH_SIZE == 64);
const _: () = assert!(ACTIVITY_SIZE == 40);
const _: () = assert!(COMPLETION_SIZE == 72);
const _: () = assert!(COPY_SIZE == 112);
const _: () = assert!(QUEUE_STATE_SIZE == 56);
const _: () = assert!(DESCRIBED_SIZE == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_hold_role_and_stream_beside_the_rest() {
        let plain = Cookie::new(0xffff_ffff, 0xff, 8);
        let cookie = plain.with_role(role::COPY_RECT).with_stream(13);
        assert_eq!(
            (cookie.role(), cookie.stream()),
            (role::COPY_RECT, Some(13))
        );
        assert_eq!((plain.role(), plain.stream()), (role::NONE, None));
        assert_eq!(plain.with_stream(0).stream(), Some(0));
        assert_eq!(
            (cookie.function(), cookie.domain(), cookie.stack_args()),
            (plain.function(), plain.domain(), plain.stack_args())
        );
    }
}
