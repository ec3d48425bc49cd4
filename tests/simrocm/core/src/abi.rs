//! Signals, queues and rings in memory, with ROCr's layout.
//!
//! Sources: `hsa.h`, `amd_hsa_queue.h`, `amd_hsa_signal.h`, and ROCr's `core/inc/signal.h`
//! (`SharedSignal`) and `core/inc/queue.h` (`SharedQueue`), ROCm 6.4. GPU, runtime, program and
//! tracer access these structures at the same time, so every field that changes is an atomic.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// `hsa_agent_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct AgentHandle(pub u64);

/// `hsa_signal_t`: the address of a [`SharedSignal`], or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Signal(pub u64);

/// Values of [`SharedSignal::kind`], `amd_signal_kind_t`.
pub mod signal_kind {
    /// A signal whose value programs and GPUs change.
    pub const USER: i64 = 1;
    /// A doorbell: the value field holds its address.
    pub const DOORBELL: i64 = -1;
}

/// The id of a valid [`SharedSignal`].
pub const SIGNAL_ID: u64 = 0x71FC_CA6A_3D5D_5276;

/// The id in signals of this runtime: [`SIGNAL_ID`], unless it imitates another layout.
#[must_use]
pub fn signal_id() -> u64 {
    if crate::newer::Newer::MovedFields.wanted() {
        !SIGNAL_ID
    } else {
        SIGNAL_ID
    }
}

/// `SharedSignal`: an `amd_signal_t`, and ROCr's additions to it.
#[derive(Debug, FromZeros, IntoBytes)]
#[repr(C, align(128))]
pub struct SharedSignal {
    /// [`signal_kind`].
    pub kind: AtomicI64,
    /// The value, or the doorbell's address.
    pub value: AtomicI64,
    /// Where an interrupt writes the event's number; 0 for none.
    pub event_mailbox: AtomicU64,
    /// The event's number.
    pub event_id: AtomicU32,
    reserved1: u32,
    /// Start of the completing operation, in ticks.
    pub start_ts: AtomicU64,
    /// End of the completing operation, in ticks.
    pub end_ts: AtomicU64,
    /// For a doorbell: address of its [`AmdQueue`].
    pub queue: AtomicU64,
    reserved2: u64,
    /// Start of an SDMA copy, in ticks.
    pub sdma_start_ts: AtomicU64,
    /// Address of the runtime's own object; 0 would mean that the signal is shared between
    /// processes.
    pub core_signal: AtomicU64,
    /// [`SIGNAL_ID`].
    pub id: AtomicU64,
    reserved3: u64,
    /// End of an SDMA copy, in ticks.
    pub sdma_end_ts: AtomicU64,
    reserved4: [u64; 3],
}

impl Signal {
    /// The signal; `None` for 0 and for invalid handles.
    #[must_use]
    pub fn get(self) -> Option<&'static SharedSignal> {
        if self.0 == 0 || !self.0.is_multiple_of(align_of::<SharedSignal>() as u64) {
            return None;
        }
        // SAFETY: a C caller guarantees that it is a signal, and signal memory is never freed. The
        // id is checked below.
        let signal = unsafe { &*(self.0 as *const SharedSignal) };
        (signal.id.load(Ordering::Relaxed) == signal_id()).then_some(signal)
    }
}

impl SharedSignal {
    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> Signal {
        Signal(std::ptr::from_ref(self) as u64)
    }
}

/// `hsa_queue_t`, the public part of a queue.
#[derive(Debug, FromZeros, IntoBytes)]
#[repr(C)]
pub struct HsaQueue {
    /// `hsa_queue_type_t`.
    pub kind: u32,
    /// `hsa_queue_feature_t`; 1 is kernel dispatch.
    pub features: u32,
    /// Address of the ring.
    pub base_address: u64,
    /// Doorbell.
    pub doorbell: Signal,
    /// Number of packets in the ring.
    pub size: u32,
    reserved: u32,
    /// Unique number.
    pub id: u64,
}

