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

/// Settings, in a separate section so that the loader can replace them as a whole.
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

/// One of [`state`]. Programs change nothing once the recording is over. This makes stopping exact
/// and immediate, however long the kernel takes to remove the probes.
#[unsafe(no_mangle)]
static mut STATE: u32 = state::RECORDING;

/// One ring per CPU, indexed by CPU, so that producers on different CPUs never wait for each other.
#[btf_map]
pub(crate) static RINGS: ArrayOfMaps<RingBuf<(), { 1 << 20 }, 0>, 1> = ArrayOfMaps::new();

/// Counters, indexed by CPU. A plain array instead of a per-CPU one, because a call is accounted
/// for on the CPU where it began even if it ends on another.
#[btf_map]
pub(crate) static COUNTERS: Array<CpuCounters, 1> = Array::new();

/// Open calls, by `tgid << 32 | tid`. At most [`ProbeConfig::idle_threads`] threads without open
/// calls may be in it.
#[btf_map]
pub(crate) static THREADS: HashMap<u64, Thread, 1> = HashMap::new();

/// Number of threads in [`THREADS`].
#[btf_map]
pub(crate) static THREADS_HELD: Array<u64, 1> = Array::new();

/// A zeroed [`Thread`] to insert: too large for the 512 bytes of stack.
#[btf_map]
pub(crate) static EMPTY_THREAD: Array<Thread, 1> = Array::new();

/// How often limited functions are called, indexed by function id. Other functions have no entry.
#[btf_map]
pub(crate) static CALL_RATES: Array<CallRate, 1> = Array::new();

/// Traced processes: the key is the tgid or [`EVERY_PROCESS`], the value has bits of
/// [`gputrace_abi::config::target_flags`]. Children are added when they are created, and processes
/// are removed when they end. A child for which there is no room is counted
/// ([`Counters::untraced_process`]).
#[btf_map]
pub(crate) static TARGETS: HashMap<u32, u32, 16384> = HashMap::new();

/// An object in the memory of a process.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Object {
    /// The process's tgid.
    pub(crate) process: u64,
    /// The object's address.
    pub(crate) address: u64,
}

/// How far the packets of a queue have been read.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct QueueProgress {
    /// `hsa_queue_t::id`: a different queue at the same address has a different id.
    pub(crate) id: u64,
    /// The index after the highest one whose doorbell has rung. The highest byte is the number of
    /// further doorbells that wake the collector. Both share a word to save space on the stack.
    pub(crate) next: u64,
}

/// Queues with packets, by `hsa_queue_t`.
#[btf_map]
pub(crate) static QUEUES: LruHashMap<Object, QueueProgress, 4096> = LruHashMap::new();

/// An array without contents, used for loops over packets of one doorbell, copies of one batch or
/// values of one call. Walking a map is a loop whose body the verifier follows only once or twice.
/// Linux has had this since 5.13; `bpf_loop` came with 5.17.
#[btf_map]
pub(crate) static STEPS: Array<u8, COPIES_PER_BATCH> = Array::new();

/// Agents that have been described. The value has no meaning.
#[btf_map]
pub(crate) static AGENTS: LruHashMap<Object, u32, 4096> = LruHashMap::new();

/// Completion signals of packets and copies. The value has no meaning.
#[btf_map]
pub(crate) static SIGNALS: LruHashMap<Object, u32, 65536> = LruHashMap::new();

/// Processes with completion signals, by tgid. The value has no meaning.
#[btf_map]
pub(crate) static SIGNALLING: LruHashMap<u32, u32, 4096> = LruHashMap::new();

/// Values that are read at calls of a function in addition to its registers, by function id.
#[btf_map]
pub(crate) static READS: HashMap<u32, ReadPlan, { MAX_PLANS as usize }> = HashMap::new();

/// Programs for tail calls. Always empty; see [`state_in_uprobe`].
#[btf_map]
static NO_PROGRAMS: ProgramArray<1> = ProgramArray::new();

/// The settings.
#[inline(always)]
pub(crate) fn config() -> ProbeConfig {
    CONFIG.load()
}

/// State of the recording: one of [`state`].
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

/// Like [`state`], for programs of uprobes. All of these must begin with this function or [`over`].
///
/// Since 6.13, Linux gives programs of the kprobe type, which uprobes use too, a per-CPU stack
/// instead of the thread's own, as if such a program could not be preempted. In a kernel probe it
/// cannot; in a uprobe, where only migration is off, it can. Then two threads on one CPU overwrite
/// each other's variables: records get the wrong thread, and in the worst case a pointer that the
/// verifier had checked is replaced. The kernel keeps programs that can call others
/// (`has_tail_call` in `check_max_stack_depth`) on the thread's stack. So each of these programs
/// contains such a call. It is made only when the recording is over, and finds no program.
#[inline(always)]
pub(crate) fn state_in_uprobe(context: &impl EbpfContext) -> u32 {
    let now = state();
    if now == state::STOPPED {
        // SAFETY: the context of this program. The map is empty, so this returns.
        unsafe { NO_PROGRAMS.tail_call(context, 0) };
    }
    now
}

