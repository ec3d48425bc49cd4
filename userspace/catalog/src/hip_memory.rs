//! HIP's functions that allocate memory and free it: what applications ask for. HIP asks HSA for less, and seldom, where it
//! has pools.

use gputrace_abi::values::{Read, what};

use crate::by_name;

use HipAllocation::{
    Allocate, AllocateArray, AllocateArray3D, AllocateExtent, AllocatePitched, AllocateUnsized,
    CreateArray, Free, Register, Reset,
};
use Kind::{Array, Device, Handle, Host, Managed, Pool, Registered};

/// What kind of memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Of the current GPU.
    Device,
    /// Of a pool, in a stream's order.
    Pool,
    /// That migrates.
    Managed,
    /// Of the host, pinned.
    Host,
    /// Of the host, which the program has allocated itself and HIP has pinned.
    Registered,
    /// An array or mipmapped array.
    Array,
    /// Memory without an address: it has a handle.
    Handle,
}

impl Kind {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Device => "device",
            Pool => "pool",
            Managed => "managed",
            Host => "host",
            Registered => "registered",
            Array => "array",
            Handle => "handle",
        }
    }
}

/// What a call does. Where memory is allocated, its address (or handle) is stored where the first argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HipAllocation {
    /// Allocates the second argument's bytes.
    Allocate(Kind),
    /// `(pointer*, pitch*, width, height)`: allocates rows of the bytes that are stored where the second argument points to.
    AllocatePitched,
    /// `(hipPitchedPtr*, hipExtent)`: the same with depth; pointer and pitch are the first words of the structure.
    AllocateExtent,
    /// `(array*, hipChannelFormatDesc*, width, height)`, in elements.
    AllocateArray,
    /// `(array*, hipChannelFormatDesc*, hipExtent)`, in elements.
    AllocateArray3D,
    /// `(array*, HIP_ARRAY_DESCRIPTOR*)`.
    CreateArray,
    /// An array of a size that is not found out.
    AllocateUnsized,
    /// Pins the second argument's bytes at the address that is the first.
    Register,
    /// Frees, unpins or releases what is at the address, or has the handle, that is the first argument.
    Free,
    /// Frees all that the current GPU has.
    Reset,
}

/// By name; in order, for binary search.
const FUNCTIONS: &[(&str, HipAllocation)] = &[
    ("hipArray3DCreate", AllocateUnsized),
    ("hipArrayCreate", CreateArray),
    ("hipArrayDestroy", Free),
    ("hipDeviceReset", Reset),
    ("hipExtMallocWithFlags", Allocate(Device)),
    ("hipFree", Free),
    ("hipFreeArray", Free),
    ("hipFreeAsync", Free),
    ("hipFreeHost", Free),
    ("hipFreeMipmappedArray", Free),
    ("hipHostAlloc", Allocate(Host)),
    ("hipHostFree", Free),
    ("hipHostMalloc", Allocate(Host)),
    ("hipHostRegister", Register),
    ("hipHostUnregister", Free),
    ("hipMalloc", Allocate(Device)),
    ("hipMalloc3D", AllocateExtent),
    ("hipMalloc3DArray", AllocateArray3D),
    ("hipMallocArray", AllocateArray),
    ("hipMallocAsync", Allocate(Pool)),
    ("hipMallocFromPoolAsync", Allocate(Pool)),
    ("hipMallocHost", Allocate(Host)),
    ("hipMallocManaged", Allocate(Managed)),
    ("hipMallocMipmappedArray", AllocateUnsized),
    ("hipMallocPitch", AllocatePitched),
    ("hipMemAllocHost", Allocate(Host)),
    ("hipMemAllocPitch", AllocatePitched),
    ("hipMemCreate", Allocate(Handle)),
    ("hipMemRelease", Free),
];

/// What a call of HIP's function does to memory; `None` if nothing.
#[must_use]
pub fn hip_allocation(name: &str) -> Option<HipAllocation> {
    by_name(FUNCTIONS, name)
}

impl HipAllocation {
    /// What of the memory, as far as the function alone tells; `None` for what frees it.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        match self {
            Allocate(kind) => Some(kind),
            AllocatePitched | AllocateExtent => Some(Device),
            AllocateArray | AllocateArray3D | CreateArray | AllocateUnsized => Some(Array),
            Register => Some(Registered),
            Free | Reset => None,
        }
    }

    /// A structure in memory without which the size is not known: the argument word that points to it, and the bytes
    /// that matter.
    #[must_use]
    pub(crate) const fn structure(self) -> Option<Read> {
        let (word, bytes) = match self {
            // `hipPitchedPtr`: pointer and pitch.
            AllocateExtent => (0, 16),
            // `hipChannelFormatDesc`: bits of x, y, z and w.
            AllocateArray | AllocateArray3D => (1, 16),
            // `HIP_ARRAY_DESCRIPTOR`: width, height, format and number of channels.
            CreateArray => (1, 24),
            _ => return None,
        };
        Some(Read {
            word,
            what: what::BYTES_AT_RETURN,
            bytes,
        })
    }
}

/// Bytes of a channel of an array (`hipArray_Format` of `driver_types.h`); `None` for a format that is not known.
#[must_use]
pub const fn format_bytes(format: u32) -> Option<u64> {
    match format {
        0x01 | 0x08 => Some(1),
        0x02 | 0x09 | 0x10 => Some(2),
        0x03 | 0x0a | 0x20 => Some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read_plan, signature};

    #[test]
    fn arguments_are_where_the_headers_have_them() {
        assert!(FUNCTIONS.is_sorted_by_key(|(name, _)| name));
        for (name, expected) in FUNCTIONS {
            assert_eq!(hip_allocation(name), Some(*expected));
            let signature =
                signature(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            let arguments = &signature.arguments;
            let stores = |at: usize| arguments[at].c_type.stored.is_some();
            let called = |at: usize, names: &[&str]| {
                assert!(
                    names.contains(&arguments[at].name),
                    "{name}: {}",
                    arguments[at].name
                );
            };
            match expected {
                Allocate(_) => {
                    assert!(stores(0), "{name}");
                    called(1, &["size", "sizeBytes"]);
                }
                AllocatePitched => {
                    assert!(stores(0) && stores(1), "{name}");
                    called(3, &["height"]);
                }
                AllocateExtent => called(1, &["extent"]),
                AllocateArray => {
                    assert!(stores(0), "{name}");
                    called(3, &["height"]);
                }
                AllocateArray3D => {
                    assert!(stores(0), "{name}");
                    called(2, &["extent"]);
                }
                CreateArray | AllocateUnsized => assert!(stores(0), "{name}"),
                Register => called(1, &["sizeBytes"]),
                Free => assert!(!arguments.is_empty() && !stores(0), "{name}"),
                Reset => assert!(arguments.is_empty(), "{name}"),
            }
            if let Some(structure) = expected.structure() {
                let plan = read_plan(signature, &signature.parameters());
                let is_it = |read: &Read| {
                    (read.word, read.what) == (structure.word, structure.what)
                        && read.bytes >= structure.bytes
                };
                assert_eq!(
                    plan.reads.iter().filter(|read| is_it(read)).count(),
                    1,
                    "{name}"
                );
            }
        }
        assert_eq!(hip_allocation("hsa_memory_allocate"), None);
    }
}
