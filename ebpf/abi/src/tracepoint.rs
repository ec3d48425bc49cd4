//! Records of the kernel's tracepoints, copied as they are: user space has their layout from the kernel's `format` files.

use crate::record::RecordHeader;

/// Bytes of a tracepoint's record for which a short record has room, a power of two; it holds one less at most.
pub const SHORT_TRACE: usize = 128;

/// The same of a long record; what is longer is cut.
pub const LONG_TRACE: usize = 512;

/// Tracepoints that one recording can have.
pub const TRACEPOINTS: usize = 64;

/// Numbers of functions of the kernel begin here, above those of tracepoints.
pub const FUNCTIONS_FROM: u32 = TRACEPOINTS as u32;

shared! {
    /// Something that a tracepoint told of.
    pub struct TraceHead {
        /// Kind [`crate::record::kind::TRACE`].
        pub header: RecordHeader,
        /// Process that the processor was in, initial pid namespace.
        pub pid: u32,
        /// Its thread.
        pub tid: u32,
        /// ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Which tracepoint: its number in the recording.
        pub tracepoint: u32,
        /// Bytes of the tracepoint's record that were copied.
        pub size: u32,
    }
}

shared! {
    /// A short record.
    pub struct ShortTrace {
        /// What is known besides.
        pub head: TraceHead,
        /// The tracepoint's record.
        pub data: [u8; SHORT_TRACE],
    }
}

shared! {
    /// A long record.
    pub struct LongTrace {
        /// What is known besides.
        pub head: TraceHead,
        /// The tracepoint's record.
        pub data: [u8; LONG_TRACE],
    }
}

shared! {
    /// Settings of the program.
    #[derive(Default)]
    pub struct TraceConfig {
        /// Records of one tracepoint in a second; what is beyond is counted and left out. 0: no limit.
        pub per_second: u64,
    }
}

shared! {
    /// How many records of a tracepoint there were in this second.
    #[derive(Default)]
    pub struct TraceRate {
        /// When the second began; ns, `CLOCK_BOOTTIME`.
        pub since: u64,
        /// Records since then.
        pub count: u64,
    }
}

/// The cookie of a tracepoint: its number, and how many bytes to copy.
#[must_use]
pub const fn trace_cookie(number: u32, bytes: u32) -> u64 {
    number as u64 | (bytes as u64) << 32
}

/// `size` of a [`ShortTrace`].
pub const SHORT_TRACE_SIZE: usize = size_of::<ShortTrace>();
/// `size` of a [`LongTrace`].
pub const LONG_TRACE_SIZE: usize = size_of::<LongTrace>();

const _: () = assert!(SHORT_TRACE_SIZE == 160 && LONG_TRACE_SIZE == 544);
