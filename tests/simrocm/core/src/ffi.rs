//! Pointers that C callers pass in.
//!
//! The functions of a C API receive raw pointers and must trust that they are as the API requires:
//! null or valid. The types here wrap such a pointer and have the same representation, so exported
//! functions take them as parameters; they are never made from anything else. That is the invariant
//! behind every `unsafe` here.

use std::ffi::{CStr, c_char, c_void};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Address for a result; may be null.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Stores a result; returns false when the pointer is null.
    pub fn put(self, value: T) -> bool {
        if self.0.is_null() {
            return false;
        }
        // SAFETY: not null, so the caller of the C function guarantees that it is valid for this.
        unsafe { self.0.write_unaligned(value) };
        true
    }

    /// Whether the pointer is null.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Address of element `index` in an array of results.
    #[must_use]
    pub const fn element(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// The value there.
    #[must_use]
    pub fn get(self) -> Option<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

/// Address of an argument; may be null.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> Default for In<T> {
    /// A null pointer.
    fn default() -> Self {
        Self(std::ptr::null())
    }
}

impl<T: Copy> In<T> {
    /// The value; `None` when the pointer is null.
    #[must_use]
    pub fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, so the caller of the C function guarantees that it is valid for this.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// The first `count` values; empty when the pointer is null.
    #[must_use]
    pub fn list(self, count: usize) -> Vec<T> {
        (0..count)
            .map_while(|index| Self(self.0.wrapping_add(index)).non_null())
            .filter_map(Self::get)
            .collect()
    }

    fn non_null(self) -> Option<Self> {
        (!self.0.is_null()).then_some(self)
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> u64 {
        self.0 as u64
    }
}

/// Memory whose type depends on another argument; may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Untyped(pub *mut c_void);

impl Untyped {
    /// Wraps an address known to be valid.
    #[must_use]
    pub const fn at(address: u64) -> Self {
        Self(address as *mut c_void)
    }

    /// Stores a value; returns false when the pointer is null.
    pub fn put<T: Copy + IntoBytes + Immutable>(self, value: T) -> bool {
        self.put_bytes(value.as_bytes())
    }

    /// Stores bytes; returns false when the pointer is null.
    #[expect(
        clippy::must_use_candidate,
        reason = "a C caller's null is often no error"
    )]
    pub fn put_bytes(self, bytes: &[u8]) -> bool {
        if self.0.is_null() {
            return false;
        }
        // SAFETY: not null, so the caller of the C function guarantees that the attribute's bytes
        // fit.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        true
    }

    /// Stores a text, truncated if necessary and padded with NULs to `length` bytes, at least one
    /// NUL.
    #[expect(
        clippy::must_use_candidate,
        reason = "a C caller's null is often no error"
    )]
    pub fn put_text(self, text: &str, length: usize) -> bool {
        let mut bytes = text.as_bytes().to_vec();
        bytes.truncate(length.saturating_sub(1));
        bytes.resize(length, 0);
        self.put_bytes(&bytes)
    }

    /// Reads bytes; empty when the pointer is null.
    #[must_use]
    pub fn bytes(self, length: usize) -> Vec<u8> {
        if self.0.is_null() {
            return Vec::new();
        }
        // SAFETY: not null, so the caller of the C function guarantees that this many bytes exist.
        unsafe { std::slice::from_raw_parts(self.0.cast_const().cast::<u8>(), length) }.to_vec()
    }

    /// Reads a value.
    #[must_use]
    pub fn get<T: FromBytes>(self) -> Option<T> {
        T::read_from_bytes(&self.bytes(size_of::<T>())).ok()
    }

    /// Copies bytes from `source`, which may overlap.
    pub fn copy_from(self, source: Self, bytes: usize) {
        if self.0.is_null() || source.0.is_null() {
            return;
        }
        // SAFETY: not null, so the caller of the C function guarantees that this many bytes exist
        // at both addresses.
        unsafe { std::ptr::copy(source.0.cast_const().cast::<u8>(), self.0.cast(), bytes) };
    }

    /// Fills memory with a pattern; the rest at the end gets the pattern's beginning.
    pub fn fill(self, pattern: &[u8], bytes: usize) {
        if self.0.is_null() || pattern.is_empty() {
            return;
        }
        // SAFETY: not null, so the caller of the C function guarantees that this many bytes exist.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.0.cast::<u8>(), bytes) };
        for chunk in memory.chunks_mut(pattern.len()) {
            let length = chunk.len();
            chunk.copy_from_slice(pattern.get(..length).unwrap_or(chunk_of(pattern, length)));
        }
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The address plus `bytes`.
    #[must_use]
    pub const fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes))
    }
}

/// The first `length` bytes of a pattern that has at least this many.
fn chunk_of(pattern: &[u8], length: usize) -> &[u8] {
    pattern.split_at(length.min(pattern.len())).0
}

/// A C string; may be null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text; `None` if the pointer is null or the text is not UTF-8.
    #[must_use]
    pub fn get(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, so the caller of the C function guarantees that it is a C string.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().ok().map(str::to_owned)
    }
}

impl From<&'static CStr> for Text {
    fn from(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }
}

impl From<Option<&'static CStr>> for Text {
    fn from(text: Option<&'static CStr>) -> Self {
        Self(text.map_or(std::ptr::null(), CStr::as_ptr))
    }
}

/// Ends the program with a line on stderr, for errors that would make all results worthless.
pub fn die(message: &str) -> ! {
    use std::io::Write;
    // Nothing can be done when stderr is closed.
    let _ = writeln!(std::io::stderr(), "simrocm: {message}");
    std::process::exit(86)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_refused() {
        assert!(!Out::<u32>(std::ptr::null_mut()).put(1));
        assert!(In::<u32>(std::ptr::null()).list(3).is_empty());
        assert!(Untyped(std::ptr::null_mut()).bytes(8).is_empty());
        assert_eq!(Text(std::ptr::null()).get(), None);
    }

    #[test]
    fn memory_is_read_and_written() {
        let mut memory = [0_u8; 8];
        let untyped = Untyped(memory.as_mut_ptr().cast());
        untyped.fill(&[1, 2, 3], 7);
        assert_eq!(untyped.bytes(8), [1, 2, 3, 1, 2, 3, 1, 0]);
        assert!(untyped.put_text("gfx906 and more", 8));
        assert_eq!(untyped.bytes(8), *b"gfx906 \0");
        assert_eq!(untyped.get::<u16>(), Some(u16::from_le_bytes(*b"gf")));
    }
}
