//! Parses arbitrary bytes as code objects, both as files and as loaded images, and the names in
//! them.

use gputrace_codeobj::{Contents, Layout, metadata::Metadata};

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    for layout in [Layout::File, Layout::Loaded] {
        let Ok(contents) = Contents::parse(bytes, layout) else {
            continue;
        };
        for kernel in contents.kernels() {
            let demangled = kernel.demangled();
            assert!(demangled.contains(gputrace_demangle::truncate(&demangled)));
            assert_eq!(contents.kernel_at(kernel.address), Some(kernel));
        }
    }
    let _ = Metadata::parse(bytes);
}
