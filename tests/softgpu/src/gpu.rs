//! The software GPU: agents, their queues, and state shared by the packet processors.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use thiserror::Error;

use crate::activity::Activity;
use crate::aql::Aql;
use crate::bus::{BadAddress, Bus};
use crate::clock::{GpuClock, boottime_ns};
use crate::config::Config;
use crate::fault::Faults;
use crate::sdma::Sdma;
use crate::thread::spawn;
use crate::timing::Durations;
use crate::truth::{QueueKind, Record, Stamp, TruthError, TruthLog};

/// Services provided by the machine around the GPU. Called from the packet processors' threads.
pub trait Host: Send + Sync {
    /// Raises an interrupt: the event with this number is to be set.
    fn interrupt(&self, event_id: u32);

    /// The name of the kernel whose descriptor is at this address, without `.kd`.
    fn kernel_name(&self, kernel_object: u64) -> Option<Arc<str>>;

    /// Called when a kernel has ended, before it is reported complete, so that the host can produce
    /// the kernel's results by other means. `kernarg` is the address of its arguments.
    fn kernel_ended(&self, kernel: &str, kernarg: u64) {
        let _ = (kernel, kernarg);
    }

    /// Called when the agent was reset; its queues have stopped.
    fn gpu_reset(&self, agent: u32);

    /// Called when the GPU meets something unknown; the queue has stopped. The program must be
    /// ended with an error, because it would hang otherwise. The message is one line.
    fn fatal(&self, message: &str);
}

/// The description of a queue to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Agent, counted from 0.
    pub agent: u32,
    /// The kind of its packets.
    pub kind: QueueKind,
    /// Address of the ring.
    pub ring: u64,
    /// Size of the ring in bytes, a power of two.
    pub ring_bytes: u64,
    /// Address of the read index (AQL: `amd_queue_t::read_dispatch_id`) or byte offset (SDMA).
    pub read_pointer: u64,
    /// Address of the 64-bit doorbell. The program writes the last packet's index (AQL, initially
    /// all ones) or the end in bytes (SDMA, initially 0) into it.
    pub doorbell: u64,
}

/// Why a queue cannot be created.
#[derive(Debug, Error)]
pub enum QueueError {
    /// There is no agent with this number.
    #[error("agent {0} does not exist; the configuration has fewer [[agent]] tables")]
    NoAgent(u32),
    /// The ring is invalid.
    #[error(
        "a ring of {0} bytes at {1:#x} is no ring: the size must be a power of two, at least 64, the address not null"
    )]
    Ring(u64, u64),
    /// An address is invalid.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// No thread can be started for it.
    #[error("no thread for the packet processor: {0}")]
    Thread(#[from] std::io::Error),
}

/// A software GPU. Dropping it stops every queue.
#[derive(Debug)]
pub struct SoftGpu {
    shared: Arc<Shared>,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    last: u32,
    running: HashMap<u32, Running>,
}

#[derive(Debug)]
struct Running {
    control: Arc<Control>,
    thread: JoinHandle<()>,
}

/// Controls of a packet processor from outside.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) stop: AtomicBool,
    pub(crate) paused: AtomicBool,
}

impl Control {
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// State shared by all processors of a GPU.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) bus: Bus,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) durations: Durations,
    pub(crate) faults: Faults,
    pub(crate) pid: u32,
    agents: Vec<Agent>,
    log: Option<TruthLog>,
    activity: Option<Activity>,
}

