//! GPUs, their memory pools and hardware queues.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gputrace_simrocm_core::abi::{AgentHandle, AmdQueue, QueueDescription, QueuePointer, Ring};
use gputrace_simrocm_core::ffi::Untyped;
use gputrace_simrocm_core::newer::Newer;
use gputrace_simrocm_core::status::Status;
use zerocopy::FromZeros;

use crate::error::{Error, Hip, check};
use crate::hsa;
use crate::module::{self, Module};
use crate::stream::Stream;

/// Settings from the environment, with the names of HIP's own variables.
pub(crate) struct Settings {
    /// `GPU_FORCE_QUEUE_PROFILING`: every packet gets a completion signal.
    pub(crate) profile: bool,
    /// `GPU_MAX_HW_QUEUES`: number of queues that the streams of a GPU share.
    pub(crate) queues: usize,
    /// `GPU_FORCE_BLIT_COPY_SIZE`, KB: kernels do copies up to this size.
    pub(crate) blit_bytes: usize,
    /// `HIP_LAUNCH_BLOCKING`: launches wait for their kernel.
    pub(crate) blocking: bool,
}

/// The settings of the process.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
        Settings {
            profile: number("GPU_FORCE_QUEUE_PROFILING").is_some_and(|value| value != 0),
            queues: number("GPU_MAX_HW_QUEUES").unwrap_or(4).max(1),
            blit_bytes: number("GPU_FORCE_BLIT_COPY_SIZE")
                .unwrap_or(16)
                .saturating_mul(1024),
            blocking: number("HIP_LAUNCH_BLOCKING").is_some_and(|value| value != 0),
        }
    })
}

/// A GPU.
pub(crate) struct Device {
    pub(crate) index: usize,
    pub(crate) agent: AgentHandle,
    /// Instruction set.
    pub(crate) gfx: String,
    pub(crate) name: String,
    pub(crate) memory_bytes: u64,
    pub(crate) compute_units: u32,
    pub(crate) wave: u32,
    /// Handle of its own memory pool.
    pub(crate) pool: u64,
    queues: Mutex<Vec<Arc<HwQueue>>>,
    cooperative: OnceLock<Hip<Arc<HwQueue>>>,
    null_stream: OnceLock<Hip<Arc<Stream>>>,
    blit: OnceLock<Hip<Module>>,
}

/// Everything that HIP has found.
pub(crate) struct System {
    pub(crate) devices: Vec<Device>,
    pub(crate) cpu: AgentHandle,
    /// Handle of the fine-grained host memory pool.
    pub(crate) host_pool: u64,
    /// Handle of the host memory pool for kernel arguments.
    pub(crate) kernarg_pool: u64,
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The system, queried when HIP is first used.
pub(crate) fn system() -> Hip<&'static System> {
    static SYSTEM: OnceLock<Hip<System>> = OnceLock::new();
    SYSTEM
        .get_or_init(System::new)
        .as_ref()
        .map_err(|error| *error)
}

/// The current device of the thread.
pub(crate) fn current() -> Hip<&'static Device> {
    device(CURRENT.get())
}

/// A device by number.
pub(crate) fn device(index: usize) -> Hip<&'static Device> {
    system()?.devices.get(index).ok_or(Error::INVALID_DEVICE)
}

/// Makes a device the thread's current one.
pub(crate) fn set_current(index: usize) -> Hip {
    device(index)?;
    CURRENT.set(index);
    Ok(())
}

fn agent_value<T: Default>(agent: AgentHandle, attribute: u32) -> T {
    let mut value = T::default();
    hsa::hsa_agent_get_info(agent, attribute, hsa::to(&mut value));
    value
}

fn agent_text(agent: AgentHandle, attribute: u32) -> String {
    let mut text = [0_u8; 64];
    hsa::hsa_agent_get_info(agent, attribute, hsa::to(&mut text));
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    String::from_utf8_lossy(text.get(..end).unwrap_or_default()).into_owned()
}

