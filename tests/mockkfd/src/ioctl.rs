//! KFD's ioctls: a table of numbers, names, argument structures and functions that answer them.
//!
//! An ioctl that is not in the table ends the program with a message containing its bytes: a
//! made-up answer would only cause failures later and elsewhere.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_softgpu::clock::{boottime_ns, monotonic_raw_ns};
use gputrace_softgpu::gpu::QueueSpec;
use gputrace_softgpu::packet::hex;
use gputrace_softgpu::truth::QueueKind;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::alloc::Request;
use crate::doorbell::{page_offset, registers_offset};
use crate::events::EVENT_LIMIT;
use crate::files::user;
use crate::kfd::{Kfd, agent_of, gpu_id};
use crate::uapi::{self, memory_flag, queue_type, wait_result};

/// An ioctl of KFD.
struct Ioctl {
    /// `_IOC_NR`.
    number: u8,
    /// The kernel's name, without `AMDKFD_IOC_`.
    name: &'static str,
    /// Size of the argument structure in bytes.
    bytes: usize,
    run: fn(&Kfd, &mut [u8]) -> Result<(), Errno>,
}

/// Size of the largest argument structure, with room for later ones.
pub(crate) const MAX_BYTES: usize = 128;

macro_rules! ioctl {
    ($number:literal, $name:literal, $arguments:ty, $run:expr) => {
        Ioctl {
            number: $number,
            name: $name,
            bytes: size_of::<$arguments>(),
            run: |kfd, bytes| with::<$arguments>(kfd, bytes, $run),
        }
    };
    // Does nothing, because the software GPU has no such state.
    ($number:literal, $name:literal, accept) => {
        Ioctl {
            number: $number,
            name: $name,
            bytes: 0,
            run: |_, _| Ok(()),
        }
    };
    // The GPU has no such feature; the runtime continues without it.
    ($number:literal, $name:literal, refuse $error:expr) => {
        Ioctl {
            number: $number,
            name: $name,
            bytes: 0,
            run: |_, _| Err($error),
        }
    };
}

static TABLE: [Ioctl; 29] = [
    ioctl!(0x01, "GET_VERSION", uapi::GetVersion, get_version),
    ioctl!(0x02, "CREATE_QUEUE", uapi::CreateQueue, create_queue),
    ioctl!(0x03, "DESTROY_QUEUE", uapi::DestroyQueue, destroy_queue),
    ioctl!(0x04, "SET_MEMORY_POLICY", accept),
    ioctl!(
        0x05,
        "GET_CLOCK_COUNTERS",
        uapi::GetClockCounters,
        get_clock_counters
    ),
    ioctl!(0x07, "UPDATE_QUEUE", uapi::UpdateQueue, update_queue),
    ioctl!(0x08, "CREATE_EVENT", uapi::CreateEvent, create_event),
    ioctl!(0x09, "DESTROY_EVENT", uapi::OneEvent, |kfd, event| kfd
        .machine
        .events
        .destroy(event.event_id)),
    ioctl!(0x0a, "SET_EVENT", uapi::OneEvent, |kfd, event| kfd
        .machine
        .events
        .set(event.event_id)),
    ioctl!(0x0b, "RESET_EVENT", uapi::OneEvent, |kfd, event| kfd
        .machine
        .events
        .reset(event.event_id)),
    ioctl!(0x0c, "WAIT_EVENTS", uapi::WaitEvents, wait_events),
    ioctl!(0x11, "SET_SCRATCH_BACKING_VA", accept),
    ioctl!(
        0x12,
        "GET_TILE_CONFIG",
        uapi::GetTileConfig,
        get_tile_config
    ),
    ioctl!(0x13, "SET_TRAP_HANDLER", accept),
    ioctl!(
        0x14,
        "GET_PROCESS_APERTURES_NEW",
        uapi::GetProcessAperturesNew,
        get_apertures
    ),
    ioctl!(0x15, "ACQUIRE_VM", accept),
    ioctl!(0x16, "ALLOC_MEMORY_OF_GPU", uapi::AllocMemory, alloc_memory),
    ioctl!(0x17, "FREE_MEMORY_OF_GPU", uapi::FreeMemory, free_memory),
    ioctl!(0x18, "MAP_MEMORY_TO_GPU", uapi::MapMemory, map_memory),
    ioctl!(0x19, "UNMAP_MEMORY_FROM_GPU", uapi::MapMemory, map_memory),
    ioctl!(0x1a, "SET_CU_MASK", accept),
    ioctl!(
        0x1e,
        "ALLOC_QUEUE_GWS",
        uapi::AllocQueueGws,
        alloc_queue_gws
    ),
    ioctl!(0x1f, "SMI_EVENTS", refuse Errno::OPNOTSUPP),
    ioctl!(0x21, "SET_XNACK_MODE", uapi::SetXnackMode, set_xnack_mode),
    ioctl!(
        0x23,
        "AVAILABLE_MEMORY",
        uapi::AvailableMemory,
        available_memory
    ),
    ioctl!(0x24, "EXPORT_DMABUF", refuse Errno::OPNOTSUPP),
    ioctl!(0x25, "RUNTIME_ENABLE", accept),
    ioctl!(0x26, "DBG_TRAP", refuse Errno::INVAL),
    // Only in AMD's own driver, for the debugger; ROCr 5.2 tries once and continues without it.
    ioctl!(0x82, "DBG_TRAP (out of tree)", refuse Errno::INVAL),
];

