//! Reads a process directly, which may block on that process.

use std::{
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
};

use gputrace_files::kernel;
use rustix::io::Errno;

/// See [`crate::memory`].
pub(crate) fn memory(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let Some(at) = address.checked_add(done as u64) else {
            break;
        };
        let got = match copy(pid, at, rest) {
            Ok(0) | Err(Errno::FAULT | Errno::PERM | Errno::NOSYS) => {
                through_driver(pid, at, rest)?
            }
            Ok(got) => got,
            Err(errno) => return Err(errno.into()),
        };
        if got == 0 {
            break;
        }
        done += got;
    }
    Ok(done)
}

/// See [`crate::message::What::Places`]. Fails if there is no such process.
pub(crate) fn places(
    pid: u32,
    places: impl Iterator<Item = u64>,
    each: usize,
) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for place in places {
        let at = all.len() + 1;
        all.resize(at + each, 0);
        let got = memory(pid, place, all.get_mut(at..).unwrap_or_default())?;
        if let Some(is_read) = all.get_mut(at - 1) {
            *is_read = u8::from(got == each);
        }
    }
    Ok(all)
}

/// Reads `each` bytes at each of several places in a process, with one `process_vm_readv` if all of
/// them are readable; `None` for those that are not.
pub(crate) fn scattered(pid: u32, addresses: &[u64], each: usize) -> Vec<Option<Vec<u8>>> {
    let mut all = vec![0; addresses.len() * each];
    if copy_scattered(pid, addresses, each, &mut all) == Ok(all.len()) {
        return all
            .chunks_exact(each)
            .map(|bytes| Some(bytes.to_vec()))
            .collect();
    }
    let one = |address: &u64| {
        let mut bytes = vec![0; each];
        let got = memory(pid, *address, &mut bytes).unwrap_or(0);
        (got == each).then_some(bytes)
    };
    addresses.iter().map(one).collect()
}

/// Reads several ranges of the same length with one `process_vm_readv`, one after the other into
/// `buffer`.
fn copy_scattered(
    pid: u32,
    addresses: &[u64],
    each: usize,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let there: Result<Vec<libc::iovec>, Errno> = addresses
        .iter()
        .map(|address| range(*address, each))
        .collect();
    read_ranges(pid, &there?, buffer)
}

/// Reads one range with one `process_vm_readv`.
fn copy(pid: u32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    read_ranges(pid, &[range(address, buffer.len())?], buffer)
}

/// A range in another process's memory.
fn range(address: u64, length: usize) -> Result<libc::iovec, Errno> {
    let address = usize::try_from(address).map_err(|_| Errno::FAULT)?;
    Ok(libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: length,
    })
}

/// Reads ranges of a process with one `process_vm_readv`, one after the other into `buffer`.
fn read_ranges(pid: u32, there: &[libc::iovec], buffer: &mut [u8]) -> Result<usize, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    let here = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let count = libc::c_ulong::try_from(there.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes only to `here`, which is `buffer`; `there` has `count` ranges,
    // which the kernel checks and which belong to another process.
    let got = unsafe { libc::process_vm_readv(pid, &raw const here, 1, there.as_ptr(), count, 0) };
    usize::try_from(got)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Reads `/proc/PID/mem`; returns 0 where nothing is mapped, and for a process that has lost its
/// memory.
fn through_driver(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let memory = kernel::open(format!("/proc/{pid}/mem"))?;
    loop {
        return match memory.read_at(buffer, address) {
            Ok(got) => Ok(got),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR) => continue,
                Some(Errno::IO | Errno::FAULT | Errno::INVAL | Errno::OVERFLOW) => Ok(0),
                _ => Err(error),
            },
        };
    }
}

/// See [`crate::file`].
pub(crate) fn file(pid: u32, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    let file = kernel::open(format!("/proc/{pid}/{name}"))?;
    let mut bytes = Vec::new();
    if limit > 0 {
        match file.take(limit).read_to_end(&mut bytes) {
            // If an error follows after some bytes, those bytes are returned.
            Err(error) if bytes.is_empty() => return Err(error),
            _ => {}
        }
    }
    Ok(bytes)
}
