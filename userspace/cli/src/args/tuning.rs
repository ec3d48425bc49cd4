//! Options about how gputrace itself works.

use clap::{Args, ValueEnum};

use super::values::{ring_size, share};

/// Maximum number of threads of a machine: `PID_MAX_LIMIT` of the kernel.
const MOST_THREADS: i64 = 1 << 22;

/// How gputrace works.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tuning")]
pub(crate) struct TuningArgs {
    /// How probes are attached.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) backend: Backend,

    /// Where the ioctls of --kfd-trace are traced.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) kfd_probes: KfdProbes,

    /// Record at most this many events per second of each tracepoint (--driver-trace,
    /// --tracepoint), and count the rest as lost. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) tracepoint_rate: u64,

    /// Size of each CPU's ring buffer, e.g. 512KiB, 4MiB [default: by the number of CPUs].
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub(crate) ring_size: Option<u32>,

    /// Threads that can be inside traced calls at once.
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub(crate) max_threads: u32,

    /// Share of one core that gputrace may spend on timing kernels without completion signals. 0:
    /// do not time them.
    ///
    /// After gputrace attaches to a process, most of its kernels have no completion signals.
    /// gputrace times them by looking at how far the GPU has read their queues: more looks make the
    /// windows narrower. It does not look while queues are empty. Without looks, gputrace knows
    /// only when these kernels were submitted, and at the end of the recording whether the GPU had
    /// read them.
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = share)]
    pub(crate) look_budget: u32,

    /// Do not let the probes of functions that only ask for a value (hipGetDevice, hipEventQuery)
    /// take more than this share of a CPU together. 0: no limit.
    ///
    /// Above it, the most expensive of these functions lose their probes for 5 s, and longer each
    /// time, up to 5 minutes. Their calls in that time are missing; the recording says so.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub(crate) overhead_limit: u32,

    /// Do not hold a thread of a launched program while a library that it loaded gets its probes.
    /// gputrace may then miss the first calls of that library.
    #[arg(long, alias = "no-stop")]
    pub(crate) no_hold: bool,

    /// Do not set GPU_FORCE_QUEUE_PROFILING=1 for a launched program. This variable makes HIP 5.4
    /// and later have the GPU stamp every kernel. Without it, the times of most kernels are not
    /// exact.
    #[arg(long)]
    pub(crate) no_queue_profiling: bool,

    /// Show the log of the eBPF programs.
    #[arg(long)]
    pub(crate) debug_ebpf: bool,

    /// How much gputrace says about its own work.
    #[arg(long, value_enum, default_value = "warning", ignore_case = true)]
    pub(crate) log_level: LogLevel,
}

/// Attach back-ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// uprobe_multi if the kernel supports it, otherwise perf.
    Auto,
    /// One link for hundreds of functions (Linux 6.6 and later).
    #[value(name = "uprobe_multi")]
    UprobeMulti,
    /// One perf event for hundreds of functions, defined in tracefs (any kernel).
    Perf,
}

/// Places for the programs of `--kfd-trace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KfdProbes {
    /// The cheapest place that the kernel allows.
    Auto,
    /// A trampoline around the driver's handler; needs the BTF of the amdgpu module.
    Fentry,
    /// Breakpoints at the driver's handler.
    Kprobe,
    /// The tracepoints of ioctl(2): slows every system call on the machine by some ns.
    Syscall,
}

/// How much gputrace says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Everything.
    Trace,
    /// What it does.
    Debug,
    /// The main steps.
    Info,
    /// What may spoil a result.
    Warning,
    /// Failures.
    Error,
    /// Nothing.
    Fatal,
    /// Warnings, and the environment variables that a launched program gets.
    Env,
    /// Warnings, and the effective options.
    Config,
}
