//! Arbitrary bytes as a file with code objects: bundles, compressed bundles, and ELF files, and the metadata in them.

#![no_main]

use gputrace_codeobj::{container::code_objects, metadata::Metadata};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = code_objects(bytes);
    let _ = Metadata::parse(bytes);
});
