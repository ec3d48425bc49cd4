//! The cookie of a probe: 64 bits that the kernel passes to the program at each hit.
//!
//! ```text
//!  63      56 55      48 47      40 39      32 31                             0
//! +----------+----------+----------+----------+--------------------------------+
//! |  stream  | stack    |   role   |  domain  |          function id           |
//! +----------+----------+----------+----------+--------------------------------+
//! ```

use crate::STACK_ARGS;

/// What a program needs to know about the probed function, packed into the probe's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Packs a cookie. `stack_args` is the number of 8-byte words to read from the stack above the
    /// return address, limited to [`STACK_ARGS`].
    #[must_use]
    pub const fn new(function: u32, domain: u8, stack_args: u8) -> Self {
        let stack = if stack_args as usize > STACK_ARGS {
            STACK_ARGS as u64
        } else {
            stack_args as u64
        };
        Self(function as u64 | (domain as u64) << 32 | stack << 48)
    }

    /// Index into the recording's function table.
    #[must_use]
    pub const fn function(self) -> u32 {
        self.0 as u32
    }

    /// Number of the [`crate::domain::Domain`].
    #[must_use]
    pub const fn domain(self) -> u8 {
        (self.0 >> 32) as u8
    }

    const LIMITED: u64 = 1 << 46;
    const TAIL_CALL: u64 = 1 << 47;

    /// Marks the function as limited: if it is called too often, calls are lost
    /// ([`crate::counters::DropReason::TooOften`]).
    #[must_use]
    pub const fn limited(self) -> Self {
        Self(self.0 | Self::LIMITED)
    }

    /// Whether the function is limited ([`Self::limited`]).
    #[must_use]
    pub const fn is_limited(self) -> bool {
        self.0 & Self::LIMITED != 0
    }

    /// Marks the probed instruction as a tail call: it leaves the function by a jump to another
    /// one, which returns in its place.
    #[must_use]
    pub const fn at_tail_call(self) -> Self {
        Self(self.0 | Self::TAIL_CALL)
    }

    /// Whether the probed instruction is a tail call ([`Self::at_tail_call`]).
    #[must_use]
    pub const fn is_tail_call(self) -> bool {
        self.0 & Self::TAIL_CALL != 0
    }

    /// The cookie without the mark of [`Self::at_tail_call`]: that of the function's entry.
    #[must_use]
    pub const fn of_entry(self) -> Self {
        Self(self.0 & !Self::TAIL_CALL)
    }

    const BEHIND_TABLE: u64 = 1 << 53;

    /// Marks the function as one behind a table of its library: only calls from outside the library
    /// are a program's ([`Around`]).
    #[must_use]
    pub const fn behind_table(self) -> Self {
        Self(self.0 | Self::BEHIND_TABLE)
    }

    /// Whether the function is behind a table ([`Self::behind_table`]).
    #[must_use]
    pub const fn is_behind_table(self) -> bool {
        self.0 & Self::BEHIND_TABLE != 0
    }

    /// Number of words of stack arguments to copy, 0 to [`STACK_ARGS`].
    #[must_use]
    pub const fn stack_args(self) -> u8 {
        (self.0 >> 48) as u8 & 0xf
    }
}

shared! {
    /// Where the code of a library is, seen from a function that is probed behind a table.
    pub struct Around {
        /// Distance from the begin of the code to the probed instruction, bytes.
        pub before: u64,
        /// Size of the code, bytes.
        pub size: u64,
    }
}

/// Maximum number of functions that are probed behind tables.
pub const MAX_BEHIND: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let cookie = Cookie::new(0xdead_beef, 5, 7);
        assert_eq!(
            (cookie.function(), cookie.domain(), cookie.stack_args()),
            (0xdead_beef, 5, 7)
        );
        assert_eq!(Cookie::new(1, 2, 200).stack_args() as usize, STACK_ARGS);
        let limited = cookie.limited();
        assert!(limited.is_limited() && !cookie.is_limited() && !limited.is_tail_call());
        assert!(limited.at_tail_call().is_tail_call());
        assert_eq!(limited.at_tail_call().of_entry(), limited);
        assert_eq!(limited.function(), cookie.function());
        let behind = cookie.behind_table();
        assert!(behind.is_behind_table() && !cookie.is_behind_table());
        assert_eq!(behind.stack_args(), cookie.stack_args());
    }
}
