//! SDMA: copies by the GPU's copy engines. The packets are those of ROCr's `amd_blit_sdma.cpp`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use gputrace_simrocm_core::abi::{SharedSignal, Signal, cell32, cell64};
use gputrace_softgpu::gpu::QueueSpec;
use gputrace_softgpu::truth::QueueKind;

use crate::memory;
use crate::runtime::{Device, Runtime};

/// Whether `hsa_amd_profiling_async_copy_enable` has enabled timestamps.
pub(crate) static PROFILING: AtomicBool = AtomicBool::new(false);

/// Size of a ring in bytes.
const RING_BYTES: u64 = 1 << 20;
/// Maximum number of bytes in a linear copy packet.
const MAX_COPY: u64 = 0x3f_ffe0;

/// A copy of contiguous bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) source: u64,
    pub(crate) destination: u64,
    pub(crate) bytes: u64,
}

/// A copy engine's queue.
pub(crate) struct Engine {
    ring: u64,
    read_pointer: u64,
    doorbell: u64,
    /// Number of bytes written, which only grows.
    written: Mutex<u64>,
}

impl Engine {
    /// Creates the queue; `None` when a resource is missing.
    pub(crate) fn new(runtime: &Runtime, device: &Device, agent: u32) -> Option<Self> {
        let engine = Self {
            ring: memory::map(RING_BYTES)?.address(),
            read_pointer: memory::map(memory::PAGE)?.address(),
            doorbell: device.take_doorbell()?,
            written: Mutex::new(0),
        };
        cell64(engine.doorbell).store(0, Ordering::Release);
        let spec = QueueSpec {
            agent,
            kind: QueueKind::Sdma,
            ring: engine.ring,
            ring_bytes: RING_BYTES,
            read_pointer: engine.read_pointer,
            doorbell: engine.doorbell,
        };
        runtime.gpu.create_queue(&spec).ok()?;
        Some(engine)
    }

    /// Submits a copy: waits for `dependencies` to become 0, copies, decrements `completion`.
    pub(crate) fn submit(
        &self,
        pieces: impl IntoIterator<Item = Piece>,
        dependencies: &[Signal],
        completion: &SharedSignal,
    ) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut put = |words: &[u32]| self.put(&mut written, words);
        for signal in dependencies.iter().filter_map(|signal| signal.get()) {
            let value = signal.value.as_ptr() as u64;
            for half in [value + 4, value] {
                let [low, high] = words(half);
                // Memory, equal, reference 0, all bits, retry forever.
                put(&[
                    8 | 3 << 28 | 1 << 31,
                    low,
                    high,
                    0,
                    u32::MAX,
                    0xfff << 16 | 10,
                ]);
            }
        }
        let profiling = PROFILING.load(Ordering::Relaxed);
        let stamp = |cell: &std::sync::atomic::AtomicU64| {
            let [low, high] = words(cell.as_ptr() as u64);
            [13 | 2 << 8, low, high]
        };
        if profiling {
            put(&stamp(&completion.sdma_start_ts));
        }
        for piece in pieces {
            for start in (0..piece.bytes).step_by(MAX_COPY as usize) {
                let bytes = (piece.bytes - start).min(MAX_COPY);
                let [from_low, from_high] = words(piece.source + start);
                let [to_low, to_high] = words(piece.destination + start);
                let [count, _] = words(bytes - 1);
                put(&[1, count, 0, from_low, from_high, to_low, to_high]);
            }
        }
        if profiling {
            put(&stamp(&completion.sdma_end_ts));
        }
        let mailbox = completion.event_mailbox.load(Ordering::Relaxed);
        let event = completion.event_id.load(Ordering::Relaxed);
        let [low, high] = words(completion.value.as_ptr() as u64);
        // Adds -1.
        put(&[10 | 47 << 25, low, high, u32::MAX, u32::MAX, 0, 0, 0]);
        if mailbox != 0 {
            let [low, high] = words(mailbox);
            put(&[5, low, high, event]);
            put(&[6, event]);
        }
        self.ring_doorbell(*written);
    }

    fn ring_doorbell(&self, written: u64) {
        cell64(self.doorbell).store(written, Ordering::Release);
    }

    /// Writes a packet. A packet that does not fit before the end of the ring is written at its
    /// start.
    fn put(&self, written: &mut u64, packet: &[u32]) {
        let bytes = 4 * packet.len() as u64;
        let left = RING_BYTES - *written % RING_BYTES;
        if left < bytes {
            self.make_room(*written, left);
            for offset in (0..left).step_by(4) {
                // A NOP of one dword.
                cell32(self.ring + (*written + offset) % RING_BYTES).store(0, Ordering::Relaxed);
            }
            *written += left;
        }
        self.make_room(*written, bytes);
        for (offset, word) in (0..).step_by(4).zip(packet) {
            cell32(self.ring + (*written + offset) % RING_BYTES).store(*word, Ordering::Release);
        }
        *written += bytes;
    }

    /// Waits until this many bytes are free, after announcing what was written if necessary.
    fn make_room(&self, written: u64, bytes: u64) {
        let full =
            || written + bytes - cell64(self.read_pointer).load(Ordering::Acquire) > RING_BYTES;
        if full() {
            self.ring_doorbell(written);
            while full() {
                std::thread::yield_now();
            }
        }
    }
}

/// The low and the high half.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are what is wanted"
)]
const fn words(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}
