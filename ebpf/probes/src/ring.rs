//! Writes records into the ring of the CPU that the program runs on.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    btf_maps::RingBuf,
    helpers::{bpf_get_smp_processor_id, generated::bpf_ringbuf_query},
    maps::ring_buf::RingBufEntry,
};
use gputrace_abi::{
    counters::DropReason,
    frame::Frame,
    record::{LONG_SPAN_SIZE, LongSpan, RecordHeader, SPAN_SIZE, Span},
};

use crate::maps::{Counters, RINGS, config};

type Ring = RingBuf<(), { 1 << 20 }, 0>;

/// A reserved place in a ring for a record of type `T`, to be filled and submitted.
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

    /// Pointer to the record. Every byte must be written before [`Slot::submit`].
    #[inline(always)]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.entry.as_mut_ptr()
    }

    /// Submits the record. The collector polls; if the record `may_wake`, the collector is woken
    /// when much data is waiting.
    #[inline(always)]
    pub(crate) fn submit(self, may_wake: bool) {
        let wake = may_wake && self.waiting() >= config().wakeup_bytes;
        self.entry.submit(u64::from(if wake {
            BPF_RB_FORCE_WAKEUP
        } else {
            BPF_RB_NO_WAKEUP
        }));
    }

    /// Releases the place without a record.
    #[inline(always)]
    pub(crate) fn discard(self) {
        self.entry.discard(u64::from(BPF_RB_NO_WAKEUP));
    }

    /// Number of bytes that the collector has not read yet.
    #[inline(always)]
    fn waiting(&self) -> u64 {
        // SAFETY: the ring is a live map; the helper only reads its positions.
        unsafe {
            bpf_ringbuf_query(
                core::ptr::from_ref(self.ring).cast_mut().cast(),
                u64::from(BPF_RB_AVAIL_DATA),
            )
        }
    }

    /// Submits the record and wakes the collector at once.
    #[inline(always)]
    pub(crate) fn submit_now(self) {
        self.entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
    }
}

/// Flag in [`Frame::flags`] of calls whose records may wake the collector. It is set for few calls,
/// and never leaves the kernel. A wake-up is an interrupt, which costs more than the whole record.
/// If all records could wake the collector, each one would send an interrupt from the moment when
/// much data is waiting until the collector runs.
const MAY_WAKE: u32 = 1 << 16;

/// The bits to set in [`Frame::flags`] for the call with number `sequence` on a CPU.
#[inline(always)]
pub(crate) fn wake_flag(sequence: u64) -> u32 {
    if sequence & u64::from(config().wakeup_mask) == 0 {
        MAY_WAKE
    } else {
        0
    }
}

/// The parts of a record that are not in its frame.
pub(crate) struct Outcome {
    /// [`gputrace_abi::record::kind`].
    pub(crate) kind: u8,
    /// Bits of [`gputrace_abi::record::span_flags`], added to the frame's.
    pub(crate) flags: u32,
    /// `tgid << 32 | tid`.
    pub(crate) id: u64,
    /// Number of calls around this one.
    pub(crate) depth: u32,
    /// Time of the end, ns `CLOCK_BOOTTIME`.
    pub(crate) end: u64,
    /// The return register.
    pub(crate) result: u64,
}

/// Writes the record of a call that is over, or counts it as lost if the ring is full.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`].
#[inline(always)]
pub(crate) unsafe fn finish(frame: *const Frame, outcome: &Outcome) {
    // SAFETY: the caller's promise.
    let (cpu, cookie, written) =
        unsafe { ((*frame).cpu, (*frame).cookie(), write_span(frame, outcome)) };
    if !written && let Some(counters) = Counters::of(cpu) {
        counters.dropped(DropReason::RingFull, cookie.domain());
    }
}

/// Writes the record of `frame`. Returns false if the ring is full.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`].
#[inline(always)]
unsafe fn write_span(frame: *const Frame, outcome: &Outcome) -> bool {
    // SAFETY: the caller's promise.
    let (cookie, may_wake) = unsafe { ((*frame).cookie(), (*frame).flags & MAY_WAKE != 0) };
    if cookie.stack_args() == 0 {
        let Some(mut slot) = Slot::<Span>::reserve() else {
            return false;
        };
        // SAFETY: the slot is as large as a `Span`, and the frame is live.
        unsafe { fill(slot.as_mut_ptr(), frame, outcome, SPAN_SIZE as u16) };
        slot.submit(may_wake);
    } else {
        let Some(mut slot) = Slot::<LongSpan>::reserve() else {
            return false;
        };
        let record = slot.as_mut_ptr();
        // SAFETY: the slot is as large as a `LongSpan`, which begins with a `Span`; the frame is
        // live.
        unsafe {
            fill(record.cast(), frame, outcome, LONG_SPAN_SIZE as u16);
            (&raw const (*frame).stack).copy_to_nonoverlapping(&raw mut (*record).stack, 1);
        }
        slot.submit(may_wake);
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
        // Declared as non-overlapping, so that this becomes six moves instead of a call of a loop
        // over bytes.
        (&raw const (*frame).args).copy_to_nonoverlapping(&raw mut (*span).args, 1);
    }
}
