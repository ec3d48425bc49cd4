//! The requests of `/dev/kfd`: meaning of their numbers, structures and flags.
//!
//! KFD looks only at the number of a request; its structure may be shorter or longer than the
//! kernel's own, because libhsakmt and the driver come in different versions. So the decoder
//! accepts any number of bytes, and a field beyond them is absent.
//!
//! ```
//! use gputrace_kfd::ioctl;
//!
//! // AMDKFD_IOC_DESTROY_QUEUE, queue 7.
//! let request = ioctl::decode(0xc008_4b03, &[7, 0, 0, 0, 0, 0, 0, 0]);
//! assert_eq!(request.to_string(), "DESTROY_QUEUE queue_id=7");
//! ```

pub mod flags;
mod table;

use std::borrow::Cow;
use std::fmt;

use flags::Names;
pub use table::IOCTLS;

/// Letter in the numbers of KFD's requests, `AMDKFD_IOCTL_BASE`.
pub const BASE: u8 = b'K';

/// Direction in which the structure is copied, as encoded in the request's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No structure: `_IO`.
    None,
    /// From the kernel: `_IOR`.
    Read,
    /// To the kernel: `_IOW`.
    Write,
    /// Both ways: `_IOWR`.
    ReadWrite,
}

impl Direction {
    /// Bits 31 and 30 of the request.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Write => 1,
            Self::Read => 2,
            Self::ReadWrite => 3,
        }
    }
}

/// The drivers that have a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel's own driver, from `KFD_IOCTL_MINOR_VERSION` on. The first requests are older
    /// than the versions and have 1.
    Mainline {
        /// Minor version of the interface.
        minor: u32,
    },
    /// Only the driver in AMD's packages.
    Rocm,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl {
    /// Number: bits 7 to 0 of the request.
    pub nr: u8,
    /// Name without `AMDKFD_IOC_`.
    pub name: &'static str,
    /// Direction in which its structure is copied.
    pub direction: Direction,
    /// Sizes of its structure (bytes), each with the minor version that introduced it (0 if not the
    /// kernel's). Empty if the size differs in every version.
    pub sizes: &'static [(u16, u32)],
    /// The drivers that have it.
    pub origin: Origin,
    /// Its fields, without padding.
    pub fields: &'static [Field],
}

/// Kind of a field: how to show it, and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count or an id.
    Number,
    /// A number that may be negative.
    Signed,
    /// Bits or an opaque number, shown in hexadecimal.
    Hex,
    /// A Boolean.
    Flag,
    /// An address in the process.
    Address,
    /// A size, bytes.
    Bytes,
    /// KFD's id of a GPU.
    Gpu,
    /// A file descriptor of the process.
    Descriptor,
    /// Milliseconds; all ones means forever.
    Milliseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Ticks of the GPU's clock.
    Ticks,
    /// Hertz.
    Hertz,
    /// One of several choices.
    Named(Names),
    /// Bits with names.
    Flags(Names),
}

/// The side that writes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The process; the value is known when the request begins.
    In,
    /// The driver; the value is known when the request ends.
    Out,
    /// First the process, then the driver.
    InOut,
}

/// One field of a request's structure, or an array of them.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in the header; begins with a dot for a field of an array's element.
    pub name: &'static str,
    /// Offset of the first element, bytes.
    pub offset: u16,
    /// Size: 4 or 8 bytes.
    pub width: u8,
    /// Kind of its value.
    pub kind: Kind,
    /// The side that writes it.
    pub flow: Flow,
    /// Maximum number of elements.
    pub count: u8,
    /// Distance from one element to the next, bytes.
    pub stride: u16,
    /// Present only if the 32-bit number at this offset has this value: a member of a union.
    pub condition: Option<(u16, u32)>,
}

impl Field {
    const fn new(name: &'static str, offset: u16, width: u8, kind: Kind, flow: Flow) -> Self {
        Self {
            name,
            offset,
            width,
            kind,
            flow,
            count: 1,
            stride: 0,
            condition: None,
        }
    }

    const fn when(mut self, offset: u16, value: u32) -> Self {
        self.condition = Some((offset, value));
        self
    }

    const fn times(mut self, count: u8, stride: u16) -> Self {
        self.count = count;
        self.stride = stride;
        self
    }

    /// The field's raw values in these bytes.
    fn values(&self, bytes: &[u8]) -> impl Iterator<Item = u64> {
        let present = self
            .condition
            .is_none_or(|(offset, value)| number(bytes, offset.into(), 4) == Some(value.into()));
        let count = if present { usize::from(self.count) } else { 0 };
        (0..count).map_while(move |index| {
            let offset = usize::from(self.offset) + index * usize::from(self.stride);
            number(bytes, offset, self.width.into())
        })
    }
}

/// A little-endian number of 4 or 8 bytes.
fn number(bytes: &[u8], offset: usize, width: usize) -> Option<u64> {
    let field = bytes.get(offset..)?.get(..width)?;
    let mut number = [0; 8];
    number.get_mut(..width)?.copy_from_slice(field);
    Some(u64::from_le_bytes(number))
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Kind of the value.
    pub kind: Kind,
    /// The number as it was in the structure.
    pub raw: u64,
}

