//! Calls that have begun and not yet returned: one stack of frames per thread.
//!
//! The map `THREADS` maps `tgid << 32 | tid` to a [`Thread`]. Only programs that run in that very
//! thread write its value, so no lock is needed. After the programs have stopped, the collector
//! reads it and reports what is still open as unfinished calls.

use crate::{REGISTER_ARGS, STACK_ARGS, cookie::Cookie};

/// Maximum number of calls open in one thread. A call nested deeper is counted as lost
/// ([`crate::counters::DropReason::TooDeep`]).
pub const MAX_DEPTH: usize = 24;

/// Maximum distance between two stack pointers of the same stack, bytes. Pointers further apart
/// belong to different stacks (signal stacks, coroutines), so one says nothing about whether frames
/// on the other are still alive. Larger than any usual thread stack (8 MiB), smaller than the
/// distance between stacks that `mmap` places at random.
pub const STACK_SPAN: u64 = 64 << 20;

shared! {
    /// One open call.
    pub struct Frame {
        /// Time when the probe at the function's entry ran; ns, `CLOCK_BOOTTIME`.
        pub begin: u64,
        /// Stack pointer at entry: the address of the return address. It identifies the frame.
        pub stack_pointer: u64,
        /// Unique in a recording: `sequence number on the entry CPU × possible CPUs + CPU + 1`.
        /// Never 0.
        pub correlation: u64,
        /// Correlation id of the call that encloses this one on the same thread; 0 if none does.
        pub parent: u64,
        /// The probe's [`Cookie`], as a number.
        pub cookie: u64,
        /// CPU on which the call began; its counters account for the call.
        pub cpu: u32,
        /// Bits of [`crate::record::span_flags`]; the upper half is private to the programs.
        pub flags: u32,
        /// The six argument registers at entry.
        pub args: [u64; REGISTER_ARGS],
        /// Stack argument words, as many as the cookie says; the rest is 0.
        pub stack: [u64; STACK_ARGS],
    }
}

impl Frame {
    /// The probe's cookie.
    #[must_use]
    pub const fn cookie(&self) -> Cookie {
        Cookie(self.cookie)
    }
}

shared! {
    /// A thread's open calls.
    pub struct Thread {
        /// Frames in use, outermost first; 0 to [`MAX_DEPTH`].
        pub depth: u32,
        /// Unused, 0.
        pub reserved: u32,
        /// The frames; those at or above `depth` hold leftovers.
        pub frames: [Frame; MAX_DEPTH],
    }
}

const _: () = assert!(size_of::<Frame>() == 160);
// Below the largest size class (4096) of the kernel's BPF allocator, so that the map need not be
// preallocated.
const _: () = assert!(size_of::<Thread>() <= 4096);
