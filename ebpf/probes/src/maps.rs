//! Maps and settings shared by the programs of this object. The sizes here are placeholders: the
//! loader sets them for the machine and the user's options.

use aya_ebpf::{
    EbpfContext, Global,
    btf_maps::{Array, ArrayOfMaps, HashMap, LruHashMap, ProgramArray, RingBuf},
    macros::btf_map,
};
use gputrace_abi::{
    config::{EVERY_PROCESS, ProbeConfig, state},
    counters::{CallRate, CpuCounters, DropReason, KERNEL_REASONS},
    domain::DOMAINS,
    frame::Thread,
    gpu::{COPIES_PER_BATCH, PACKETS_PER_DOORBELL},
    values::{MAX_PLANS, ReadPlan},
};

/// Settings, in a section of their own so that the loader can replace it as a whole.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.config")]
static CONFIG: Global<ProbeConfig> = Global::new(ProbeConfig {
    cpus: 1,
    follow_forks: 0,
    wakeup_bytes: 0,
    task_pid: 0,
    task_mm: 0,
    mm_start_stack: 0,
    wakeup_mask: 0,
    calls_per_window: 0,
    idle_threads: 0,
    every_library: 0,
    busy_cpus: 0,
    task_signal: 0,
    signal_live: 0,
});

/// One of [`state`]. That programs leave everything as it is once the recording is over makes stopping exact and
/// instant, however long the kernel takes to remove the probes.
#[unsafe(no_mangle)]
static mut STATE: u32 = state::RECORDING;

/// One ring per CPU, index = CPU: producers on different CPUs never wait for each other.
#[btf_map]
pub(crate) static RINGS: ArrayOfMaps<RingBuf<(), { 1 << 20 }, 0>, 1> = ArrayOfMaps::new();

/// Counters, index = CPU. A plain array, not a per-CPU one, because a call is accounted for on the
/// CPU where it began even if it ends on another.
#[btf_map]
pub(crate) static COUNTERS: Array<CpuCounters, 1> = Array::new();

/// Open calls, by `tgid << 32 | tid`. Threads without any may be in it, but not more than
/// [`ProbeConfig::idle_threads`].
#[btf_map]
pub(crate) static THREADS: HashMap<u64, Thread, 1> = HashMap::new();

/// How many threads are in [`THREADS`].
#[btf_map]
pub(crate) static THREADS_HELD: Array<u64, 1> = Array::new();

/// A zeroed [`Thread`] to insert: too large for the 512 bytes of stack.
#[btf_map]
pub(crate) static EMPTY_THREAD: Array<Thread, 1> = Array::new();

/// How often functions are called, index = function id. Only of those that are limited; others have none.
#[btf_map]
pub(crate) static CALL_RATES: Array<CallRate, 1> = Array::new();

/// Traced processes: key tgid, or [`EVERY_PROCESS`]; value bits of
/// [`gputrace_abi::config::target_flags`]. Children enter it when they are created, and processes leave it when they end; a
/// child for which there is no room is counted ([`Counters::untraced_process`]).
#[btf_map]
pub(crate) static TARGETS: HashMap<u32, u32, 16384> = HashMap::new();

/// Something in the memory of a process.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Object {
    /// Its tgid.
    pub(crate) process: u64,
    /// Where.
    pub(crate) address: u64,
}

/// How far the packets of a queue have been read.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct QueueProgress {
    /// `hsa_queue_t::id`: another queue at the same address has another.
    pub(crate) id: u64,
    /// The index after the highest whose doorbell has rung, and in the highest byte how many doorbells more are to wake
    /// the collector: one word, because the place on the stack is needed.
    pub(crate) next: u64,
}

/// Queues with packets, by `hsa_queue_t`.
#[btf_map]
pub(crate) static QUEUES: LruHashMap<Object, QueueProgress, 4096> = LruHashMap::new();

/// Nothing, as often as packets of one doorbell, copies of one batch or values of one call are looked at: walking a map is a loop whose body the verifier follows
/// only once or twice, which Linux has had since 5.13 (`bpf_loop` came with 5.17).
#[btf_map]
pub(crate) static STEPS: Array<u8, COPIES_PER_BATCH> = Array::new();

