//! Values that pointer arguments of calls point to: strings that programs pass, and results that
//! functions store.
//!
//! A [`ReadPlan`] per function, in the map `READS`, says which of its arguments are read, and how.
//! The plans are made from the catalogue. A bit in the probe's [`Cookie`] says whether there is a
//! plan, so that functions without one pay only for a comparison. Each value is a separate record,
//! [`Value`], which precedes the record of its call and has the same correlation id.

use crate::{REGISTER_ARGS, STACK_ARGS, cookie::Cookie, record::RecordHeader};

/// Maximum number of values read per call.
pub const READS: usize = 6;

/// Position of a pointer that is the function's result. Positions 0 to 5 are the argument
/// registers; the words of stack arguments follow; the result comes last.
pub const RESULT_WORD: u8 = (REGISTER_ARGS + STACK_ARGS) as u8;

/// Maximum number of functions with a plan per recording.
pub const MAX_PLANS: u32 = 8192;

/// How a value is read; [`Read::what`].
pub mod what {
    /// The value is not read.
    pub const NOTHING: u8 = 0;
    /// A string that ends with NUL, when the function is called.
    pub const STRING: u8 = 1;
    /// A string that ends with NUL, when the function returns.
    pub const STRING_AT_RETURN: u8 = 2;
    /// [`super::Read::bytes`] bytes, when the function is called.
    pub const BYTES: u8 = 3;
    /// [`super::Read::bytes`] bytes, when the function returns.
    pub const BYTES_AT_RETURN: u8 = 4;
    /// The agent of ROCr's memory pool or region whose handle is the word: [`super::Read::bytes`]
    /// bytes of the agent, from the first of [`crate::gpu::AGENT_WORDS`] on, when the function is
    /// called.
    pub const AGENT: u8 = 5;
    /// Annotations ([`super::annotation`]), when the function is called. The word points to the
    /// first one; [`super::Read::bytes`] is the number of the argument register with their count.
    pub const ANNOTATIONS: u8 = 6;
    /// Consecutive pointers that the function stores, when it returns. [`super::Read::bytes`] is
    /// the number of the argument register with their count; at most [`super::MOST_POINTERS`] are
    /// read.
    pub const POINTERS_AT_RETURN: u8 = 7;
}

/// Maximum number of pointers of [`what::POINTERS_AT_RETURN`].
pub const MOST_POINTERS: usize = MOST_BYTES / 8;

/// Annotations of regions (`rocprofsys_annotation_t` of `rocprofiler-systems/categories.h`): name,
/// type and value, of eight bytes each. The value is a pointer to a number, or itself a string or
/// any other pointer.
pub mod annotation {
    /// Size of an annotation in the program's memory, bytes.
    pub const SIZE: u64 = 24;
    /// Maximum number of annotations that are read per call.
    pub const MOST: u64 = 16;
    /// Offset of an annotation's text in a record, after the [`super::Value`]. A record contains,
    /// in this order: the type and the number or pointer, in eight bytes each; the name up to a NUL
    /// (or its address, if it is [`super::value_flags::NAME_UNREADABLE`]);
    /// [`super::Unread::stack`], if anything could not be read; and the text, if the value is one.
    pub const TEXT: usize = STACK + 8;
    /// Offset of the name; see [`TEXT`].
    pub const NAME: usize = 16;
    /// Offset of [`super::Unread::stack`]; see [`TEXT`].
    pub const STACK: usize = NAME + NAME_BYTES;
    /// Maximum number of bytes of the name that are read, with its NUL.
    pub const NAME_BYTES: usize = 64;

