//! rocprofv3's `_stats` tables: how often each name occurred, and how long it took.
//!
//! They count finished calls, allocations and scratch memory, and GPU work whose duration is known,
//! exact or estimated. The quality tables beside those of GPU work have what rocprofv3's columns
//! cannot express: how many durations are estimates, their standard errors, and how many are
//! unknown. Numbers are formatted as in rocprofv3.

use std::collections::{BTreeMap, HashMap};

use gputrace_abi::domain::Domain;
use gputrace_timeline::gpu::GpuTime;

use super::table::{Field, Table};
use crate::{
    exporter::ExportError,
    lengths::Length,
    moments::{Moments, domain},
    output::OutputDir,
    sums::Sums,
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

/// Columns of the quality tables. Errors are standard errors.
const QUALITY_COLUMNS: [&str; 9] = [
    "Name",
    "Calls",
    "Known_Durations",
    "Estimated_Durations",
    "Unknown_Durations",
    "TotalDurationNs",
    "TotalErrorNs",
    "AverageNs",
    "AverageErrorNs",
];

/// The statistics of an export. Memory grows with the number of names.
#[derive(Debug, Default)]
pub(super) struct Stats {
    groups: BTreeMap<&'static str, HashMap<String, Moments>>,
    /// Sums of GPU work.
    sums: BTreeMap<&'static str, Sums>,
}

impl Stats {
    /// Makes sure that the group gets a table, even an empty one.
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

    /// Adds GPU work; it counts in the statistics if its duration is known.
    pub(super) fn work(&mut self, domain: Domain, name: &str, time: &GpuTime) {
        let (group, length) = (domain.csv_stem(), Length::of(time));
        self.begin(group);
        if let Some(length) = length {
            self.add(group, name, length.ns);
        }
        self.sums.entry(group).or_default().add(name, length);
    }

    /// Writes one table per group, and one that has the groups as rows.
    pub(super) fn finish(
        &self,
        directory: &OutputDir,
        name: &str,
    ) -> Result<Vec<(Table, String)>, ExportError> {
        let mut tables = Vec::new();
        let mut domains = HashMap::new();
        for (group, names) in &self.groups {
            let sum = sum(names);
            if sum.calls > 0 {
                domains.insert(domain(group), sum);
            }
            let sums = self.sums.get(group);
            let content = match sums.map(Sums::unknown) {
                Some((unknown, all)) if unknown > 0 => format!(
                    "statistics of {}; {unknown} of {all} are not in it, because their durations are not known",
                    domain(group)
                ),
                _ => format!("statistics of {}", domain(group)),
            };
            tables.push((
                write(directory, &format!("{name}_{group}_stats.csv"), names)?,
                content,
            ));
            if let Some(sums) = sums {
                tables.push((
                    write_quality(
                        directory,
                        &format!("{name}_{group}_stats_quality.csv"),
                        sums,
                    )?,
                    format!("standard errors of these statistics of {}", domain(group)),
                ));
            }
        }
        let content = "statistics of domains".to_owned();
        tables.push((
            write(directory, &format!("{name}_domain_stats.csv"), &domains)?,
            content,
        ));
        Ok(tables)
    }
}

/// Those with the greatest totals first.
fn sorted(names: &HashMap<String, Moments>) -> Vec<(&String, &Moments)> {
    let mut rows: Vec<(&String, &Moments)> = names.iter().collect();
    rows.sort_by(|(a, left), (b, right)| right.total.cmp(&left.total).then_with(|| a.cmp(b)));
    rows
}

/// All of them in one. Added up in order, on which sums of floating-point numbers depend.
fn sum(names: &HashMap<String, Moments>) -> Moments {
    let mut sum = Moments::default();
    sorted(names)
        .iter()
        .for_each(|(_, moments)| sum.merge(moments));
    sum
}

fn write(
    directory: &OutputDir,
    file: &str,
    names: &HashMap<String, Moments>,
) -> Result<Table, ExportError> {
    let rows = sorted(names);
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

fn write_quality(directory: &OutputDir, file: &str, sums: &Sums) -> Result<Table, ExportError> {
    let mut table = Table::create(directory, file, QUALITY_COLUMNS)?;
    for row in sums.rows() {
        table.fields([
            Field::from(row.name),
            row.calls.into(),
            row.known.into(),
            row.estimated.into(),
            row.unknown.into(),
            row.total.into(),
            row.total_error.map(Field::Shortest).into(),
            row.mean.map(Field::Shortest).into(),
            row.mean_error.map(Field::Shortest).into(),
        ])?;
    }
    Ok(table)
}

/// Formats a non-integer as rocprofv3 does.
fn number(value: f64) -> String {
    if value > 0.01 {
        format!("{value:.6}")
    } else {
        scientific(value, 8)
    }
}

/// Formats a percentage as rocprofv3 does.
fn percentage(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.2}")
    } else if value > 0.01 {
        format!("{value:.4}")
    } else {
        scientific(value, 3)
    }
}

/// Formats with an exponent of a sign and at least two digits, as C does.
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
    fn sums_are_the_same_each_time() {
        let squares = || {
            let mut stats = Stats::default();
            for number in 1..500_u64 {
                stats.add("hip", &format!("hip{}", number % 97), number * 123_456_789);
            }
            sum(&stats.groups["hip"]).squares().to_bits()
        };
        let first = squares();
        assert!((0..8).all(|_| squares() == first));
    }

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
