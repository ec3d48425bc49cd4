//! The runtime's own kernels: copies and fills done by shaders.
//!
//! The real runtime compiles them when it starts; here they are an empty code object whose effect the
//! software GPU's host brings about when such a kernel completes.

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
    /// From.
    pub source: u64,
    /// To.
    pub destination: u64,
    /// How much.
    pub bytes: u64,
}

/// Arguments of [`FILL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FillArguments {
    /// To.
    pub destination: u64,
    /// How much: a multiple of the pattern's length.
    pub bytes: u64,
    /// What to fill with; the low bytes count.
    pub pattern: u32,
    /// Bytes of the pattern: 1, 2 or 4.
    pub pattern_bytes: u32,
}

/// Both kernels, to be written into a code object.
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
