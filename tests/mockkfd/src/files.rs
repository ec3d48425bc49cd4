//! The two files behind the device nodes, and the mock's own mappings of them.
//!
//! `/dev/kfd` and `/dev/dri/renderD*` are opened as duplicates of sparse memory files, so the
//! program's own `mmap` of an "mmap offset" maps their pages without further help.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Size of each file in bytes. They are sparse: only touched pages cost memory.
const FILE_BYTES: u64 = 1 << 40;

/// A sparse memory file in place of a device node.
#[derive(Debug)]
pub(crate) struct DeviceFile {
    fd: OwnedFd,
    device: u64,
    inode: u64,
}

impl DeviceFile {
    pub(crate) fn new(name: &CStr) -> Result<Self, Errno> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, FILE_BYTES)?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self {
            fd,
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// A descriptor for the program.
    pub(crate) fn open(&self) -> Result<RawFd, Errno> {
        use std::os::fd::IntoRawFd;
        // The program closes it.
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map(IntoRawFd::into_raw_fd)
    }

    /// Whether a descriptor of the program refers to this file.
    pub(crate) fn is(&self, fd: RawFd) -> bool {
        if fd < 0 {
            return false;
        }
        // SAFETY: the descriptor belongs to the program, which is making the call with it; a closed
        // one gives EBADF.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        rustix::fs::fstat(fd)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }

    /// Maps a range for the mock.
    pub(crate) fn map(&self, offset: u64, bytes: u64) -> Result<Mapping, Errno> {
        let length = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                flags,
                self.fd.as_fd(),
                offset,
            )
        }?;
        Ok(Mapping {
            address: address as u64,
            length,
        })
    }

    /// Frees the pages of a range, which then reads as zeros.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Failure only costs memory.
        let _ = rustix::fs::fallocate(&self.fd, flags, offset, bytes);
    }
}

/// A mapping that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: u64,
    length: usize,
}

impl Mapping {
    /// The address of the mapping.
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    /// Fills it with 64-bit words; its length is a multiple of the page size.
    pub(crate) fn fill_u64(&self, value: u64) {
        for offset in (0..self.length).step_by(8) {
            let cell = (self.address as usize + offset) as *mut u64;
            // SAFETY: inside the mapping, aligned, and nothing else refers to the mapping yet.
            unsafe { cell.write(value) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this structure owns the mapping, which `DeviceFile::map` created.
        let _ = unsafe { rustix::mm::munmap(self.address as *mut _, self.length) };
    }
}

/// Reads or writes structures at addresses the program passed to an ioctl.
pub(crate) mod user {
    use rustix::io::Errno;
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    /// Reads one structure.
    pub(crate) fn read<T: FromBytes>(address: u64) -> Result<T, Errno> {
        if address == 0 {
            return Err(Errno::FAULT);
        }
        // SAFETY: the program passed the address for this purpose; unaligned access is allowed
        // here, and any bytes are a valid T.
        Ok(unsafe { (address as *const T).read_unaligned() })
    }

    /// Writes one structure.
    pub(crate) fn write<T: IntoBytes + Immutable>(address: u64, value: T) -> Result<(), Errno> {
        if address == 0 {
            return Err(Errno::FAULT);
        }
        // SAFETY: as for `read`; the program expects the structure to be written.
        unsafe { (address as *mut T).write_unaligned(value) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_recognised_and_share_pages() {
        let file = DeviceFile::new(c"test").unwrap();
        let other = DeviceFile::new(c"other").unwrap();
        let fd = file.open().unwrap();
        assert!(file.is(fd) && !other.is(fd) && !file.is(-1));
        let (first, second) = (
            file.map(1 << 32, 8192).unwrap(),
            file.map(1 << 32, 8192).unwrap(),
        );
        first.fill_u64(7);
        assert_eq!(user::read::<u64>(second.address() + 8184), Ok(7));
        file.punch(1 << 32, 8192);
        assert_eq!(user::read::<u64>(second.address()), Ok(0));
        assert_eq!(user::read::<u64>(0), Err(Errno::FAULT));
    }
}