/// State of one GPU across all its queues.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) clock: GpuClock,
    pub(crate) reset: AtomicBool,
    running: AtomicU32,
    limit: u32,
    /// [`AgentConfig::stamps_fast_ppb`](crate::config::AgentConfig::stamps_fast_ppb).
    fast_ppb: i64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("agents", &self.agents)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// The stamp of the time `ns` on this agent.
    pub(crate) fn stamp_at(&self, ns: u64) -> Stamp {
        Stamp {
            ticks: self.clock.ticks_at(ns),
            ns,
        }
    }

    /// The current stamp.
    pub(crate) fn now(&self) -> Stamp {
        self.stamp_at(boottime_ns())
    }

    /// The ticks that stamps and kernels show for a time: the agent's ticks, plus the effect of a
    /// fault.
    pub(crate) fn stamp_ticks(&self, moment: Stamp) -> u64 {
        let more = i128::from(moment.ticks) * i128::from(self.fast_ppb) / 1_000_000_000;
        // Products of 64 bits fit, and the sum wraps as a counter does.
        moment
            .ticks
            .wrapping_add_signed(i64::try_from(more).unwrap_or(0))
    }

    /// How long this many ticks last, in ns, rounded up.
    pub(crate) fn ticks_last_ns(&self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * 1_000_000_000)
            .div_ceil(u128::from(self.clock.frequency_hz.max(1)));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Takes one of the limited places for running kernels, if one is free.
    pub(crate) fn begin_kernel(&self) -> bool {
        let more = |running: u32| (running < self.limit).then(|| running + 1);
        self.running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    /// Releases a kernel's place.
    pub(crate) fn end_kernel(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// The agent with this number.
    pub(crate) fn agent(&self, agent: u32) -> Option<&Agent> {
        self.agents.get(usize::try_from(agent).ok()?)
    }

    /// An agent is at work until `end`, ns `CLOCK_BOOTTIME`.
    pub(crate) fn works_until(&self, agent: u32, end: u64) {
        if let Some(activity) = &self.activity {
            activity.works_until(agent, end);
        }
    }

    /// Logs a record. A log that cannot be written ends the program, because tests rely on it.
    pub(crate) fn record(&self, record: &Record<'_>) {
        if let Some(log) = &self.log
            && let Err(error) = log.write(record)
        {
            self.host.fatal(&error.to_string());
        }
    }

    /// Reports something unknown to the log and to the host.
    pub(crate) fn unknown(&self, what: &str, bytes: &str) {
        self.record(&Record::Unknown {
            pid: self.pid,
            what: what.into(),
            bytes: bytes.into(),
        });
        self.host.fatal(&format!("unknown {what}: {bytes}"));
    }
}

impl SoftGpu {
    /// A GPU with this configuration. If `log` is given, the ground truth goes to a file of this
    /// process in that directory.
    ///
    /// # Errors
    ///
    /// If the log cannot be created.
    pub fn new(
        config: Config,
        bus: Bus,
        host: Arc<dyn Host>,
        log: Option<&Path>,
    ) -> Result<Self, TruthError> {
        let pid = std::process::id();
        let activity = log.and_then(|directory| Activity::open(directory).ok());
        let log = log.map(TruthLog::create).transpose()?;
        if let Some(log) = &log {
            let program = std::env::current_exe().unwrap_or_default();
            let program = program.to_string_lossy().into_owned().into();
            log.write(&Record::Process {
                pid,
                ns: boottime_ns(),
                program,
            })?;
            for (agent, of) in (0..).zip(&config.agent) {
                log.write(&Record::Agent {
                    agent,
                    gfx: of.gfx.as_str().into(),
                    clock: of.clock.clone(),
                })?;
            }
        }
        let agents = config
            .agent
            .iter()
            .map(|agent| Agent {
                clock: agent.clock.clone(),
                reset: AtomicBool::new(false),
                running: AtomicU32::new(0),
                limit: agent.concurrent_kernels,
                fast_ppb: agent.stamps_fast_ppb,
            })
            .collect();
        let durations = Durations::new(config.seed, config.default_duration, &config.kernel);
        let faults = Faults::new(&config.fault);
        let shared = Arc::new(Shared {
            config,
            bus,
            host,
            durations,
            faults,
            pid,
            agents,
            log,
            activity,
        });
        Ok(Self {
            shared,
            queues: Mutex::default(),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Whether an agent is at work now, in whatever process; `None` if nothing tells, because
    /// nothing is logged.
    #[must_use]
    pub fn is_at_work(&self, agent: u32) -> Option<bool> {
        let activity = self.shared.activity.as_ref()?;
        Some(activity.is_at_work(agent, boottime_ns()))
    }

    /// Reports something unknown found outside the GPU, for example an ioctl, to the log and to the
    /// host.
    pub fn unknown(&self, what: &str, bytes: &str) {
        self.shared.unknown(what, bytes);
    }

    /// Starts a queue's packet processor. Returns the queue's number.
    ///
    /// # Errors
    ///
    /// If the description is invalid or no thread can be started.
    pub fn create_queue(&self, spec: &QueueSpec) -> Result<u32, QueueError> {
        if self.shared.agent(spec.agent).is_none() {
            return Err(QueueError::NoAgent(spec.agent));
        }
        if !spec.ring_bytes.is_power_of_two() || spec.ring_bytes < 64 || spec.ring == 0 {
            return Err(QueueError::Ring(spec.ring_bytes, spec.ring));
        }
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.last + 1;
        let control = Arc::new(Control::default());
        let realtime = self.shared.config.queue.realtime;
        let (shared, steering) = (Arc::clone(&self.shared), Arc::clone(&control));
        let address = match spec.kind {
            QueueKind::Aql => spec
                .read_pointer
                .wrapping_sub(crate::layout::queue::READ_DISPATCH_ID),
            QueueKind::Sdma => 0,
        };
        self.shared.record(&Record::Queue {
            pid: self.shared.pid,
            agent: spec.agent,
            queue,
            kind: spec.kind,
            address,
            ring: spec.ring,
            ring_bytes: spec.ring_bytes,
            ns: boottime_ns(),
        });
        let thread = match spec.kind {
            QueueKind::Aql => {
                let processor = Aql::new(shared, steering, spec, queue)?;
                spawn(format!("softgpu-cp{queue}"), realtime, move || {
                    processor.run();
                })?
            }
            QueueKind::Sdma => {
                let processor = Sdma::new(shared, steering, spec, queue)?;
                spawn(format!("softgpu-dma{queue}"), realtime, move || {
                    processor.run();
                })?
            }
        };
        queues.last = queue;
        queues.running.insert(queue, Running { control, thread });
        Ok(queue)
    }

    /// Pauses or resumes a queue. Returns `false` if there is no queue with this number.
    pub fn pause_queue(&self, queue: u32, paused: bool) -> bool {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = queues.running.get(&queue) else {
            return false;
        };
        running.control.paused.store(paused, Ordering::Release);
        true
    }

    /// Stops a queue regardless of its contents, and waits until its processor no longer accesses
    /// memory. Returns `false` if there is no queue with this number.
    pub fn destroy_queue(&self, queue: u32) -> bool {
        let running = self
            .queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .running
            .remove(&queue);
        let Some(Running { control, thread }) = running else {
            return false;
        };
        control.stop.store(true, Ordering::Release);
        // A processor that panicked has stopped as well; its message is on stderr.
        let _ = thread.join();
        true
    }
}

impl Drop for SoftGpu {
    fn drop(&mut self) {
        let queues =
            std::mem::take(&mut *self.queues.lock().unwrap_or_else(PoisonError::into_inner));
        for running in queues.running.values() {
            running.control.stop.store(true, Ordering::Release);
        }
        for Running { thread, .. } in queues.running.into_values() {
            let _ = thread.join();
        }
    }
}
