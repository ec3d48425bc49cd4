//! Any tracepoint of the kernel: its record is copied unchanged, up to the size that the loader
//! sets. The same program serves functions of the kernel, whose record consists of the registers.
//!
//! Some tracepoints of a driver fire a million times per second, so each has a rate limit: records
//! beyond it are counted and left out.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext as _, Global,
    btf_maps::Array,
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id,
        generated::{bpf_get_attach_cookie, bpf_ktime_get_boot_ns, bpf_probe_read_kernel},
    },
    macros::{btf_map, kprobe, tracepoint},
    programs::{ProbeContext, TracePointContext},
};
use gputrace_abi::{
    counters::DropReason,
    domain::Domain,
    record::{RecordHeader, kind},
    tracepoint::{
        LONG_TRACE, LONG_TRACE_SIZE, LongTrace, SHORT_TRACE, SHORT_TRACE_SIZE, ShortTrace,
        TRACEPOINTS, TraceConfig, TraceHead, TraceRate,
    },
};

use crate::{
    maps::{Counters, fetch_add, stopped},
    ring::Slot,
};

/// Settings, in a separate section so that the loader can replace them as a whole.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.trace")]
static TRACE_CONFIG: Global<TraceConfig> = Global::new(TraceConfig { per_second: 0 });

/// Rates, by number of the tracepoint.
#[btf_map]
pub(crate) static TRACE_RATES: Array<TraceRate, TRACEPOINTS> = Array::new();

const SECOND: u64 = 1_000_000_000;

/// At a tracepoint that the loader has chosen.
#[tracepoint]
pub(crate) fn trace_event(ctx: TracePointContext) -> Option<()> {
    observe(ctx.as_ptr())
}

/// At a function of the kernel that the loader has chosen. Its record consists of the registers at
/// the entry, from `r15` to `rdi` (`struct pt_regs` of the kernel's `asm/ptrace.h`).
#[kprobe]
pub(crate) fn kernel_function(ctx: ProbeContext) -> Option<()> {
    observe(ctx.as_ptr())
}

/// Copies the data at `ctx`, as many bytes as the cookie says.
#[inline(always)]
fn observe(ctx: *mut c_void) -> Option<()> {
    if stopped() {
        return None;
    }
    // SAFETY: this program's own context, which the helper only reads.
    let cookie = unsafe { bpf_get_attach_cookie(ctx) };
    let (number, size) = (cookie as u32, (cookie >> 32) as u32);
    // SAFETY: helpers without arguments.
    let (cpu, time) = unsafe { (bpf_get_smp_processor_id(), bpf_ktime_get_boot_ns()) };
    let counters = Counters::of(cpu)?;
    let domain = Domain::Tracepoint.id();
    counters.seen(domain);
    if is_too_much(number, time) {
        counters.dropped(DropReason::TooOften, domain);
        return None;
    }
    let written = if size < SHORT_TRACE as u32 {
        write::<ShortTrace, SHORT_TRACE>(ctx, number, size, SHORT_TRACE_SIZE as u16, (cpu, time))
    } else {
        write::<LongTrace, LONG_TRACE>(ctx, number, size, LONG_TRACE_SIZE as u16, (cpu, time))
    };
    if written.is_none() {
        counters.dropped(DropReason::RingFull, domain);
    }
    Some(())
}

/// Whether the tracepoint has reached its limit for this second.
#[inline(always)]
fn is_too_much(number: u32, time: u64) -> bool {
    let most = TRACE_CONFIG.load().per_second;
    // Functions have numbers above those of tracepoints, and a map of their own.
    let Some(rate) = TRACE_RATES.get_ptr_mut(number & (TRACEPOINTS as u32 - 1)) else {
        return false;
    };
    if most == 0 {
        return false;
    }
    // SAFETY: a live map element. If two processors begin the same second at once, a few additional
    // records get through.
    unsafe {
        let since = (&raw const (*rate).since).read_volatile();
        if time.wrapping_sub(since) >= SECOND && time > since {
            (&raw mut (*rate).since).write_volatile(time);
            (&raw mut (*rate).count).write_volatile(0);
        }
        fetch_add(&raw mut (*rate).count, 1) >= most
    }
}

/// Writes a record of type `T`, which is a [`TraceHead`] and `ROOM` bytes. `None` if the ring is
/// full.
#[inline(always)]
fn write<T: 'static, const ROOM: usize>(
    record: *mut c_void,
    number: u32,
    size: u32,
    whole: u16,
    (cpu, time): (u32, u64),
) -> Option<()> {
    let mut slot = Slot::<T>::reserve()?;
    let head = slot.as_mut_ptr().cast::<TraceHead>();
    // The masked size is below the room, which the verifier can see.
    let size = size & (ROOM as u32 - 1);
    let id = bpf_get_current_pid_tgid();
    // SAFETY: the slot is as large as a head followed by `ROOM` bytes; the helper checks the
    // address to read from.
    unsafe {
        (&raw mut (*head).header).write(RecordHeader {
            size: whole,
            kind: kind::TRACE,
            domain: Domain::Tracepoint.id(),
            cpu,
        });
        (&raw mut (*head).pid).write((id >> 32) as u32);
        (&raw mut (*head).tid).write(id as u32);
        (&raw mut (*head).time).write(time);
        (&raw mut (*head).tracepoint).write(number);
        (&raw mut (*head).size).write(size);
        let data = head.add(1).cast::<u64>();
        for word in 0..ROOM / 8 {
            // Volatile, which keeps the compiler from turning these moves into a call of a loop
            // over bytes.
            data.add(word).write_volatile(0);
        }
        bpf_probe_read_kernel(data.cast(), size, record);
    }
    // Tracepoints may be inside the scheduler or an interrupt, where waking the collector is not
    // allowed.
    slot.submit(false);
    Some(())
}
