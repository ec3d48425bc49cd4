//! Finds Kokkos tool libraries: files, of any name, that export the callbacks of Kokkos Tools.

use std::collections::HashMap;

use gputrace_tracee::process::{self, MappedFile};

/// The files that have been looked at.
#[derive(Debug, Default)]
pub(crate) struct KokkosTools {
    /// Whether a file is a tool library, by path and inode.
    known: HashMap<(String, u64), bool>,
}

impl KokkosTools {
    /// Whether a tool library was found.
    pub(crate) fn any(&self) -> bool {
        self.known.values().any(|is_one| *is_one)
    }

    /// Whether a file that a process has mapped exports callbacks of Kokkos Tools. Each file is
    /// opened only once.
    pub(crate) fn is_one(&mut self, pid: u32, mapped: &MappedFile) -> bool {
        // The device is not part of the key: overlays show one inode under several devices. The
        // path tells files of different file systems apart.
        let key = (mapped.path.to_string_lossy().into_owned(), mapped.inode);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let is_one = match process::open_mapped(pid, mapped) {
            Ok(file) => {
                let symbols = file.elf().symbols();
                symbols
                    .iter()
                    .any(|symbol| symbol.name.starts_with(gputrace_catalog::KOKKOS_TOOLS))
            }
            // A file that is not ELF, or has no symbols, is no tool library. A file that may not be
            // opened is reported where libraries are probed.
            Err(_) => false,
        };
        self.known.insert(key, is_one);
        is_one
    }
}
