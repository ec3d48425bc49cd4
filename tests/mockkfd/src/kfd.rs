//! The state behind `/dev/kfd`: one per process, created on first use.

use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gputrace_softgpu::bus::Bus;
use gputrace_softgpu::config::{AgentConfig, Config, ConfigError, LOG_VARIABLE};
use gputrace_softgpu::gpu::{Host, SoftGpu};
use gputrace_softgpu::truth::TruthError;
use rustix::io::Errno;
use thiserror::Error;

use crate::alloc::Allocations;
use crate::doorbell::Doorbells;
use crate::events::Events;
use crate::files::DeviceFile;
use crate::names::KernelNames;
use crate::register::Nodes;
use crate::sysfs;
use crate::uapi::event_type;

/// Exit status of the program when the mock gives up.
pub(crate) const EXIT_STATUS: i32 = 86;

/// The state of a process's open `/dev/kfd`.
#[derive(Debug)]
pub(crate) struct Kfd {
    pid: u32,
    pub(crate) config: Config,
    /// `/dev/kfd`.
    pub(crate) device: DeviceFile,
    /// Every `/dev/dri/renderD*`: VRAM and GTT memory by offset.
    pub(crate) vram: DeviceFile,
    pub(crate) allocations: Arc<Allocations>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) doorbells: Doorbells,
    /// Handle of the runtime's event page, 0 before the first event.
    pub(crate) event_page: AtomicU64,
    pub(crate) gpu: SoftGpu,
    /// Directory of the synthetic sysfs.
    pub(crate) sysfs: PathBuf,
    pub(crate) nodes: Nodes,
}

/// Why the state could not be created.
#[derive(Debug, Error)]
pub(crate) enum SetupError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Truth(#[from] TruthError),
    #[error("no memory file for a device node: {0}")]
    Device(#[from] Errno),
    #[error("cannot write the sysfs tree {}: {source}", path.display())]
    Sysfs {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// KFD's number of an agent's GPU. It differs from 0, which is the CPU's, and from the node's
/// number.
pub(crate) const fn gpu_id(agent: u32) -> u32 {
    31_000 + agent
}

/// The agent of a GPU.
pub(crate) fn agent_of(config: &Config, id: u32) -> Result<(u32, &AgentConfig), Errno> {
    (0..)
        .zip(&config.agent)
        .find(|(agent, _)| gpu_id(*agent) == id)
        .ok_or(Errno::INVAL)
}

/// This process's state. A forked child gets its own, because it has none of the parent's threads.
static CURRENT: AtomicPtr<Kfd> = AtomicPtr::new(std::ptr::null_mut());
static MAKING: Mutex<()> = Mutex::new(());

/// The state, if this process has one.
pub(crate) fn existing() -> Option<&'static Kfd> {
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: what is published has been leaked, so it lives forever.
    let kfd = unsafe { current.as_ref() }?;
    (kfd.pid == std::process::id()).then_some(kfd)
}

/// The state, created if there is none. Ends the program if it cannot be created: a test that ran
/// without its GPU would prove nothing.
pub(crate) fn get() -> &'static Kfd {
    if let Some(kfd) = existing() {
        return kfd;
    }
    let making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kfd) = existing() {
        return kfd;
    }
    match Kfd::new() {
        Ok(kfd) => {
            let kfd = Box::leak(Box::new(kfd));
            CURRENT.store(kfd, Ordering::Release);
            drop(making);
            kfd
        }
        Err(error) => give_up(&error.to_string()),
    }
}

/// Ends the program with a message.
pub(crate) fn give_up(message: &str) -> ! {
    eprintln!("mockkfd: {message}");
    // SAFETY: ends the process at once. `exit` would run the program's handlers, which wait for the
    // GPU.
    unsafe { libc::_exit(EXIT_STATUS) }
}

impl Kfd {
    fn new() -> Result<Self, SetupError> {
        let config = Config::from_environment()?;
        let device = DeviceFile::new(c"softgpu-kfd")?;
        let vram = DeviceFile::new(c"softgpu-vram")?;
        let sysfs =
            sysfs::install(&config).map_err(|(path, source)| SetupError::Sysfs { path, source })?;
        let allocations = Arc::new(Allocations::default());
        let machine = Arc::new(Machine::default());
        let doorbells = Doorbells::new(&device, config.agent.len())?;
        // SAFETY: queues, signals and packets come from the ROCm runtime, which gives the GPU only
        // memory that it has allocated and mapped; `allocations` translates addresses where the
        // mapping is elsewhere.
        let bus = unsafe { Bus::new(allocations.clone()) };
        let log = std::env::var_os(LOG_VARIABLE).map(PathBuf::from);
        let gpu = SoftGpu::new(config.clone(), bus, machine.clone(), log.as_deref())?;
        Ok(Self {
            pid: std::process::id(),
            config,
            device,
            vram,
            allocations,
            machine,
            doorbells,
            event_page: AtomicU64::new(0),
            gpu,
            sysfs,
            nodes: Nodes::default(),
        })
    }
}

/// The machine around the GPU.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) events: Events,
    pub(crate) names: KernelNames,
}

impl Host for Machine {
    fn interrupt(&self, event_id: u32) {
        // The runtime may already have destroyed the event, as with a real interrupt.
        let _ = self.events.set(event_id);
    }

    fn kernel_name(&self, kernel_object: u64) -> Option<Arc<str>> {
        self.names.of(kernel_object)
    }

    fn gpu_reset(&self, agent: u32) {
        // kfd_hsa_hw_exception_data: whole GPU reset (0), because of a hang (0); memory lost; GPU.
        let data = [0, 1 | u64::from(gpu_id(agent)) << 32, 0, 0];
        self.events.raise(event_type::HW_EXCEPTION, data);
    }

    fn fatal(&self, message: &str) {
        give_up(message);
    }
}
