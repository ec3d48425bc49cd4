//! Copies that are asked for.

use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_probe_read_user};
use gputrace_abi::{
    counters::DropReason,
    domain::Domain,
    gpu::{COPY_SIZE, Copy, role},
    record::{RecordHeader, kind},
};

use crate::{agents, gpu::Hit, maps::Counters, ring::Slot, signals};

/// A copy is asked for. Not inlined, so that what it needs is on the stack only while it runs.
#[inline(never)]
pub(crate) fn copy(hit: &Hit) -> u64 {
    requested(hit).map_or(0, |()| 1)
}

#[inline(always)]
fn requested(hit: &Hit) -> Option<()> {
    let domain = Domain::MemoryCopy.id();
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let counters = Counters::of(cpu)?;
    counters.seen(domain);
    let role = hit.cookie.role();
    let Some(request) = Request::read(hit, role) else {
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
        (&raw mut (*record).role).write(u32::from(role));
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

/// What the arguments of a copy say.
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
    fn read(hit: &Hit, role: u8) -> Option<Self> {
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
}
