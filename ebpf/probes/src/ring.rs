//! Writing records: into the ring of the CPU that the program runs on.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    btf_maps::RingBuf,
    helpers::{bpf_get_smp_processor_id, generated::bpf_ringbuf_query},
    maps::ring_buf::RingBufEntry,
};
use gputrace_abi::{
    STACK_ARGS,
    frame::Frame,
    record::{LONG_SPAN_SIZE, LongSpan, RecordHeader, SPAN_SIZE, Span},
};

use crate::maps::{RINGS, config};

type Ring = RingBuf<(), { 1 << 20 }, 0>;

/// A place in a ring, reserved for a record of type `T`; to be filled and submitted.
pub(crate) struct Slot<T: 'static> {
    ring: &'static Ring,
    entry: RingBufEntry<T>,
}

impl<T: 'static> Slot<T> {
    /// Reserves room on this CPU; `None` if the ring is full.
    #[inline(always)]
    pub(crate) fn reserve() -> Option<Self> {
        // SAFETY: a helper without arguments.
        let ring = RINGS.get(unsafe { bpf_get_smp_processor_id() })?;
        let entry = ring.reserve_untyped::<T>(0)?;
        Some(Self { ring, entry })
    }

    /// Where to write the record. Every byte must be written before [`Slot::submit`].
    #[inline(always)]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.entry.as_mut_ptr()
    }

    /// Hands the record over. The collector polls; it is woken only when much is waiting.
    #[inline(always)]
    pub(crate) fn submit(self) {
        // SAFETY: the ring is a live map; the helper only reads its positions.
        let waiting = unsafe {
            bpf_ringbuf_query(core::ptr::from_ref(self.ring).cast_mut().cast(), u64::from(BPF_RB_AVAIL_DATA))
        };
        let wake = waiting >= config().wakeup_bytes;
        self.entry.submit(u64::from(if wake { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP }));
    }

    /// Hands the record over and wakes the collector up at once.
    #[inline(always)]
    pub(crate) fn submit_now(self) {
        self.entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
    }
}

/// What a record says besides what its frame says.
pub(crate) struct Outcome {
    /// [`gputrace_abi::record::kind`].
    pub(crate) kind: u8,
    /// Bits of [`gputrace_abi::record::span_flags`], added to the frame's.
    pub(crate) flags: u32,
    /// `tgid << 32 | tid`.
    pub(crate) id: u64,
    /// Calls around this one.
    pub(crate) depth: u32,
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) end: u64,
    /// The return register.
    pub(crate) result: u64,
}

/// Writes the record of `frame`. False if the ring is full.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`].
#[inline(always)]
pub(crate) unsafe fn write_span(frame: *const Frame, outcome: &Outcome) -> bool {
    // SAFETY: the caller's promise.
    let cookie = unsafe { (*frame).cookie() };
    if cookie.stack_args() == 0 {
        let Some(mut slot) = Slot::<Span>::reserve() else { return false };
        // SAFETY: the slot is as large as a `Span`, and the frame is live.
        unsafe { fill(slot.as_mut_ptr(), frame, outcome, SPAN_SIZE as u16) };
        slot.submit();
    } else {
        let Some(mut slot) = Slot::<LongSpan>::reserve() else { return false };
        let record = slot.as_mut_ptr();
        // SAFETY: the slot is as large as a `LongSpan`, which begins with a `Span`; the frame is live.
        unsafe {
            fill(record.cast(), frame, outcome, LONG_SPAN_SIZE as u16);
            let (from, to) = (&raw const (*frame).stack, &raw mut (*record).stack);
            let (from, to) = (from.cast::<u64>(), to.cast::<u64>());
            for index in 0..STACK_ARGS {
                to.add(index).write(from.add(index).read());
            }
        }
        slot.submit();
    }
    true
}

/// Fills in a [`Span`].
///
/// # Safety
///
/// `span` must be writable and `frame` readable.
#[inline(always)]
unsafe fn fill(span: *mut Span, frame: *const Frame, outcome: &Outcome, size: u16) {
    // SAFETY: the caller's promise; every access is to a field of one of the two.
    unsafe {
        let cookie = (*frame).cookie();
        (&raw mut (*span).header).write(RecordHeader {
            size,
            kind: outcome.kind,
            domain: cookie.domain(),
            cpu: (*frame).cpu,
        });
        (&raw mut (*span).function).write(cookie.function());
        (&raw mut (*span).pid).write((outcome.id >> 32) as u32);
        (&raw mut (*span).tid).write(outcome.id as u32);
        (&raw mut (*span).depth).write(outcome.depth as u16);
        (&raw mut (*span).flags).write(((*frame).flags | outcome.flags) as u16);
        (&raw mut (*span).begin).write((*frame).begin);
        (&raw mut (*span).end).write(outcome.end);
        (&raw mut (*span).correlation).write((*frame).correlation);
        (&raw mut (*span).parent).write((*frame).parent);
        (&raw mut (*span).result).write(outcome.result);
        (&raw mut (*span).args).write((*frame).args);
    }
}
