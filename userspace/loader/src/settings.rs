//! Settings with which the call-tracing programs are loaded.

use gputrace_abi::{
    config::{CookiePlace, ProbeConfig},
    counters::RATE_WINDOW_SHIFT,
    record::LONG_SPAN_SIZE,
};
use libbpf_rs::OpenObject;
use zerocopy::IntoBytes as _;

use crate::{
    ProbeError,
    calls::stacks,
    cpus::present_cpus,
    ioctls,
    layout::{living_threads, program_stack, task_pid},
    libbpf::refused,
    sched, tracepoint,
};

/// Which back-end to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// `uprobe_multi` if a trial shows that the kernel has it, else perf events.
    #[default]
    Auto,
    /// Only `uprobe_multi`.
    UprobeMulti,
    /// Only perf events.
    Perf,
}

/// Settings for loading the programs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Back-end.
    pub backend: BackendChoice,
    /// Size of each CPU's ring in bytes, rounded up to a power of two of at least one page.
    pub ring_bytes: u32,
    /// Minimum capacity for threads with open calls at the same time.
    pub max_threads: u32,
    /// Maximum number of processes that are traced at the same time.
    pub max_processes: u32,
    /// Whether children of traced processes are traced.
    pub follow_forks: bool,
    /// Limit for functions whose cookies request it.
    pub limit: Option<CallLimit>,
    /// Whether the stacks of calls may be asked for ([`crate::calls::Calls::start_stacks`]).
    pub stacks: bool,
    /// Whether every library that a process maps is reported, whatever its name: see
    /// [`crate::calls::Calls::add_interest`].
    pub every_library: bool,
}

/// Limit on how often a function may be called; further calls are counted as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimit {
    /// Maximum number of calls per second of one function; `None`: calls are only counted.
    pub calls_per_second: Option<u64>,
    /// Only functions with lower ids are limited.
    pub functions: u32,
}

impl CallLimit {
    /// Maximum number of calls in one of the programs' windows, at least 1.
    fn per_window(self) -> u64 {
        let Some(rate) = self.calls_per_second else {
            return u64::MAX;
        };
        let calls = (u128::from(rate) << RATE_WINDOW_SHIFT) / 1_000_000_000;
        u64::try_from(calls).unwrap_or(u64::MAX).max(1)
    }
}

impl Options {
    /// Default maximum number of processes traced at the same time: as many as a system usually
    /// allows. Each entry takes 64 bytes of kernel memory when it is used, and 16 when it is not.
    pub const MAX_PROCESSES: u32 = 1 << 17;

    /// Maximum number of threads that stay in the map without an open call. Other threads leave it
    /// when their outermost call returns and enter it at the next call, which costs each such call
    /// about 0.3 us.
    fn idle_threads(&self) -> u32 {
        (self.max_threads / 4).max(1)
    }
}

/// `BPF_F_NO_PREALLOC` of `linux/bpf.h`: elements are allocated when they are needed.
const BPF_F_NO_PREALLOC: u32 = 1;

/// Room in the programs' maps for objects of the GPU's runtimes, for all processes together. These
/// maps evict entries that were not used for long. But a processor that finds no room evicts
/// entries that another one needs, so the room grows with the number of processors.
const fn objects(cpus: u32, each: u32, least: u32) -> u32 {
    let wanted = cpus.saturating_mul(each);
    if wanted > least { wanted } else { least }
}

/// Sets the sizes of maps and the programs' settings. `cookie` says where programs find their
/// probe's cookie.
pub(crate) fn configure(
    open: &mut OpenObject,
    options: &Options,
    cpus: u32,
    ring_bytes: u32,
    cookie: CookiePlace,
) -> Result<(), ProbeError> {
    let (task_mm, mm_start_stack) = program_stack();
    let (task_signal, signal_live) = living_threads();
    let config = ProbeConfig {
        cpus,
        follow_forks: u32::from(options.follow_forks),
        wakeup_bytes: u64::from(ring_bytes / 4),
        task_pid: task_pid()?,
        task_mm,
        mm_start_stack,
        wakeup_mask: wakeup_mask(ring_bytes),
        calls_per_window: options.limit.map_or(u64::MAX, CallLimit::per_window),
        every_library: u32::from(options.every_library),
        // A program that holds a thread keeps its CPU busy, so gputrace needs another one.
        busy_cpus: present_cpus().len().saturating_sub(1) as u32,
        idle_threads: u64::from(options.idle_threads()),
        task_signal,
        signal_live,
    };
    let mut configured = 0;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let result = match name.as_str() {
            "RINGS" | "COUNTERS" => map.set_max_entries(cpus),
            "CALL_RATES" => {
                map.set_max_entries(options.limit.map_or(1, |limit| limit.functions.max(1)))
            }
            // Threads without open calls must not displace threads with open calls.
            "THREADS" => map.set_max_entries(
                options
                    .max_threads
                    .max(1)
                    .saturating_add(options.idle_threads()),
            ),
            // Not preallocated: the map is far larger than most recordings need.
            "TARGETS" => map
                .set_max_entries(options.max_processes.max(1))
                .and_then(|()| map.set_map_flags(BPF_F_NO_PREALLOC)),
            "QUEUES" | "AGENTS" | "SIGNALLING" => map.set_max_entries(objects(cpus, 512, 1 << 14)),
            "SIGNALS" => map.set_max_entries(objects(cpus, 512, 1 << 16)),
            "STACKS" => map.set_max_entries(if options.stacks { stacks::RING } else { 4096 }),
            "SITES" => map.set_max_entries(if options.stacks { stacks::SITES } else { 1 }),
            name if ioctls::MAPS.contains(&name)
                || sched::MAPS.contains(&name)
                || tracepoint::MAPS.contains(&name) =>
            {
                map.set_autocreate(false)
            }
            _ if name.ends_with(".config") => {
                configured += 1;
                map.set_initial_value(config.as_bytes())
            }
            _ if name.ends_with(".cookie") => {
                configured += 1;
                map.set_initial_value(cookie.as_bytes())
            }
            _ => Ok(()),
        };
        result.map_err(|error| refused(format!("configure map {name}"), &error))?;
    }
    if configured == 2 {
        Ok(())
    } else {
        Err(ProbeError::BrokenObject {
            part: "settings sections".to_owned(),
        })
    }
}

/// Mask that selects the calls at which a program checks whether to wake the collector: a power of
/// two minus 1. Checks are frequent enough to notice a quarter-full ring with some records to
/// spare, and at most 64 calls apart.
fn wakeup_mask(ring_bytes: u32) -> u32 {
    let quarter = ring_bytes / 4 / LONG_SPAN_SIZE as u32;
    // A quarter of the ring allows eight checks. Rounded down to a power of two.
    (1 << (quarter / 8).clamp(1, 64).ilog2()) - 1
}
