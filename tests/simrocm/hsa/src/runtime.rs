//! The runtime of a process: agents, the software GPU, clocks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, RwLock};

use gputrace_simrocm_core::abi::AgentHandle;
use gputrace_simrocm_core::blit;
use gputrace_simrocm_core::ffi::{Untyped, die};
use gputrace_simrocm_core::object::{CoreAgent, DeviceType};
use gputrace_simrocm_core::status::Status;
use gputrace_softgpu::bus::{Bus, Identity};
use gputrace_softgpu::clock::boottime_ns;
use gputrace_softgpu::config::{AgentConfig, Config, LOG_VARIABLE};
use gputrace_softgpu::gpu::{Host, SoftGpu};
use zerocopy::FromBytes;

use crate::sdma::Engine;
use crate::{events, memory};

/// Everything that exists once per process.
pub(crate) struct Runtime {
    pub(crate) gpu: SoftGpu,
    pub(crate) devices: Vec<Device>,
}

/// Longer than any run, but short enough to be added to the current time.
const NEVER_NS: u64 = 1 << 60;

/// A GPU from the runtime's point of view.
pub(crate) struct Device {
    /// Page of doorbells: 1024 of 8 bytes each.
    doorbells: Mutex<Doorbells>,
    /// SDMA engines: for copies to the GPU, and for copies from it.
    pub(crate) engines: [OnceLock<Option<Engine>>; 2],
    clock: Mutex<Samples>,
}

struct Doorbells {
    page: u64,
    taken: Vec<bool>,
}

/// Two readings of a GPU's clock, by which ticks are converted.
#[derive(Clone, Copy)]
struct Samples {
    first: (u64, u64),
    last: (u64, u64),
}

static REFERENCES: Mutex<u32> = Mutex::new(0);
/// Id of the process in which the runtime was created: a child of `fork` has no GPU threads and
/// creates its own runtime.
static MADE_IN: AtomicU32 = AtomicU32::new(0);
static RUNTIME: RwLock<Option<&'static Runtime>> = RwLock::new(None);
/// Names of loaded kernels, by address of the descriptor.
static KERNELS: RwLock<Option<HashMap<u64, Arc<str>>>> = RwLock::new(None);

/// The process around the software GPU, as the GPU uses it.
struct Process;

impl Host for Process {
    fn interrupt(&self, event_id: u32) {
        events::set(event_id);
    }

    fn kernel_name(&self, kernel_object: u64) -> Option<Arc<str>> {
        let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
        kernels.as_ref()?.get(&kernel_object).cloned()
    }

    fn kernel_ended(&self, kernel: &str, kernarg: u64) {
        match kernel {
            blit::COPY => {
                if let Some(copy) = arguments::<blit::CopyArguments>(kernarg) {
                    let bytes = usize::try_from(copy.bytes).unwrap_or(0);
                    Untyped::at(copy.destination).copy_from(Untyped::at(copy.source), bytes);
                }
            }
            blit::FILL => {
                if let Some(fill) = arguments::<blit::FillArguments>(kernarg) {
                    let pattern = fill.pattern.to_le_bytes();
                    let pattern = pattern
                        .get(..fill.pattern_bytes as usize)
                        .unwrap_or(&pattern);
                    let bytes = usize::try_from(fill.bytes).unwrap_or(0);
                    Untyped::at(fill.destination).fill(pattern, bytes);
                }
            }
            _ => {}
        }
    }

    fn gpu_reset(&self, agent: u32) {
        die(&format!(
            "HW Exception by GPU node-{} : GPU Hang",
            agent + 1
        ));
    }

    fn fatal(&self, message: &str) {
        die(message);
    }
}

fn arguments<T: FromBytes>(kernarg: u64) -> Option<T> {
    Untyped::at(kernarg).get()
}

/// Adds or removes names of kernels.
pub(crate) fn name_kernels(change: impl FnOnce(&mut HashMap<u64, Arc<str>>)) {
    let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
    change(kernels.get_or_insert_with(HashMap::new));
}

/// `hsa_init`.
pub(crate) extern "C" fn init() -> Status {
    let mut references = REFERENCES.lock().unwrap_or_else(PoisonError::into_inner);
    *references += 1;
    if MADE_IN.swap(std::process::id(), Ordering::AcqRel) != std::process::id() {
        crate::loader::announce();
        // Never freed: threads of the program may still access it when the program ends.
        let made: &'static Runtime = Box::leak(Box::new(Runtime::new()));
        *RUNTIME.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
    }
    Status::SUCCESS
}

/// `hsa_shut_down`. The GPU is destroyed with the process.
pub(crate) extern "C" fn shut_down() -> Status {
    let mut references = REFERENCES.lock().unwrap_or_else(PoisonError::into_inner);
    match references.checked_sub(1) {
        Some(left) => *references = left,
        None => return Status::NOT_INITIALIZED,
    }
    Status::SUCCESS
}

/// Whether `hsa_init` was called in this process.
pub(crate) fn is_up() -> bool {
    get().is_ok()
}

