//! Demangles arbitrary text as a function name.

use crate::text;

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    let name = text(bytes);
    let _ = gputrace_demangle::demangle(name);
    assert!(name.contains(gputrace_demangle::truncate(name)));
}
