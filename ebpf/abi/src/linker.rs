//! How programs follow dynamic linkers: the cookie of a probe in one, and the keys of file names
//! that are of interest.
//!
//! For debuggers, a dynamic linker keeps a list of the libraries of its process (`struct r_debug`
//! and `struct link_map` of `link.h`, the same in glibc and musl). New libraries are at its end.

/// Cookie of a probe in a dynamic linker: the distance from the probed instruction to `_r_debug`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkerCookie(pub u64);

impl LinkerCookie {
    const KNOWN: u64 = 1 << 63;
    const CHECKS_STATE: u64 = 1 << 62;

    /// The address of `_r_debug` is unknown: each change is reported, whatever was mapped.
    pub const UNKNOWN: Self = Self(0);

    /// `_r_debug` is `distance` bytes above the probed instruction. `checks_state` means that the
    /// instruction is also reached before a change and after a removal; `r_state` tells these cases
    /// apart.
    #[must_use]
    pub const fn new(distance: i64, checks_state: bool) -> Self {
        let checks = if checks_state { Self::CHECKS_STATE } else { 0 };
        Self(Self::KNOWN | checks | (distance as u64 & (Self::CHECKS_STATE - 1)))
    }

    /// Number of bytes from the probed instruction to `_r_debug`, if known.
    #[must_use]
    #[inline(always)]
    pub const fn distance(self) -> Option<i64> {
        if self.0 & Self::KNOWN == 0 {
            return None;
        }
        Some(((self.0 << 2) as i64) >> 2)
    }

    /// Whether `r_state` must be checked to know if the list is complete at that instruction.
    #[must_use]
    #[inline(always)]
    pub const fn checks_state(self) -> bool {
        self.0 & Self::CHECKS_STATE != 0
    }
}

shared! {
    /// The part of `struct r_debug` of `link.h` that is read.
    #[derive(Default)]
    pub struct RDebug {
        /// 1; in glibc from 2.35 on, 2 or more if there are several namespaces.
        pub version: u32,
        /// Padding.
        pub reserved: u32,
        /// Address of the first [`LinkMap`].
        pub map: u64,
        /// Address of the function that is called at each change.
        pub brk: u64,
        /// [`RT_CONSISTENT`], or another value while the list is being changed.
        pub state: u32,
        /// Padding.
        pub reserved2: u32,
    }
}

/// Value of `RDebug::state`: the list is not being changed.
pub const RT_CONSISTENT: u32 = 0;

shared! {
    /// The public part of `struct link_map` of `link.h`.
    #[derive(Default)]
    pub struct LinkMap {
        /// Difference between the addresses in the file and in memory, bytes.
        pub base: u64,
        /// Address of the path, a C string.
        pub name: u64,
        /// Address of the dynamic section.
        pub dynamic: u64,
        /// Address of the next entry, 0 at the end of the list.
        pub next: u64,
        /// Address of the previous entry, 0 at the beginning.
        pub previous: u64,
    }
}

/// Number of leading bytes of a file name by which programs decide whether it may be of interest.
pub const KEY_BYTES: usize = 8;

/// The first [`KEY_BYTES`] bytes of a file name, padded with NUL: the key of the map `INTERESTS`.
#[must_use]
#[expect(
    clippy::indexing_slicing,
    reason = "both indices are checked, and `get` is not const"
)]
pub const fn key(file_name: &[u8]) -> u64 {
    let mut bytes = [0; KEY_BYTES];
    let mut at = 0;
    while at < KEY_BYTES && at < file_name.len() {
        bytes[at] = file_name[at];
        at += 1;
    }
    u64::from_le_bytes(bytes)
}

/// Maximum number of entries in the map `INTERESTS`.
pub const MAX_INTERESTS: usize = 256;

const _: () = assert!(size_of::<RDebug>() == 32);
const _: () = assert!(size_of::<LinkMap>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_keep_the_distance() {
        for distance in [0, 1, -1, 0x3_4118, -0x3_4118, i64::MAX >> 2, i64::MIN >> 2] {
            for checks in [false, true] {
                let cookie = LinkerCookie::new(distance, checks);
                assert_eq!(cookie.distance(), Some(distance));
                assert_eq!(cookie.checks_state(), checks);
            }
        }
        assert_eq!(LinkerCookie::UNKNOWN.distance(), None);
        assert!(!LinkerCookie::UNKNOWN.checks_state());
    }

    #[test]
    fn keys_are_the_first_bytes() {
        assert_eq!(key(b"libamdhip64.so.6"), u64::from_le_bytes(*b"libamdhi"));
        assert_eq!(key(b"x.so"), u64::from_le_bytes(*b"x.so\0\0\0\0"));
        assert_eq!(key(b""), 0);
    }
}
