//! What can go wrong, and what to do about it.

use std::{io, path::PathBuf};

/// Why programs could not be loaded, attached or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel refused for lack of privilege.
    #[error(
        "the kernel refused to {action}: permission denied. Run gputrace with sudo, or give it \
         CAP_BPF and CAP_PERFMON, for perf events on functions CAP_SYS_ADMIN as well, and for \
         tracepoints CAP_DAC_READ_SEARCH"
    )]
    PermissionDenied {
        /// What was tried.
        action: String,
    },
    /// The kernel lacks something that gputrace cannot do without.
    #[error("this kernel cannot {action}: {cause}. gputrace needs Linux 6.1 or later with {needs}")]
    Unsupported {
        /// What was tried.
        action: String,
        /// What the kernel or the loader answered.
        cause: String,
        /// Kernel options that provide it.
        needs: &'static str,
    },
    /// Any other refusal.
    #[error("could not {action}: {cause}{}", details(.log))]
    Refused {
        /// What was tried.
        action: String,
        /// What the kernel or the loader answered.
        cause: String,
        /// Last lines of the loader's log, e.g. of the verifier.
        log: Vec<String>,
    },
    /// The tracing file system is not there.
    #[error(
        "the tracing file system is neither at /sys/kernel/tracing nor at /sys/kernel/debug/tracing: {cause}. \
         Mount it with `mount -t tracefs tracefs /sys/kernel/tracing`"
    )]
    NoTracefs {
        /// What the system answered.
        cause: io::Error,
    },
    /// A tracepoint's format could not be read or lacks a field.
    #[error("tracepoint {tracepoint}: {cause} (read from {path})")]
    Tracepoint {
        /// `category:name`.
        tracepoint: String,
        /// The `format` file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The embedded object lacks a part: a defect of the build.
    #[error("the eBPF object of this build has no {part}; rebuild with `cargo xtask build`")]
    BrokenObject {
        /// Name of the program or map.
        part: String,
    },
}

fn details(log: &[String]) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!("\n  {}", log.join("\n  "))
    }
}
