//! Records in the ring buffers.
//!
//! Each starts with a [`RecordHeader`] whose `size` is that of the whole record. User space treats
//! the bytes as untrusted: it trusts only the length that the ring reports, checks `size` against
//! it, and counts a mismatch as [`crate::counters::DropReason::Malformed`].

pub use crate::kinds::kind;
use crate::{REGISTER_ARGS, STACK_ARGS};

shared! {
    /// First eight bytes of every record.
    pub struct RecordHeader {
        /// Size of the record in bytes, including this header.
        pub size: u16,
        /// One of [`kind`].
        pub kind: u8,
        /// Number of the [`crate::domain::Domain`]; 0 where the kind has none.
        pub domain: u8,
        /// CPU whose counters account for the record: the one where the call began.
        pub cpu: u32,
    }
}

/// Bits of [`Span::flags`].
pub mod span_flags {
    /// The stack arguments could not be read, and are 0.
    pub const STACK_ARGS_UNREADABLE: u16 = 1 << 0;
    /// Unfinished because the thread ended inside the call.
    pub const THREAD_EXITED: u16 = 1 << 1;
    /// Unfinished because the process executed another program inside the call.
    pub const EXECUTED: u16 = 1 << 2;
    /// Unfinished because the recording stopped.
    pub const RECORDING_STOPPED: u16 = 1 << 3;
    /// The call was left by a jump to another function, which returned in its place; it has no
    /// result of its own.
    pub const TAIL_CALL: u16 = 1 << 4;
    /// Only the function's entry is probed: `end` is `begin`, and there is no result.
    pub const END_NOT_RECORDED: u16 = 1 << 5;
}

shared! {
    /// A call with at most six integer arguments.
    pub struct Span {
        /// Kind [`kind::SPAN`] or [`kind::UNFINISHED`].
        pub header: RecordHeader,
        /// Index into the recording's function table.
        pub function: u32,
        /// Process id in the initial pid namespace.
        pub pid: u32,
        /// Thread id in the initial pid namespace.
        pub tid: u32,
        /// Number of calls open on the thread around this one, 0 to [`crate::frame::MAX_DEPTH`] -
        /// 1.
        pub depth: u16,
        /// Bits of [`span_flags`].
        pub flags: u16,
        /// Time of the entry; ns, `CLOCK_BOOTTIME`.
        pub begin: u64,
        /// Time of the return; ns, `CLOCK_BOOTTIME`.
        pub end: u64,
        /// See [`crate::frame::Frame::correlation`].
        pub correlation: u64,
        /// Correlation id of the enclosing call; 0 if there is none.
        pub parent: u64,
        /// Contents of the return register, rax.
        pub result: u64,
        /// The argument registers at entry.
        pub args: [u64; REGISTER_ARGS],
    }
}

shared! {
    /// A call that also has stack arguments.
    pub struct LongSpan {
        /// The part that a short record has, too.
        pub span: Span,
        /// Stack argument words; words beyond the function's arguments are 0.
        pub stack: [u64; STACK_ARGS],
    }
}

/// Operations on a task; [`Task::op`].
pub mod task_op {
    /// A process was created: `pid` = `tid` is the child, `parent` its creator's process.
    pub const FORK: u8 = 1;
    /// A thread was created in process `pid`.
    pub const THREAD: u8 = 2;
    /// Process `pid` executed another program; `parent` is the previous id of the executing thread.
    pub const EXEC: u8 = 3;
    /// Task `tid` ended.
    pub const EXIT: u8 = 4;
    /// Task `tid` has a new name.
    pub const RENAME: u8 = 5;
    /// The dynamic linker has mapped a library of interest.
    pub const LINKER: u8 = 6;
    /// The process has executed another program, whose dynamic linker may not be watched yet.
    pub const NEW_IMAGE: u8 = 8;
    /// ROCr has loaded code objects.
    pub const CODE_OBJECTS: u8 = 10;
}

shared! {
    /// A task event.
    pub struct Task {
        /// Kind [`kind::TASK`] or [`kind::LINKER`].
        pub header: RecordHeader,
        /// Time of the event; ns, `CLOCK_BOOTTIME`.
        pub time: u64,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// Thread id, initial pid namespace.
        pub tid: u32,
        /// Process id of the creator (fork), its thread id (thread), the task's previous id (exec),
        /// or the number of times that the process has loaded code objects; otherwise 0.
        pub parent: u32,
        /// One of [`task_op`].
        pub op: u8,
        /// 1 if the thread waits to be released (kind [`kind::LINKER`] only), else 0.
        pub held: u8,
        /// Unused, 0.
        pub reserved: [u8; 2],
        /// Name of the task (`comm`), up to 15 bytes, padded with NUL. May contain any bytes.
        pub comm: [u8; 16],
    }
}

/// `size` of a [`Span`].
pub const SPAN_SIZE: usize = size_of::<Span>();
/// `size` of a [`LongSpan`].
pub const LONG_SPAN_SIZE: usize = size_of::<LongSpan>();
/// `size` of a [`Task`].
pub const TASK_SIZE: usize = size_of::<Task>();

const _: () = assert!(size_of::<RecordHeader>() == 8);
const _: () = assert!(SPAN_SIZE == 112);
const _: () = assert!(LONG_SPAN_SIZE == 176);
const _: () = assert!(TASK_SIZE == 48);
