//! Reads arbitrary bytes as a program or library: exports, symbols and debug information. A corpus
//! of small programs built with `-g` gets further than the headers.

use std::{fs::File, io::Write as _, os::fd::AsRawFd as _, path::Path};

use gputrace_tracee::{functions, library::LibraryFile};
use rustix::fs::{MemfdFlags, memfd_create};

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    let Ok(descriptor) = memfd_create("fuzz", MemfdFlags::CLOEXEC) else {
        return;
    };
    let mut file = File::from(descriptor);
    if file.write_all(bytes).is_err() {
        return;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Ok(library) = LibraryFile::open(Path::new(&path)) {
        let found = functions::list(&library, Path::new("/nonexistent"));
        assert!(found.list.len() <= bytes.len());
    }
}