/// Bits of [`AmdQueue::queue_properties`].
pub mod queue_property {
    /// 64-bit addresses.
    pub const IS_PTR64: u32 = 1 << 1;
    /// Ticks are written into completion signals.
    pub const ENABLE_PROFILING: u32 = 1 << 3;
}

/// `amd_queue_v2_t`, and the pointer that ROCr's `SharedQueue` adds. Its first 256 bytes are the
/// `amd_queue_t` of ROCm 5.
#[derive(Debug, FromZeros, IntoBytes)]
#[repr(C, align(64))]
pub struct AmdQueue {
    /// The public part.
    pub hsa: HsaQueue,
    /// Capabilities of the asynchronous scratch reclaim; 0 for none.
    pub caps: u32,
    reserved1: [u32; 3],
    /// One past the last reserved packet.
    pub write_dispatch_id: AtomicU64,
    /// High half of the LDS aperture.
    pub group_segment_aperture_base_hi: u32,
    /// High half of the scratch aperture.
    pub private_segment_aperture_base_hi: u32,
    /// Largest number of a compute unit.
    pub max_cu_id: u32,
    /// Largest number of a wave.
    pub max_wave_id: u32,
    /// Used by legacy doorbells only.
    pub max_legacy_doorbell_dispatch_id_plus_1: AtomicU64,
    /// Used by legacy doorbells only.
    pub legacy_doorbell_lock: AtomicU32,
    reserved2: [u32; 9],
    /// One past the last consumed packet.
    pub read_dispatch_id: AtomicU64,
    /// Offset of `read_dispatch_id` from the start of this structure, in bytes.
    pub read_dispatch_id_field_base_byte_offset: u32,
    /// Scratch waves, packed for the hardware.
    pub compute_tmpring_size: AtomicU32,
    /// Buffer descriptor of the scratch memory.
    pub scratch_resource_descriptor: [AtomicU32; 4],
    /// Address of the scratch memory.
    pub scratch_backing_memory_location: AtomicU64,
    /// Size of the scratch memory in bytes.
    pub scratch_backing_memory_byte_size: AtomicU64,
    /// Scratch bytes of a lane of a 64-wide wave.
    pub scratch_wave64_lane_byte_size: AtomicU32,
    /// [`queue_property`].
    pub queue_properties: AtomicU32,
    /// For the scratch reclaim.
    pub scratch_max_use_index: AtomicU64,
    /// Signal by which the packet processor asks for scratch and reports errors.
    pub queue_inactive_signal: AtomicU64,
    /// Alternative scratch, unused here.
    pub alt_scratch_max_use_index: AtomicU64,
    alt_scratch: [u64; 6],
    /// For the scratch reclaim, per engine: main and alternative.
    pub scratch_last_used_index: [[AtomicU64; 2]; 128],
    /// Address of the runtime's own object.
    pub core_queue: AtomicU64,
    padding: [u64; 7],
}

/// `hsa_queue_t*` from a C caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct QueuePointer(*const AmdQueue);

// SAFETY: it is an address; it refers to atomics and to data that never changes.
unsafe impl Send for QueuePointer {}
// SAFETY: as above.
unsafe impl Sync for QueuePointer {}

impl QueuePointer {
    /// The queue; `None` when null.
    #[must_use]
    pub fn get(self) -> Option<&'static AmdQueue> {
        // SAFETY: null, or a queue that the C caller has not destroyed.
        unsafe { self.0.as_ref() }
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The queue at an address in a structure of the C interface.
    #[must_use]
    pub const fn at(address: u64) -> Self {
        Self(address as *const AmdQueue)
    }

    /// Writes a queue's structure into zeroed, aligned memory of at least its size.
    #[must_use]
    pub fn place(memory: crate::ffi::Untyped, queue: AmdQueue) -> Self {
        let pointer = memory.0.cast::<AmdQueue>();
        if pointer.is_null() || !pointer.is_aligned() {
            return Self(std::ptr::null());
        }
        // SAFETY: new memory of the runtime, large enough and aligned (checked).
        unsafe { pointer.write(queue) };
        Self(pointer)
    }
}

