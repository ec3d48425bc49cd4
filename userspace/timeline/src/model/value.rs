//! A value that has been decoded.

use std::fmt;

use gputrace_catalog::flags::Flags;
use gputrace_kfd::ioctl::Value;

/// A decoded value. `Display` gives the human-readable form; exporters with typed attributes match
/// on the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgValue<'a> {
    /// An address, a handle, or a word of unknown type: shown in hex.
    Hex(u64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A `bool`.
    Bool(bool),
    /// A `dim3`.
    Dim3 {
        /// First dimension.
        x: u32,
        /// Second.
        y: u32,
        /// Third.
        z: u32,
    },
    /// A `hipError_t` or `hsa_status_t`, with its name if known.
    Status {
        /// The number.
        code: u32,
        /// The enumerator in the public header.
        name: Option<&'static str>,
    },
    /// An enumerator or flags of the driver, shown by name.
    Named(Value),
    /// An enumerator that the catalogue knows.
    Enumerator {
        /// The number.
        code: i64,
        /// The name in the public header.
        name: &'static str,
    },
    /// A set of named flags.
    Flags(Flags),
    /// A floating-point number: the bits of an `f64`.
    Real(u64),
    /// A string.
    Text {
        /// The text, or its beginning if `cut`.
        text: &'a str,
        /// Whether the text was cut.
        cut: bool,
    },
    /// The address of an output parameter whose value is unknown: the function failed, has not
    /// returned, or the memory could not be read.
    Place(u64),
    /// The argument is in a place that records do not contain (floating-point registers, far up the
    /// stack).
    Unrecorded,
    /// The argument is on the stack, which could not be read at that moment.
    Unreadable,
}

impl fmt::Display for ArgValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Hex(value) => write!(f, "{value:#x}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Dim3 { x, y, z } => write!(f, "{{{x},{y},{z}}}"),
            Self::Status {
                code,
                name: Some(name),
            } => write!(f, "{code} {name}"),
            Self::Status { code, name: None } => write!(f, "{code}"),
            Self::Named(value) => value.fmt(f),
            Self::Enumerator { name, .. } => f.write_str(name),
            Self::Flags(flags) => flags.fmt(f),
            Self::Real(bits) => {
                // A value that came from a `float` is shown with a `float`'s digits.
                let (double, float) = (f64::from_bits(bits), f64::from_bits(bits) as f32);
                if f64::from(float) == double {
                    write!(f, "{float}")
                } else {
                    write!(f, "{double}")
                }
            }
            Self::Text { text, cut: false } => f.write_str(text),
            Self::Text { text, cut: true } => write!(f, "{text}…"),
            Self::Place(address) => write!(f, "(at {address:#x})"),
            Self::Unrecorded => f.write_str("(not recorded)"),
            Self::Unreadable => f.write_str("(not readable)"),
        }
    }
}
