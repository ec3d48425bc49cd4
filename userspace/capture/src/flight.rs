//! What a dump of a flight recorder says about itself.
//!
//! A flight recorder keeps the last part of a recording that goes on. A dump is an ordinary capture
//! with that part: what the discarded part said of processes, libraries and code objects comes
//! first, and the accounts are those of the part.

use serde::{Deserialize, Serialize};

/// Which part of a recording a dump has, and why it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// Number of the dump in its recording, from 1.
    pub number: u32,
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    pub recording_began: u64,
    /// The dump contains everything that ended after this time, ns `CLOCK_BOOTTIME`. It may also
    /// contain things that ended before.
    pub from: u64,
    /// When the dump was made, ns `CLOCK_BOOTTIME`.
    pub to: u64,
    /// Whether the dump begins later than asked for, because the recorder's space was full.
    pub is_short: bool,
    /// Why it was made, in the order in which the recorder learned it; at least one.
    pub causes: Vec<Cause>,
    /// Number of further causes.
    pub more_causes: u64,
    /// Whether it is one of the files of a recording that goes on in another file when one is full.
    /// Such a file has what was recorded since the file before it.
    #[serde(default)]
    pub is_part: bool,
}

/// Why a dump was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// When it happened, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// What happened: a phrase for people.
    pub text: String,
}
