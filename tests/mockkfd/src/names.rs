//! Names of kernels, from the code objects that the runtime has loaded into this process.
//!
//! libhsa-runtime64 exports their list as `_amdgpu_r_debug`, with the layout of glibc's `r_debug`
//! and `link_map`: each entry has a load address and a URI. The address of a kernel's descriptor is
//! the load address plus the value of the ELF symbol `<name>.kd`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use object::{Object, ObjectSymbol};

/// Names by address of the kernel descriptor.
#[derive(Debug, Default)]
pub(crate) struct KernelNames {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    names: HashMap<u64, Arc<str>>,
    /// Code objects that have been read: load address and URI.
    seen: HashSet<(u64, String)>,
}

/// Maximum number of bytes read for a URI.
const MAX_URI: usize = 4096;
/// More code objects than any program has; ends the walk along a list that is being changed.
const MAX_OBJECTS: usize = 100_000;

impl KernelNames {
    /// The name of a kernel.
    pub(crate) fn of(&self, kernel_object: u64) -> Option<Arc<str>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = known.names.get(&kernel_object) {
            return Some(name.clone());
        }
        for (base, uri) in loaded() {
            if known.seen.insert((base, uri.clone())) {
                for (name, value) in contents(&uri).map(|elf| kernels(&elf)).unwrap_or_default() {
                    known.names.insert(base.wrapping_add(value), name.into());
                }
            }
        }
        known.names.get(&kernel_object).cloned()
    }

    /// Forgets freed memory, where other code may be loaded later.
    pub(crate) fn forget(&self, address: u64, bytes: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known
            .names
            .keys()
            .any(|kernel| (address..address.saturating_add(bytes)).contains(kernel))
        {
            *known = Known::default();
        }
    }
}

/// Address of the list; 0 while there is none.
fn list() -> u64 {
    let name = c"_amdgpu_r_debug";
    // SAFETY: looks up a symbol by a valid name.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !global.is_null() {
        return global as u64;
    }
    // A plug-in that a program loads privately brings the runtime with it, whose symbols are then
    // not global.
    // SAFETY: a valid name; this does not load the library.
    let runtime = unsafe {
        libc::dlopen(
            c"libhsa-runtime64.so.1".as_ptr(),
            libc::RTLD_NOLOAD | libc::RTLD_LAZY,
        )
    };
    if runtime.is_null() {
        return 0;
    }
    // SAFETY: the library is loaded, and stays loaded by its user.
    let local = unsafe { libc::dlsym(runtime, name.as_ptr()) };
    // SAFETY: as above; drops the reference taken for the lookup.
    unsafe { libc::dlclose(runtime) };
    local as u64
}

/// The loaded code objects: load address and URI.
fn loaded() -> Vec<(u64, String)> {
    let list = list();
    let mut objects = Vec::new();
    // r_debug: version (4 bytes and padding), head of the list.
    let mut entry = if list == 0 {
        None
    } else {
        memory::word(list + 8)
    };
    while let Some(at) = entry.filter(|at| *at != 0 && objects.len() < MAX_OBJECTS) {
        // link_map: load address, name, dynamic section, next.
        let Some((base, name)) = memory::word(at).zip(memory::word(at + 8)) else {
            break;
        };
        objects.extend(memory::text(name, MAX_URI).map(|uri| (base, uri)));
        entry = memory::word(at + 24);
    }
    objects
}