    /// Types of annotations: `ROCPROFSYS_ANNOTATION_TYPE`.
    pub mod kind {
        /// A string.
        pub const STRING: u64 = 1;
        /// `size_t`.
        pub const SIZE: u64 = 2;
        /// `int64_t`.
        pub const INT64: u64 = 3;
        /// `uint64_t`.
        pub const UINT64: u64 = 4;
        /// `double`.
        pub const FLOAT64: u64 = 5;
        /// A pointer, which is not followed.
        pub const POINTER: u64 = 6;
        /// `int32_t`.
        pub const INT32: u64 = 7;
        /// `uint32_t`.
        pub const UINT32: u64 = 8;
        /// `float`.
        pub const FLOAT32: u64 = 9;
        /// `int16_t`.
        pub const INT16: u64 = 10;
        /// `uint16_t`.
        pub const UINT16: u64 = 11;
    }

    /// Size, in bytes, of the number that the value of an annotation of this type points to; 0 if
    /// it does not point to a number.
    #[must_use]
    #[inline(always)]
    pub const fn number_bytes(kind: u64) -> u32 {
        match kind {
            kind::SIZE | kind::INT64 | kind::UINT64 | kind::FLOAT64 => 8,
            kind::INT32 | kind::UINT32 | kind::FLOAT32 => 4,
            kind::INT16 | kind::UINT16 => 2,
            _ => 0,
        }
    }
}

shared! {
    /// One value to be read.
    #[derive(Default)]
    pub struct Read {
        /// Position of the pointer, see [`RESULT_WORD`].
        pub word: u8,
        /// One of [`what`].
        pub what: u8,
        /// Number of bytes, at most [`MOST_BYTES`]; 0 for strings; see also [`what::ANNOTATIONS`]
        /// and [`what::POINTERS_AT_RETURN`].
        pub bytes: u16,
    }
}

shared! {
    /// The values to read at calls of a function; a value of the map `READS`, whose key is the
    /// function's id.
    #[derive(Default)]
    pub struct ReadPlan {
        /// The values; unused ones are [`what::NOTHING`].
        pub reads: [Read; READS],
    }
}

/// Bits of [`Value::flags`].
pub mod value_flags {
    /// Read when the function returned; otherwise when it was called.
    pub const AT_RETURN: u8 = 1 << 0;
    /// A string, without its NUL.
    pub const STRING: u8 = 1 << 1;
    /// The string was cut off.
    pub const CUT: u8 = 1 << 2;
    /// There is no readable memory at the address: an [`super::Unread`] replaces the value.
    pub const UNREADABLE: u8 = 1 << 3;
    /// An annotation: see [`super::annotation::TEXT`]. A record without any bytes stands for the
    /// annotations beyond [`super::annotation::MOST`].
    pub const ANNOTATION: u8 = 1 << 4;
    /// The memory with the annotation's name could not be read.
    pub const NAME_UNREADABLE: u8 = 1 << 5;
}

shared! {
    /// A value that a pointer points to; kind [`crate::record::kind::VALUE`]. `length` bytes
    /// follow, and then up to seven bytes of padding. In a ring the record has one of three sizes,
    /// [`SHORT_SIZE`], [`MEDIUM_SIZE`] and [`LONG_SIZE`].
    pub struct Value {
        /// Domain `ArgumentData`.
        pub header: RecordHeader,
        /// Correlation id of the call.
        pub correlation: u64,
        /// Process id, initial pid namespace.
        pub pid: u32,
        /// Number of bytes that were read.
        pub length: u16,
        /// Position of the pointer, see [`Read::word`].
        pub word: u8,
        /// Bits of [`value_flags`].
        pub flags: u8,
    }
}

shared! {
    /// Stands for a value that could not be read.
    ///
    /// eBPF programs can read only resident memory. A constant in a page of a program's file that
    /// has not been touched is not resident. It can be read from outside a moment later, as long as
    /// the process executes the same program.
    pub struct Unread {
        /// Address of the value.
        pub address: u64,
        /// Address where the stack of the process's main thread began (`mm_struct::start_stack`,
        /// field 28 of `/proc/PID/stat`). It differs between the programs that a process executes
        /// one after the other. 0 if unknown.
        pub stack: u64,
    }
}