impl AmdQueue {
    /// The ring.
    #[must_use]
    pub fn ring(&self) -> Ring {
        Ring {
            base: self.hsa.base_address,
            mask: u64::from(self.hsa.size).wrapping_sub(1),
        }
    }
}

/// A queue's ring of 64-byte packets.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    base: u64,
    mask: u64,
}

impl Ring {
    /// Writes a packet: first the body, then the header and the 16 bits after it, in one store.
    pub fn write(&self, index: u64, words: [u64; 8]) {
        let [first, body @ ..] = words;
        let slot = self.base + (index & self.mask) * 64;
        for (address, word) in (slot + 8..).step_by(8).zip(body) {
            cell64(address).store(word, Ordering::Relaxed);
        }
        let [header, rest] = halves(first);
        cell32(slot + 4).store(rest, Ordering::Relaxed);
        cell32(slot).store(header, Ordering::Release);
    }

    /// Makes every packet invalid, as in a new ring.
    pub fn clear(&self) {
        const INVALID: u32 = 1;
        for index in 0..=self.mask {
            cell32(self.base + index * 64).store(INVALID, Ordering::Relaxed);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are what is wanted"
)]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// A 64-bit word in memory that the runtime has allocated.
#[must_use]
pub fn cell64(address: u64) -> &'static AtomicU64 {
    // SAFETY: rings, doorbells and signals are aligned, and stay mapped while they are in use.
    unsafe { &*(address as *const AtomicU64) }
}

/// A signed 64-bit word in memory that the runtime has allocated.
#[must_use]
pub fn cell_i64(address: u64) -> &'static AtomicI64 {
    // SAFETY: as for `cell64`.
    unsafe { &*(address as *const AtomicI64) }
}

/// A 32-bit word in memory that the runtime has allocated.
#[must_use]
pub fn cell32(address: u64) -> &'static AtomicU32 {
    // SAFETY: as for `cell64`.
    unsafe { &*(address as *const AtomicU32) }
}

/// `hsa_amd_queue_create_desc_t`, version 1 (HSA AMD interface 1.26).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct QueueDescription {
    /// 1.
    pub version: u16,
    /// Location of ring and descriptor; 0 is system memory.
    pub flags: u16,
    /// 0 is compute.
    pub engine_type: u8,
    /// Reserved.
    pub reserved_header: [u8; 3],
    /// Size of the ring in bytes, a power of two.
    pub queue_size_bytes: u32,
    /// `hsa_amd_queue_priority_t`.
    pub priority: u32,
    /// Function to call on errors; 0 for none.
    pub callback: u64,
    /// Passed to `callback`.
    pub callback_data: u64,
    /// Result: the queue.
    pub queue: u64,
    /// Compute: the mask of compute units.
    pub cu_mask: u64,
    /// Compute: `hsa_queue_type32_t`.
    pub queue_type: u32,
    /// Compute: scratch bytes per work-item.
    pub private_segment_size: u32,
    /// Compute: number of bits in the mask.
    pub cu_mask_count: u32,
    /// Reserved.
    pub reserved_compute: [u32; 3],
    /// Hint for the memory traffic.
    pub traffic_class: u32,
    /// Reserved.
    pub reserved: [u8; 20],
}

