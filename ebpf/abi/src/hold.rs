//! Threads of a launched program that are held until their libraries have probes: values of the
//! maps `HOLDS` and `HELPERS`. `ebpf/probes/src/hold.rs` explains how a thread is held.

shared! {
    /// A thread to be held: a value of the map `HOLDS`.
    pub struct Hold {
        /// When the entry was made; ns, `CLOCK_BOOTTIME`. The record about the thread has the same
        /// time. A thread can be held again as soon as it is released, and this time tells the two
        /// holds apart.
        pub begin: u64,
        /// One of [`hold_state`].
        pub state: u32,
        /// 1 if the thread ends its process. It does not return to user code any more, so it stops
        /// when it begins to exit. 0 otherwise.
        pub exits: u32,
        /// Address of the probed instruction in the thread's dynamic linker; 0 if the hold has
        /// another cause.
        pub at: u64,
        /// Stack pointer of the thread there.
        pub stack: u64,
    }
}

/// Values of [`Hold::state`].
pub mod hold_state {
    /// The eBPF program waits on the thread's CPU. A helper that has seized the thread sets
    /// [`RELEASED`].
    pub const WAITS: u32 = 0;
    /// The program may end.
    pub const RELEASED: u32 = 1;
    /// No program waits. The helper that is bound to the thread's CPU runs before the thread
    /// returns to user code; if it cannot be sure of that, the thread may have gone on when it is
    /// seized. A helper that has seized the thread removes the entry.
    pub const GOES_ON: u32 = 2;
}

/// Number of helper processes: elements of the map `HELPERS`. An element is the number of the CPU
/// to which the helper is bound, plus 1, or 0 if the helper is not bound to one.
pub const HELPERS: u32 = 2;

const _: () = assert!(size_of::<Hold>() == 32);
