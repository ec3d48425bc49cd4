//! Threads that do not run: every stretch from the moment a thread leaves its processor until it has one again.

use crate::record::RecordHeader;

shared! {
    /// A stretch off the processor.
    pub struct OffCpu {
        /// Kind [`crate::record::kind::OFF_CPU`] or [`crate::record::kind::OFF_CPU_OPEN`].
        pub header: RecordHeader,
        /// Process id in the initial pid namespace.
        pub pid: u32,
        /// Thread id in the initial pid namespace.
        pub tid: u32,
        /// When it left its processor; ns, `CLOCK_BOOTTIME`.
        pub begin: u64,
        /// When it could run again, `begin` if it never could not; 0 if it was not seen to be woken.
        pub woken: u64,
        /// When it had a processor again; 0 while it has none.
        pub end: u64,
        /// Thread id of who woke it up, 0 if nobody was seen to.
        pub waker: u32,
        /// Why: bits of `linux/sched.h` (0 running, 1 interruptible sleep, 2 uninterruptible, 4 stopped, 8 traced).
        pub state: u32,
    }
}

/// `TASK_DEAD` of `linux/sched.h`: the thread does not come back.
pub const STATE_GONE: u32 = 0x80;

/// `TASK_REPORT` of `linux/sched.h`, the states that a thread sleeps in; without any of these bits it could run but for
/// want of a processor.
pub const STATE_WAITING: u32 = 0x7f;

/// `size` of an [`OffCpu`].
pub const OFF_CPU_SIZE: usize = size_of::<OffCpu>();

const _: () = assert!(OFF_CPU_SIZE == 48);
