//! The recorded machine among others, as rocprofiler-sdk numbers nodes.

use gputrace_capture::meta::Recording;
use sha2::{Digest as _, Sha256};

/// A hash of what the machine is called by, not negative.
#[must_use]
pub fn node_hash(recording: &Recording) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(&recording.hostname));
    i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX
}

/// The machine's number: of its hash, so that outputs of several machines can be used together.
#[must_use]
pub fn node_number(recording: &Recording) -> i64 {
    node_hash(recording) % i64::from(u32::MAX)
}
