//! User-space half of `ebpf/kernel`: names and lifetimes of processes and threads, loaded with aya.

use std::io;

use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{HashMap, MapData, PerCpuArray, RingBuf},
    programs::{ProgramError, RawTracePoint},
};
use gputrace_abi::{config::KernelConfig, counters::TaskCounters};

use crate::{ProbeError, Ring, layout::task_pid};

/// The compiled programs.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("GPUTRACE_KERNEL_OBJECT"));

/// Programs on raw tracepoints; program and tracepoint have the same name.
const PROGRAMS: [&str; 4] = [
    "task_newtask",
    "task_rename",
    "sched_process_exec",
    "sched_process_exit",
];

/// Size of the ring in bytes: room for about 20,000 events between two drains.
const RING_BYTES: u32 = 1 << 20;

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Config(KernelConfig);

// SAFETY: two u32, no padding, every bit pattern valid.
unsafe impl Pod for Config {}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Counters(TaskCounters);

// SAFETY: two u64, no padding, every bit pattern valid.
unsafe impl Pod for Counters {}

/// The loaded programs of `ebpf/kernel`. Dropping it removes them.
#[derive(Debug)]
pub struct Tasks {
    ebpf: Ebpf,
    follow_forks: u32,
}

/// The processes whose events are reported and, if children are followed, those of their children.
#[derive(Debug)]
pub struct Known {
    map: HashMap<MapData, u32, u32>,
    follow_forks: u32,
}

impl Known {
    /// Makes the programs report the events of a process, from now on until it ends. Returns false
    /// if there are [`KNOWN_PROCESSES`](gputrace_abi::config::KNOWN_PROCESSES) already.
    pub fn add(&mut self, pid: u32) -> bool {
        self.map.insert(pid, self.follow_forks, 0).is_ok()
    }
}

impl Tasks {
    /// Loads the programs and attaches them. They report this process, the processes that it
    /// creates, and those added later ([`Self::take_known`]); with `follow_forks` also all of their
    /// descendants. With `debug` they log through aya-log (see [`Self::logger`]).
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses the programs or lacks a tracepoint.
    pub fn load(debug: bool, follow_forks: bool) -> Result<Self, ProbeError> {
        let follow_forks = u32::from(follow_forks);
        let config = Config(KernelConfig {
            task_pid: task_pid()?,
            follow_forks,
        });
        // aya-log's levels: 0 is off, 4 is debug.
        let level: u8 = if debug { 4 } else { 0 };
        let mut ebpf = EbpfLoader::new()
            .override_global("KERNEL_CONFIG", &config, true)
            .override_global(aya_log::LEVEL, &level, false)
            .map_max_entries("TASK_RING", RING_BYTES)
            .load(OBJECT)
            .map_err(|error| refused("load the task programs", &error))?;
        let map = ebpf
            .map_mut("KNOWN")
            .ok_or_else(|| ProbeError::BrokenObject {
                part: "map KNOWN".to_owned(),
            })?;
        // This process is known, so a program that it starts is known before its first instruction.
        HashMap::<_, u32, u32>::try_from(map)
            .and_then(|mut known| known.insert(std::process::id(), 1, 0))
            .map_err(|error| refused("make a process known", &error))?;
        for name in PROGRAMS {
            let program: &mut RawTracePoint = ebpf
                .program_mut(name)
                .ok_or_else(|| ProbeError::BrokenObject {
                    part: format!("program {name}"),
                })?
                .try_into()
                .map_err(|error| refused("find a program", &error))?;
            load(program).map_err(|error| refused(&format!("load program {name}"), &error))?;
            program
                .attach(name)
                .map_err(|error| refused(&format!("attach to raw tracepoint {name}"), &error))?;
        }
        Ok(Self { ebpf, follow_forks })
    }

    /// The set of processes whose events are reported; only the first call gets it.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`] if it does not exist or was taken.
    pub fn take_known(&mut self) -> Result<Known, ProbeError> {
        let follow_forks = self.follow_forks;
        let map = self
            .ebpf
            .take_map("KNOWN")
            .ok_or_else(|| ProbeError::BrokenObject {
                part: "map KNOWN".to_owned(),
            })?;
        HashMap::try_from(map)
            .map(|map| Known { map, follow_forks })
            .map_err(|error| refused("use the set of known processes", &error))
    }

    /// The ring of task events; only the first call gets it.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`] if it does not exist or was taken.
    pub fn take_ring(&mut self) -> Result<Ring, ProbeError> {
        self.ebpf
            .take_map("TASK_RING")
            .ok_or_else(|| ProbeError::BrokenObject {
                part: "map TASK_RING".to_owned(),
            })
            .and_then(|map| {
                RingBuf::try_from(map).map_err(|error| refused("map the task ring", &error))
            })
    }

    /// Numbers of events seen and lost so far, over all CPUs.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the counters cannot be read.
    pub fn counters(&self) -> Result<TaskCounters, ProbeError> {
        let map = self
            .ebpf
            .map("TASK_COUNTERS")
            .ok_or_else(|| ProbeError::BrokenObject {
                part: "map TASK_COUNTERS".to_owned(),
            })?;
        let values = PerCpuArray::<_, Counters>::try_from(map)
            .and_then(|array| array.get(&0, 0))
            .map_err(|error| refused("read the task counters", &error))?;
        Ok(values
            .iter()
            .fold(TaskCounters::default(), |sum, one| TaskCounters {
                seen: sum.seen + one.0.seen,
                ring_full: sum.ring_full + one.0.ring_full,
            }))
    }

    /// A reader of the programs' own log, for `debug`. Call its `flush` periodically; lines go to
    /// the `log` crate.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the object has no log ring.
    pub fn logger(&mut self) -> Result<aya_log::EbpfLogger<&'static dyn log::Log>, ProbeError> {
        aya_log::EbpfLogger::init(&mut self.ebpf)
            .map_err(|error| refused("read the programs' log", &error))
    }
}

/// Maximum number of attempts to load a program. libbpf makes as many.
const LOADS: u32 = 5;

/// Loads a program. While a signal waits, for example when this process is stopped and continued,
/// the verifier gives up with `EAGAIN`; libbpf then tries again, but aya does not.
fn load(program: &mut RawTracePoint) -> Result<(), ProgramError> {
    let was_interrupted = |error: &ProgramError| match error {
        ProgramError::LoadError { io_error, .. } => io_error.kind() == io::ErrorKind::WouldBlock,
        _ => false,
    };
    let mut result = program.load();
    for _ in 1..LOADS {
        if !result.as_ref().is_err_and(was_interrupted) {
            break;
        }
        result = program.load();
    }
    result
}

/// Converts an error of aya.
fn refused(action: &str, error: &(dyn std::error::Error + 'static)) -> ProbeError {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    let mut denied = false;
    while let Some(source) = next {
        denied |= source
            .downcast_ref::<io::Error>()
            .is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied);
        causes.push(source.to_string());
        next = source.source();
    }
    let action = action.to_owned();
    if denied {
        ProbeError::PermissionDenied { action }
    } else {
        ProbeError::Refused {
            action,
            cause: causes.join(": "),
            log: Vec::new(),
        }
    }
}
