//! A queue of the bundled program.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::Stop;
use crate::hsa::{Api, HsaError, KERNEL_IN_ORDER, Packet, Queue, SUCCESS, Signal};

/// Maximum time of a packet or copy before the program gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
/// Interval in ns of checking whether the queue has failed.
const SLICE_NS: u64 = 50_000_000;

/// Number of bytes of a packet that are written last: header and setup.
const HEADER: usize = size_of::<u32>();

/// The current time; ns, `CLOCK_BOOTTIME`.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Status of the first queue that failed (`SUCCESS` if none did), and its id. Shared by the whole
/// process, because the runtime calls back from its own thread.
static STATUS: AtomicU32 = AtomicU32::new(SUCCESS);
static FAILED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn failed(status: u32, queue: *mut Queue, _: *mut c_void) {
    if !queue.is_null() {
        // SAFETY: the runtime passes the queue that has failed, which is live.
        FAILED.store(unsafe { (*queue).id }, Ordering::Relaxed);
    }
    STATUS.store(status, Ordering::Release);
}

/// Waits for a signal.
///
/// # Errors
///
/// If it cannot complete any more, or has not completed in time; the error then contains `what`.
pub(super) fn wait_for(
    api: &Api,
    signal: Signal,
    what: impl FnOnce() -> String,
) -> Result<u64, Stop> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if api.wait(signal, SLICE_NS) {
            return Ok(now());
        }
        let status = STATUS.load(Ordering::Acquire);
        if status != SUCCESS {
            let queue = FAILED.load(Ordering::Relaxed);
            return Err(Stop::Queue { queue, status });
        }
        if Instant::now() > deadline {
            return Err(Stop::Stuck(what()));
        }
    }
}

/// A queue.
#[derive(Debug)]
pub(super) struct Ring<'a> {
    api: &'a Api,
    queue: *mut Queue,
    base: *mut Packet,
    doorbell: Signal,
    size: u64,
    pub(super) id: u64,
    /// Whether completion signals of its packets get stamps.
    pub(super) stamps: bool,
}

impl<'a> Ring<'a> {
    pub(super) fn new(
        api: &'a Api,
        agent: crate::hsa::Agent,
        packets: u32,
        stamps: bool,
    ) -> Result<Self, HsaError> {
        let queue = api.queue(agent, packets, failed, std::ptr::null_mut())?;
        if stamps {
            api.stamp(queue)?;
        }
        // SAFETY: the runtime has just created it.
        let made = unsafe { &*queue };
        Ok(Self {
            api,
            queue,
            base: made.base,
            doorbell: made.doorbell,
            size: u64::from(made.size),
            id: made.id,
            stamps,
        })
    }

    /// Reserves slots and returns the index of the first. Waits until the GPU has taken the packets
    /// that were there.
    pub(super) fn reserve(&self, count: u64) -> Result<u64, Stop> {
        let first = self.api.reserve(self.queue, count);
        let deadline = Instant::now() + PATIENCE;
        while (first + count).saturating_sub(self.read_index()) > self.size {
            if Instant::now() > deadline {
                return Err(Stop::Stuck(format!(
                    "the packets of a whole ring of {}",
                    self.size
                )));
            }
            std::thread::yield_now();
        }
        Ok(first)
    }

    /// Writes a packet into its reserved slot; the header comes last and makes it valid.
    pub(super) fn write(&self, index: u64, packet: &Packet) {
        // The remainder is below the size, which is a `u32`.
        let slot = (index % self.size) as usize;
        // SAFETY: the ring has `size` packets.
        let place = unsafe { self.base.add(slot) };
        let body = std::ptr::from_ref(packet).cast::<u8>().wrapping_add(HEADER);
        let to = place.cast::<u8>().wrapping_add(HEADER);
        let bytes = size_of::<Packet>() - HEADER;
        // SAFETY: both are the rest of a packet. The slot is reserved for this program, and the GPU
        // does not touch it because its header is invalid.
        unsafe { std::ptr::copy_nonoverlapping(body, to, bytes) };
        // SAFETY: the first word of a packet is aligned.
        let header = unsafe { AtomicU32::from_ptr(place.cast()) };
        header.store(packet.header_and_setup, Ordering::Release);
    }

    /// Announces the packets up to `index` to the GPU.
    pub(super) fn ring(&self, index: u64) {
        self.api.ring(self.doorbell, index);
    }

    pub(super) fn read_index(&self) -> u64 {
        self.api.read_index(self.queue)
    }

    pub(super) fn destroy(self) -> Result<(), HsaError> {
        self.api.destroy_queue(self.queue)
    }
}

/// The first word of a dispatch packet that waits for all packets before it, with this many
/// dimensions.
pub(super) const fn in_order(dimensions: u32) -> u32 {
    KERNEL_IN_ORDER | dimensions << 16
}
