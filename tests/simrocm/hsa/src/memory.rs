//! Process memory that the GPU uses: mapped pages, and data about each allocation.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gputrace_simrocm_core::abi::AgentHandle;
use gputrace_simrocm_core::ffi::Untyped;

/// Size of a page in bytes.
pub(crate) const PAGE: u64 = 4096;

/// Maps zeroed private pages, like ROCr's userptr allocations, which other processes can read.
/// Children do not inherit them. `None` when there is no memory.
pub(crate) fn map(bytes: u64) -> Option<Untyped> {
    let length = usize::try_from(bytes.checked_next_multiple_of(PAGE)?.max(PAGE)).ok()?;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range has just been mapped.
    unsafe { libc::madvise(address, length, libc::MADV_DONTFORK) };
    Some(Untyped(address))
}

/// Unmaps pages.
pub(crate) fn unmap(address: u64, bytes: u64) {
    let Some(length) = bytes
        .checked_next_multiple_of(PAGE)
        .and_then(|bytes| usize::try_from(bytes).ok())
    else {
        return;
    };
    // SAFETY: only ranges from `map` are unmapped, once, when their owner no longer uses them.
    unsafe { libc::munmap(address as *mut _, length.max(4096)) };
}

/// How an allocation came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Allocated from a pool or region.
    Hsa,
    /// The program's own memory, pinned.
    Locked,
}

/// An allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) owner: AgentHandle,
    pub(crate) global_flags: u32,
    pub(crate) user_data: u64,
    /// Number of times it was pinned.
    locks: u32,
}

/// Every allocation, by address.
#[derive(Debug)]
pub(crate) struct Allocations(Mutex<BTreeMap<u64, Allocation>>);

/// The allocations of this process.
pub(crate) static ALLOCATIONS: Allocations = Allocations(Mutex::new(BTreeMap::new()));

impl Allocations {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Allocation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps memory for an owner.
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        owner: AgentHandle,
        global_flags: u32,
    ) -> Option<u64> {
        let address = map(bytes)?.address();
        let allocation = Allocation {
            address,
            bytes,
            kind: Kind::Hsa,
            owner,
            global_flags,
            user_data: 0,
            locks: 0,
        };
        self.lock().insert(address, allocation);
        Some(address)
    }

    /// Frees memory from [`allocate`](Self::allocate); returns false for any other memory.
    pub(crate) fn free(&self, address: u64) -> bool {
        let mut all = self.lock();
        match all.get(&address) {
            Some(found) if found.kind == Kind::Hsa => {
                let bytes = found.bytes;
                all.remove(&address);
                drop(all);
                unmap(address, bytes);
                true
            }
            _ => false,
        }
    }

    /// Pins the program's own memory.
    pub(crate) fn pin(&self, address: u64, bytes: u64, owner: AgentHandle) {
        let mut all = self.lock();
        let entry = all.entry(address).or_insert(Allocation {
            address,
            bytes,
            kind: Kind::Locked,
            owner,
            global_flags: 2,
            user_data: 0,
            locks: 0,
        });
        entry.bytes = entry.bytes.max(bytes);
        entry.locks += 1;
    }

    /// Undoes one [`pin`](Self::pin); returns false if there was none.
    pub(crate) fn unpin(&self, address: u64) -> bool {
        let mut all = self.lock();
        let Some(entry) = all.get_mut(&address).filter(|entry| entry.locks > 0) else {
            return false;
        };
        entry.locks -= 1;
        if entry.locks == 0 && entry.kind == Kind::Locked {
            all.remove(&address);
        }
        true
    }

    /// The allocation that contains an address.
    pub(crate) fn at(&self, address: u64) -> Option<Allocation> {
        let all = self.lock();
        let (_, found) = all.range(..=address).next_back()?;
        (address - found.address < found.bytes.max(1)).then_some(*found)
    }

    /// Stores a word of the program with an allocation; returns false if there is none.
    pub(crate) fn set_user_data(&self, address: u64, data: u64) -> bool {
        let mut all = self.lock();
        let found = all.range_mut(..=address).next_back();
        match found {
            Some((_, entry)) if address - entry.address < entry.bytes.max(1) => {
                entry.user_data = data;
                true
            }
            _ => false,
        }
    }
}
