//! GPU memory: allocations by KFD handle, and the translation of GPU addresses.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock};

use gputrace_softgpu::bus::Translate;
use rustix::io::Errno;

use crate::files::{DeviceFile, Mapping};
use crate::uapi::memory_flag;

/// All allocations of a process.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last_handle: u64,
    /// Next free offset in the VRAM file. Offsets are never reused: the file is sparse and large
    /// enough.
    next_offset: u64,
    by_handle: HashMap<u64, Allocation>,
    /// Host memory for GPU address ranges where the two addresses differ.
    by_address: BTreeMap<u64, Range>,
    used: HashMap<u32, u64>,
}

#[derive(Debug)]
struct Allocation {
    gpu_id: u32,
    address: u64,
    bytes: u64,
    vram: bool,
    file_offset: Option<u64>,
    /// The mock's own mapping: with a small BAR, the program maps its VRAM without access.
    shadow: Option<Mapping>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    handle: u64,
    bytes: u64,
    host: u64,
}

/// Parameters of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) gpu_id: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    /// The user's address, for USERPTR.
    pub(crate) user: u64,
}

/// KFD handle and mmap offset of a new allocation.
pub(crate) type Given = (u64, u64);

impl Allocations {
    /// Allocates VRAM or GTT memory from `file`, or registers memory of the program (USERPTR).
    ///
    /// `limit` is the size of the GPU's VRAM in bytes.
    pub(crate) fn allocate(
        &self,
        file: &DeviceFile,
        request: &Request,
        limit: u64,
    ) -> Result<Given, Errno> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Request {
            gpu_id,
            address,
            bytes,
            flags,
            user,
        } = *request;
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        let vram = flags & memory_flag::VRAM != 0;
        let used = table.used.get(&gpu_id).copied().unwrap_or(0);
        if vram && used.saturating_add(bytes) > limit {
            return Err(Errno::NOMEM);
        }
        table.last_handle += 1;
        let handle = u64::from(gpu_id) << 32 | table.last_handle;
        let (host, offset, shadow) = if flags & memory_flag::USERPTR != 0 {
            (user, None, None)
        } else {
            let offset = table.next_offset;
            let shadow = file.map(offset, bytes)?;
            table.next_offset += bytes.next_multiple_of(1 << 16);
            (shadow.address(), Some(offset), Some(shadow))
        };
        if host != address {
            table.by_address.insert(
                address,
                Range {
                    handle,
                    bytes,
                    host,
                },
            );
        }
        if vram {
            table.used.insert(gpu_id, used + bytes);
        }
        table.by_handle.insert(
            handle,
            Allocation {
                gpu_id,
                address,
                bytes,
                vram,
                file_offset: offset,
                shadow,
            },
        );
        Ok((handle, offset.unwrap_or(user)))
    }

    /// Frees an allocation. Returns its address range.
    pub(crate) fn free(&self, file: &DeviceFile, handle: u64) -> Result<(u64, u64), Errno> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Allocation {
            gpu_id,
            address,
            bytes,
            vram,
            file_offset,
            shadow,
        } = table.by_handle.remove(&handle).ok_or(Errno::INVAL)?;
        if table
            .by_address
            .get(&address)
            .is_some_and(|range| range.handle == handle)
        {
            table.by_address.remove(&address);
        }
        if vram && let Some(used) = table.used.get_mut(&gpu_id) {
            *used = used.saturating_sub(bytes);
        }
        drop(shadow);
        if let Some(offset) = file_offset {
            file.punch(offset, bytes);
        }
        Ok((address, bytes))
    }

    /// Whether a handle is known.
    pub(crate) fn has(&self, handle: u64) -> bool {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_handle
            .contains_key(&handle)
    }

    /// Number of VRAM bytes in use on a GPU.
    pub(crate) fn used(&self, gpu_id: u32) -> u64 {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .used
            .get(&gpu_id)
            .copied()
            .unwrap_or(0)
    }
}

impl Translate for Allocations {
    fn translate(&self, address: u64, _bytes: u64) -> u64 {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        match table.by_address.range(..=address).next_back() {
            Some((start, range)) if address - start < range.bytes => range.host + (address - start),
            _ => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(address: u64, bytes: u64, flags: u32, user: u64) -> Request {
        Request {
            gpu_id: 7,
            address,
            bytes,
            flags,
            user,
        }
    }

    #[test]
    fn addresses_translate_inside_an_allocation_only() {
        let file = DeviceFile::new(c"test").unwrap();
        let allocations = Allocations::default();
        let vram = request(0x10_0000, 8192, memory_flag::VRAM, 0);
        let (handle, _) = allocations.allocate(&file, &vram, 1 << 20).unwrap();
        let user = request(0x20_0000, 4096, memory_flag::USERPTR, 0x90_0000);
        allocations.allocate(&file, &user, 1 << 20).unwrap();
        let translate = |address| allocations.translate(address, 8);
        assert_ne!(translate(0x10_1000), 0x10_1000);
        assert_eq!(translate(0x10_1fff) - translate(0x10_0000), 0x1fff);
        assert_eq!(translate(0x10_2000), 0x10_2000);
        assert_eq!(translate(0x20_0010), 0x90_0010);
        assert_eq!((allocations.used(7), handle >> 32), (8192, 7));
        assert_eq!(allocations.free(&file, handle), Ok((0x10_0000, 8192)));
        assert_eq!((translate(0x10_1000), allocations.used(7)), (0x10_1000, 0));
        assert_eq!(allocations.free(&file, handle), Err(Errno::INVAL));
    }

    #[test]
    fn vram_has_an_end() {
        let file = DeviceFile::new(c"test").unwrap();
        let allocations = Allocations::default();
        let half = request(0x10_0000, 1 << 19, memory_flag::VRAM, 0);
        allocations.allocate(&file, &half, 1 << 20).unwrap();
        allocations.allocate(&file, &half, 1 << 20).unwrap();
        assert_eq!(
            allocations.allocate(&file, &half, 1 << 20),
            Err(Errno::NOMEM)
        );
        let gtt = Request {
            flags: memory_flag::GTT,
            ..half
        };
        assert!(allocations.allocate(&file, &gtt, 1 << 20).is_ok());
    }
}