/// Agents that have been described. The value means nothing.
#[btf_map]
pub(crate) static AGENTS: LruHashMap<Object, u32, 4096> = LruHashMap::new();

/// Completion signals of packets and copies. The value means nothing.
#[btf_map]
pub(crate) static SIGNALS: LruHashMap<Object, u32, 65536> = LruHashMap::new();

/// Processes with completion signals: key tgid. The value means nothing.
#[btf_map]
pub(crate) static SIGNALLING: LruHashMap<u32, u32, 4096> = LruHashMap::new();

/// What is read of the calls of a function besides its registers, by the function's number.
#[btf_map]
pub(crate) static READS: HashMap<u32, ReadPlan, { MAX_PLANS as usize }> = HashMap::new();

/// Programs to go on with: none, ever. See [`state_in_uprobe`].
#[btf_map]
static NO_PROGRAMS: ProgramArray<1> = ProgramArray::new();

/// The settings.
#[inline(always)]
pub(crate) fn config() -> ProbeConfig {
    CONFIG.load()
}

/// What programs are to do: one of [`state`].
#[inline(always)]
pub(crate) fn state() -> u32 {
    // SAFETY: an aligned word that only user space changes.
    unsafe { (&raw const STATE).read_volatile() }
}

/// Whether the recording is over.
#[inline(always)]
pub(crate) fn stopped() -> bool {
    state() == state::STOPPED
}

/// As [`state`], for programs of uprobes, all of which must begin with it, or with [`over`].
///
/// Since 6.13 Linux gives programs of the kprobe type, which uprobes use too, a stack for each CPU in place of the
/// thread's own, as if such a program could not be preempted. In a kernel probe it cannot; in a uprobe, where
/// only migration is off, it can, and then two threads on one CPU write over each other's variables: records of the wrong
/// thread, and in the worst case a pointer that the verifier had checked. The kernel keeps programs that can
/// call others (`has_tail_call` in `check_max_stack_depth`) on the thread's stack. So each of ours contains such a call; it
/// is made only when the recording is over, and there is no program to be found.
#[inline(always)]
pub(crate) fn state_in_uprobe(context: &impl EbpfContext) -> u32 {
    let now = state();
    if now == state::STOPPED {
        // SAFETY: the context of this program. The map is empty, so this returns.
        unsafe { NO_PROGRAMS.tail_call(context, 0) };
    }
    now
}

/// As [`stopped`], for programs of uprobes: see [`state_in_uprobe`].
#[inline(always)]
pub(crate) fn over(context: &impl EbpfContext) -> bool {
    state_in_uprobe(context) == state::STOPPED
}

/// Whether what begins now is passed over.
#[inline(always)]
pub(crate) fn paused() -> bool {
    state() == state::PAUSED
}

/// The value in [`TARGETS`] of a process that is to be traced; `None` for others.
#[inline(always)]
pub(crate) fn target(tgid: u32) -> Option<u32> {
    let flags = TARGETS
        .get_ptr(tgid)
        .or_else(|| TARGETS.get_ptr(EVERY_PROCESS))?;
    // SAFETY: the pointer is that of a live map element; a racing removal can at worst make the value
    // stale.
    Some(unsafe { *flags })
}

/// Counters of one CPU.
#[derive(Clone, Copy)]
pub(crate) struct Counters(*mut CpuCounters);

impl Counters {
    /// Those of `cpu`; `None` only if there is no such CPU.
    #[inline(always)]
    pub(crate) fn of(cpu: u32) -> Option<Self> {
        COUNTERS.get_ptr_mut(cpu).map(Self)
    }

    #[inline(always)]
    fn add(field: *mut u64, n: u64) -> u64 {
        // SAFETY: `field` points into a live, 8-byte aligned array element that is only ever changed
        // atomically.
        unsafe { fetch_add(field, n) }
    }

