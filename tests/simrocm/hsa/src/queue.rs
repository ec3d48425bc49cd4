//! AQL queues.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gputrace_simrocm_core::abi::{
    AgentHandle, AmdQueue, QueueDescription, QueuePointer, Signal, cell64, queue_property,
    signal_kind,
};
use gputrace_simrocm_core::ffi::{In, Out};
use gputrace_simrocm_core::object::CoreQueue;
use gputrace_simrocm_core::status::Status;
use gputrace_softgpu::gpu::QueueSpec;
use gputrace_softgpu::layout;
use gputrace_softgpu::truth::QueueKind;
use zerocopy::FromZeros;

use crate::signal::{self, Notice};
use crate::{events, handler, memory, runtime};

/// Called with a status, the queue and the caller's word when a queue reports a status.
pub(crate) type Callback = extern "C" fn(Status, QueuePointer, u64);

/// The runtime's data about a queue.
#[derive(Clone)]
struct Known {
    /// The queue's number in the software GPU.
    number: u32,
    device: usize,
    doorbell: u64,
    ring_bytes: u64,
    /// The object that the queue's structure points to.
    _core: Arc<CoreQueue>,
}

static KNOWN: Mutex<Option<HashMap<QueuePointer, Known>>> = Mutex::new(None);

fn known<T>(with: impl FnOnce(&mut HashMap<QueuePointer, Known>) -> T) -> T {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    with(known.get_or_insert_with(HashMap::new))
}

/// Smallest and largest size of a queue, in packets.
pub(crate) const SIZES: std::ops::RangeInclusive<u32> = 64..=131_072;

/// Parameters of a queue to create.
struct Wanted {
    packets: u32,
    kind: u32,
    callback: Option<Callback>,
    data: u64,
}

/// Makes a queue.
fn make(agent: AgentHandle, wanted: &Wanted) -> Result<QueuePointer, Status> {
    let runtime = runtime::get()?;
    let device = runtime::gpu_index(agent).ok_or(Status::INVALID_AGENT)?;
    let Wanted { packets, kind, .. } = *wanted;
    if !packets.is_power_of_two() || !SIZES.contains(&packets) || kind > 2 {
        return Err(Status::INVALID_ARGUMENT);
    }
    let ring_bytes = u64::from(packets) * 64;
    let none = Status::OUT_OF_RESOURCES;
    let ring = memory::map(ring_bytes).ok_or(none)?.address();
    let place = memory::map(size_of::<AmdQueue>() as u64).ok_or(none)?;
    let doorbells = runtime.devices.get(device).ok_or(none)?;
    let doorbell = doorbells.take_doorbell().ok_or(none)?;
    // Index 0 is the first packet, so all ones means none.
    cell64(doorbell).store(u64::MAX, Ordering::Release);
    let doorbell_signal = signal::create(0, Notice::None).ok_or(none)?;
    let inactive = signal::create(0, Notice::Interrupt).ok_or(none)?;

    let mut queue = AmdQueue::new_zeroed();
    queue.hsa.kind = kind;
    queue.hsa.features = 1;
    queue.hsa.base_address = ring;
    queue.hsa.doorbell = doorbell_signal;
    queue.hsa.size = packets;
    queue.hsa.id = events::next_number() - 1;
    queue.group_segment_aperture_base_hi = 0x1_0000;
    queue.private_segment_aperture_base_hi = 0x2_0000;
    queue.max_cu_id = 59;
    queue.max_wave_id = 2_399;
    queue.read_dispatch_id_field_base_byte_offset = 128;
    *queue.queue_properties.get_mut() = queue_property::IS_PTR64;
    *queue.queue_inactive_signal.get_mut() = inactive.0;
    let core = CoreQueue::new(agent);
    *queue.core_queue.get_mut() = core.address();
    let spec = QueueSpec {
        agent: u32::try_from(device).map_err(|_| Status::INVALID_AGENT)?,
        kind: QueueKind::Aql,
        ring,
        ring_bytes,
        read_pointer: place.address() + layout::queue::READ_DISPATCH_ID,
        doorbell,
    };
    queue.ring().clear();
    let pointer = QueuePointer::place(place, queue);
    if let Some(signal) = doorbell_signal.get() {
        signal
            .value
            .store(doorbell.cast_signed(), Ordering::Relaxed);
        signal.queue.store(place.address(), Ordering::Relaxed);
        signal.kind.store(signal_kind::DOORBELL, Ordering::Release);
    }
    let number = runtime.gpu.create_queue(&spec).map_err(|_| none)?;
    known(|known| {
        known.insert(
            pointer,
            Known {
                number,
                device,
                doorbell,
                ring_bytes,
                _core: core,
            },
        )
    });
    let (callback, data) = (wanted.callback, wanted.data);
    // NE 0: the packet processor wants something.
    handler::add(inactive, 1, 0, move |value| {
        attend(pointer, inactive, value, callback, data)
    });
    Ok(pointer)
}

