//! Numbers that were read now and then: what they are, and what they were.

use serde::{Deserialize, Serialize};

/// A number that is read now and then; stands before its first value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counter {
    /// Number in this capture.
    pub number: u32,
    /// Name, e.g. `gpu_busy_percent`.
    pub name: String,
    /// Symbol of the unit, e.g. `W`; empty for a plain number.
    pub unit: String,
    /// Whether it only ever grows, and differences are what means something.
    pub cumulative: bool,
    /// Of which process, initial pid namespace; 0 if of none.
    pub pid: u32,
    /// Of which GPU: [`crate::gpu::Agent::gpu_id`]; 0 if of none.
    pub gpu_id: u32,
    /// The GPU's node in KFD's topology, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<u32>,
}

/// Values that were read at one time. Only what has changed since it was last read is there, except at the beginning and
/// at the end: a value holds until the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterValues {
    /// ns, `CLOCK_BOOTTIME`.
    pub time: u64,
    /// [`Counter::number`] and value.
    pub values: Vec<(u32, f64)>,
}