    /// Takes the next number of this CPU, counting from 0.
    #[inline(always)]
    pub(crate) fn next(self) -> u64 {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).sequence }, 1)
    }

    /// A call of `domain` began.
    #[inline(always)]
    pub(crate) fn seen(self, domain: u8) {
        self.all_seen(domain, 1);
    }

    /// So many things of `domain` happened.
    #[inline(always)]
    pub(crate) fn all_seen(self, domain: u8, count: u64) {
        let domain = usize::from(domain) & (DOMAINS - 1);
        // SAFETY: the mask keeps the index in bounds (DOMAINS is a power of two).
        Self::add(
            unsafe { (&raw mut (*self.0).seen).cast::<u64>().add(domain) },
            count,
        );
    }

    /// A call of `domain` was lost.
    #[inline(always)]
    pub(crate) fn dropped(self, reason: DropReason, domain: u8) {
        self.all_dropped(reason, domain, 1);
    }

    /// So many things of `domain` were lost.
    #[inline(always)]
    pub(crate) fn all_dropped(self, reason: DropReason, domain: u8, count: u64) {
        let index = reason as usize * DOMAINS + (usize::from(domain) & (DOMAINS - 1));
        // SAFETY: programs count only reasons below KERNEL_REASONS (asserted), and the mask keeps the
        // domain in bounds.
        Self::add(
            unsafe { (&raw mut (*self.0).dropped).cast::<u64>().add(index) },
            count,
        );
    }

    /// A function returned whose beginning is not known.
    #[inline(always)]
    pub(crate) fn unmatched_return(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).unmatched_returns }, 1);
    }

    /// A child process is not traced, because there is no room for it.
    #[inline(always)]
    pub(crate) fn untraced_process(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).untraced_processes }, 1);
    }

    /// The collector is not told of a library, because there is no room in the ring.
    #[inline(always)]
    pub(crate) fn untold_library(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).untold_libraries }, 1);
    }

    /// The stack arguments of a call could not be read.
    #[inline(always)]
    pub(crate) fn unreadable_args(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).unreadable_args }, 1);
    }
}

/// A thread has come into [`THREADS`].
#[inline(always)]
pub(crate) fn thread_held() {
    if let Some(held) = THREADS_HELD.get_ptr_mut(0) {
        // SAFETY: a live, aligned array element that is changed by atomic addition only.
        unsafe { fetch_add(held, 1) };
    }
}

/// A thread has left [`THREADS`].
#[inline(always)]
pub(crate) fn thread_gone() {
    if let Some(held) = THREADS_HELD.get_ptr_mut(0) {
        // SAFETY: as above; -1 in two's complement.
        unsafe { fetch_add(held, u64::MAX) };
    }
}

/// Whether there are so many threads in [`THREADS`] that those without open calls have to leave.
#[inline(always)]
pub(crate) fn threads_are_many() -> bool {
    let held = THREADS_HELD.get_ptr(0);
    // SAFETY: a live array element; any recent value will do.
    held.is_some_and(|held| unsafe { held.read_volatile() } > config().idle_threads)
}

/// Adds to `*field` in one atomic step and returns what it held before.
///
/// The ordering must be stronger than relaxed: for a relaxed addition LLVM 22 emits the instruction that
/// fetches nothing and takes the *operand* for the old value.
///
/// `AtomicU64::fetch_add` is missing on BPF targets, because `core` offers it only where there is also a
/// compare-and-swap for every width; the instruction itself has been there since Linux 5.12.
///
/// # Safety
///
/// `field` must be valid, aligned, and changed by atomic operations only.
#[inline(always)]
pub(crate) unsafe fn fetch_add(field: *mut u64, n: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    // SAFETY: the caller's promise.
    unsafe {
        core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::AcqRel }>(
            field, n,
        )
    }
    #[cfg(not(target_arch = "bpf"))]
    // SAFETY: the caller's promise.
    unsafe {
        core::sync::atomic::AtomicU64::from_ptr(field)
            .fetch_add(n, core::sync::atomic::Ordering::AcqRel)
    }
}

const _: () = assert!(DOMAINS.is_power_of_two());
const _: () = assert!((DropReason::TooOften as usize) < KERNEL_REASONS);
const _: () = assert!(
    PACKETS_PER_DOORBELL <= COPIES_PER_BATCH,
    "a step for each packet"
);