/// Maximum scratch of a wave, bytes per lane; the first request gets this much.
const SCRATCH_LANE_BYTES: u32 = 64 * 1024;

/// Answers the packet processor: provides scratch, or reports an error. Returns whether to go on
/// listening.
fn attend(
    pointer: QueuePointer,
    inactive: Signal,
    value: i64,
    callback: Option<Callback>,
    data: u64,
) -> bool {
    const NEEDS_SCRATCH: i64 = 0x401;
    const SCRATCH_DONE: i64 = 512;
    let (Some(queue), Some(signal)) = (pointer.get(), inactive.get()) else {
        return false;
    };
    if value & NEEDS_SCRATCH != 0 {
        const BACKING_BYTES: u64 = 128 << 20;
        if let Some(backing) = memory::map(BACKING_BYTES) {
            let location = backing.address();
            queue
                .scratch_backing_memory_location
                .store(location, Ordering::Relaxed);
            queue
                .scratch_backing_memory_byte_size
                .store(BACKING_BYTES, Ordering::Relaxed);
            queue
                .scratch_wave64_lane_byte_size
                .store(SCRATCH_LANE_BYTES, Ordering::Relaxed);
            let [low, high, size, _] = &queue.scratch_resource_descriptor;
            low.store((location & 0xffff_ffff) as u32, Ordering::Relaxed);
            high.store((location >> 32) as u32, Ordering::Relaxed);
            size.store(BACKING_BYTES as u32, Ordering::Relaxed);
            queue
                .compute_tmpring_size
                .store(0x0010_0020, Ordering::Relaxed);
        }
        signal.value.store(0, Ordering::Release);
        return true;
    }
    if value == SCRATCH_DONE {
        signal.value.store(0, Ordering::Release);
        return true;
    }
    // `ExceptionHandler` of ROCr's amd_aql_queue.cpp.
    let status = match value {
        32 => Status::INVALID_PACKET_FORMAT,
        16 => Status::OUT_OF_RESOURCES,
        64 | 128 => Status::INVALID_ARGUMENT,
        _ => Status::ERROR,
    };
    if let Some(callback) = callback {
        callback(status, pointer, data);
    }
    false
}

/// `hsa_queue_create`.
pub(crate) extern "C" fn create(
    agent: AgentHandle,
    packets: u32,
    kind: u32,
    callback: Option<Callback>,
    data: u64,
    _private: u32,
    _group: u32,
    out: Out<QueuePointer>,
) -> Status {
    let wanted = Wanted {
        packets,
        kind,
        callback,
        data,
    };
    match make(agent, &wanted) {
        Ok(queue) => out.put(queue).into(),
        Err(status) => status,
    }
}

/// `hsa_amd_queue_create` (2026): creates several queues at once; each description receives its
/// queue.
pub(crate) extern "C" fn create_described(
    agent: AgentHandle,
    descriptions: Out<QueueDescription>,
    count: u32,
) -> Status {
    const COMPUTE: u8 = 0;
    for index in 0..count as usize {
        let at = descriptions.element(index);
        let Some(mut description) = at.get() else {
            return Status::INVALID_ARGUMENT;
        };
        if description.version != 1 || description.engine_type != COMPUTE {
            return Status::INVALID_ARGUMENT;
        }
        let wanted = Wanted {
            packets: description.queue_size_bytes / 64,
            kind: description.queue_type,
            callback: callback_at(description.callback),
            data: description.callback_data,
        };
        match make(agent, &wanted) {
            Ok(queue) => description.queue = queue.address(),
            Err(status) => return status,
        }
        at.put(description);
    }
    Status::SUCCESS
}

/// The function in a description, which holds its address as a word.
fn callback_at(address: u64) -> Option<Callback> {
    // SAFETY: by the header, the field is null or such a function; `Option` of a function has the
    // same layout.
    unsafe { std::mem::transmute::<u64, Option<Callback>>(address) }
}