/// The runtime.
pub(crate) fn get() -> Result<&'static Runtime, Status> {
    let runtime = RUNTIME.read().unwrap_or_else(PoisonError::into_inner);
    runtime.ok_or(Status::NOT_INITIALIZED)
}

/// Maximum number of agents: a CPU, and as many GPUs as a configuration can have, in order of their
/// topology nodes.
const AGENTS: usize = 17;

/// All agents, marked.
fn agents() -> &'static [CoreAgent; AGENTS] {
    static OBJECTS: [CoreAgent; AGENTS] = [const { CoreAgent::new() }; AGENTS];
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        let devices = std::iter::once(DeviceType::Cpu).chain(std::iter::repeat(DeviceType::Gpu));
        for ((node, object), device) in (0..).zip(&OBJECTS).zip(devices) {
            object.describe(node, device);
        }
    });
    &OBJECTS
}

/// The CPU agent.
pub(crate) fn cpu() -> AgentHandle {
    let [cpu, ..] = agents();
    cpu.handle()
}

/// A GPU agent; handle 0 for an index beyond the maximum.
pub(crate) fn gpu(index: usize) -> AgentHandle {
    agents()
        .get(index + 1)
        .map_or(AgentHandle(0), CoreAgent::handle)
}

/// The index of a GPU agent; `None` for the CPU and for invalid handles.
pub(crate) fn gpu_index(agent: AgentHandle) -> Option<usize> {
    let index = agents()
        .iter()
        .skip(1)
        .position(|object| object.handle() == agent)?;
    get()
        .is_ok_and(|runtime| index < runtime.devices.len())
        .then_some(index)
}

impl Runtime {
    fn new() -> Self {
        let mut config = Config::from_environment().unwrap_or_else(|error| die(&error.to_string()));
        // Doorbell values never decrease here, so the GPU need not guess which packets are ready:
        // as in hardware, no packet is taken before it was announced.
        config.queue.missed_doorbell_ns = NEVER_NS;
        // SAFETY: as on a real GPU, the program is responsible for the addresses in packets.
        let bus = unsafe { Bus::new(Arc::new(Identity)) };
        let log = std::env::var_os(LOG_VARIABLE).map(PathBuf::from);
        let gpu = SoftGpu::new(config, bus, Arc::new(Process), log.as_deref());
        let gpu = gpu.unwrap_or_else(|error| die(&error.to_string()));
        let devices = gpu.config().agent.iter().map(Device::new).collect();
        Self { gpu, devices }
    }

    /// The configuration of a GPU.
    pub(crate) fn agent(&self, index: usize) -> Option<&AgentConfig> {
        self.gpu.config().agent.get(index)
    }

    /// The time (`CLOCK_BOOTTIME`, ns) of a tick of a GPU's clock, determined as in ROCr: on the
    /// line through the first and a recent reading of both clocks.
    pub(crate) fn tick_to_ns(&self, index: usize, tick: u64) -> u64 {
        let (Some(device), Some(agent)) = (self.devices.get(index), self.agent(index)) else {
            return 0;
        };
        let mut samples = device.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if tick > samples.last.0 || samples.last.0 == samples.first.0 {
            samples.last = read_clock(agent);
        }
        let Samples { first, last } = *samples;
        drop(samples);
        let (ticks, ns) = (last.0.wrapping_sub(first.0), last.1 - first.1);
        let (run, per) = if ticks == 0 || ns < 1_000_000 {
            (1_000_000_000, i128::from(agent.clock.frequency_hz))
        } else {
            (i128::from(ns), i128::from(ticks.cast_signed()))
        };
        let since = i128::from(tick.wrapping_sub(first.0).cast_signed());
        let at = i128::from(first.1) + since * run / per.max(1);
        u64::try_from(at).unwrap_or(0)
    }
}

fn read_clock(agent: &AgentConfig) -> (u64, u64) {
    let ns = boottime_ns();
    (agent.clock.ticks_at(ns), ns)
}

impl Device {
    fn new(agent: &AgentConfig) -> Self {
        const PAGE_BYTES: u64 = 8192;
        let page = memory::map(PAGE_BYTES)
            .map_or_else(|| die("no memory for doorbells"), Untyped::address);
        let now = read_clock(agent);
        Self {
            doorbells: Mutex::new(Doorbells {
                page,
                taken: vec![false; 1024],
            }),
            engines: [const { OnceLock::new() }; 2],
            clock: Mutex::new(Samples {
                first: now,
                last: now,
            }),
        }
    }

    /// Takes a doorbell and returns its address.
    pub(crate) fn take_doorbell(&self) -> Option<u64> {
        let mut doorbells = self
            .doorbells
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let slot = doorbells.taken.iter().position(|taken| !taken)?;
        *doorbells.taken.get_mut(slot)? = true;
        Some(doorbells.page + 8 * slot as u64)
    }

    /// Returns a doorbell to the pool.
    pub(crate) fn give_doorbell_back(&self, address: u64) {
        let mut doorbells = self
            .doorbells
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let slot = usize::try_from(address.wrapping_sub(doorbells.page) / 8);
        if let Some(taken) = slot.ok().and_then(|slot| doorbells.taken.get_mut(slot)) {
            *taken = false;
        }
    }
}
