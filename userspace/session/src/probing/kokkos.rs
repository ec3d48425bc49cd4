//! Finding the libraries that Kokkos tells what it does: those that export its tools' callbacks, under any name.

use std::collections::HashMap;

use gputrace_tracee::process::{self, MappedFile};

/// Which files have been looked at.
#[derive(Debug, Default)]
pub(crate) struct KokkosTools {
    /// By path and inode: whether it is a tool.
    known: HashMap<(String, u64), bool>,
}

impl KokkosTools {
    /// Whether one was found.
    pub(crate) fn any(&self) -> bool {
        self.known.values().any(|is_one| *is_one)
    }

    /// Whether a file that a process has mapped exports callbacks of Kokkos Tools. A file is opened once.
    pub(crate) fn is_one(&mut self, pid: u32, mapped: &MappedFile) -> bool {
        // Overlays show a file of one inode under several devices, and paths tell files of several file systems apart.
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
            // What is no ELF file, or has no symbols, is none. Of what may not be opened the libraries' own reports tell.
            Err(_) => false,
        };
        self.known.insert(key, is_one);
        is_one
    }
}
