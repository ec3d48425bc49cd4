//! Stacks: who called a traced function.
//!
//! A program at the entry of a function looks the stack up in the map `SITES`, by the process, the
//! stack pointer and the return address. A [`Site`] is a stack that has been unwound before: it
//! says which words of memory, and which registers, it depends on. If all are the same, so is the
//! stack. Otherwise the program copies the upper part of the stack ([`StackCopy`]) into the ring
//! `STACKS`, and user space unwinds it and adds a [`Site`].
//!
//! Either way the call gets the number of a stack ([`StackUse`]).

use crate::cookie::Cookie;

/// Registers that functions preserve for their callers, in the order in which they are here: rbx,
/// rbp, rsp, r12, r13, r14, r15.
pub const REGISTERS: usize = 7;

/// Position of the stack pointer among the [`REGISTERS`].
pub const STACK_POINTER: usize = 2;

/// Size of a page, bytes.
pub const PAGE: usize = 4096;

/// Maximum number of pages of a stack that are copied.
pub const PAGES: usize = 8;

/// Maximum number of words that a stack in the map `SITES` depends on.
pub const SITE_WORDS: usize = 120;

/// Number of stacks that are known for the same process, stack pointer and return address.
pub const WAYS: u32 = 4;

/// Maximum number of stacks that are copied in a window of
/// 2^[`crate::counters::RATE_WINDOW_SHIFT`] ns.
pub const COPIES_PER_WINDOW: u64 = 500;

/// Number of a stack that was not looked at, because too many unknown ones came at once.
pub const TOO_MANY: u32 = 0;

shared! {
    /// The stack of a call, written at its entry. The record of the call follows later.
    pub struct StackUse {
        /// Size of the record, bytes.
        pub size: u16,
        /// [`crate::record::kind::STACK`].
        pub kind: u8,
        /// 0
        pub domain: u8,
        /// Number of the stack, or [`TOO_MANY`]. Other records have the CPU here that accounts for
        /// them; these are in no account.
        pub stack: u32,
        /// Correlation id of the call.
        pub correlation: u64,
    }
}

shared! {
    /// A stack that no [`Site`] describes, in the ring `STACKS`.
    pub struct StackCopy {
        /// Number that the stack has got.
        pub stack: u32,
        /// Number of pages that were copied. The page after them could not be read.
        pub pages: u32,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// Thread id, initial pid namespace.
        pub tid: u32,
        /// Time, ns `CLOCK_BOOTTIME`.
        pub time: u64,
        /// The [`REGISTERS`] at the function's entry.
        pub registers: [u64; REGISTERS],
        /// The memory from the beginning of the page that the stack pointer points into. Pages that
        /// were not copied contain anything.
        pub memory: [u8; PAGES * PAGE],
    }
}

shared! {
    /// Key of a [`Site`].
    pub struct SiteKey {
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// 0 to [`WAYS`] - 1: there may be several for the rest of the key.
        pub way: u32,
        /// The stack pointer at the function's entry.
        pub pointer: u64,
        /// The return address there.
        pub return_address: u64,
    }
}

shared! {
    /// A word of memory that a stack depends on.
    pub struct SiteWord {
        /// Its address, bytes above the stack pointer.
        pub offset: u64,
        /// Its value.
        pub value: u64,
    }
}

shared! {
    /// A stack that has been unwound.
    pub struct Site {
        /// Its number.
        pub stack: u32,
        /// Number of words in `memory`.
        pub words: u16,
        /// Bits of the [`REGISTERS`] that it depends on, besides the stack pointer.
        pub depends_on: u16,
        /// Values of these registers.
        pub registers: [u64; REGISTERS],
        /// The words of memory that it depends on.
        pub memory: [SiteWord; SITE_WORDS],
    }
}

impl Cookie {
    const STACK: u64 = 1 << 52;

    /// Asks for the stack of the function's calls.
    #[must_use]
    pub const fn with_stack(self) -> Self {
        Self(self.0 | Self::STACK)
    }

    /// Whether the stack of the function's calls is asked for.
    #[must_use]
    pub const fn wants_stack(self) -> bool {
        self.0 & Self::STACK != 0
    }
}

const _: () = assert!(size_of::<StackUse>() == 16);
const _: () = assert!(size_of::<StackCopy>() == 80 + PAGES * PAGE);
const _: () = assert!(size_of::<SiteKey>() == 24);
const _: () = assert!(size_of::<Site>() == 64 + 16 * SITE_WORDS);