/// `hsa_amd_memory_copy_op_t`, version 1 (HSA AMD interface 1.17).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct CopyOperation {
    /// 1.
    pub version: u16,
    /// 0 is a linear copy.
    pub kind: u16,
    /// For operations with lists; 0 here.
    pub num_entries: u16,
    /// Hint for the memory traffic.
    pub traffic_class: u16,
    /// Shared by all operations of a batch.
    pub completion: Signal,
    /// Source address.
    pub source: u64,
    /// Source agent.
    pub source_agent: AgentHandle,
    /// Destination agent.
    pub destination_agent: AgentHandle,
    /// Destination address.
    pub destination: u64,
    /// Size in bytes.
    pub size: u64,
    /// For other kinds.
    pub unused_size: u64,
    /// Wait operation before the copy; zero for none.
    pub wait: [u64; 4],
    /// Atomic operation after the copy; zero for none.
    pub signal: [u64; 3],
    /// Reserved.
    pub reserved: u64,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use gputrace_softgpu::layout;

    use super::*;

    #[test]
    fn signals_are_laid_out_as_in_rocr() {
        assert_eq!(size_of::<SharedSignal>(), 128);
        let offsets = [
            offset_of!(SharedSignal, value),
            offset_of!(SharedSignal, event_mailbox),
            offset_of!(SharedSignal, event_id),
            offset_of!(SharedSignal, start_ts),
            offset_of!(SharedSignal, end_ts),
            offset_of!(SharedSignal, queue),
            offset_of!(SharedSignal, sdma_start_ts),
            offset_of!(SharedSignal, core_signal),
            offset_of!(SharedSignal, id),
            offset_of!(SharedSignal, sdma_end_ts),
        ];
        assert_eq!(offsets, [8, 16, 24, 32, 40, 48, 64, 72, 80, 96]);
    }

    #[test]
    fn queues_are_laid_out_as_in_rocr() {
        assert_eq!(size_of::<HsaQueue>(), 40);
        assert_eq!(offset_of!(HsaQueue, doorbell), 16);
        assert_eq!(offset_of!(AmdQueue, core_queue), 2304);
        let offsets = [
            offset_of!(AmdQueue, caps),
            offset_of!(AmdQueue, write_dispatch_id),
            offset_of!(AmdQueue, max_legacy_doorbell_dispatch_id_plus_1),
            offset_of!(AmdQueue, read_dispatch_id),
            offset_of!(AmdQueue, compute_tmpring_size),
            offset_of!(AmdQueue, scratch_backing_memory_location),
            offset_of!(AmdQueue, scratch_wave64_lane_byte_size),
            offset_of!(AmdQueue, queue_properties),
            offset_of!(AmdQueue, scratch_max_use_index),
            offset_of!(AmdQueue, queue_inactive_signal),
            offset_of!(AmdQueue, alt_scratch_max_use_index),
            offset_of!(AmdQueue, scratch_last_used_index),
        ];
        assert_eq!(
            offsets,
            [40, 56, 80, 128, 140, 160, 176, 180, 184, 192, 200, 256]
        );
    }

    #[test]
    fn the_software_gpu_sees_the_same_fields() {
        let at = |offset: usize| offset as u64;
        assert_eq!(
            at(offset_of!(AmdQueue, read_dispatch_id)),
            layout::queue::READ_DISPATCH_ID
        );
        assert_eq!(
            at(offset_of!(AmdQueue, queue_properties)),
            layout::queue::PROPERTIES
        );
        assert_eq!(at(offset_of!(SharedSignal, end_ts)), layout::signal::END_TS);
        assert_eq!(
            at(offset_of!(SharedSignal, event_id)),
            layout::signal::EVENT_ID
        );
    }

    #[test]
    fn newer_structures_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<QueueDescription>(), 96);
        assert_eq!(offset_of!(QueueDescription, queue), 32);
        assert_eq!(offset_of!(QueueDescription, queue_type), 48);
        assert_eq!(offset_of!(QueueDescription, traffic_class), 72);
        assert_eq!(size_of::<CopyOperation>(), 128);
        assert_eq!(offset_of!(CopyOperation, size), 48);
    }

    #[test]
    fn a_packet_lies_in_its_slot() {
        let memory: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(7)).collect();
        let ring = Ring {
            base: memory.as_ptr() as u64,
            mask: 1,
        };
        ring.clear();
        ring.write(5, [0x1122_3344_5566_7788, 1, 2, 3, 4, 5, 6, 8]);
        let words: Vec<u64> = memory
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        assert_eq!(words[0], 1);
        assert_eq!(words[8..], [0x1122_3344_5566_7788, 1, 2, 3, 4, 5, 6, 8]);
    }
}