fn pools(agent: AgentHandle) -> Vec<u64> {
    let mut all = Vec::new();
    hsa::hsa_amd_agent_iterate_memory_pools(agent, hsa::collect, hsa::to(&mut all));
    all
}

impl System {
    fn new() -> Hip<Self> {
        const DEVICE: u32 = 17;
        check(hsa::hsa_init())?;
        let mut agents = Vec::new();
        check(hsa::hsa_iterate_agents(hsa::collect, hsa::to(&mut agents)))?;
        let agents: Vec<AgentHandle> = agents.into_iter().map(AgentHandle).collect();
        let gpu = |agent: &AgentHandle| agent_value::<u32>(*agent, DEVICE) == 1;
        let cpu = agents
            .iter()
            .copied()
            .find(|agent| !gpu(agent))
            .ok_or(Error::NO_DEVICE)?;
        let gpus = agents.iter().copied().filter(gpu);
        let devices: Vec<Device> = gpus
            .enumerate()
            .map(|(index, agent)| Device::new(index, agent))
            .collect();
        let flags = |pool: u64| {
            let mut flags = 0_u32;
            hsa::hsa_amd_memory_pool_get_info(pool, 1, hsa::to(&mut flags));
            flags
        };
        let host = pools(cpu);
        let with = |wanted: u32| host.iter().copied().find(|pool| flags(*pool) & 3 == wanted);
        if settings().profile {
            check(hsa::hsa_amd_profiling_async_copy_enable(true))?;
        }
        Ok(Self {
            cpu,
            host_pool: with(2).ok_or(Error::NO_DEVICE)?,
            kernarg_pool: with(3).ok_or(Error::NO_DEVICE)?,
            devices,
        })
    }
}

impl Device {
    fn new(index: usize, agent: AgentHandle) -> Self {
        const NAME: u32 = 0;
        const WAVEFRONT_SIZE: u32 = 6;
        const COMPUTE_UNITS: u32 = 0xa002;
        const PRODUCT_NAME: u32 = 0xa009;
        const POOL_SIZE: u32 = 2;
        let pool = pools(agent).first().copied().unwrap_or(0);
        let mut memory_bytes = 0_u64;
        hsa::hsa_amd_memory_pool_get_info(pool, POOL_SIZE, hsa::to(&mut memory_bytes));
        Self {
            index,
            agent,
            gfx: agent_text(agent, NAME),
            name: agent_text(agent, PRODUCT_NAME),
            memory_bytes,
            compute_units: agent_value(agent, COMPUTE_UNITS),
            wave: agent_value(agent, WAVEFRONT_SIZE),
            pool,
            queues: Mutex::default(),
            cooperative: OnceLock::new(),
            null_stream: OnceLock::new(),
            blit: OnceLock::new(),
        }
    }

    /// The stream that is used when none is named.
    pub(crate) fn null_stream(&'static self) -> Hip<Arc<Stream>> {
        self.null_stream
            .get_or_init(|| Stream::new(self, 0, 0, true))
            .clone()
    }

    /// The null stream, if it has ever been used.
    pub(crate) fn used_null_stream(&self) -> Option<Arc<Stream>> {
        self.null_stream.get()?.clone().ok()
    }

    /// A queue for a new stream: a new queue while there are few, otherwise the queue with the
    /// fewest streams.
    pub(crate) fn queue(&self) -> Hip<Arc<HwQueue>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() < settings().queues {
            queues.push(Arc::new(HwQueue::new(self.agent, HwQueue::MULTI)?));
        }
        let least = queues
            .iter()
            .min_by_key(|queue| queue.streams.load(Ordering::Relaxed));
        let queue = Arc::clone(least.ok_or(Error::OUT_OF_MEMORY)?);
        queue.streams.fetch_add(1, Ordering::Relaxed);
        Ok(queue)
    }

    /// The queue for cooperative launches; each GPU has one.
    pub(crate) fn cooperative_queue(&self) -> Hip<Arc<HwQueue>> {
        self.cooperative
            .get_or_init(|| HwQueue::new(self.agent, HwQueue::COOPERATIVE).map(Arc::new))
            .clone()
    }

    /// The runtime's own kernels.
    pub(crate) fn blit(&'static self) -> Hip<&'static Module> {
        let blit = self.blit.get_or_init(|| module::blit(self));
        blit.as_ref().map_err(|error| *error)
    }
}

