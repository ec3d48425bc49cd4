//! Captures libbpf's messages, and converts its errors.

use std::{
    collections::VecDeque,
    sync::{Mutex, Once, PoisonError},
};

use libbpf_rs::{ErrorKind, PrintLevel};

use crate::ProbeError;

/// Maximum number of lines kept for an error message. The reason of a refusal is at the end of a
/// verifier log.
const KEPT_LINES: usize = 64;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Routes libbpf's messages into the tracing log and into the memory that error messages quote:
/// libbpf's own errors say little more than an error number.
pub(crate) fn capture_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |level, text| {
            let text = text.trim_end();
            match level {
                PrintLevel::Debug => tracing::trace!(target: "libbpf", "{text}"),
                PrintLevel::Info | PrintLevel::Warn => {
                    tracing::debug!(target: "libbpf", "{text}");
                    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
                    for line in text.lines() {
                        if lines.len() == KEPT_LINES {
                            lines.pop_front();
                        }
                        lines.push_back(line.to_owned());
                    }
                }
            }
        })));
    });
}

/// Discards earlier messages, so that an error quotes only messages that belong to it.
pub(crate) fn forget_messages() {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Converts a libbpf error, quoting libbpf's messages.
pub(crate) fn refused(action: impl Into<String>, error: &libbpf_rs::Error) -> ProbeError {
    let action = action.into();
    let log: Vec<String> = LINES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .cloned()
        .collect();
    // The verifier also answers EACCES; its log tells the two apart.
    let verifier = log.iter().any(|line| line.contains("PROG LOAD LOG"));
    if error.kind() == ErrorKind::PermissionDenied && !verifier {
        return ProbeError::PermissionDenied { action };
    }
    ProbeError::Refused {
        action,
        cause: error.to_string(),
        log,
    }
}
