//! The runtime's own list of what it has loaded.
//!
//! For debuggers ROCr keeps a list of loaded code objects, in the form in which dynamic linkers keep theirs
//! (`<link.h>`): libhsa-runtime64 exports `_amdgpu_r_debug`, a `struct r_debug`, whose `r_map` is the first
//! `struct link_map`. In each of them `l_addr` is the difference between the addresses in memory and those
//! in the code object, and `l_name` is its URI. Before and after each change the runtime calls a
//! function that is there to be noticed only, at the address `r_brk`, with `r_state` saying what it is about to do.
//!
//! The list is read while the process runs, and may change meanwhile. It is read again until nothing changed,
//! a few times; what is still in motion then is marked so.

use std::collections::HashSet;

use gputrace_target::{
    library::LibraryFile,
    process::{
        self, ProcessError,
        maps::{self, Mapping},
    },
};
use zerocopy::{
    FromBytes, Immutable, KnownLayout, Unaligned,
    little_endian::{I32, U64},
};

use crate::{
    memory::{Memory, MemoryError},
    uri::MAX_URI,
};

/// Exported name of the list.
const SYMBOL: &str = "_amdgpu_r_debug";
/// The library that exports it.
const LIBRARY: &str = "libhsa-runtime64";
/// Code objects of a process. Large frameworks load some hundreds.
const MAX_OBJECTS: usize = 1 << 16;
/// Text of all URIs together, bytes.
const MAX_TEXT: usize = 64 << 20;
/// How often a list that changes is read.
const ATTEMPTS: usize = 4;

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The process cannot be looked into.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Its memory cannot be read.
    #[error("cannot read the list of code objects: {0}")]
    Memory(#[from] MemoryError),
    /// It does not use HSA, or not yet.
    #[error("process {pid} has no {LIBRARY} mapped that exports {SYMBOL}")]
    NoRuntime {
        /// The process.
        pid: u32,
    },
}

/// What the runtime is doing to its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing.
    Consistent,
    /// A code object is being added.
    Adding,
    /// A code object is being removed.
    Removing,
}

/// The list of one runtime library in a process. There may be several: Python packages bring their own.
#[derive(Debug)]
pub struct Registry {
    /// The library that keeps it, for a probe.
    pub library: LibraryFile,
    /// Difference between addresses in memory and those in the library file.
    pub load_bias: u64,
    /// Where the list's head is.
    pub address: u64,
}

/// `struct r_debug`.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    version: I32,
    padding0: [u8; 4],
    map: U64,
    notify: U64,
    state: I32,
    padding1: [u8; 4],
    linker_base: U64,
}

/// `struct link_map`.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    load_delta: U64,
    name: U64,
    dynamic: U64,
    next: U64,
    previous: U64,
}

/// The beginning of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// `r_version`: 7 in ROCm 5.2, 10 in 6.2. 0 before `hsa_init`, in later releases.
    pub version: i32,
    /// `r_map`: the first entry, 0 if there is none.
    pub first: u64,
    /// `r_brk`: address of the function that the runtime calls before and after each change; 0 before
    /// `hsa_init`, in later releases.
    pub notify: u64,
    /// `r_state`.
    pub state: State,
}

/// A code object as the list has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Address of its entry.
    pub entry: u64,
    /// `l_addr`: difference between addresses in memory and those in the code object.
    pub load_delta: u64,
    /// `l_name`: its URI.
    pub uri: Vec<u8>,
}

/// The list as it was when it was read.
#[derive(Debug)]
pub struct Snapshot {
    /// Its beginning.
    pub head: Head,
    /// Loaded code objects, in the order of loading.
    pub objects: Vec<Listed>,
    /// Whether nothing moved while it was read. If not, it is to be read again after the next notification.
    pub settled: bool,
    /// Why the list ends early, if it does.
    pub damage: Option<Damage>,
}

/// Why a list cannot be followed to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// An entry or its URI cannot be read.
    #[error("an entry of the list of code objects cannot be read: {0}")]
    Memory(#[from] MemoryError),
    /// It goes in a circle.
    #[error("the list of code objects comes back to its entry at {0:#x}")]
    Circle(u64),
    /// It does not end.
    #[error("the list of code objects has more than {MAX_OBJECTS} entries or {MAX_TEXT} bytes of names")]
    TooLong,
}

