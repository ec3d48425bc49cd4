//! The runtime's own list of loaded code objects.
//!
//! For debuggers, ROCr keeps a list of loaded code objects in the form of the dynamic linker's list
//! (`<link.h>`): libhsa-runtime64 exports `_amdgpu_r_debug`, a `struct r_debug`, whose `r_map` is
//! the first `struct link_map`. In each entry, `l_addr` is the difference between addresses in
//! memory and in the code object, and `l_name` is its URI. Before and after each change, the
//! runtime calls a function at the address `r_brk` that exists only to be noticed; `r_state` says
//! what it is about to do.
//!
//! [`crate::chain`] follows the list while the process runs and changes it.

use gputrace_tracee::{
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

use crate::memory::{Memory, MemoryError};

/// Exported name of the list.
const SYMBOL: &str = "_amdgpu_r_debug";
/// The library that exports it.
const LIBRARY: &str = "libhsa-runtime64";
/// Maximum number of code objects per process. Large frameworks load some hundreds.
pub(crate) const MAX_OBJECTS: usize = 1 << 16;
/// Maximum size of all URIs together, bytes.
pub(crate) const MAX_TEXT: usize = 64 << 20;
/// Why a list was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The process cannot be inspected.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Its memory cannot be read.
    #[error("cannot read the list of code objects: {0}")]
    Memory(#[from] MemoryError),
    /// The process does not use HSA, or not yet.
    #[error("process {pid} has no {LIBRARY} mapped that exports {SYMBOL}")]
    NoRuntime {
        /// Process id.
        pid: u32,
    },
}

/// The runtime's current operation on its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// None.
    Consistent,
    /// A code object is being added.
    Adding,
    /// A code object is being removed.
    Removing,
}

/// The list of one runtime library in a process. There may be several: Python packages contain
/// their own.
#[derive(Debug)]
pub struct Registry {
    /// The library that keeps the list; needed for a probe.
    pub library: LibraryFile,
    /// Difference between addresses in memory and in the library file.
    pub load_bias: u64,
    /// Address of the list's head.
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

/// The head of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// `r_version`: 7 in ROCm 5.2, 10 in 6.2. In later releases, 0 before `hsa_init`.
    pub version: i32,
    /// `r_map`: address of the first entry, 0 if there is none.
    pub first: u64,
    /// `r_brk`: address of the function that the runtime calls before and after each change; in
    /// later releases, 0 before `hsa_init`.
    pub notify: u64,
    /// `r_state`.
    pub state: State,
}

/// An entry of the list: a loaded code object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Address of its entry.
    pub entry: u64,
    /// `l_addr`: difference between addresses in memory and in the code object.
    pub load_delta: u64,
    /// `l_name`: its URI.
    pub uri: Vec<u8>,
}

/// Why a list cannot be followed to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// An entry or its URI cannot be read.
    #[error("an entry of the list of code objects cannot be read: {0}")]
    Memory(#[from] MemoryError),
    /// The list is circular.
    #[error("the list of code objects loops back to its entry at {0:#x}")]
    Circle(u64),
    /// The list is too long.
    #[error(
        "the list of code objects has more than {MAX_OBJECTS} entries or {MAX_TEXT} bytes of names"
    )]
    TooLong,
}

impl Registry {
    /// Finds the lists in a process, in order of address.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoRuntime`] if there is none. If none of the libraries could be examined,
    /// the first reason.
    pub fn find(pid: u32) -> Result<Vec<Self>, RegistryError> {
        let mut found = Vec::new();
        let mut refused = None;
        let process = match process::rocm_libraries(pid) {
            Err(ProcessError::NoRocmLibraries { .. }) => {
                return Err(RegistryError::NoRuntime { pid });
            }
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
            let same = |mapping: &&Mapping| {
                (mapping.device, mapping.inode) == (mapped.device, mapped.inode)
            };
            let mut biases: Vec<u64> = mappings
                .iter()
                .filter(same)
                .filter_map(|mapping| load_bias(&library, mapping))
                .collect();
            biases.sort_unstable();
            biases.dedup();
            // A library loaded several times into separate namespaces (`dlmopen`) has as many
            // lists.
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

    /// Reads the list's head.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn head(&self, memory: &impl Memory) -> Result<Head, MemoryError> {
        head(memory, self.address)
    }

    /// File offset, in [`Registry::library`], of the function that the runtime calls before and
    /// after each change: the place for a probe. `None` before the runtime has initialised itself,
    /// or if the process gives an address outside of the library's code.
    #[must_use]
    pub fn notification(&self, head: &Head) -> Option<u64> {
        let address = head.notify.checked_sub(self.load_bias)?;
        let (offset, _) = self.library.elf().code_at(address)?;
        Some(offset)
    }
}

/// Difference between a mapping's addresses and those in the file, determined from the code segment
/// that it maps.
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

pub(crate) fn head(memory: &impl Memory, address: u64) -> Result<Head, MemoryError> {
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
