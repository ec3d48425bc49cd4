//! Arbitrary bundles and programs, and URIs.

#![no_main]

use gputrace_codeobj::{container, uri::Uri};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for object in container::code_objects(bytes).unwrap_or_default() {
        if let Some(range) = object.range {
            let begin = usize::try_from(range.offset).expect("within the file");
            assert_eq!(&bytes[begin..begin + object.bytes.len()], &object.bytes[..]);
        }
    }
    let _ = Uri::parse(bytes);
});