impl Registry {
    /// The lists in a process, in order of address.
    ///
    /// # Errors
    /// [`RegistryError::NoRuntime`] if there is none, or why the libraries could not be examined: of several,
    /// the first reason, and only if none could be.
    pub fn find(pid: u32) -> Result<Vec<Self>, RegistryError> {
        let mut found = Vec::new();
        let mut refused = None;
        let process = match process::rocm_libraries(pid) {
            Err(ProcessError::NoRocmLibraries { .. }) => return Err(RegistryError::NoRuntime { pid }),
            other => other?,
        };
        let mappings = maps::of_process(pid).map_err(|source| ProcessError::Proc {
            path: format!("/proc/{pid}/maps").into(),
            source,
        })?;
        for mapped in process.libraries {
            let name = mapped.path.file_name().unwrap_or_default();
            if !name.to_string_lossy().starts_with(LIBRARY) {
                continue;
            }
            let library = match process::open_mapped(pid, &mapped) {
                Ok(library) => library,
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            };
            let Some(symbol) = library.elf().symbol(SYMBOL).map(|symbol| symbol.address) else {
                continue;
            };
            let same = |mapping: &&Mapping| (mapping.device, mapping.inode) == (mapped.device, mapped.inode);
            let mut biases: Vec<u64> = mappings
                .iter()
                .filter(same)
                .filter_map(|mapping| load_bias(&library, mapping))
                .collect();
            biases.sort_unstable();
            biases.dedup();
            // Loaded more than once into namespaces of their own (`dlmopen`), it has as many lists.
            let mut opened = Some(library);
            for load_bias in biases {
                let library = opened
                    .take()
                    .map_or_else(|| process::open_mapped(pid, &mapped), Ok)?;
                found.push(Self {
                    library,
                    load_bias,
                    address: load_bias.wrapping_add(symbol),
                });
            }
        }
        match (found.is_empty(), refused) {
            (true, Some(error)) => Err(error.into()),
            (true, None) => Err(RegistryError::NoRuntime { pid }),
            (false, _) => {
                found.sort_by_key(|registry| registry.address);
                Ok(found)
            }
        }
    }

    /// Reads the list's beginning.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn head(&self, memory: &impl Memory) -> Result<Head, MemoryError> {
        head(memory, self.address)
    }

    /// Reads the list.
    ///
    /// # Errors
    /// [`MemoryError`] if not even its beginning can be read.
    pub fn read(&self, memory: &impl Memory) -> Result<Snapshot, MemoryError> {
        read(memory, self.address)
    }

    /// File offset in [`Registry::library`] of the function that the runtime calls before and after each
    /// change: where a probe goes. `None` before the runtime has initialised itself, or if the process gives
    /// an address outside of the library's code.
    #[must_use]
    pub fn notification(&self, head: &Head) -> Option<u64> {
        let address = head.notify.checked_sub(self.load_bias)?;
        let (offset, _) = self.library.elf().code_at(address)?;
        Some(offset)
    }
}

/// Difference between the addresses of a mapping and those in the file, by a segment of code that it maps.
fn load_bias(library: &LibraryFile, mapping: &Mapping) -> Option<u64> {
    const PAGE: u64 = 4096;
    if !mapping.executable {
        return None;
    }
    let segment = library.elf().segments.iter().find(|segment| {
        // The kernel maps whole pages, so the mapping may begin before the segment.
        let begin = segment.offset & !(PAGE - 1);
        let end = segment.offset.saturating_add(segment.size);
        segment.executable && (begin..end).contains(&mapping.offset)
    })?;
    let address = segment
        .address
        .wrapping_add(mapping.offset)
        .wrapping_sub(segment.offset);
    Some(mapping.start.wrapping_sub(address))
}

fn head(memory: &impl Memory, address: u64) -> Result<Head, MemoryError> {
    let bytes: [u8; size_of::<RawHead>()] = memory.array(address)?;
    let raw: RawHead = zerocopy::transmute!(bytes);
    Ok(Head {
        version: raw.version.get(),
        first: raw.map.get(),
        notify: raw.notify.get(),
        state: match raw.state.get() {
            1 => State::Adding,
            2 => State::Removing,
            _ => State::Consistent,
        },
    })
}

/// Reads a list whose head is at an address, wherever it was found.
///
/// # Errors
/// [`MemoryError`] if not even its beginning can be read.
pub fn read(memory: &impl Memory, address: u64) -> Result<Snapshot, MemoryError> {
    let mut attempts = 0;
    let mut before: Option<Vec<Listed>> = None;
    loop {
        attempts += 1;
        let head = head(memory, address)?;
        let (objects, damage) = walk(memory, head.first);
        let after = self::head(memory, address)?;
        // While the runtime says that all is consistent, and says it again, nothing has begun in between,
        // unless it also ended; then the entries differ from those of the time before.
        let calm = head == after && head.state == State::Consistent && damage.is_none();
        let settled = calm && (before.as_ref() == Some(&objects) || objects.is_empty());
        if settled || attempts == ATTEMPTS {
            return Ok(Snapshot {
                head,
                objects,
                settled,
                damage,
            });
        }
        before = Some(objects);
    }
}

