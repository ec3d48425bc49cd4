//! Packets of queues, read when their doorbell rings.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id, bpf_probe_read_user,
    generated::{bpf_for_each_map_elem, bpf_ktime_get_boot_ns, bpf_probe_read_user as read_user},
};
use gputrace_abi::{
    config::target_flags::FROM_START,
    counters::DropReason,
    domain::Domain,
    gpu::{
        PACKET_RECORD_SIZE, PACKETS_PER_DOORBELL, Packet, QUEUE_READ_INDEX, QUEUE_STATE_SIZE,
        QUEUE_WRITE_INDEX, QueueState, TYPE_INVALID, is_kernel_dispatch, packet_flags,
        queue_reason,
    },
    record::{RecordHeader, kind},
};

use crate::{
    agents::{self, Seen},
    hit::Hit,
    maps::{Counters, QUEUES, QueueProgress, STEPS, paused, target},
    ring::Slot,
    signals,
};

/// Offset of `queue_ptr` in an `amd_signal_t`; the structure begins with the kind.
const SIGNAL_QUEUE: u64 = 48;

/// `amd_signal_kind_t` of a doorbell, and of a doorbell of old hardware.
const DOORBELL_KINDS: [i64; 2] = [-1, -2];

/// Offset of the part of an `hsa_queue_t` that is read, after its type and features.
const QUEUE_BASE: u64 = 8;

/// Part of `hsa_queue_t` from [`QUEUE_BASE`] on.
#[repr(C)]
struct QueueHead {
    base: u64,
    doorbell: u64,
    size: u32,
    reserved: u32,
    id: u64,
}

/// Limit for the size of a ring. The largest that HSA allows has a million packets.
const MAX_RING: u32 = 1 << 24;

/// A value is stored into a signal: either a doorbell rings, or the program prepares a signal for
/// its next use.
#[inline(always)]
pub(crate) fn signal_stored(hit: &Hit) -> Option<()> {
    let [signal, value, ..] = hit.args();
    // SAFETY: the helper checks the address.
    let Ok(kind) = (unsafe { bpf_probe_read_user(signal as *const i64) }) else {
        return unreadable(Domain::QueuePacket);
    };
    let [new, old] = DOORBELL_KINDS;
    if kind != new && kind != old {
        signals::rearmed(hit.id, signal);
        return None;
    }
    // SAFETY: the helper checks the address.
    let Ok(address) = (unsafe { bpf_probe_read_user((signal + SIGNAL_QUEUE) as *const u64) })
    else {
        return unreadable(Domain::QueuePacket);
    };
    // SAFETY: the helper checks the address.
    let Ok(queue) = (unsafe { bpf_probe_read_user((address + QUEUE_BASE) as *const QueueHead) })
    else {
        return unreadable(Domain::QueuePacket);
    };
    if !queue.size.is_power_of_two() || queue.size > MAX_RING || queue.base == 0 {
        return unreadable(Domain::QueuePacket);
    }
    // SAFETY: the helper checks the address.
    let read_index =
        unsafe { bpf_probe_read_user((address + QUEUE_READ_INDEX) as *const u64) }.unwrap_or(0);

    let mut ringing = Ringing {
        hit,
        address,
        id: queue.id,
        ring: queue.base,
        packets: queue.size,
        read_index,
        first: value,
        value,
        flags: 0,
        // Taken after the read index, which shows what had been consumed by then; the doorbell has
        // still not rung.
        // SAFETY: a helper without arguments.
        time: unsafe { bpf_ktime_get_boot_ns() },
    };
    let key = hit.object(address);
    // SAFETY: a live map element.
    let known = QUEUES
        .get_ptr_mut(key)
        .filter(|progress| unsafe { (**progress).id } == queue.id);
    if let Some(progress) = known {
        // SAFETY: a live map element. Threads that race here at worst have packets read twice or
        // not at all, which the collector notices by their indices.
        unsafe {
            let mut wakes = (*progress).next >> INDEX_BITS;
            let next = (*progress).next & ((1 << INDEX_BITS) - 1);
            if wakes != 0 {
                ringing.flags = WAKE;
                wakes -= 1;
            }
            if next <= value {
                let most = value - next;
                let is_cut = most >= PACKETS_PER_DOORBELL as u64;
                if is_cut {
                    ringing.flags = WAKE;
                }
                ringing.first = if is_cut {
                    value - (PACKETS_PER_DOORBELL as u64 - 1)
                } else {
                    next
                };
                (&raw mut (*progress).next).write_volatile(wakes << INDEX_BITS | (value + 1));
            }
        }
    } else {
        let progress = QueueProgress {
            id: queue.id,
            next: WAKES | (value + 1),
        };
        // If the map is full, only packets without a doorbell of their own are left to the
        // collector.
        let _ = QUEUES.insert(key, progress, 0);
        // Packets before the first doorbell seen of a queue belong to it only if every doorbell of
        // the process has been seen. In other processes they may have been submitted before tracing
        // began. Those that are still to be consumed are worth recording, but nobody knows who
        // submitted them.
        let is_from_start = target(hit.pid()).is_some_and(|flags| flags & FROM_START != 0);
        let first = if is_from_start {
            0
        } else {
            read_index.min(value)
        };
        ringing.first = first;
        ringing.flags = packet_flags::UNWITNESSED;
        if is_from_start {
            ringing.flags = packet_flags::SINCE_CREATION;
        }
        if value - first >= PACKETS_PER_DOORBELL as u64 {
            ringing.first = value - (PACKETS_PER_DOORBELL as u64 - 1);
            if is_from_start {
                ringing.flags |= WAKE;
            }
        }
        agents::queue(&Seen {
            pid: hit.pid(),
            time: ringing.time,
            queue: address,
            queue_id: queue.id,
            ring_packets: queue.size,
        });
    }

    if paused() {
        return None;
    }
    // This helper is used as a loop whose body the verifier follows once or twice, however long it
    // is.
    // SAFETY: the map is an array, `step` has the signature that the helper requires, and `queue`
    // lives through the call.
    unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&STEPS).cast_mut().cast(),
            step as *mut c_void,
            (&raw mut ringing).cast(),
            0,
        )
    };
    Some(())
}

