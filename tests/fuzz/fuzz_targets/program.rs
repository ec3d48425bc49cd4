//! Arbitrary bytes as a program or library: its exports, symbols and debug information. A corpus of small programs built with
//! `-g` leads further than the headers.

#![no_main]

use std::{fs::File, io::Write as _, os::fd::AsRawFd as _, path::Path};

use gputrace_tracee::{functions, library::LibraryFile};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};

fuzz_target!(|bytes: &[u8]| {
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
});
