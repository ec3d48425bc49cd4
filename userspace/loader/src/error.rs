//! Errors of this crate, with advice on what to do.

use std::{io, path::PathBuf};

use gputrace_files::rights;

/// Why programs could not be loaded, attached or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel refused because privileges are missing.
    #[error(
        "the kernel refused to {action}: permission denied; {}, or give it CAP_BPF and \
         CAP_PERFMON, for probes by perf events CAP_DAC_OVERRIDE as well, and for tracepoints \
         CAP_DAC_READ_SEARCH",
        rights::remedy()
    )]
    PermissionDenied {
        /// The attempted action.
        action: String,
    },
    /// The kernel lacks a feature that gputrace needs.
    #[error("this kernel cannot {action}: {cause}. gputrace needs Linux 6.1 or later with {needs}")]
    Unsupported {
        /// The attempted action.
        action: String,
        /// Answer of the kernel or the loader.
        cause: String,
        /// Kernel options that provide the feature.
        needs: &'static str,
    },
    /// Any other refusal.
    #[error("could not {action}: {cause}{}", details(.log))]
    Refused {
        /// The attempted action.
        action: String,
        /// Answer of the kernel or the loader.
        cause: String,
        /// Last lines of the loader's log, for example from the verifier.
        log: Vec<String>,
    },
    /// The tracing file system is not mounted.
    #[error(
        "the tracing file system is neither at /sys/kernel/tracing nor at /sys/kernel/debug/tracing: {cause}. \
         Mount it with `mount -t tracefs tracefs /sys/kernel/tracing`"
    )]
    NoTracefs {
        /// Error returned by the system.
        cause: io::Error,
    },
    /// A tracepoint's format could not be read or lacks a field.
    #[error("tracepoint {tracepoint}: {cause} (read from {path})")]
    Tracepoint {
        /// `category:name`.
        tracepoint: String,
        /// Path of the `format` file.
        path: PathBuf,
        /// The problem.
        cause: String,
    },
    /// The embedded object lacks a part, which is a defect of the build.
    #[error("the eBPF object of this build has no {part}; rebuild with `cargo xtask build`")]
    BrokenObject {
        /// Name of the program or map.
        part: String,
    },
}

/// The log in one line, as all messages are.
fn details(log: &[String]) -> String {
    log.iter()
        .map(|line| format!("; {}", line.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_stays_in_the_line() {
        let refused = |log: &[&str]| ProbeError::Refused {
            action: "create the map".to_owned(),
            cause: "Argument list too long (os error 7)".to_owned(),
            log: log.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(
            refused(&["libbpf: map 'THREADS': failed", "  and more "]).to_string(),
            "could not create the map: Argument list too long (os error 7); libbpf: map 'THREADS': \
             failed; and more"
        );
        assert!(refused(&[]).to_string().ends_with("(os error 7)"));
    }
}