/// Answers an ioctl. `bytes` is the argument structure, as long as the request says.
pub(crate) fn run(kfd: &Kfd, number: u8, bytes: &mut [u8]) -> Result<(), Errno> {
    let Some(ioctl) = TABLE.iter().find(|ioctl| ioctl.number == number) else {
        kfd.gpu
            .unknown(&format!("KFD ioctl {number:#04x}"), &hex(bytes));
        return Err(Errno::NOTTY);
    };
    let mut aligned = [0_u64; MAX_BYTES / 8];
    let buffer = aligned.as_mut_bytes();
    let known = bytes.len().max(ioctl.bytes);
    // As in the kernel, a longer structure is cut, and a shorter one is padded with zeros.
    let Some(buffer) = buffer.get_mut(..known) else {
        kfd.gpu.unknown(
            &format!("size of KFD ioctl {} ({number:#04x})", ioctl.name),
            &hex(bytes),
        );
        return Err(Errno::INVAL);
    };
    for (to, from) in buffer.iter_mut().zip(&*bytes) {
        *to = *from;
    }
    let result = (ioctl.run)(kfd, buffer);
    for (to, from) in bytes.iter_mut().zip(&*buffer) {
        *to = *from;
    }
    result
}

fn with<T: FromBytes + IntoBytes + Immutable>(
    kfd: &Kfd,
    bytes: &mut [u8],
    run: impl FnOnce(&Kfd, &mut T) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (mut arguments, _) = T::read_from_prefix(bytes).map_err(|_| Errno::INVAL)?;
    let result = run(kfd, &mut arguments);
    arguments.write_to_prefix(bytes).map_err(|_| Errno::INVAL)?;
    result
}

fn get_version(kfd: &Kfd, version: &mut uapi::GetVersion) -> Result<(), Errno> {
    version.major_version = 1;
    version.minor_version = kfd.config.kfd_minor;
    Ok(())
}

fn create_queue(kfd: &Kfd, queue: &mut uapi::CreateQueue) -> Result<(), Errno> {
    let (agent, _) = agent_of(&kfd.config, queue.gpu_id)?;
    let (kind, initial) = match queue.queue_type {
        queue_type::COMPUTE_AQL => (QueueKind::Aql, u64::MAX),
        queue_type::SDMA | queue_type::SDMA_XGMI => (QueueKind::Sdma, 0),
        _ => return Err(Errno::INVAL),
    };
    if kind == QueueKind::Sdma {
        user::write(queue.read_pointer_address, 0_u64)?;
        user::write(queue.write_pointer_address, 0_u64)?;
    }
    let (id, doorbell) = kfd.doorbells.with_free(agent, initial, |doorbell| {
        let spec = QueueSpec {
            agent,
            kind,
            ring: queue.ring_base_address,
            ring_bytes: queue.ring_size.into(),
            read_pointer: queue.read_pointer_address,
            doorbell: doorbell.address,
        };
        kfd.gpu.create_queue(&spec).map_err(|error| {
            eprintln!("mockkfd: CREATE_QUEUE: {error}");
            Errno::INVAL
        })
    })?;
    queue.queue_id = id;
    queue.doorbell_offset = doorbell.offset;
    Ok(())
}