impl Value {
    /// Names of the flags that are set, or of the choice. Bits and choices without a name are left
    /// out.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let raw = self.raw;
        let (names, is_mask) = match self.kind {
            Kind::Named(names) => (names, false),
            Kind::Flags(names) => (names, true),
            _ => (&[][..], false),
        };
        let set = move |value: u64| {
            if is_mask {
                raw & value != 0
            } else {
                raw == value
            }
        };
        names
            .iter()
            .filter(move |(value, _)| set((*value).into()))
            .map(|(_, name)| *name)
    }

    /// The bits without a name; 0 if the value has no flags.
    #[must_use]
    pub fn unnamed_flags(&self) -> u64 {
        match self.kind {
            Kind::Flags(names) => names
                .iter()
                .fold(self.raw, |rest, (mask, _)| rest & !u64::from(*mask)),
            _ => 0,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.raw;
        // 32-bit fields are read without sign extension.
        let low = u32::try_from(raw);
        match self.kind {
            Kind::Number => write!(f, "{raw}"),
            Kind::Signed | Kind::Descriptor => match low {
                Ok(low) => write!(f, "{}", low.cast_signed()),
                Err(_) => write!(f, "{}", raw.cast_signed()),
            },
            Kind::Hex | Kind::Address => write!(f, "{raw:#x}"),
            Kind::Flag => match raw {
                0 => f.write_str("false"),
                1 => f.write_str("true"),
                raw => write!(f, "{raw}"),
            },
            Kind::Bytes => write!(f, "{raw} B"),
            Kind::Gpu => write!(f, "GPU {raw}"),
            Kind::Milliseconds if low == Ok(u32::MAX) => f.write_str("forever"),
            Kind::Milliseconds => write!(f, "{raw} ms"),
            Kind::Nanoseconds => write!(f, "{raw} ns"),
            Kind::Ticks => write!(f, "{raw} ticks"),
            Kind::Hertz => write!(f, "{raw} Hz"),
            Kind::Named(_) => match self.names().next() {
                Some(name) => f.write_str(name),
                None => write!(f, "{raw}"),
            },
            Kind::Flags(_) => {
                let unnamed = self.unnamed_flags();
                let mut separator = "";
                for name in self.names() {
                    write!(f, "{separator}{name}")?;
                    separator = "|";
                }
                if unnamed != 0 || separator.is_empty() {
                    write!(f, "{separator}{unnamed:#x}")?;
                }
                Ok(())
            }
        }
    }
}

/// A decoded field; `attrs[2].type` belongs to the third element of an array.
#[derive(Clone, Debug)]
pub struct Argument {
    /// Name, with an index for elements of an array.
    pub name: Cow<'static, str>,
    /// The field's description.
    pub field: &'static Field,
    /// Its value.
    pub value: Value,
}

/// A decoded request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of the request, whether known or not.
    pub nr: u8,
    /// Description of the request; `None` for a number that this version of gputrace does not know.
    pub ioctl: Option<&'static Ioctl>,
    /// The fields that the bytes contain.
    pub arguments: Vec<Argument>,
}

impl Request {
    /// A value by the name of its field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let argument = self
            .arguments
            .iter()
            .find(|argument| argument.name == name)?;
        Some(argument.value.raw)
    }

    /// The name, or the number of an unknown one.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self.ioctl {
            Some(ioctl) => Cow::Borrowed(ioctl.name),
            None => Cow::Owned(format!("KFD ioctl {:#04x}", self.nr)),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        for Argument { name, value, .. } in &self.arguments {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

/// Finds a request by its number.
#[must_use]
pub fn by_number(nr: u8) -> Option<&'static Ioctl> {
    let index = IOCTLS.binary_search_by_key(&nr, |ioctl| ioctl.nr).ok()?;
    IOCTLS.get(index)
}

/// Size of the structure according to the request, bytes.
#[must_use]
pub const fn size_of_request(request: u32) -> usize {
    (request >> 16 & 0x3fff) as usize
}

/// Decodes a request: `request` is the number passed to `ioctl(2)`, `bytes` the known part of the
/// structure that its argument points to.
///
/// As in KFD, only the low eight bits identify the request. Bytes beyond the size in the request do
/// not belong to the caller and are ignored.
#[must_use]
pub fn decode(request: u32, bytes: &[u8]) -> Request {
    let [nr, ..] = request.to_le_bytes();
    let own = bytes.get(..size_of_request(request)).unwrap_or(bytes);
    let ioctl = by_number(nr);
    let mut arguments = Vec::new();
    for field in ioctl.map_or(&[][..], |ioctl| ioctl.fields) {
        for (index, raw) in field.values(own).enumerate() {
            arguments.push(Argument {
                name: argument_name(field, index),
                field,
                value: Value {
                    kind: field.kind,
                    raw,
                },
            });
        }
    }
    Request {
        nr,
        ioctl,
        arguments,
    }
}

fn argument_name(field: &Field, index: usize) -> Cow<'static, str> {
    if field.count == 1 {
        return Cow::Borrowed(field.name);
    }
    Cow::Owned(match field.name.split_once('.') {
        Some((array, member)) => format!("{array}[{index}].{member}"),
        None => format!("{}[{index}]", field.name),
    })
}
