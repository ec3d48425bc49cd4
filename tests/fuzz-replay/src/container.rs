//! Parses arbitrary bytes as offload bundles, programs and URIs.

use gputrace_codeobj::{container, uri::Uri};

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    for object in container::code_objects(bytes).unwrap_or_default() {
        if let Some(range) = object.range {
            let begin = usize::try_from(range.offset).expect("within the file");
            assert_eq!(&bytes[begin..begin + object.bytes.len()], &object.bytes[..]);
        }
    }
    let _ = Uri::parse(bytes);
}