fn walk(memory: &impl Memory, first: u64) -> (Vec<Listed>, Option<Damage>) {
    let mut objects = Vec::new();
    let mut seen = HashSet::new();
    let mut text = 0;
    let mut entry = first;
    while entry != 0 {
        if !seen.insert(entry) {
            return (objects, Some(Damage::Circle(entry)));
        }
        if seen.len() > MAX_OBJECTS || text > MAX_TEXT {
            return (objects, Some(Damage::TooLong));
        }
        let raw: RawEntry = match memory.array::<{ size_of::<RawEntry>() }>(entry) {
            Ok(bytes) => zerocopy::transmute!(bytes),
            Err(error) => return (objects, Some(error.into())),
        };
        // An entry without a name is being removed, or is about to be filled.
        let name = raw.name.get();
        if name != 0 {
            match memory.c_string(name, MAX_URI) {
                Ok(uri) if uri.is_empty() => {}
                Ok(uri) => {
                    text += uri.len();
                    objects.push(Listed {
                        entry,
                        load_delta: raw.load_delta.get(),
                        uri,
                    });
                }
                Err(error) => return (objects, Some(error.into())),
            }
        }
        entry = raw.next.get();
    }
    (objects, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::testing::Fake;

    const BASE: u64 = 0x10_000;

    fn memory(bytes: Vec<u8>) -> Fake {
        Fake {
            parts: vec![(BASE, bytes)],
            ..Fake::default()
        }
    }

    /// A list of these URIs, and where each entry is.
    fn list(uris: &[&str]) -> (Fake, Vec<u64>) {
        let mut bytes = vec![0; 40];
        let mut entries = Vec::new();
        let mut link = 8;
        for (i, uri) in uris.iter().enumerate() {
            let name = BASE + bytes.len() as u64;
            bytes.extend(uri.bytes());
            bytes.push(0);
            let entry = BASE + bytes.len() as u64;
            bytes[link..link + 8].copy_from_slice(&entry.to_le_bytes());
            link = bytes.len() + 24;
            for word in [0x1000 * i as u64, name, 0, 0, 0] {
                bytes.extend(word.to_le_bytes());
            }
            entries.push(entry);
        }
        (memory(bytes), entries)
    }

    fn set(memory: &mut Fake, address: u64, word: u64) {
        let at = (address - BASE) as usize;
        memory.parts[0].1[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    #[test]
    fn a_list() {
        let (memory, entries) = list(&["file:///a", "memory://1#offset=0x10&size=4", ""]);
        let snapshot = read(&memory, BASE).unwrap();
        assert!(snapshot.settled && snapshot.damage.is_none());
        let uris: Vec<_> = snapshot.objects.iter().map(|object| &object.uri[..]).collect();
        assert_eq!(uris, [&b"file:///a"[..], b"memory://1#offset=0x10&size=4"]);
        assert_eq!(snapshot.objects[1].load_delta, 0x1000);
        assert_eq!(snapshot.objects[0].entry, entries[0]);
    }

    #[test]
    fn an_empty_list() {
        let (memory, _) = list(&[]);
        let snapshot = read(&memory, BASE).unwrap();
        assert!(snapshot.settled && snapshot.objects.is_empty());
        assert!(read(&memory, 7).is_err());
    }

    #[test]
    fn a_circle() {
        let (mut memory, entries) = list(&["file:///a", "file:///b"]);
        set(&mut memory, entries[1] + 24, entries[0]);
        let snapshot = read(&memory, BASE).unwrap();
        assert_eq!(snapshot.objects.len(), 2);
        assert!(!snapshot.settled);
        assert!(matches!(snapshot.damage, Some(Damage::Circle(at)) if at == entries[0]));
    }

    #[test]
    fn a_list_that_leads_nowhere() {
        let (mut memory, entries) = list(&["file:///a", "file:///b"]);
        set(&mut memory, entries[0] + 24, 0xdead_beef);
        let snapshot = read(&memory, BASE).unwrap();
        assert_eq!(snapshot.objects.len(), 1);
        assert!(matches!(snapshot.damage, Some(Damage::Memory(_))));
        set(&mut memory, entries[0] + 8, 0xdead_beef);
        assert!(read(&memory, BASE).unwrap().objects.is_empty());
    }

    #[test]
    fn a_list_that_is_changing() {
        let (mut memory, _) = list(&["file:///a"]);
        set(&mut memory, BASE + 24, 1);
        let snapshot = read(&memory, BASE).unwrap();
        assert_eq!((snapshot.head.state, snapshot.settled), (State::Adding, false));
        assert_eq!(snapshot.objects.len(), 1);
    }

    #[test]
    fn a_name_without_end() {
        let (mut memory, entries) = list(&["file:///a"]);
        let name = BASE + memory.parts[0].1.len() as u64;
        memory.parts[0].1.extend(vec![b'x'; MAX_URI + 10]);
        set(&mut memory, entries[0] + 8, name);
        let snapshot = read(&memory, BASE).unwrap();
        assert!(matches!(
            snapshot.damage,
            Some(Damage::Memory(MemoryError::Unterminated { .. }))
        ));
    }

    proptest! {
        #[test]
        fn any_memory(bytes in proptest::collection::vec(any::<u8>(), 40..400)) {
            let _ = read(&memory(bytes), BASE);
        }

        /// Words that look like addresses make the reader go everywhere.
        #[test]
        fn any_addresses(words in proptest::collection::vec(0..0x200_u64, 5..64)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| {
                (if *word < 4 { 0 } else { BASE + word }).to_le_bytes()
            }).collect();
            let memory = memory(bytes);
            let snapshot = read(&memory, BASE).unwrap();
            prop_assert!(snapshot.objects.len() <= 64 * 8);
            prop_assert!(memory.reads.get() < 100_000);
        }
    }
}
