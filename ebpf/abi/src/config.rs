//! Settings that a program reads from its read-only data; the loader writes them before loading.

shared! {
    /// Settings of the call-tracing programs (`ebpf/probes`).
    #[derive(Default)]
    pub struct ProbeConfig {
        /// Possible CPUs of the machine: the stride of correlation ids (see [`crate::frame::Frame`]).
        pub cpus: u32,
        /// 1: a process that is a target makes its new child processes targets.
        pub follow_forks: u32,
        /// Bytes waiting in a ring from which on a record wakes the collector up; below, it polls.
        pub wakeup_bytes: u64,
        /// Offset of `pid` in the kernel's `struct task_struct`.
        pub task_pid: u32,
        /// Offset of `mm` in `struct task_struct`; 0: not known.
        pub task_mm: u32,
        /// Offset of `start_stack` in `struct mm_struct`.
        pub mm_start_stack: u32,
        /// A power of two, minus 1: only calls whose number (on their CPU) has none of these bits look
        /// whether to wake the collector.
        pub wakeup_mask: u32,
        /// Calls of one function within [`crate::counters::RATE_WINDOW_SHIFT`] from which on further ones are lost, if
        /// its cookie says that it is limited.
        pub calls_per_window: u64,
        /// Threads that may stay in the map `THREADS` while they have no open call, which is cheaper than to enter it at
        /// each outermost call.
        pub idle_threads: u64,
        /// 1: any library that a target maps may be of interest, whatever its name.
        pub every_library: u32,
        /// CPUs that programs may keep busy at the same time while they hold a thread: one less than there are.
        pub busy_cpus: u32,
        /// Offset of `signal` in `struct task_struct`; 0: not known.
        pub task_signal: u32,
        /// Offset of `live`, the number of living threads, in `struct signal_struct`.
        pub signal_live: u32,
    }
}

shared! {
    /// Settings of the kernel-side programs (`ebpf/kernel`).
    #[derive(Default)]
    pub struct KernelConfig {
        /// Offset of `pid` in the kernel's `struct task_struct`.
        pub task_pid: u32,
        /// 1: the children of a known process are known, and theirs.
        pub follow_forks: u32,
    }
}

/// So many processes can be known to the programs of `ebpf/kernel` at a time. Children for which there is no room count as
/// lost events.
pub const KNOWN_PROCESSES: u32 = 32_768;

/// Key of the map `TARGETS` that stands for every process.
pub const EVERY_PROCESS: u32 = 0;

/// Bits of a value in the map `TARGETS`.
pub mod target_flags {
    /// Hold a thread that maps a library of interest or loads code objects, until gputrace has
    /// looked at it. The thread waits in the kernel; no signal is sent.
    pub const HOLD: u32 = 1;
    /// The process has been traced since its first instruction: nothing of it has gone unseen.
    pub const FROM_START: u32 = 2;
    /// Not traced itself: gputrace while it starts a program. Only its children are targets, with its other flags.
    pub const STARTER: u32 = 4;
}

/// What the word that every program reads first says.
pub mod state {
    /// What happens is recorded.
    pub const RECORDING: u32 = 0;
    /// The recording is over: programs leave everything as it is.
    pub const STOPPED: u32 = 1;
    /// Calls, packets and copies that begin are passed over; what began before is followed to its end.
    pub const PAUSED: u32 = 2;
}

/// `CLONE_THREAD` of `linux/sched.h`: the new task is a thread of its creator's process.
pub const CLONE_THREAD: u64 = 0x0001_0000;

const _: () = assert!(size_of::<ProbeConfig>() == 64);
const _: () = assert!(size_of::<KernelConfig>() == 8);
