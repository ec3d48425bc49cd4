//! The GPU that the bundled program uses, its memory and its kernels.

use std::ffi::CString;

use super::Stop;
use crate::{
    hsa::{self, Agent, Api, HsaError, Pool},
    log::{Kernel, Said},
    objects,
};

/// Ticks per second of the constant clock since gfx9 (LLVM's AMDGPUUsage, S_MEMREALTIME).
const USUAL_HZ: u64 = 100_000_000;

/// A loaded kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub(super) object: u64,
    pub(super) private: u32,
}

/// The objects that queues and copies need.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) api: &'a Api,
    pub(super) cpu: Agent,
    pub(super) gpu: Agent,
    /// Ticks per second of the GPU's clock: that of gfx9 and later, until [`Machine::calibrate`]
    /// has determined it.
    pub(super) frequency_hz: u64,
    host: Pool,
    kernarg: Pool,
    device: Pool,
    kernels: [Loaded; Kernel::ALL.len()],
}

impl<'a> Machine<'a> {
    /// Uses the GPU of KFD's topology node `node`, or the first one; reports which one.
    pub(super) fn new(
        api: &'a Api,
        node: Option<u32>,
        say: &mut dyn FnMut(&Said) -> Result<(), Stop>,
    ) -> Result<Self, Stop> {
        let (mut cpu, mut gpu) = (None, None);
        for agent in api.agents()? {
            match api.agent_number(agent, hsa::AGENT_DEVICE)? {
                hsa::CPU => cpu = cpu.or(Some(agent)),
                hsa::GPU => {
                    let wanted = match node {
                        Some(node) => api.agent_number(agent, hsa::AGENT_NODE)? == node,
                        None => true,
                    };
                    gpu = gpu.or(wanted.then_some(agent));
                }
                _ => {}
            }
        }
        let (Some(cpu), Some(gpu)) = (cpu, gpu) else {
            return Err(Stop::NoGpu);
        };
        let gfx = api.agent_name(gpu)?;
        let (major, minor) = api.version()?;
        say(&Said::Machine {
            pid: std::process::id(),
            hsa: [major, minor],
            gfx: gfx.clone(),
            node: api.agent_number(gpu, hsa::AGENT_NODE)?,
        })?;
        let Some(object) = objects::of(&gfx) else {
            return Err(Stop::NoObject(gfx));
        };
        let of_host = api.pools(cpu)?;
        let first = |pools: &[(Pool, u32)], flag| {
            let mut pools = pools.iter().filter(|(_, flags)| flags & flag == flag);
            let found = pools.next().map(|(pool, _)| *pool);
            found.ok_or_else(|| {
                Stop::Failed("there is no memory pool of the required kind".to_owned())
            })
        };
        let device = first(&api.pools(gpu)?, 0)?;
        let executable = api.executable(gpu, object.bytes)?;
        let load = |kernel: Kernel| -> Result<Loaded, Stop> {
            let symbol = CString::new(format!("{}.kd", kernel.name())).unwrap_or_default();
            let (object, private) = api.kernel(executable, gpu, &symbol)?;
            Ok(Loaded { object, private })
        };
        let [short, medium, long, scratch] = Kernel::ALL.map(load);
        Ok(Self {
            api,
            cpu,
            gpu,
            frequency_hz: USUAL_HZ,
            host: first(&of_host, 0)?,
            kernarg: first(&of_host, hsa::POOL_KERNARG)?,
            device,
            kernels: [short?, medium?, long?, scratch?],
        })
    }

    pub(super) const fn kernel(&self, kernel: Kernel) -> Loaded {
        let [short, medium, long, scratch] = self.kernels;
        match kernel {
            Kernel::Short => short,
            Kernel::Medium => medium,
            Kernel::Long => long,
            Kernel::Scratch => scratch,
        }
    }

    /// Allocates host memory that the GPU may use, for kernel arguments.
    pub(super) fn arguments(&self, bytes: usize) -> Result<*mut u8, HsaError> {
        self.api.allocate(self.kernarg, bytes, Some(self.gpu))
    }

    /// Allocates host memory that the GPU may use.
    pub(super) fn host(&self, bytes: usize) -> Result<*mut u8, HsaError> {
        self.api.allocate(self.host, bytes, Some(self.gpu))
    }

    /// Allocates GPU memory.
    pub(super) fn device(&self, bytes: usize) -> Result<*mut u8, HsaError> {
        self.api.allocate(self.device, bytes, None)
    }

    /// Number of ticks in `ns` ns.
    pub(super) fn ticks(&self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.frequency_hz) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Determines the clock's frequency from the runtime's conversion of ticks around `tick`, a
    /// recent one. There is an attribute for it, but not in all releases.
    pub(super) fn calibrate(&mut self, tick: u64) -> Result<(), Stop> {
        const TICKS: u64 = 1_000_000;
        let begin = self.api.system_time(self.gpu, tick.saturating_sub(TICKS))?;
        let ns = self.api.system_time(self.gpu, tick)?.saturating_sub(begin);
        let hz = u128::from(TICKS) * 1_000_000_000 / u128::from(ns.max(1));
        match u64::try_from(hz) {
            Ok(hz @ 1_000_000..=10_000_000_000) => self.frequency_hz = hz,
            _ => {
                return Err(Stop::Failed(format!(
                    "the runtime makes {ns} ns of {TICKS} ticks"
                )));
            }
        }
        Ok(())
    }
}