/// Examines the packet at this step's distance from the first. Returns non-zero if it was the last.
extern "C" fn step(
    _map: *mut c_void,
    step: *const u32,
    _value: *mut u8,
    queue: *const Ringing,
) -> i64 {
    // SAFETY: the helper passes a live key and the pointer that was given to it.
    let (step, queue) = unsafe { (*step, &*queue) };
    let index = queue.first + u64::from(step);
    if index > queue.value {
        return 1;
    }
    packet(queue, index);
    0
}

/// Bit in [`Ringing::flags`], not in records: wake the collector, because more packets precede this
/// one than are read here, or because few doorbells of the queue have been seen. It is a flag
/// because everything that is on the stack at one time must fit into 512 bytes.
const WAKE: u32 = 1 << 31;

/// Number of doorbells of a queue that wake the collector. Their kernels may have been loaded
/// unnoticed when the recording began; their names are in memory only as long as the process lives.
/// HIP begins a stream with barriers, so one doorbell would not suffice.
const WAKES: u64 = 8 << INDEX_BITS;

/// Number of bits of an index in [`QueueProgress::next`]. No queue lives long enough to need more.
const INDEX_BITS: u32 = 56;

/// A queue whose doorbell rings.
struct Ringing<'a> {
    hit: &'a Hit,
    address: u64,
    id: u64,
    ring: u64,
    packets: u32,
    read_index: u64,
    /// Index of the first packet to examine.
    first: u64,
    /// Value stored into the doorbell: the index of the packet that it announces.
    value: u64,
    /// Bits of [`packet_flags`] for all packets; `UNWITNESSED` applies to those before the last.
    flags: u32,
    /// Time of the store, ns `CLOCK_BOOTTIME`.
    time: u64,
}

