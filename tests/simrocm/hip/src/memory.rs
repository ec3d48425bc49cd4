//! Memory that HIP allocated or registered, and its location.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use gputrace_simrocm_core::ffi::Untyped;

use crate::device::{self, Device, allocate, system};
use crate::error::{Error, Hip, check};
use crate::hsa;

/// Location of memory. Memory that HIP does not know is pageable host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a device.
    Device(usize),
    /// Pinned host memory.
    Host,
    /// Visible to host and devices (`hipMallocManaged`).
    Managed,
    /// The program's own memory, registered.
    Registered,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: usize,
    place: Place,
    flags: u32,
}

static ALL: RwLock<BTreeMap<u64, Allocation>> = RwLock::new(BTreeMap::new());

/// The location of an address; `None` for pageable memory.
pub(crate) fn place(address: u64) -> Option<Place> {
    find(address).map(|(_, found)| found.place)
}

fn find(address: u64) -> Option<(u64, Allocation)> {
    let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
    let (start, found) = all.range(..=address).next_back()?;
    (address - start < found.bytes.max(1) as u64).then_some((*start, *found))
}

/// Start, bytes, location and flags of the allocation that contains an address.
pub(crate) fn describe(address: u64) -> Option<(u64, usize, Place, u32)> {
    find(address).map(|(start, found)| (start, found.bytes, found.place, found.flags))
}

fn remember(address: u64, bytes: usize, place: Place, flags: u32) {
    let allocation = Allocation {
        bytes,
        place,
        flags,
    };
    ALL.write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(address, allocation);
}

fn forget(address: u64, wanted: impl Fn(Place) -> bool) -> Option<Place> {
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    let place = all.get(&address)?.place;
    if wanted(place) {
        all.remove(&address);
        Some(place)
    } else {
        None
    }
}

/// Allocates device memory; 0 for 0 bytes.
pub(crate) fn on_device(device: &Device, bytes: usize) -> Hip<u64> {
    if bytes == 0 {
        return Ok(0);
    }
    if bytes as u64 > device.memory_bytes {
        return Err(Error::OUT_OF_MEMORY);
    }
    let address = allocate(device.pool, bytes)?;
    remember(address, bytes, Place::Device(device.index), 0);
    Ok(address)
}

/// Allocates pinned or managed memory.
pub(crate) fn on_host(bytes: usize, place: Place, flags: u32) -> Hip<u64> {
    if bytes == 0 {
        return Ok(0);
    }
    let address = allocate(system()?.host_pool, bytes)?;
    remember(address, bytes, place, flags);
    Ok(address)
}

/// Frees memory from [`on_device`] or [`on_host`], after all work has ended.
pub(crate) fn free(address: u64) -> Hip {
    if address == 0 {
        return Ok(());
    }
    if place(address).is_none() {
        return Err(Error::INVALID_VALUE);
    }
    for device in &system()?.devices {
        crate::stream::synchronize_device(device)?;
    }
    forget(address, |place| place != Place::Registered).ok_or(Error::INVALID_VALUE)?;
    check(hsa::hsa_amd_memory_pool_free(Untyped::at(address)))
}

/// Pins memory of the program.
pub(crate) fn register(memory: Untyped, bytes: usize, flags: u32) -> Hip {
    if memory.address() == 0 || bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    if place(memory.address()).is_some() {
        return Err(Error::ALREADY_REGISTERED);
    }
    let mut at = 0;
    let agent = device::current()?.agent;
    check(hsa::hsa_amd_memory_lock_to_pool(
        memory,
        bytes,
        &agent,
        1,
        system()?.host_pool,
        0,
        &mut at,
    ))?;
    remember(memory.address(), bytes, Place::Registered, flags);
    Ok(())
}

/// Undoes [`register`].
pub(crate) fn unregister(memory: Untyped) -> Hip {
    let address = memory.address();
    forget(address, |place| place == Place::Registered).ok_or(Error::NOT_REGISTERED)?;
    check(hsa::hsa_amd_memory_unlock(memory))
}

/// Bytes in use on a device.
pub(crate) fn used(device: &Device) -> u64 {
    let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
    let own = all
        .values()
        .filter(|one| one.place == Place::Device(device.index));
    own.map(|one| one.bytes as u64).sum()
}
