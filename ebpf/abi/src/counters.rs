//! Counters of what was seen and what was lost: one [`CpuCounters`] per possible CPU.
//!
//! A call is counted where it *began*: `seen` at its entry, and its end (a record, or one
//! [`DropReason`]) under the same CPU and domain even if it returns on another CPU. So
//! `seen = written + dropped (by reason)` can be checked per CPU and domain; the collector counts
//! `written` from the records that reached the capture. Programs may be preempted and calls
//! migrate, so every counter is changed by atomic addition only.

use crate::domain::DOMAINS;

/// Number of reasons that have counters in the kernel. Those of [`DropReason::Malformed`] and
/// [`DropReason::CaptureWrite`], which only user space counts, stay 0, and
/// [`DropReason::ProcessLimit`] has none. Captures identify reasons by their numbers, which
/// therefore never change.
pub const KERNEL_REASONS: usize = 8;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal;)*) => {
        /// Why a call that was seen is not in the capture.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $variant = $id,)* }

        impl DropReason {
            /// Every reason, in numeric order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Stable machine-readable name, e.g. `ring_full`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

drop_reasons! {
    /// The ring of the CPU on which the call ended had no room.
    RingFull = 0, "ring_full";
    /// The map `THREADS` had no room for another thread.
    ThreadMapFull = 1, "thread_map_full";
    /// More than [`crate::frame::MAX_DEPTH`] calls were open in the thread.
    TooDeep = 2, "too_deep";
    /// The return was never seen: longjmp, an exception, a stack switch, or more than the 64 nested
    /// return probes that the kernel supports per thread.
    LostReturn = 3, "lost_return";
    /// A packet, signal or copy was in memory that could not be read at that moment, or was larger
    /// than a program reads at once.
    MemoryUnreadable = 4, "memory_unreadable";
    /// A ring contained a record whose kind and size do not match or are unknown.
    Malformed = 5, "malformed";
    /// The capture could not be written (disk full, I/O error).
    CaptureWrite = 6, "capture_write";
    /// The function was called more often than [`crate::config::ProbeConfig::calls_per_window`]
    /// allows, or the tracepoint fired more often than
    /// [`crate::tracepoint::TraceConfig::per_second`].
    TooOften = 7, "too_often";
    /// The process made more records, or claimed more packets, than the limits for one process
    /// allow.
    ProcessLimit = 8, "process_limit";
}

shared! {
    /// Counters of one CPU; the value of map `COUNTERS` at index = CPU.
    pub struct CpuCounters {
        /// Number of calls numbered on this CPU so far: the source of correlation ids.
        pub sequence: u64,
        /// Number of returns without an open frame. Their calls began before the entry probes were
        /// attached, or were dropped at entry; or the instruction did not leave the call that it
        /// seemed to leave. Not part of `seen`.
        pub unmatched_returns: u64,
        /// Number of written records whose stack arguments could not be read (page not present).
        pub unreadable_args: u64,
        /// Number of child processes that are not traced because `TARGETS` had no room.
        pub untraced_processes: u64,
        /// Number of times that a process mapped a library or loaded code objects and the collector
        /// was not told, because the ring had no room.
        pub untold_libraries: u64,
        /// Number of calls that began, by domain.
        pub seen: [u64; DOMAINS],
        /// Number of lost calls, by reason and domain.
        pub dropped: [[u64; DOMAINS]; KERNEL_REASONS],
    }
}

shared! {
    /// How often a function was called; the value of the map `CALL_RATES` at index = function id.
    #[derive(Default)]
    pub struct CallRate {
        /// Number of the current window: ns of `CLOCK_BOOTTIME` shifted right by
        /// [`RATE_WINDOW_SHIFT`].
        pub window: u64,
        /// Value of [`Self::calls`] when the window began.
        pub before: u64,
        /// Number of calls in the whole recording.
        pub calls: u64,
        /// Number of those calls that were lost as [`DropReason::TooOften`].
        pub dropped: u64,
    }
}

/// A window of [`CallRate`] is 2 to the power of this many ns: 134 ms.
pub const RATE_WINDOW_SHIFT: u32 = 27;

shared! {
    /// Counters of the programs in `ebpf/kernel`, one value per CPU.
    #[derive(Default)]
    pub struct TaskCounters {
        /// Number of events of known processes and their threads.
        pub seen: u64,
        /// Number of those events that were lost because the ring was full, or because there was no
        /// room for another known process.
        pub ring_full: u64,
    }
}

const _: () = assert!(size_of::<CpuCounters>() == 40 + 8 * DOMAINS * (1 + KERNEL_REASONS));
