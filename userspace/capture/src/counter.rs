//! Counters: numbers that were read periodically, and their values.

use serde::{Deserialize, Serialize};

/// A number that is read periodically; comes before its first value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counter {
    /// Number in this capture.
    pub number: u32,
    /// Name, e.g. `gpu_busy_percent`.
    pub name: String,
    /// Symbol of the unit, e.g. `W`; empty for a plain number.
    pub unit: String,
    /// Whether it only ever grows, so that only differences are meaningful.
    pub cumulative: bool,
    /// Process id, initial pid namespace; 0 if it belongs to no process.
    pub pid: u32,
    /// [`crate::gpu::Agent::gpu_id`] of the GPU; 0 if it belongs to no GPU.
    pub gpu_id: u32,
    /// The GPU's node in KFD's topology, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<u32>,
    /// Group of counters with which it is read, see [`GroupRead`]; `None` in captures that do not
    /// say when counters were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

/// A reading of all counters of a group, e.g. those of a GPU, changed or not. A counter without a
/// new value still had its previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u64, u64)", into = "(u32, u64, u64)")]
pub struct GroupRead {
    /// [`Counter::group`].
    pub group: u32,
    /// Time from the begin of the reading to [`CounterValues::time`], ns.
    pub before: u64,
    /// Time from there to the end of the reading, ns.
    pub after: u64,
}

// Stored as an array of numbers: there may be thousands per second.
impl From<(u32, u64, u64)> for GroupRead {
    fn from((group, before, after): (u32, u64, u64)) -> Self {
        Self {
            group,
            before,
            after,
        }
    }
}

impl From<GroupRead> for (u32, u64, u64) {
    fn from(read: GroupRead) -> Self {
        (read.group, read.before, read.after)
    }
}

/// Values that were read at one time. It contains only values that have changed since the previous
/// reading, except at the beginning and at the end: a value is valid until the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterValues {
    /// Time, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// [`Counter::number`] and value.
    pub values: Vec<(u32, f64)>,
    /// The group that was read; `None` in captures that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<GroupRead>,
    /// Numbers of the group's counters that could be read before and could not be read now. Their
    /// next value is stored even if it equals the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_without_news_is_short_and_older_ones_are_known() {
        let read = CounterValues {
            time: 5,
            read: Some(GroupRead {
                group: 1,
                before: 20,
                after: 30,
            }),
            ..CounterValues::default()
        };
        let text = serde_json::to_string(&read).unwrap();
        assert_eq!(text, r#"{"time":5,"values":[],"read":[1,20,30]}"#);
        assert_eq!(serde_json::from_str::<CounterValues>(&text).unwrap(), read);
        let older: CounterValues =
            serde_json::from_str(r#"{"time":5,"values":[[4,97.0]]}"#).unwrap();
        assert_eq!(
            (older.values, older.read, older.gone),
            (vec![(4, 97.0)], None, vec![])
        );
        let older =
            r#"{"number":4,"name":"power","unit":"W","cumulative":false,"pid":0,"gpu_id":7}"#;
        assert_eq!(serde_json::from_str::<Counter>(older).unwrap().group, None);
    }
}
