//! Total durations of work by name, with standard errors and the number of unknown durations. They
//! complement statistics that have only rocprofv3's columns.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::Serialize;

use crate::lengths::{Length, Sum, error_tenths, tenths};

/// Sums by name. Memory grows with the number of names.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    names: HashMap<String, Sum, RandomState>,
}

/// The sum of one name. Times are ns.
#[derive(Debug, Serialize)]
pub(crate) struct NameSum<'a> {
    pub(crate) name: &'a str,
    pub(crate) calls: u64,
    /// How many have a known duration, exact or estimated.
    pub(crate) known: u64,
    /// How many of the known durations are estimated.
    pub(crate) estimated: u64,
    /// How many have no known duration.
    pub(crate) unknown: u64,
    /// Sum of the known durations; `None` if there are none.
    pub(crate) total: Option<u64>,
    /// Standard error of the total.
    pub(crate) total_error: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) mean_error: Option<f64>,
}

impl<'a> NameSum<'a> {
    fn new(name: &'a str, sum: &Sum) -> Self {
        let (mean, mean_error) = sum.mean();
        let known = |value: f64| (sum.known() > 0).then_some(value);
        Self {
            name,
            calls: sum.count(),
            known: sum.known(),
            estimated: sum.estimated(),
            unknown: sum.unknown(),
            total: (sum.known() > 0).then(|| u64::try_from(sum.total()).unwrap_or(u64::MAX)),
            total_error: known(error_tenths(sum.error())),
            mean: known(tenths(mean)),
            mean_error: known(error_tenths(mean_error)),
        }
    }
}

impl Sums {
    /// Adds one piece of work that took `length`; `None` if its duration is unknown.
    pub(crate) fn add(&mut self, name: &str, length: Option<Length>) {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), Sum::default());
        }
        if let Some(sum) = self.names.get_mut(name) {
            sum.add(length);
        }
    }

    /// Rows in order of descending totals.
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

    /// Number of unknown durations, and number of all.
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
        // A window, however wide, is no duration.
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
