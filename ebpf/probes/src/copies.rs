//! Copies that a program requests.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id, bpf_probe_read_user, generated::bpf_for_each_map_elem,
};
use gputrace_abi::{
    counters::DropReason,
    domain::Domain,
    gpu::{COPIES_PER_BATCH, COPY_LINEAR, COPY_OPERATION_SIZE, COPY_SIZE, Copy, role},
    record::{RecordHeader, kind},
};

use crate::{
    agents,
    hit::Hit,
    maps::{Counters, STEPS},
    ring::Slot,
    signals,
};

/// Handles the request of a copy. Not inlined, so that its variables are on the stack only while it
/// runs.
#[inline(never)]
pub(crate) fn copy(hit: &Hit) -> u64 {
    submitted(hit, || Request::of_call(hit, hit.cookie.role())).map_or(0, |()| 1)
}

/// A batch of copies.
struct Batch<'a> {
    hit: &'a Hit,
    operations: u64,
    count: u32,
}

/// Handles the request of several copies at once.
#[inline(never)]
pub(crate) fn batch(hit: &Hit) -> u64 {
    let [operations, count, ..] = hit.args();
    let batch = Batch {
        hit,
        operations,
        count: count as u32,
    };
    // SAFETY: the map is an array, `operation` has the signature that the helper requires, and
    // `batch` lives through the call.
    unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&STEPS).cast_mut().cast(),
            operation as *mut c_void,
            core::ptr::from_ref(&batch).cast_mut().cast(),
            0,
        )
    };
    let most = COPIES_PER_BATCH as u32;
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if batch.count > most
        && let Some(counters) = Counters::of(cpu)
    {
        let (domain, rest) = (Domain::MemoryCopy.id(), u64::from(batch.count - most));
        counters.all_seen(domain, rest);
        counters.all_dropped(DropReason::MemoryUnreadable, domain, rest);
    }
    0
}

/// Records the operation with this step's number. Returns non-zero if there is none.
extern "C" fn operation(
    _map: *mut c_void,
    step: *const u32,
    _value: *mut u8,
    batch: *const Batch,
) -> i64 {
    // SAFETY: the helper passes a live key and the pointer that was given to it.
    let (step, batch) = unsafe { (*step, &*batch) };
    if step >= batch.count {
        return 1;
    }
    let address = batch.operations + u64::from(step) * COPY_OPERATION_SIZE;
    submitted(batch.hit, || Request::of_operation(address));
    0
}

/// Records the request that `read` finds. It takes a function instead of a value: a failed read
/// would pass an uninitialised value, which the verifier rejects.
#[inline(always)]
fn submitted(hit: &Hit, read: impl FnOnce() -> Option<Request>) -> Option<()> {
    let domain = Domain::MemoryCopy.id();
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let counters = Counters::of(cpu)?;
    counters.seen(domain);
    let Some(request) = read() else {
        counters.dropped(DropReason::MemoryUnreadable, domain);
        return None;
    };
    if request.signal != 0 {
        signals::used(hit.object(request.signal));
    }
    agents::agent(hit.pid(), hit.time, request.destination_agent);
    agents::agent(hit.pid(), hit.time, request.source_agent);
    let Some(mut slot) = Slot::<Copy>::reserve() else {
        counters.dropped(DropReason::RingFull, domain);
        return None;
    };
    let record = slot.as_mut_ptr();
    // SAFETY: the slot is as large as a `Copy`.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: COPY_SIZE as u16,
            kind: kind::COPY,
            domain,
            cpu,
        });
        (&raw mut (*record).pid).write(hit.pid());
        (&raw mut (*record).tid).write(hit.id as u32);
        (&raw mut (*record).time).write(hit.time);
        (&raw mut (*record).innermost).write(hit.innermost);
        (&raw mut (*record).outermost).write(hit.outermost);
        (&raw mut (*record).stream).write(hit.stream);
        (&raw mut (*record).flags).write(hit.flags);
        (&raw mut (*record).role).write(u32::from(hit.cookie.role()));
        (&raw mut (*record).destination).write(request.destination);
        (&raw mut (*record).source).write(request.source);
        (&raw mut (*record).destination_agent).write(request.destination_agent);
        (&raw mut (*record).source_agent).write(request.source_agent);
        (&raw mut (*record).bytes).write(request.bytes);
        (&raw mut (*record).signal).write(request.signal);
        (&raw mut (*record).engine).write(request.engine);
        (&raw mut (*record).direction).write(request.direction);
    }
    slot.submit(true);
    Some(())
}

/// The arguments of a copy.
struct Request {
    destination: u64,
    source: u64,
    destination_agent: u64,
    source_agent: u64,
    bytes: u64,
    signal: u64,
    engine: u32,
    direction: u32,
}

impl Request {
    #[inline(always)]
    fn of_call(hit: &Hit, role: u8) -> Option<Self> {
        let [first, second, third, fourth, fifth, sixth] = hit.args();
        if role != role::COPY_RECT {
            return Some(Self {
                destination: first,
                destination_agent: second,
                source: third,
                source_agent: fourth,
                bytes: fifth,
                signal: hit.stack_arg(1)?,
                engine: if role == role::COPY_ON_ENGINE {
                    hit.stack_arg(2)? as u32
                } else {
                    0
                },
                direction: 0,
            });
        }
        // `hsa_pitched_ptr_t` begins with the address; `hsa_dim3_t` is three u32.
        // SAFETY: the helper checks the addresses.
        let (destination, source, range) = unsafe {
            (
                bpf_probe_read_user(first as *const u64).ok()?,
                bpf_probe_read_user(third as *const u64).ok()?,
                bpf_probe_read_user(fifth as *const [u32; 3]).ok()?,
            )
        };
        let [x, y, z] = range;
        Some(Self {
            destination,
            source,
            destination_agent: sixth,
            source_agent: 0,
            bytes: u64::from(x) * u64::from(y) * u64::from(z),
            signal: hit.stack_arg(3)?,
            engine: 0,
            direction: hit.stack_arg(0)? as u32,
        })
    }

    /// Reads an `hsa_amd_memory_copy_op_t`: version, kind, entries and traffic class in the first
    /// word, then the signal, source and its agent, the destination's agent and the destination,
    /// and the size. Operations of other kinds have lists in these places.
    #[inline(always)]
    fn of_operation(address: u64) -> Option<Self> {
        // SAFETY: the helper checks the address.
        let operation = unsafe { bpf_probe_read_user(address as *const [u64; 7]) }.ok()?;
        let [
            head,
            signal,
            source,
            source_agent,
            destination_agent,
            destination,
            bytes,
        ] = operation;
        let mut request = Self {
            destination,
            source,
            destination_agent,
            source_agent,
            bytes,
            signal,
            engine: 0,
            direction: 0,
        };
        if (head >> 16) & 0xffff != COPY_LINEAR {
            request.destination = 0;
            request.source = 0;
            request.destination_agent = 0;
            request.source_agent = 0;
        }
        Some(request)
    }
}
