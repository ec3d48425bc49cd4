//! Parses arbitrary text as a line of the driver's events.

use crate::text;

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    let line = text(bytes);
    let _ = gputrace_kfd::smi::parse(line);
}
