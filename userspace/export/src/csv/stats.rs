//! rocprofv3's `_stats` tables: how often each name occurred, and how long it took.
//!
//! Finished calls count, allocations and scratch memory, and GPU work whose times are real (quality `exact` or
//! `sampled`): what has rows in the traces. Numbers are formatted as rocprofv3 does.

use std::collections::{BTreeMap, HashMap};

use super::table::{Field, Table};
use crate::{
    exporter::ExportError,
    moments::{Moments, domain},
    output::OutputDir,
};

const COLUMNS: [&str; 8] = [
    "Name",
    "Calls",
    "TotalDurationNs",
    "AverageNs",
    "Percentage",
    "MinNs",
    "MaxNs",
    "StdDev",
];

/// The statistics of an export. Grows with the number of names.
#[derive(Debug, Default)]
pub(super) struct Stats {
    groups: BTreeMap<&'static str, HashMap<String, Moments>>,
}

impl Stats {
    /// Makes sure that the group has a table.
    pub(super) fn begin(&mut self, group: &'static str) {
        self.groups.entry(group).or_default();
    }

    pub(super) fn add(&mut self, group: &'static str, name: &str, ns: u64) {
        let names = self.groups.entry(group).or_default();
        if !names.contains_key(name) {
            names.insert(name.to_owned(), Moments::default());
        }
        if let Some(moments) = names.get_mut(name) {
            moments.add(ns);
        }
    }

    /// Writes one table for each group and one with the groups themselves.
    pub(super) fn finish(
        &self,
        directory: &OutputDir,
        name: &str,
    ) -> Result<Vec<(Table, String)>, ExportError> {
        let mut tables = Vec::new();
        let mut domains = HashMap::new();
        for (group, names) in &self.groups {
            let mut sum = Moments::default();
            names.values().for_each(|moments| sum.merge(moments));
            if sum.calls > 0 {
                domains.insert(domain(group), sum);
            }
            let content = format!("statistics of {}", domain(group));
            tables.push((
                write(directory, &format!("{name}_{group}_stats.csv"), names)?,
                content,
            ));
        }
        let content = "statistics of domains".to_owned();
        tables.push((
            write(directory, &format!("{name}_domain_stats.csv"), &domains)?,
            content,
        ));
        Ok(tables)
    }
}

fn write(directory: &OutputDir, file: &str, names: &HashMap<String, Moments>) -> Result<Table, ExportError> {
    let mut rows: Vec<(&String, &Moments)> = names.iter().collect();
    rows.sort_by(|(a, left), (b, right)| right.total.cmp(&left.total).then_with(|| a.cmp(b)));
    let all: u128 = rows.iter().map(|(_, moments)| moments.total).sum();
    let mut table = Table::create(directory, file, COLUMNS)?;
    for (name, moments) in rows {
        let share = if all == 0 {
            0.0
        } else {
            moments.total as f64 * 100.0 / all as f64
        };
        table.fields([
            Field::from(name.as_str()),
            moments.calls.into(),
            moments.total.to_string().into(),
            number(moments.average()).into(),
            percentage(share).into(),
            moments.min.into(),
            moments.max.into(),
            number(moments.deviation()).into(),
        ])?;
    }
    Ok(table)
}

/// As rocprofv3 formats a number that is no integer.
fn number(value: f64) -> String {
    if value > 0.01 {
        format!("{value:.6}")
    } else {
        scientific(value, 8)
    }
}

/// As rocprofv3 formats a percentage.
fn percentage(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.2}")
    } else if value > 0.01 {
        format!("{value:.4}")
    } else {
        scientific(value, 3)
    }
}

/// With an exponent of a sign and at least two digits, as C does.
fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_rocprofv3_prints_them() {
        // From the examples of rocprofv3's user guide.
        for (value, text) in [
            (65_624_351.5, "65624351.500000"),
            (508_034.083_333_3, "508034.083333"),
            (0.0, "0.00000000e+00"),
            (0.001, "1.00000000e-03"),
        ] {
            assert_eq!(number(value), text);
        }
        for (value, text) in [
            (85.152, "85.15"),
            (100.0, "100.00"),
            (0.647, "0.6470"),
            (0.4439, "0.4439"),
            (0.001, "1.000e-03"),
        ] {
            assert_eq!(percentage(value), text);
        }
    }
}