fn destroy_queue(kfd: &Kfd, queue: &mut uapi::DestroyQueue) -> Result<(), Errno> {
    if !kfd.gpu.destroy_queue(queue.queue_id) {
        return Err(Errno::INVAL);
    }
    kfd.doorbells.release(queue.queue_id);
    Ok(())
}

fn update_queue(kfd: &Kfd, queue: &mut uapi::UpdateQueue) -> Result<(), Errno> {
    let known = kfd
        .gpu
        .pause_queue(queue.queue_id, queue.queue_percentage == 0);
    known.then_some(()).ok_or(Errno::INVAL)
}

fn get_clock_counters(kfd: &Kfd, counters: &mut uapi::GetClockCounters) -> Result<(), Errno> {
    counters.cpu_clock_counter = monotonic_raw_ns();
    counters.system_clock_counter = boottime_ns();
    // The CPU's node has no GPU clock, but is queried too: ROCr takes the system clock's frequency
    // from it.
    let gpu = agent_of(&kfd.config, counters.gpu_id).ok();
    let ticks = gpu.map(|(_, agent)| agent.clock.ticks_at(counters.system_clock_counter));
    counters.gpu_clock_counter = ticks.unwrap_or(0);
    counters.system_clock_freq = 1_000_000_000;
    Ok(())
}

fn create_event(kfd: &Kfd, event: &mut uapi::CreateEvent) -> Result<(), Errno> {
    // The first call passes the page of mailboxes as a handle. Every call must return it non-zero:
    // only then does libhsakmt compute the mailbox's address, and signals without one get no
    // interrupt.
    if event.event_page_offset != 0 {
        if !kfd.allocations.has(event.event_page_offset) {
            return Err(Errno::INVAL);
        }
        kfd.event_page
            .store(event.event_page_offset, Ordering::Release);
    }
    let id = kfd
        .machine
        .events
        .create(event.event_type, event.auto_reset != 0)?;
    event.event_id = id;
    event.event_slot_index = id;
    event.event_trigger_data = id;
    event.event_page_offset = kfd.event_page.load(Ordering::Acquire);
    Ok(())
}

/// Says so when the program has waited for events as often as `MOCKKFD_WAITS` has it: threads that
/// should sleep and spin cost time that no clock can tell from that of a busy machine.
fn count_wait() {
    static MOST: OnceLock<Option<u64>> = OnceLock::new();
    static WAITS: AtomicU64 = AtomicU64::new(0);
    let most = MOST.get_or_init(|| std::env::var("MOCKKFD_WAITS").ok()?.parse().ok());
    if most.is_some_and(|most| WAITS.fetch_add(1, Ordering::Relaxed) == most) {
        eprintln!("mockkfd: more waits for events than {}", most.unwrap_or(0));
    }
}

fn wait_events(kfd: &Kfd, wait: &mut uapi::WaitEvents) -> Result<(), Errno> {
    count_wait();
    if wait.num_events > EVENT_LIMIT {
        return Err(Errno::INVAL);
    }
    let place = |index| wait.events_ptr + index * size_of::<uapi::EventData>() as u64;
    let mut events = (0..u64::from(wait.num_events))
        .map(|index| user::read::<uapi::EventData>(place(index)))
        .collect::<Result<Vec<_>, _>>()?;
    let in_time = kfd
        .machine
        .events
        .wait(&mut events, wait.wait_for_all != 0, wait.timeout)?;
    for (index, event) in (0..).zip(events) {
        user::write(place(index), event)?;
    }
    wait.wait_result = if in_time {
        wait_result::COMPLETE
    } else {
        wait_result::TIMEOUT
    };
    Ok(())
}

fn get_tile_config(_: &Kfd, tiles: &mut uapi::GetTileConfig) -> Result<(), Errno> {
    // Tiles are only needed for images.
    tiles.num_tile_configs = 0;
    tiles.num_macro_tile_configs = 0;
    tiles.gb_addr_config = 0;
    Ok(())
}

