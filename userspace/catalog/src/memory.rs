//! HSA's functions that allocate and free memory, and for which rocprofiler-sdk makes records.

use crate::by_name;

use Allocation::{Allocate, Free, VmemAllocate, VmemFree};

/// Effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// Allocates memory in the pool or region that is the first argument; the second one is the
    /// size in bytes. The address is stored through the argument word with this index.
    Allocate(u8),
    /// The same for memory without an address, identified by a handle.
    VmemAllocate(u8),
    /// Frees the memory at the address in the first argument.
    Free,
    /// Releases the handle in the first argument.
    VmemFree,
}

/// Functions, sorted by name for binary search.
const FUNCTIONS: &[(&str, Allocation)] = &[
    ("hsa_amd_memory_pool_allocate", Allocate(3)),
    ("hsa_amd_memory_pool_free", Free),
    ("hsa_amd_vmem_handle_create", VmemAllocate(4)),
    ("hsa_amd_vmem_handle_release", VmemFree),
    ("hsa_memory_allocate", Allocate(2)),
    ("hsa_memory_free", Free),
];

impl Allocation {
    /// Name of the operation in rocprofiler-sdk.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Allocate(_) => "MEMORY_ALLOCATION_ALLOCATE",
            VmemAllocate(_) => "MEMORY_ALLOCATION_VMEM_ALLOCATE",
            Free => "MEMORY_ALLOCATION_FREE",
            VmemFree => "MEMORY_ALLOCATION_VMEM_FREE",
        }
    }
}

/// Effect of a function on memory; `None` if it has none.
#[must_use]
pub fn allocation(name: &str) -> Option<Allocation> {
    by_name(FUNCTIONS, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature;

    #[test]
    fn arguments_are_where_the_headers_have_them() {
        assert!(FUNCTIONS.is_sorted_by_key(|(name, _)| name));
        for (name, expected) in FUNCTIONS {
            assert_eq!(allocation(name), Some(*expected));
            let signature =
                signature(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            if let Allocate(word) | VmemAllocate(word) = expected {
                assert_eq!(signature.arguments[1].name, "size");
                assert!(
                    signature.arguments[usize::from(*word)]
                        .c_type
                        .stored
                        .is_some(),
                    "{name}"
                );
            }
        }
        assert_eq!(allocation("hipMalloc"), None);
    }
}
