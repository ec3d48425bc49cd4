//! Number of the recorded machine, computed like rocprofiler-sdk's node numbers.

use gputrace_capture::meta::Recording;
use sha2::{Digest as _, Sha256};

/// A non-negative hash of the machine's host name.
#[must_use]
pub fn node_hash(recording: &Recording) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(&recording.hostname));
    i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX
}

/// The machine's number, derived from its hash so that outputs of several machines can be combined.
#[must_use]
pub fn node_number(recording: &Recording) -> i64 {
    node_hash(recording) % i64::from(u32::MAX)
}