/// `hsa_queue_destroy`.
pub(crate) extern "C" fn destroy(pointer: QueuePointer) -> Status {
    let (Ok(runtime), Some(queue)) = (runtime::get(), pointer.get()) else {
        return Status::INVALID_QUEUE;
    };
    let Some(found) = known(|known| known.remove(&pointer)) else {
        return Status::INVALID_QUEUE;
    };
    runtime.gpu.destroy_queue(found.number);
    if let Some(device) = runtime.devices.get(found.device) {
        device.give_doorbell_back(found.doorbell);
    }
    signal::destroy(queue.hsa.doorbell);
    signal::destroy(Signal(queue.queue_inactive_signal.load(Ordering::Relaxed)));
    memory::unmap(queue.hsa.base_address, found.ring_bytes);
    memory::unmap(pointer.address(), size_of::<AmdQueue>() as u64);
    Status::SUCCESS
}

/// `hsa_queue_inactivate`.
pub(crate) extern "C" fn inactivate(pointer: QueuePointer) -> Status {
    match (runtime::get(), known(|known| known.get(&pointer).cloned())) {
        (Ok(runtime), Some(found)) => runtime.gpu.pause_queue(found.number, true).into(),
        _ => Status::INVALID_QUEUE,
    }
}

/// `hsa_amd_profiling_set_profiler_enabled`.
pub(crate) extern "C" fn set_profiling(pointer: QueuePointer, enabled: i32) -> Status {
    let Some(queue) = pointer.get() else {
        return Status::INVALID_QUEUE;
    };
    let bit = queue_property::ENABLE_PROFILING;
    let properties: &AtomicU32 = &queue.queue_properties;
    if enabled == 0 {
        properties.fetch_and(!bit, Ordering::AcqRel);
    } else {
        properties.fetch_or(bit, Ordering::AcqRel);
    }
    Status::SUCCESS
}

/// `hsa_amd_queue_set_priority`: there is only one priority here.
pub(crate) extern "C" fn set_priority(pointer: QueuePointer, priority: u32) -> Status {
    (pointer.get().is_some() && priority <= 2).into()
}

/// `hsa_amd_queue_cu_set_mask`: masks have no effect here, but must be whole words.
pub(crate) extern "C" fn set_cu_mask(pointer: QueuePointer, bits: u32, _mask: In<u32>) -> Status {
    (pointer.get().is_some() && bits.is_multiple_of(32)).into()
}

fn write_index(queue: QueuePointer) -> Option<&'static AtomicU64> {
    Some(&queue.get()?.write_dispatch_id)
}

fn read_index(queue: QueuePointer) -> Option<&'static AtomicU64> {
    Some(&queue.get()?.read_dispatch_id)
}

macro_rules! indices {
    ($($kind:ident $name:ident $which:ident $order:ident;)+) => { $(indices!(@ $kind $name $which $order);)+ };
    (@ load $name:ident $which:ident $order:ident) => {
        pub(crate) extern "C" fn $name(queue: QueuePointer) -> u64 {
            $which(queue).map_or(0, |index| index.load(Ordering::$order))
        }
    };
    (@ store $name:ident $which:ident $order:ident) => {
        pub(crate) extern "C" fn $name(queue: QueuePointer, value: u64) {
            if let Some(index) = $which(queue) {
                index.store(value, Ordering::$order);
            }
        }
    };
    (@ add $name:ident $which:ident $order:ident) => {
        pub(crate) extern "C" fn $name(queue: QueuePointer, value: u64) -> u64 {
            $which(queue).map_or(0, |index| index.fetch_add(value, Ordering::$order))
        }
    };
    (@ cas $name:ident $which:ident $order:ident) => {
        pub(crate) extern "C" fn $name(queue: QueuePointer, expected: u64, value: u64) -> u64 {
            $which(queue).map_or(0, |index| {
                let outcome = index.compare_exchange(expected, value, Ordering::$order, Ordering::Acquire);
                outcome.unwrap_or_else(|found| found)
            })
        }
    };
}

indices! {
    load load_read_relaxed read_index Relaxed;
    load load_read_scacquire read_index Acquire;
    load load_write_relaxed write_index Relaxed;
    load load_write_scacquire write_index Acquire;
    store store_write_relaxed write_index Relaxed;
    store store_write_screlease write_index Release;
    store store_read_relaxed read_index Relaxed;
    store store_read_screlease read_index Release;
    add add_write_relaxed write_index Relaxed;
    add add_write_scacquire write_index Acquire;
    add add_write_screlease write_index Release;
    add add_write_scacq_screl write_index AcqRel;
    cas cas_write_relaxed write_index Relaxed;
    cas cas_write_scacquire write_index Acquire;
    cas cas_write_screlease write_index Release;
    cas cas_write_scacq_screl write_index AcqRel;
}
