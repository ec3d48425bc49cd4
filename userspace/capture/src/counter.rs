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
    /// With which others it is read, see [`GroupRead`]; `None` in captures that do not say when counters were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

/// That all counters of a group were read, e.g. those of a GPU, changed or not. Those of which there is no new value had
/// the last one still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u64, u64)", into = "(u32, u64, u64)")]
pub struct GroupRead {
    /// [`Counter::group`].
    pub group: u32,
    /// By how much reading began before [`CounterValues::time`], ns.
    pub before: u64,
    /// By how much it ended after that, ns.
    pub after: u64,
}

// As an array of numbers: there may be thousands a second.
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

/// Values that were read at one time. Only what has changed since it was last read is there, except at the beginning and
/// at the end: a value holds until the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterValues {
    /// ns, `CLOCK_BOOTTIME`.
    pub time: u64,
    /// [`Counter::number`] and value.
    pub values: Vec<(u32, f64)>,
    /// What was read; `None` in captures that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<GroupRead>,
    /// Counters of the group that could be read before and could not be now, by number. Their next value is there even if
    /// it is the last one.
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
