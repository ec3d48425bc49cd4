//! HIP's functions that allocate and free memory on behalf of applications. HIP itself requests
//! less memory from HSA, and less often, where it has pools.

use gputrace_abi::values::{Read, what};

use crate::by_name;

use HipAllocation::{
    Allocate, AllocateArray, AllocateArray3D, AllocateExtent, AllocatePitched, AllocateUnsized,
    CreateArray, Free, Register, Reset,
};
use Kind::{Array, Device, Handle, Host, Managed, Pool, Registered};

/// Kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Memory of the current GPU.
    Device,
    /// Memory of a pool, allocated in stream order.
    Pool,
    /// Managed memory, which migrates.
    Managed,
    /// Pinned host memory.
    Host,
    /// Host memory that the program has allocated itself and HIP has pinned.
    Registered,
    /// An array or mipmapped array.
    Array,
    /// Memory without an address, identified by a handle.
    Handle,
}

impl Kind {
    /// Name for people.
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

/// Effect of a call. When memory is allocated, its address (or handle) is stored through the first
/// argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HipAllocation {
    /// Allocates as many bytes as the second argument says.
    Allocate(Kind),
    /// `(pointer*, pitch*, width, height)`: allocates rows; their size in bytes is stored through
    /// the second argument.
    AllocatePitched,
    /// `(hipPitchedPtr*, hipExtent)`: the same with depth; pointer and pitch are the first words of
    /// the structure.
    AllocateExtent,
    /// `(array*, hipChannelFormatDesc*, width, height)`; the size is given in elements.
    AllocateArray,
    /// `(array*, hipChannelFormatDesc*, hipExtent)`; the size is given in elements.
    AllocateArray3D,
    /// `(array*, HIP_ARRAY_DESCRIPTOR*)`.
    CreateArray,
    /// Allocates an array whose size is not determined.
    AllocateUnsized,
    /// Pins memory at the address in the first argument; the second one is the size in bytes.
    Register,
    /// Frees, unpins or releases the memory whose address or handle is the first argument.
    Free,
    /// Frees all memory of the current GPU.
    Reset,
}

/// Functions, sorted by name for binary search.
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

/// Effect of a HIP function on memory; `None` if it has none.
#[must_use]
pub fn hip_allocation(name: &str) -> Option<HipAllocation> {
    by_name(FUNCTIONS, name)
}

impl HipAllocation {
    /// Kind of the memory, as far as the function determines it; `None` for functions that free
    /// memory.
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

    /// The structure in memory that is needed to know the size: the argument word that points to
    /// it, and the number of bytes needed.
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

/// Bytes per channel of an array (`hipArray_Format` of `driver_types.h`); `None` for an unknown
/// format.
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
