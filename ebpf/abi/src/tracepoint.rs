//! Records of the kernel's tracepoints, copied unchanged: user space takes their layout from the
//! kernel's `format` files.

use crate::record::RecordHeader;

/// Room for a tracepoint's record in a short record, bytes; a power of two. At most one byte less
/// is used.
pub const SHORT_TRACE: usize = 128;

/// Room for a tracepoint's record in a long record, bytes; longer ones are cut.
pub const LONG_TRACE: usize = 512;

/// Maximum number of tracepoints per recording.
pub const TRACEPOINTS: usize = 64;

/// First number for functions of the kernel, above those of tracepoints.
pub const FUNCTIONS_FROM: u32 = TRACEPOINTS as u32;

shared! {
    /// Head of a tracepoint's record.
    pub struct TraceHead {
        /// Kind [`crate::record::kind::TRACE`].
        pub header: RecordHeader,
        /// Process that the processor was running, initial pid namespace.
        pub pid: u32,
        /// Thread that the processor was running, initial pid namespace.
        pub tid: u32,
        /// Time; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Number of the tracepoint in the recording.
        pub tracepoint: u32,
        /// Number of bytes of the tracepoint's record that were copied.
        pub size: u32,
    }
}

shared! {
    /// A short record.
    pub struct ShortTrace {
        /// The common part.
        pub head: TraceHead,
        /// The tracepoint's record.
        pub data: [u8; SHORT_TRACE],
    }
}

shared! {
    /// A long record.
    pub struct LongTrace {
        /// The common part.
        pub head: TraceHead,
        /// The tracepoint's record.
        pub data: [u8; LONG_TRACE],
    }
}

shared! {
    /// Settings of the program for tracepoints.
    #[derive(Default)]
    pub struct TraceConfig {
        /// Maximum number of records of one tracepoint per second. Further ones are counted and
        /// left out. 0: no limit.
        pub per_second: u64,
    }
}

shared! {
    /// Number of records of a tracepoint in the current second.
    #[derive(Default)]
    pub struct TraceRate {
        /// When the second began; ns, `CLOCK_BOOTTIME`.
        pub since: u64,
        /// Number of records since then.
        pub count: u64,
    }
}

/// The cookie of a tracepoint: its number, and the number of bytes to copy.
#[must_use]
pub const fn trace_cookie(number: u32, bytes: u32) -> u64 {
    number as u64 | (bytes as u64) << 32
}

/// `size` of a [`ShortTrace`].
pub const SHORT_TRACE_SIZE: usize = size_of::<ShortTrace>();
/// `size` of a [`LongTrace`].
pub const LONG_TRACE_SIZE: usize = size_of::<LongTrace>();

const _: () = assert!(SHORT_TRACE_SIZE == 160 && LONG_TRACE_SIZE == 544);