/// Like [`stopped`], for programs of uprobes: see [`state_in_uprobe`].
#[inline(always)]
pub(crate) fn over(context: &impl EbpfContext) -> bool {
    state_in_uprobe(context) == state::STOPPED
}

/// Whether calls and packets that begin now are skipped.
#[inline(always)]
pub(crate) fn paused() -> bool {
    state() == state::PAUSED
}

/// The value in [`TARGETS`] of a traced process; `None` for other processes.
#[inline(always)]
pub(crate) fn target(tgid: u32) -> Option<u32> {
    let flags = TARGETS
        .get_ptr(tgid)
        .or_else(|| TARGETS.get_ptr(EVERY_PROCESS))?;
    // SAFETY: the pointer is that of a live map element; a racing removal can at worst make the
    // value stale.
    Some(unsafe { *flags })
}

/// Counters of one CPU.
#[derive(Clone, Copy)]
pub(crate) struct Counters(*mut CpuCounters);

impl Counters {
    /// The counters of `cpu`; `None` only if there is no such CPU.
    #[inline(always)]
    pub(crate) fn of(cpu: u32) -> Option<Self> {
        COUNTERS.get_ptr_mut(cpu).map(Self)
    }

    #[inline(always)]
    fn add(field: *mut u64, n: u64) -> u64 {
        // SAFETY: `field` points into a live, 8-byte aligned array element that is only ever
        // changed atomically.
        unsafe { fetch_add(field, n) }
    }

    /// Takes the next number of this CPU, counting from 0.
    #[inline(always)]
    pub(crate) fn next(self) -> u64 {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).sequence }, 1)
    }

    /// Counts a call of `domain` that began.
    #[inline(always)]
    pub(crate) fn seen(self, domain: u8) {
        self.all_seen(domain, 1);
    }

    /// Counts `count` events of `domain` as seen.
    #[inline(always)]
    pub(crate) fn all_seen(self, domain: u8, count: u64) {
        let domain = usize::from(domain) & (DOMAINS - 1);
        // SAFETY: the mask keeps the index in bounds (DOMAINS is a power of two).
        Self::add(
            unsafe { (&raw mut (*self.0).seen).cast::<u64>().add(domain) },
            count,
        );
    }

    /// Counts a lost call of `domain`.
    #[inline(always)]
    pub(crate) fn dropped(self, reason: DropReason, domain: u8) {
        self.all_dropped(reason, domain, 1);
    }

    /// Counts `count` events of `domain` as lost.
    #[inline(always)]
    pub(crate) fn all_dropped(self, reason: DropReason, domain: u8, count: u64) {
        let index = reason as usize * DOMAINS + (usize::from(domain) & (DOMAINS - 1));
        // SAFETY: programs count only reasons below KERNEL_REASONS (asserted), and the mask keeps
        // the domain in bounds.
        Self::add(
            unsafe { (&raw mut (*self.0).dropped).cast::<u64>().add(index) },
            count,
        );
    }

    /// Counts a return of a function whose entry was not seen.
    #[inline(always)]
    pub(crate) fn unmatched_return(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).unmatched_returns }, 1);
    }

    /// Counts a child process that is not traced, because there is no room for it.
    #[inline(always)]
    pub(crate) fn untraced_process(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).untraced_processes }, 1);
    }

    /// Counts a library that was not reported to the collector, because the ring had no room.
    #[inline(always)]
    pub(crate) fn untold_library(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).untold_libraries }, 1);
    }

    /// Counts a call whose stack arguments could not be read.
    #[inline(always)]
    pub(crate) fn unreadable_args(self) {
        // SAFETY: in bounds of the element.
        Self::add(unsafe { &raw mut (*self.0).unreadable_args }, 1);
    }
}

/// Counts a thread that was added to [`THREADS`].
#[inline(always)]
pub(crate) fn thread_held() {
    if let Some(held) = THREADS_HELD.get_ptr_mut(0) {
        // SAFETY: a live, aligned array element that is changed by atomic addition only.
        unsafe { fetch_add(held, 1) };
    }
}

/// Counts a thread that was removed from [`THREADS`].
#[inline(always)]
pub(crate) fn thread_gone() {
    if let Some(held) = THREADS_HELD.get_ptr_mut(0) {
        // SAFETY: as above; -1 in two's complement.
        unsafe { fetch_add(held, u64::MAX) };
    }
}

/// Whether [`THREADS`] has so many threads that those without open calls must be removed.
#[inline(always)]
pub(crate) fn threads_are_many() -> bool {
    let held = THREADS_HELD.get_ptr(0);
    // SAFETY: a live array element; any recent value will do.
    held.is_some_and(|held| unsafe { held.read_volatile() } > config().idle_threads)
}

/// Adds atomically to `*field`, and returns the previous value.
///
/// The ordering must be stronger than relaxed: for a relaxed addition LLVM 22 emits the instruction
/// that fetches nothing and takes the *operand* for the old value.
///
/// `AtomicU64::fetch_add` is missing on BPF targets, because `core` offers it only where there is
/// also a compare-and-swap for every width; the instruction itself has been there since Linux 5.12.
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