/// Maximum number of bytes read of a value that is not a string. All binary digits are ones, so
/// that programs can apply the limit in one step that the verifier of every kernel understands.
pub const MOST_BYTES: usize = 255;
/// Maximum number of these bytes in a short record; all binary digits are ones, too.
pub const SHORT_MOST: usize = 31;
/// Number of bytes after a [`Value`] in a short record.
pub const SHORT_BYTES: usize = 40;
/// Number of bytes after a [`Value`] in a medium record.
pub const MEDIUM_BYTES: usize = 256;
/// Number of bytes after a [`Value`] in a long record. A string of this length or more is cut.
pub const LONG_BYTES: usize = 1000;

/// Size of an [`Unread`], bytes.
pub const UNREAD_SIZE: usize = size_of::<Unread>();
/// Size of a [`Value`] without the bytes that follow.
pub const VALUE_SIZE: usize = size_of::<Value>();
/// Size of a short record in a ring.
pub const SHORT_SIZE: usize = VALUE_SIZE + SHORT_BYTES;
/// Size of a medium record in a ring.
pub const MEDIUM_SIZE: usize = VALUE_SIZE + MEDIUM_BYTES;
/// Size of a long record in a ring.
pub const LONG_SIZE: usize = VALUE_SIZE + LONG_BYTES;

/// The part of a cookie for values: whether the function has a plan, and when its values are read.
impl Cookie {
    const AT_ENTRY: u64 = 1 << 44;
    const AT_RETURN: u64 = 1 << 45;

    /// Adds when the values of `plan` are to be read.
    #[must_use]
    pub fn with_plan(self, plan: &ReadPlan) -> Self {
        let bits = plan.reads.iter().map(|read| match read.what {
            what::STRING | what::BYTES | what::AGENT | what::ANNOTATIONS => Self::AT_ENTRY,
            what::STRING_AT_RETURN | what::BYTES_AT_RETURN | what::POINTERS_AT_RETURN => {
                Self::AT_RETURN
            }
            _ => 0,
        });
        Self(bits.fold(self.0, |all, bit| all | bit))
    }

    /// Whether values are read when the function is called.
    #[must_use]
    pub const fn reads_at_entry(self) -> bool {
        self.0 & Self::AT_ENTRY != 0
    }

    /// Whether values are read when the function returns.
    #[must_use]
    pub const fn reads_at_return(self) -> bool {
        self.0 & Self::AT_RETURN != 0
    }
}

const _: () =
    assert!(VALUE_SIZE == 24 && SHORT_MOST <= SHORT_BYTES && (SHORT_MOST + 1).is_power_of_two());
const _: () = assert!(MOST_BYTES <= MEDIUM_BYTES && (MOST_BYTES + 1).is_power_of_two());
const _: () = assert!(UNREAD_SIZE == 16 && UNREAD_SIZE <= SHORT_BYTES);
const _: () = assert!(
    SHORT_SIZE == 64 && MEDIUM_SIZE == 280 && LONG_SIZE == 1024 && annotation::TEXT < LONG_BYTES
);
const _: () = assert!(size_of::<ReadPlan>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_say_when_values_are_read() {
        let plain = Cookie::new(0xffff_ffff, 0xff, 8)
            .with_role(0xf)
            .with_stream(13);
        let mut plan = ReadPlan::default();
        assert_eq!(plain.with_plan(&plan), plain);
        assert!(!plain.reads_at_entry() && !plain.reads_at_return());
        plan.reads[3] = Read {
            word: 1,
            what: what::STRING,
            bytes: 0,
        };
        let cookie = plain.with_plan(&plan);
        assert!(cookie.reads_at_entry() && !cookie.reads_at_return());
        plan.reads[0] = Read {
            word: 0,
            what: what::BYTES_AT_RETURN,
            bytes: 8,
        };
        let cookie = plain.with_plan(&plan);
        assert!(cookie.reads_at_entry() && cookie.reads_at_return());
        assert_eq!(
            (
                cookie.role(),
                cookie.stream(),
                cookie.stack_args(),
                cookie.domain()
            ),
            (
                plain.role(),
                plain.stream(),
                plain.stack_args(),
                plain.domain()
            )
        );
    }
}
