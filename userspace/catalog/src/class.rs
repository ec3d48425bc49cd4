//! How C values are passed: the classes of the System V x86-64 ABI, as far as ROCm's API uses them.

use std::fmt;
use std::str::FromStr;

use gputrace_capture::meta::ValueKind;

/// An eight-byte piece of a value in registers, as the ABI classifies it (psABI, 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eightbyte {
    /// Class INTEGER: a general register. Probes record these.
    Integer,
    /// Class SSE: a vector register. Probes do not record these.
    Sse,
}

/// The properties of a C type that determine how it is passed and shown.
///
/// The text form ([`FromStr`], [`fmt::Display`]) is that of the committed data, e.g. `uint:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `void`: `void`, only as a return type.
    Void,
    /// `pointer`: any pointer except `const char *`.
    Pointer,
    /// `string`: `const char *`.
    CString,
    /// `handle`: a struct of one 64-bit integer, like `hsa_agent_t`.
    Handle,
    /// `bool`: `bool`.
    Bool,
    /// `int:N`: signed integer or enum of N bytes (1, 2, 4, 8).
    Signed(u8),
    /// `uint:N`: unsigned integer or enum of N bytes (1, 2, 4, 8).
    Unsigned(u8),
    /// `float:N`: floating-point number of N bytes (4, 8).
    Float(u8),
    /// `dim3`: HIP's struct of three 32-bit unsigned integers.
    Dim3,
    /// `hip_error`: `hipError_t`.
    HipError,
    /// `hsa_status`: `hsa_status_t`.
    HsaStatus,
    /// `struct:…`, with one letter per eightbyte, `i` for INTEGER and `s` for SSE: any other struct
    /// of at most 16 bytes. The value is one of the slices in [`Class::SMALL_STRUCTS`].
    Small(&'static [Eightbyte]),
    /// `memory:N`: a struct of N bytes that is copied to the stack.
    Memory(u16),
}

use Eightbyte::{Integer, Sse};

/// Classes whose text form is a single word.
const WORDS: &[(&str, Class)] = &[
    ("void", Class::Void),
    ("pointer", Class::Pointer),
    ("string", Class::CString),
    ("handle", Class::Handle),
    ("bool", Class::Bool),
    ("dim3", Class::Dim3),
    ("hip_error", Class::HipError),
    ("hsa_status", Class::HsaStatus),
    ("struct:i", Class::Small(&[Integer])),
    ("struct:s", Class::Small(&[Sse])),
    ("struct:ii", Class::Small(&[Integer, Integer])),
    ("struct:is", Class::Small(&[Integer, Sse])),
    ("struct:si", Class::Small(&[Sse, Integer])),
    ("struct:ss", Class::Small(&[Sse, Sse])),
];

impl Class {
    /// All possible values of [`Class::Small`].
    pub const SMALL_STRUCTS: &'static [&'static [Eightbyte]] = &[
        &[Integer],
        &[Sse],
        &[Integer, Integer],
        &[Integer, Sse],
        &[Sse, Integer],
        &[Sse, Sse],
    ];

    /// The registers that the value occupies if enough are left, in order; `None` if it is always
    /// passed in memory.
    #[must_use]
    pub const fn eightbytes(self) -> Option<&'static [Eightbyte]> {
        match self {
            Self::Void => Some(&[]),
            Self::Pointer
            | Self::CString
            | Self::Handle
            | Self::Bool
            | Self::Signed(_)
            | Self::Unsigned(_)
            | Self::HipError
            | Self::HsaStatus => Some(&[Integer]),
            Self::Float(_) => Some(&[Sse]),
            Self::Dim3 => Some(&[Integer, Integer]),
            Self::Small(eightbytes) => Some(eightbytes),
            Self::Memory(_) => None,
        }
    }

    /// Number of 8-byte words that the value occupies when it is passed on the stack.
    #[must_use]
    pub fn stack_words(self) -> usize {
        match self {
            Self::Memory(bytes) => usize::from(bytes).div_ceil(8),
            other => other.eightbytes().map_or(0, <[Eightbyte]>::len),
        }
    }

    /// How an argument of this class is shown.
    #[must_use]
    pub const fn kind(self) -> ValueKind {
        match self {
            Self::Void => ValueKind::Void,
            Self::Pointer | Self::Handle => ValueKind::Pointer,
            Self::CString => ValueKind::CString,
            Self::Bool => ValueKind::Bool,
            Self::Signed(bytes) => ValueKind::Signed(bytes),
            Self::Unsigned(bytes) => ValueKind::Unsigned(bytes),
            Self::Float(_) | Self::Small([Sse] | [Sse, Sse]) => ValueKind::Float,
            Self::Dim3 => ValueKind::Dim3,
            Self::HipError => ValueKind::HipError,
            Self::HsaStatus => ValueKind::HsaStatus,
            Self::Small(_) => ValueKind::Word,
            Self::Memory(_) => ValueKind::Struct,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(bytes) => write!(f, "int:{bytes}"),
            Self::Unsigned(bytes) => write!(f, "uint:{bytes}"),
            Self::Float(bytes) => write!(f, "float:{bytes}"),
            Self::Memory(bytes) => write!(f, "memory:{bytes}"),
            word => {
                let name = WORDS
                    .iter()
                    .find(|(_, class)| class == word)
                    .map_or("struct:?", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}

/// The text is not the text form of a [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a class of C values (such as `pointer`, `uint:8` or `memory:24`)")]
pub struct UnknownClass;

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        if let Some((_, class)) = WORDS.iter().find(|(name, _)| *name == text) {
            return Ok(*class);
        }
        let (sort, size) = text.split_once(':').ok_or(UnknownClass)?;
        let bytes: u16 = size.parse().map_err(|_| UnknownClass)?;
        match (sort, bytes) {
            ("int", 1 | 2 | 4 | 8) => Ok(Self::Signed(bytes as u8)),
            ("uint", 1 | 2 | 4 | 8) => Ok(Self::Unsigned(bytes as u8)),
            ("float", 4 | 8) => Ok(Self::Float(bytes as u8)),
            ("memory", 1..) => Ok(Self::Memory(bytes)),
            _ => Err(UnknownClass),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_round_trips() {
        let mut classes: Vec<Class> = WORDS.iter().map(|(_, class)| *class).collect();
        classes.extend([1, 2, 4, 8].map(Class::Signed));
        classes.extend([1, 2, 4, 8].map(Class::Unsigned));
        classes.extend([
            Class::Float(4),
            Class::Float(8),
            Class::Memory(24),
            Class::Memory(u16::MAX),
        ]);
        classes.extend(
            Class::SMALL_STRUCTS
                .iter()
                .map(|eightbytes| Class::Small(eightbytes)),
        );
        for class in classes {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        for text in [
            "",
            "int",
            "int:3",
            "uint:16",
            "float:16",
            "memory:0",
            "memory:-1",
            "struct:",
            "struct:iii",
        ] {
            assert_eq!(text.parse::<Class>(), Err(UnknownClass), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_refused(text in "(int|uint|float|memory|struct)?:?[a-z0-9+-]{0,6}") {
            if let Ok(class) = text.parse::<Class>() {
                prop_assert_eq!(class.to_string().parse(), Ok(class));
            }
        }
    }
}
