//! How long work of each name took, with what is not known of it: beside statistics whose columns are rocprofv3's.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::Serialize;

use crate::lengths::{Length, Sum, tenths};

/// Sums by name. Grows with the number of names.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    names: HashMap<String, Sum, RandomState>,
}

/// A name's sum. Times are ns.
#[derive(Debug, Serialize)]
pub(crate) struct NameSum<'a> {
    pub(crate) name: &'a str,
    pub(crate) calls: u64,
    /// How many have a duration, exact or estimated.
    pub(crate) known: u64,
    /// How many of these have an estimated one.
    pub(crate) estimated: u64,
    /// How many have none.
    pub(crate) unknown: u64,
    /// Of the known durations; `None` if there are none.
    pub(crate) total: Option<u64>,
    /// Its standard error.
    pub(crate) total_error: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) mean_error: Option<f64>,
}

impl<'a> NameSum<'a> {
    fn new(name: &'a str, sum: &Sum) -> Self {
        let (mean, mean_error) = sum.mean();
        let known = |value: f64| (sum.known() > 0).then_some(tenths(value));
        Self {
            name,
            calls: sum.count(),
            known: sum.known(),
            estimated: sum.estimated(),
            unknown: sum.unknown(),
            total: (sum.known() > 0).then(|| u64::try_from(sum.total()).unwrap_or(u64::MAX)),
            total_error: known(sum.error()),
            mean: known(mean),
            mean_error: known(mean_error),
        }
    }
}

impl Sums {
    /// Adds something that took `length`, or something of which that is not known.
    pub(crate) fn add(&mut self, name: &str, length: Option<Length>) {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), Sum::default());
        }
        if let Some(sum) = self.names.get_mut(name) {
            sum.add(length);
        }
    }

    /// Those with the greatest totals first.
    pub(crate) fn rows(&self) -> Vec<NameSum<'_>> {
        let mut rows: Vec<NameSum<'_>> = self
            .names
            .iter()
            .map(|(name, sum)| NameSum::new(name, sum))
            .collect();
        rows.sort_by(|left, right| {
            let key = |row: &NameSum<'_>| (row.total, row.calls);
            key(right)
                .cmp(&key(left))
                .then_with(|| left.name.cmp(right.name))
        });
        rows
    }

    /// How many have no known duration, of how many.
    pub(crate) fn unknown(&self) -> (u64, u64) {
        let add = |(unknown, all), sum: &Sum| (unknown + sum.unknown(), all + sum.count());
        self.names.values().fold((0, 0), add)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_timeline::gpu::Quality;

    use super::*;
    use crate::synthetic::{between, estimated, exact};

    #[test]
    fn totals_sort_and_what_is_not_known_has_no_numbers() {
        let mut sums = Sums::default();
        for (name, time) in [
            ("often", estimated(1000, 1100, 0, 2)),
            ("often", estimated(2000, 2100, 0, 2)),
            ("long", exact(5000, 9000)),
            ("hidden", between(Quality::Sampled, 0, 1_000_000)),
        ] {
            sums.add(name, Length::of(&time));
        }
        let rows = sums.rows();
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        // The widest windows are no duration.
        assert_eq!(names, ["long", "often", "hidden"]);
        let [_, often, hidden] = &rows[..] else {
            unreachable!()
        };
        assert_eq!((often.total, often.total_error), (Some(200), Some(4.0)));
        assert_eq!((often.mean, often.mean_error), (Some(100.0), Some(2.0)));
        assert_eq!((hidden.calls, hidden.unknown, hidden.total), (1, 1, None));
        assert_eq!((hidden.mean, hidden.mean_error), (None, None));
        assert_eq!(sums.unknown(), (1, 4));
    }
}