/// The bytes of a code object: `file://PATH[#offset=N&size=N]` or `memory://PID#offset=0xN&size=N`.
fn contents(uri: &str) -> Option<Vec<u8>> {
    let (place, fragment) = uri.split_once('#').unwrap_or((uri, ""));
    let number = |key: &str| {
        let text = fragment
            .split('&')
            .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let (offset, size) = (number("offset"), number("size"));
    if place.starts_with("memory://") {
        return memory::bytes(offset?, usize::try_from(size?).ok()?);
    }
    let path = unescape(place.strip_prefix("file://")?)?;
    let file = std::fs::read(Path::new(&path)).ok()?;
    let start = usize::try_from(offset.unwrap_or(0)).ok()?;
    let rest = file.get(start..)?;
    let length = size.map_or(Some(rest.len()), |size| usize::try_from(size).ok())?;
    rest.get(..length).map(<[u8]>::to_vec)
}

/// Decodes percent-encoding such as `%20`.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                u8::from_str_radix(std::str::from_utf8(&[*high, *low]).ok()?, 16).ok()?
            }
            _ => *first,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Kernels of a code object: their names and the values of their symbols.
fn kernels(elf: &[u8]) -> Vec<(String, u64)> {
    let Ok(file) = object::File::parse(elf) else {
        return Vec::new();
    };
    file.symbols()
        .chain(file.dynamic_symbols())
        .filter_map(|symbol| {
            Some((
                symbol.name().ok()?.strip_suffix(".kd")?.to_owned(),
                symbol.address(),
            ))
        })
        .collect()
}

/// Reads this process's memory through the kernel, which returns an error where a plain read would
/// crash: the runtime may be changing the list.
mod memory {
    /// Reads bytes; `None` unless all of them are there.
    pub(super) fn bytes(address: u64, length: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0_u8; length];
        (read(address, &mut buffer) == length).then_some(buffer)
    }

    /// Reads a 64-bit word.
    pub(super) fn word(address: u64) -> Option<u64> {
        let mut buffer = [0; 8];
        (read(address, &mut buffer) == 8).then(|| u64::from_ne_bytes(buffer))
    }

    /// Reads a C string of at most `limit` bytes.
    pub(super) fn text(address: u64, limit: usize) -> Option<String> {
        let mut buffer = vec![0; limit];
        let got = read(address, &mut buffer);
        let end = buffer.get(..got)?.iter().position(|byte| *byte == 0)?;
        buffer.truncate(end);
        String::from_utf8(buffer).ok()
    }

    /// Reads as much as possible, page by page, because the string may end just before a gap.
    fn read(address: u64, buffer: &mut [u8]) -> usize {
        const PAGE: usize = 4096;
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = address.wrapping_add(done as u64) as usize;
            let step = rest.len().min(PAGE - at % PAGE);
            let here = libc::iovec {
                iov_base: rest.as_mut_ptr().cast(),
                iov_len: step,
            };
            let there = libc::iovec {
                iov_base: at as *mut _,
                iov_len: step,
            };
            let own = std::process::id().cast_signed();
            // SAFETY: `here` is inside the buffer; `there` is only read, by the kernel, which
            // checks it.
            let got =
                unsafe { libc::process_vm_readv(own, &raw const here, 1, &raw const there, 1, 0) };
            match usize::try_from(got) {
                Ok(got) if got > 0 => done += got,
                _ => break,
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_file_uris_are_read() {
        let data = b"0123456789".to_vec();
        let uri = format!("memory://1#offset={:#x}&size=4", data.as_ptr() as u64 + 3);
        assert_eq!(contents(&uri).as_deref(), Some(&b"3456"[..]));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b");
        std::fs::write(&path, &data).unwrap();
        let uri = format!("file://{}/a%20b", directory.path().display());
        assert_eq!(contents(&uri).as_deref(), Some(&data[..]));
        assert_eq!(
            contents(&format!("{uri}#offset=8&size=2")).as_deref(),
            Some(&b"89"[..])
        );
        assert_eq!(contents(&format!("{uri}#offset=8&size=3")), None);
        assert_eq!(contents("memory://1#offset=0x10&size=4"), None);
        assert_eq!(contents("nonsense"), None);
    }

    #[test]
    fn nothing_is_known_without_a_runtime() {
        assert_eq!(KernelNames::default().of(0x1000), None);
        assert!(kernels(b"not an ELF file").is_empty());
    }
}
