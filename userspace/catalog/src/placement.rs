//! HSA's functions that decide where the memory behind a process's addresses is. Copies are told
//! their direction by it: the agents that a copy names need not be those of the memory.

use gputrace_abi::values::{Read, SHORT_MOST, what};

use crate::{
    by_name,
    memory::{Allocation, allocation},
};

use Placement::{
    Attach, Detach, Import, Interop, InteropEnd, Lock, Map, Owned, Register, Retain, Share, Unload,
    Unlock, Unmap,
};

/// Size of an `hsa_amd_ipc_memory_t`, bytes.
pub const IPC_HANDLE_SIZE: usize = 32;

/// Effect of a successful call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Allocates or frees memory, or a handle of memory, of a pool or region.
    Owned(Allocation),
    /// `(host_ptr, size, …)`: pins memory of the host. The address at which GPUs see it is stored
    /// through the argument word with this index.
    Lock(u8),
    /// `(host_ptr)`: ends a [`Lock`].
    Unlock,
    /// `(ptr, size)`: registers memory of the host.
    Register,
    /// `(ptr, len, handle*)`: names memory for other processes. The handle has
    /// [`IPC_HANDLE_SIZE`] bytes.
    Share,
    /// `(handle*, len, agents, agents*, ptr**)`: maps memory that another process has named. Its
    /// address is stored through the last argument.
    Attach,
    /// `(ptr)`: ends an [`Attach`].
    Detach,
    /// Stores a handle of memory whose place is not known through the argument word with this
    /// index.
    Import(u8),
    /// `(handle*, address)`: stores the handle of mapped memory through the first argument.
    Retain,
    /// `(address, size, offset, handle, flags)`: maps memory that a handle stands for.
    Map,
    /// `(address, size)`: ends a [`Map`].
    Unmap,
    /// `(agents, agents*, handle, flags, size*, ptr**, …)`: maps memory of another API.
    Interop,
    /// `(ptr)`: ends an [`Interop`].
    InteropEnd,
    /// Unloads code objects.
    Unload,
}

/// Functions that [`allocation`] does not have, sorted by name for binary search.
const FUNCTIONS: &[(&str, Placement)] = &[
    ("hsa_amd_interop_map_buffer", Interop),
    ("hsa_amd_interop_unmap_buffer", InteropEnd),
    ("hsa_amd_ipc_memory_attach", Attach),
    ("hsa_amd_ipc_memory_create", Share),
    ("hsa_amd_ipc_memory_detach", Detach),
    ("hsa_amd_memory_lock", Lock(4)),
    ("hsa_amd_memory_lock_to_pool", Lock(6)),
    ("hsa_amd_memory_unlock", Unlock),
    ("hsa_amd_vmem_import_shareable_handle", Import(1)),
    ("hsa_amd_vmem_map", Map),
    ("hsa_amd_vmem_retain_alloc_handle", Retain),
    ("hsa_amd_vmem_unmap", Unmap),
    ("hsa_executable_destroy", Unload),
    ("hsa_memory_deregister", Unlock),
    ("hsa_memory_register", Register),
];

/// What a function means for the places of memory; `None` if nothing.
#[must_use]
pub fn placement(name: &str) -> Option<Placement> {
    allocation(name)
        .map(Owned)
        .or_else(|| by_name(FUNCTIONS, name))
}

impl Placement {
    /// What must be read of a call beyond the results that it stores: the arguments alone do not
    /// say whose memory it is.
    #[must_use]
    pub(crate) const fn read(self) -> Option<Read> {
        let (word, what, bytes) = match self {
            Owned(Allocation::Allocate(_) | Allocation::VmemAllocate(_)) => {
                (0, what::AGENT, SHORT_MOST)
            }
            Share => (2, what::BYTES_AT_RETURN, IPC_HANDLE_SIZE),
            Attach => (0, what::BYTES, IPC_HANDLE_SIZE),
            _ => return None,
        };
        Some(Read {
            word,
            what,
            bytes: bytes as u16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Signature, read_plan, signature, word};

    /// The names of a function's arguments, and whether it stores something through them.
    fn arguments(name: &str) -> Vec<(&'static str, bool)> {
        let signature = signature(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        let arguments = signature.arguments.iter();
        arguments
            .map(|argument| (argument.name, argument.c_type.stored.is_some()))
            .collect()
    }

    #[test]
    fn arguments_are_where_the_headers_have_them() {
        assert!(FUNCTIONS.is_sorted_by_key(|(name, _)| name));
        for (name, expected) in FUNCTIONS {
            assert_eq!(placement(name), Some(*expected));
            let arguments = arguments(name);
            let called =
                |at: usize, expected: &str| assert_eq!(arguments[at].0, expected, "{name}");
            let stored = |at: usize| assert!(arguments[at].1, "{name}");
            match *expected {
                Owned(_) => unreachable!("{name} is in the table of allocations"),
                Lock(at) => {
                    called(0, "host_ptr");
                    called(1, "size");
                    stored(at.into());
                }
                Unlock => assert!(["host_ptr", "ptr"].contains(&arguments[0].0), "{name}"),
                Register => called(1, "size"),
                Share => called(2, "handle"),
                Attach => {
                    called(0, "handle");
                    called(1, "len");
                    stored(4);
                }
                Detach => called(0, "mapped_ptr"),
                Import(at) => stored(at.into()),
                Retain => {
                    stored(0);
                    called(1, "addr");
                }
                Map => {
                    called(1, "size");
                    called(3, "memory_handle");
                }
                Unmap => called(1, "size"),
                Interop => {
                    called(4, "size");
                    stored(4);
                    called(5, "ptr");
                    stored(5);
                }
                InteropEnd => called(0, "ptr"),
                Unload => called(0, "executable"),
            }
        }
        assert_eq!(placement("hsa_memory_free"), Some(Owned(Allocation::Free)));
        assert_eq!(placement("hsa_memory_copy"), None);
    }

    #[test]
    fn what_is_stored_is_read() {
        let reads = |name: &str, at: u8| {
            let signature = signature(name).expect("in the catalogue");
            let parameters = signature.parameters();
            let plan = read_plan(signature, &parameters);
            plan.reads
                .iter()
                .any(|read| (read.word, read.what) == (at, what::BYTES_AT_RETURN))
        };
        for (name, at) in [
            ("hsa_amd_memory_lock", 4),
            ("hsa_amd_memory_lock_to_pool", 6),
            ("hsa_amd_ipc_memory_attach", 4),
            ("hsa_amd_ipc_memory_create", 2),
            ("hsa_amd_vmem_import_shareable_handle", 1),
            ("hsa_amd_vmem_retain_alloc_handle", 0),
            ("hsa_amd_interop_map_buffer", 4),
            ("hsa_amd_interop_map_buffer", 5),
        ] {
            assert!(reads(name, at), "{name}");
        }
        // The result of a lock to a pool is passed on the stack.
        let lock = signature("hsa_amd_memory_lock_to_pool").map(Signature::parameters);
        let last = lock.as_ref().and_then(|lock| lock.last());
        assert_eq!(last.and_then(|last| word(last.at)), Some(6));
    }
}
