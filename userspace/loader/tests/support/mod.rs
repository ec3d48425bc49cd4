//! Shared code of the tests of the call-tracing programs.

use gputrace_loader::{
    ProbeError,
    calls::{BackendChoice, Calls, Options},
};

/// Options with a ring of this size for each CPU, bytes, and room for 64 threads and processes.
pub(crate) fn options(backend: BackendChoice, ring_bytes: u32) -> Options {
    Options {
        backend,
        ring_bytes,
        max_threads: 64,
        max_processes: 64,
        limit: None,
        stacks: false,
        every_library: false,
        follow_forks: false,
    }
}

/// Loads the programs; `None` where BPF is not available and not required.
pub(crate) fn load(options: &Options) -> Option<Calls> {
    match Calls::load(options) {
        Ok(calls) => Some(calls),
        Err(error @ (ProbeError::PermissionDenied { .. } | ProbeError::NoTracefs { .. })) => {
            assert!(
                std::env::var_os("GPUTRACE_REQUIRE_BPF").is_none(),
                "{error}"
            );
            gputrace_skip::skipped(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}
