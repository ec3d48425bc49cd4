//! Threads that do not run: every period from the moment a thread leaves its processor until it has
//! one again.

use crate::record::RecordHeader;

shared! {
    /// A period in which a thread had no processor.
    pub struct OffCpu {
        /// Kind [`crate::record::kind::OFF_CPU`] or [`crate::record::kind::OFF_CPU_OPEN`].
        pub header: RecordHeader,
        /// Process id in the initial pid namespace.
        pub pid: u32,
        /// Thread id in the initial pid namespace.
        pub tid: u32,
        /// When the thread left its processor; ns, `CLOCK_BOOTTIME`.
        pub begin: u64,
        /// When the thread became runnable; equals `begin` if it always was; 0 if no wake-up was
        /// seen.
        pub woken: u64,
        /// When the thread had a processor again; 0 while it has none.
        pub end: u64,
        /// Id of the thread that woke it; 0 if no wake-up was seen.
        pub waker: u32,
        /// State in which it left: bits of `linux/sched.h` (0 running, 1 interruptible sleep, 2
        /// uninterruptible, 4 stopped, 8 traced).
        pub state: u32,
    }
}

/// `TASK_DEAD` of `linux/sched.h`: the thread does not come back.
pub const STATE_GONE: u32 = 0x80;

/// `TASK_REPORT` of `linux/sched.h`: the states in which a thread sleeps. A thread without any of
/// these bits is runnable and only lacks a processor.
pub const STATE_WAITING: u32 = 0x7f;

/// `size` of an [`OffCpu`].
pub const OFF_CPU_SIZE: usize = size_of::<OffCpu>();

const _: () = assert!(OFF_CPU_SIZE == 48);