fn get_apertures(kfd: &Kfd, apertures: &mut uapi::GetProcessAperturesNew) -> Result<(), Errno> {
    const WINDOW: u64 = (4 << 30) - 1;
    const LDS: u64 = 1 << 48;
    const SCRATCH: u64 = 2 << 48;
    let capacity = apertures.num_of_nodes;
    for (agent, _) in (0..capacity).zip(&kfd.config.agent) {
        let entry = uapi::Apertures {
            lds_base: LDS,
            lds_limit: LDS + WINDOW,
            scratch_base: SCRATCH,
            scratch_limit: SCRATCH + WINDOW,
            // The whole user address space, so that the runtime uses host addresses on the GPU,
            // too.
            gpuvm_base: 0x4000,
            gpuvm_limit: 0x7fff_ffff_ffff,
            gpu_id: gpu_id(agent),
            pad: 0,
        };
        let offset = u64::from(agent) * size_of::<uapi::Apertures>() as u64;
        user::write(apertures.kfd_process_device_apertures_ptr + offset, entry)?;
    }
    apertures.num_of_nodes = u32::try_from(kfd.config.agent.len()).map_err(|_| Errno::INVAL)?;
    Ok(())
}

fn alloc_memory(kfd: &Kfd, memory: &mut uapi::AllocMemory) -> Result<(), Errno> {
    let (agent, config) = agent_of(&kfd.config, memory.gpu_id)?;
    let request = Request {
        gpu_id: memory.gpu_id,
        address: memory.va_addr,
        bytes: memory.size,
        flags: memory.flags,
        user: memory.mmap_offset,
    };
    // Pages in the file behind /dev/kfd are not memory, but need a handle by which they are freed.
    let fixed = match memory.flags {
        flags if flags & memory_flag::DOORBELL != 0 => Some(page_offset(agent)),
        flags if flags & memory_flag::MMIO_REMAP != 0 => Some(registers_offset(agent)),
        flags if flags & (memory_flag::VRAM | memory_flag::GTT | memory_flag::USERPTR) != 0 => None,
        _ => return Err(Errno::INVAL),
    };
    if let Some(offset) = fixed {
        let page = Request {
            flags: memory_flag::USERPTR,
            user: request.address,
            ..request
        };
        (memory.handle, _) = kfd.allocations.allocate(&kfd.vram, &page, u64::MAX)?;
        memory.mmap_offset = offset;
        return Ok(());
    }
    let limit = config.vram_mib << 20;
    (memory.handle, memory.mmap_offset) = kfd.allocations.allocate(&kfd.vram, &request, limit)?;
    Ok(())
}

fn free_memory(kfd: &Kfd, memory: &mut uapi::FreeMemory) -> Result<(), Errno> {
    let (address, bytes) = kfd.allocations.free(&kfd.vram, memory.handle)?;
    kfd.machine.names.forget(address, bytes);
    Ok(())
}

fn map_memory(kfd: &Kfd, memory: &mut uapi::MapMemory) -> Result<(), Errno> {
    if !kfd.allocations.has(memory.handle) {
        return Err(Errno::INVAL);
    }
    memory.n_success = memory.n_devices;
    Ok(())
}

fn alloc_queue_gws(_: &Kfd, gws: &mut uapi::AllocQueueGws) -> Result<(), Errno> {
    gws.first_gws = 0;
    Ok(())
}

fn set_xnack_mode(_: &Kfd, mode: &mut uapi::SetXnackMode) -> Result<(), Errno> {
    match mode.xnack_enabled {
        // A negative value is a query: it is off, and stays off.
        i32::MIN..=0 => {
            mode.xnack_enabled = 0;
            Ok(())
        }
        _ => Err(Errno::PERM),
    }
}