/// Writes the record of the packet at `index`. A packet before the doorbell's own is skipped if it
/// is not valid: its own doorbell will follow.
#[inline(always)]
fn packet(queue: &Ringing<'_>, index: u64) -> Option<()> {
    let hit = queue.hit;
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let counters = Counters::of(cpu)?;
    let before = index != queue.value;
    let place = queue.ring + (index & (u64::from(queue.packets) - 1)) * 64;
    let Some(mut slot) = Slot::<Packet>::reserve() else {
        return packet_lost(place, before, counters);
    };
    let record = slot.as_mut_ptr();
    // Read directly into the record: 64 bytes would take much of the stack.
    // SAFETY: the helper checks the user address and writes only within the record, which it fills
    // even if it fails.
    let failed =
        unsafe { read_user((&raw mut (*record).packet).cast(), 64, place as *const _) } != 0;
    if failed {
        slot.discard();
        return unreadable(Domain::QueuePacket);
    }
    // SAFETY: the helper has written it.
    let words = unsafe { &(*record).packet };
    let [header, .., signal] = *words;
    if before && header & 0xff == TYPE_INVALID {
        slot.discard();
        return None;
    }
    let domain = domain_of(words);
    counters.seen(domain);
    if signal != 0 {
        signals::used(hit.object(signal));
    }
    let mut flags = queue.flags & !WAKE;
    if before {
        flags |= packet_flags::BEFORE_DOORBELL;
    } else {
        flags &= !packet_flags::UNWITNESSED;
    }
    let is_witnessed = flags & packet_flags::UNWITNESSED == 0;
    if is_witnessed {
        flags |= hit.flags;
    }
    // SAFETY: the slot is as large as a `Packet`.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: PACKET_RECORD_SIZE as u16,
            kind: kind::PACKET,
            domain,
            cpu,
        });
        (&raw mut (*record).pid).write(hit.pid());
        (&raw mut (*record).tid).write(0);
        (&raw mut (*record).time).write(queue.time);
        (&raw mut (*record).queue).write(queue.address);
        (&raw mut (*record).queue_id).write(queue.id);
        (&raw mut (*record).ring).write(queue.ring);
        (&raw mut (*record).ring_packets).write(queue.packets);
        (&raw mut (*record).flags).write(flags);
        (&raw mut (*record).index).write(index);
        (&raw mut (*record).read_index).write(queue.read_index);
        (&raw mut (*record).innermost).write(0);
        (&raw mut (*record).outermost).write(0);
        (&raw mut (*record).stream).write(0);
        if is_witnessed {
            (&raw mut (*record).tid).write(hit.id as u32);
            (&raw mut (*record).innermost).write(hit.innermost);
            (&raw mut (*record).outermost).write(hit.outermost);
            (&raw mut (*record).stream).write(hit.stream);
        }
    }
    if queue.flags & WAKE != 0 && !before {
        // The queue's ring holds the other packets only until it wraps around.
        slot.submit_now();
    } else {
        slot.submit(true);
    }
    Some(())
}

/// Counts the packet at `place` as lost because the ring is full, if there is a packet.
#[inline(always)]
fn packet_lost(place: u64, before: bool, counters: Counters) -> Option<()> {
    // Reads, one by one, the words that determine its domain.
    let [header, grid, kernel] = [0, 8, 32].map(|offset| {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user((place + offset) as *const u64) }.unwrap_or(0)
    });
    if !(before && header & 0xff == TYPE_INVALID) {
        let domain = domain_of(&[header, grid, 0, 0, kernel, 0, 0, 0]);
        counters.seen(domain);
        counters.dropped(DropReason::RingFull, domain);
    }
    None
}

/// The domain of a packet.
#[inline(always)]
fn domain_of(packet: &[u64; 8]) -> u8 {
    if is_kernel_dispatch(packet) {
        Domain::KernelDispatch.id()
    } else {
        Domain::QueuePacket.id()
    }
}

/// Counts something that could not be read as seen and lost.
#[inline(always)]
fn unreadable(domain: Domain) -> Option<()> {
    // SAFETY: a helper without arguments.
    let counters = Counters::of(unsafe { bpf_get_smp_processor_id() })?;
    counters.seen(domain.id());
    counters.dropped(DropReason::MemoryUnreadable, domain.id());
    None
}

/// Handles the end of the queue at `address`, which another queue may get afterwards.
#[inline(always)]
pub(crate) fn queue_destroyed(hit: &Hit, address: u64) -> Option<()> {
    let key = hit.object(address);
    // A queue without packets is of no interest.
    // SAFETY: nothing is read through the pointer.
    QUEUES.get_ptr(key)?;
    let _ = QUEUES.remove(key);
    let mut slot = Slot::<QueueState>::reserve()?;
    let record = slot.as_mut_ptr();
    let word = |offset: u64| {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user((address + offset) as *const u64) }.unwrap_or(0)
    };
    let (read_index, write_index) = (word(QUEUE_READ_INDEX), word(QUEUE_WRITE_INDEX));
    // SAFETY: the slot is as large as a `QueueState`; a helper without arguments.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: QUEUE_STATE_SIZE as u16,
            kind: kind::QUEUE,
            domain: 0,
            cpu: bpf_get_smp_processor_id(),
        });
        (&raw mut (*record).pid).write(hit.pid());
        (&raw mut (*record).reason).write(queue_reason::DESTROY);
        // Taken after the indices, which show what had been consumed by then.
        (&raw mut (*record).time).write(bpf_ktime_get_boot_ns());
        (&raw mut (*record).queue).write(address);
        (&raw mut (*record).read_index).write(read_index);
        (&raw mut (*record).write_index).write(write_index);
        (&raw mut (*record).looked).write(0);
    }
    slot.submit(false);
    Some(())
}