/// An HSA queue, shared by streams.
pub(crate) struct HwQueue {
    pub(crate) pointer: QueuePointer,
    pub(crate) queue: &'static AmdQueue,
    pub(crate) ring: Ring,
    pub(crate) streams: AtomicU32,
}

/// `ROC_AQL_QUEUE_SIZE`, in packets.
const QUEUE_PACKETS: u32 = 16_384;

extern "C" fn queue_failed(status: Status, _queue: QueuePointer, _data: u64) {
    let text = status.text().unwrap_or(c"unknown");
    // As in ROCclr: prints a message and aborts the program.
    eprintln!("Aborting with error : {}", text.to_string_lossy());
    std::process::abort();
}

impl HwQueue {
    const MULTI: u32 = 0;
    const COOPERATIVE: u32 = 2;

    fn new(agent: AgentHandle, kind: u32) -> Hip<Self> {
        let pointer = if Newer::QueueDesc.wanted() {
            let mut description = QueueDescription::new_zeroed();
            description.version = 1;
            description.queue_size_bytes = QUEUE_PACKETS * 64;
            description.priority = 1;
            let callback: hsa::QueueCallback = queue_failed;
            description.callback = callback as usize as u64;
            description.queue_type = kind;
            description.private_segment_size = u32::MAX;
            check(hsa::hsa_amd_queue_create(agent, &mut description, 1))?;
            QueuePointer::at(description.queue)
        } else {
            let mut out = 0;
            check(hsa::hsa_queue_create(
                agent,
                QUEUE_PACKETS,
                kind,
                Some(queue_failed),
                0,
                u32::MAX,
                u32::MAX,
                &mut out,
            ))?;
            QueuePointer::at(out)
        };
        let queue = pointer.get().ok_or(Error::OUT_OF_MEMORY)?;
        check(hsa::hsa_amd_profiling_set_profiler_enabled(pointer, 1))?;
        Ok(Self {
            pointer,
            queue,
            ring: queue.ring(),
            streams: AtomicU32::new(0),
        })
    }

    /// Reserves the indices of `count` packets, and waits until there is room for them.
    pub(crate) fn reserve(&self, count: u64) -> u64 {
        let first = hsa::hsa_queue_add_write_index_screlease(self.pointer, count);
        hsa::hsa_queue_load_read_index_relaxed(self.pointer);
        first
    }

    /// Waits until the slot of a packet is free, and writes the packet.
    pub(crate) fn write(&self, index: u64, packet: [u64; 8]) {
        let size = u64::from(self.queue.hsa.size);
        while index.saturating_sub(hsa::hsa_queue_load_read_index_scacquire(self.pointer))
            >= size - 1
        {
            std::thread::yield_now();
        }
        self.ring.write(index, packet);
    }

    /// Rings the doorbell: packets up to `index` are complete.
    pub(crate) fn ring(&self, index: u64) {
        hsa::hsa_signal_store_screlease(self.queue.hsa.doorbell, index.cast_signed());
    }
}

/// Allocates from a pool; host memory is made accessible to a GPU.
pub(crate) fn allocate(pool: u64, bytes: usize) -> Hip<u64> {
    let mut address = 0;
    check(hsa::hsa_amd_memory_pool_allocate(
        pool,
        bytes.max(1),
        0,
        &mut address,
    ))?;
    for device in &system()?.devices {
        check(hsa::hsa_amd_agents_allow_access(
            1,
            &device.agent,
            None,
            Untyped::at(address),
        ))?;
    }
    Ok(address)
}