fn available_memory(kfd: &Kfd, memory: &mut uapi::AvailableMemory) -> Result<(), Errno> {
    let (_, agent) = agent_of(&kfd.config, memory.gpu_id)?;
    memory.available = (agent.vram_mib << 20).saturating_sub(kfd.allocations.used(memory.gpu_id));
    Ok(())
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn numbers_are_unique_and_structures_fit() {
        let mut numbers: Vec<u8> = TABLE.iter().map(|ioctl| ioctl.number).collect();
        numbers.dedup();
        assert!(numbers.is_sorted() && numbers.len() == TABLE.len());
        assert!(TABLE.iter().all(|ioctl| ioctl.bytes <= MAX_BYTES));
    }

    fn call<T: FromBytes + IntoBytes + Immutable>(
        number: u8,
        mut arguments: T,
    ) -> Result<T, Errno> {
        run(crate::kfd::get(), number, arguments.as_mut_bytes())?;
        Ok(arguments)
    }

    #[test]
    fn the_clock_counters_follow_the_agents_clock() {
        let asked = uapi::GetClockCounters {
            gpu_id: gpu_id(0),
            ..uapi::GetClockCounters::new_zeroed()
        };
        let counters = call(0x05, asked).unwrap();
        let clock = &crate::kfd::get().config.agent[0].clock;
        assert_eq!(
            counters.gpu_clock_counter,
            clock.ticks_at(counters.system_clock_counter)
        );
        let cpu = call(0x05, uapi::GetClockCounters { gpu_id: 0, ..asked }).unwrap();
        assert_eq!(
            (cpu.gpu_clock_counter, cpu.system_clock_freq),
            (0, 1_000_000_000)
        );
    }

    #[test]
    fn memory_and_events_live_and_die() {
        let page = uapi::AllocMemory {
            va_addr: 0x10_0000,
            size: 32_768,
            gpu_id: gpu_id(0),
            flags: memory_flag::GTT,
            ..uapi::AllocMemory::new_zeroed()
        };
        let page = call(0x16, page).unwrap();
        let event = uapi::CreateEvent {
            event_page_offset: page.handle,
            auto_reset: 1,
            ..uapi::CreateEvent::new_zeroed()
        };
        let event = call(0x08, event).unwrap();
        assert_eq!(
            (event.event_slot_index, event.event_page_offset),
            (event.event_id, page.handle)
        );
        let one = uapi::OneEvent {
            event_id: event.event_id,
            pad: 0,
        };
        call(0x0a, one).unwrap();
        let mut wanted = uapi::EventData {
            event_id: event.event_id,
            ..uapi::EventData::new_zeroed()
        };
        let wait = uapi::WaitEvents {
            events_ptr: (&raw mut wanted) as u64,
            num_events: 1,
            wait_for_all: 0,
            timeout: 0,
            wait_result: 9,
        };
        assert_eq!(call(0x0c, wait).unwrap().wait_result, wait_result::COMPLETE);
        assert_eq!(call(0x0c, wait).unwrap().wait_result, wait_result::TIMEOUT);
        call(0x09, one).unwrap();
        assert_eq!(call(0x0a, one), Err(Errno::INVAL));
        call(
            0x17,
            uapi::FreeMemory {
                handle: page.handle,
            },
        )
        .unwrap();
        assert_eq!(
            call(
                0x17,
                uapi::FreeMemory {
                    handle: page.handle
                }
            ),
            Err(Errno::INVAL)
        );
        let kfd = crate::kfd::get();
        assert!(kfd.device.is(kfd.device.open().unwrap()));
    }

    #[test]
    fn structures_of_other_releases_are_cut_or_extended() {
        // A later GET_VERSION with two more words, and one that ends after the major version.
        assert_eq!(call(0x01, [7_u32; 4]), Ok([1, 13, 7, 7]));
        assert_eq!(call(0x01, [7_u32; 1]), Ok([1]));
        assert_eq!(
            call(0x21, uapi::SetXnackMode { xnack_enabled: 1 }),
            Err(Errno::PERM)
        );
    }

    /// `_IOC_SIZE` of the kernel's own definitions.
    #[test]
    fn structures_have_the_kernels_sizes() {
        let sizes: Vec<(&str, usize)> = TABLE
            .iter()
            .filter(|ioctl| ioctl.bytes > 0)
            .map(|ioctl| (ioctl.name, ioctl.bytes))
            .collect();
        let kernel = [
            ("GET_VERSION", 8),
            ("CREATE_QUEUE", 88),
            ("DESTROY_QUEUE", 8),
            ("GET_CLOCK_COUNTERS", 40),
            ("UPDATE_QUEUE", 24),
            ("CREATE_EVENT", 32),
            ("DESTROY_EVENT", 8),
            ("SET_EVENT", 8),
            ("RESET_EVENT", 8),
            ("WAIT_EVENTS", 24),
            ("GET_TILE_CONFIG", 40),
            ("GET_PROCESS_APERTURES_NEW", 16),
            ("ALLOC_MEMORY_OF_GPU", 40),
            ("FREE_MEMORY_OF_GPU", 8),
            ("MAP_MEMORY_TO_GPU", 24),
            ("UNMAP_MEMORY_FROM_GPU", 24),
            ("ALLOC_QUEUE_GWS", 16),
            ("SET_XNACK_MODE", 4),
            ("AVAILABLE_MEMORY", 16),
        ];
        assert_eq!(sizes, kernel);
        assert_eq!(
            (size_of::<uapi::EventData>(), size_of::<uapi::Apertures>()),
            (48, 56)
        );
    }
}
