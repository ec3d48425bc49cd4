//! Settings in a program's read-only data, written by the loader before loading.

shared! {
    /// Settings of the call-tracing programs (`ebpf/probes`).
    #[derive(Default)]
    pub struct ProbeConfig {
        /// Number of possible CPUs: the stride of correlation ids (see [`crate::frame::Frame`]).
        pub cpus: u32,
        /// 1: children of a target become targets.
        pub follow_forks: u32,
        /// Number of bytes waiting in a ring above which a record wakes the collector; below it,
        /// the collector polls.
        pub wakeup_bytes: u64,
        /// Offset of `pid` in the kernel's `struct task_struct`, bytes.
        pub task_pid: u32,
        /// Offset of `mm` in `struct task_struct`, bytes; 0 if unknown.
        pub task_mm: u32,
        /// Offset of `start_stack` in `struct mm_struct`, bytes.
        pub mm_start_stack: u32,
        /// A power of two, minus 1. Only calls whose number (on their CPU) has none of these bits
        /// check whether to wake the collector.
        pub wakeup_mask: u32,
        /// Maximum number of recorded calls of one function per window of
        /// 2^[`crate::counters::RATE_WINDOW_SHIFT`] ns, if its cookie says that it is limited.
        /// Further calls are lost.
        pub calls_per_window: u64,
        /// Maximum number of threads that stay in the map `THREADS` without an open call. Staying
        /// is cheaper than entering the map at each outermost call.
        pub idle_threads: u64,
        /// 1: any library that a target maps may be of interest, whatever its name.
        pub every_library: u32,
        /// Maximum number of CPUs that programs may keep busy at the same time while they hold a
        /// thread: one less than there are.
        pub busy_cpus: u32,
        /// Offset of `signal` in `struct task_struct`, bytes; 0 if unknown.
        pub task_signal: u32,
        /// Offset of `live`, the number of living threads, in `struct signal_struct`, bytes.
        pub signal_live: u32,
    }
}

shared! {
    /// The way from a task to the definition of the probe that it has hit, for probes that are
    /// defined in tracefs: one event has many of them, and the kernel passes one cookie for all.
    /// So each definition has its cookie as the value of its only argument. Offsets in the kernel's
    /// structures, bytes.
    #[derive(Default)]
    pub struct CookiePlace {
        /// Of `utask` in `struct task_struct`; 0: the kernel passes cookies.
        pub task_utask: u32,
        /// Of `vaddr` in `struct uprobe_task`: while a probe's handler runs, the address of its
        /// `struct uprobe_dispatch_data`.
        pub utask_vaddr: u32,
        /// Of `tu` in `struct uprobe_dispatch_data`: the address of the definition.
        pub dispatch_tu: u32,
        /// Of the first argument's `code` in `struct trace_uprobe`: the address of instructions
        /// that fetch the argument.
        pub tu_code: u32,
        /// Of `immediate` in `struct fetch_insn`.
        pub code_immediate: u32,
        /// Padding.
        pub reserved: u32,
    }
}

shared! {
    /// Settings of the programs in `ebpf/kernel`.
    #[derive(Default)]
    pub struct KernelConfig {
        /// Offset of `pid` in the kernel's `struct task_struct`, bytes.
        pub task_pid: u32,
        /// 1: descendants of a known process become known.
        pub follow_forks: u32,
    }
}

/// Maximum number of processes known to the programs of `ebpf/kernel` at the same time. Children
/// for which there is no room count as lost events.
pub const KNOWN_PROCESSES: u32 = 32_768;

/// Key in the map `TARGETS` that stands for every process.
pub const EVERY_PROCESS: u32 = 0;

/// Bits of a value in the map `TARGETS`.
pub mod target_flags {
    /// Hold a thread that maps a library of interest or unloads code objects until gputrace has
    /// looked at it. The thread waits in the kernel; no signal is sent.
    pub const HOLD: u32 = 1;
    /// The process has been traced since its first instruction: none of its calls were missed.
    pub const FROM_START: u32 = 2;
    /// Marks gputrace itself while it starts a program. It is not traced; only its children become
    /// targets, with its other flags.
    pub const STARTER: u32 = 4;
}

/// Values of the state word that every program reads first.
pub mod state {
    /// Events are recorded.
    pub const RECORDING: u32 = 0;
    /// The recording is over: programs change nothing.
    pub const STOPPED: u32 = 1;
    /// Calls, packets and copies that begin now are skipped; those that began before are followed
    /// to their end.
    pub const PAUSED: u32 = 2;
}

/// `CLONE_THREAD` of `linux/sched.h`: the new task is a thread of its creator's process.
pub const CLONE_THREAD: u64 = 0x0001_0000;

const _: () = assert!(size_of::<ProbeConfig>() == 64);
const _: () = assert!(size_of::<CookiePlace>() == 24);
const _: () = assert!(size_of::<KernelConfig>() == 8);
