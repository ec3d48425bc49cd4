//! The runtime's own kernels: copies and fills by shaders.
//!
//! The real runtime compiles them when it starts. Here they are an empty code object, whose effect
//! the host part of the software GPU produces when such a kernel completes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::code_object::{Argument, KernelSpec};

/// Name of the kernel that copies.
pub const COPY: &str = "__amd_rocclr_copyBuffer";
/// Name of the kernel that fills.
pub const FILL: &str = "__amd_rocclr_fillBufferAligned";

/// Arguments of [`COPY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CopyArguments {
    /// Source address.
    pub source: u64,
    /// Destination address.
    pub destination: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Arguments of [`FILL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FillArguments {
    /// Destination address.
    pub destination: u64,
    /// Size in bytes: a multiple of the pattern's length.
    pub bytes: u64,
    /// The pattern, in the low bytes.
    pub pattern: u32,
    /// Length of the pattern in bytes: 1, 2 or 4.
    pub pattern_bytes: u32,
}

/// Both kernels, for a code object.
#[must_use]
pub fn kernels() -> Vec<KernelSpec> {
    let argument = |offset, bytes, kind: &str| Argument {
        offset,
        bytes,
        kind: kind.to_owned(),
    };
    let buffer = |offset| argument(offset, 8, "global_buffer");
    let value = |offset, bytes| argument(offset, bytes, "by_value");
    vec![
        KernelSpec {
            name: COPY.to_owned(),
            arguments: vec![buffer(0), buffer(8), value(16, 8)],
        },
        KernelSpec {
            name: FILL.to_owned(),
            arguments: vec![buffer(0), value(8, 8), value(16, 4), value(20, 4)],
        },
    ]
}
