//! Tables of statistics in the form that rocprofv3 prints: `--summary`, `--summary-per-domain`,
//! `--summary-groups`.
//!
//! They count the same as the CSV statistics: finished calls, allocations and scratch memory, and
//! GPU work whose duration is known, exact or estimated. Remarks below a table say what is not in
//! it. Memory grows with the number of names.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::Write,
};

use gputrace_abi::domain::Domain;
use gputrace_text::tables::{clipped, fit};
use gputrace_text::{Page, outside};
use gputrace_timeline::{
    event::{CallEnd, Event},
    gpu::GpuTime,
};
use regex::Regex;

use super::{LISTED_NOTICES, stats::Durations};
use gputrace_export::{
    exporter::{ExportError, Exporter, Output},
    functions::{Functions, group},
    gpu::Gpus,
    lengths::{Length, Sum},
    moments::{Moments, domain},
    observed::memory_domain,
};

/// Unit of the durations in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Units {
    /// Seconds.
    Sec,
    /// Milliseconds.
    Msec,
    /// Microseconds.
    Usec,
    /// Nanoseconds.
    #[default]
    Nsec,
}

impl Units {
    /// Its name in rocprofv3.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sec => "sec",
            Self::Msec => "msec",
            Self::Usec => "usec",
            Self::Nsec => "nsec",
        }
    }

    /// Number of decimals for a resolution of one nanosecond.
    const fn decimals(self) -> usize {
        match self {
            Self::Sec => 9,
            Self::Msec => 6,
            Self::Usec => 3,
            Self::Nsec => 0,
        }
    }

    fn of(self, ns: f64) -> f64 {
        match self {
            Self::Sec => ns / 1e9,
            Self::Msec => ns / 1e6,
            Self::Usec => ns / 1e3,
            Self::Nsec => ns,
        }
    }

    /// Formats a number of ns exactly in this unit.
    fn exact(self, ns: u128) -> String {
        let size = match self {
            Self::Sec => 1_000_000_000,
            Self::Msec => 1_000_000,
            Self::Usec => 1_000,
            Self::Nsec => return ns.to_string(),
        };
        format!(
            "{}.{:0width$}",
            ns / size,
            ns % size,
            width = self.decimals()
        )
    }
}

/// A group of domains that share a table.
#[derive(Clone, Debug)]
pub struct DomainGroup {
    given: String,
    regex: Regex,
}

impl DomainGroup {
    /// The domains whose whole names, e.g. `KERNEL_DISPATCH`, `HIP_API`, match a regular
    /// expression.
    ///
    /// # Errors
    /// If the regular expression is invalid.
    pub fn new(given: &str) -> Result<Self, regex::Error> {
        Ok(Self {
            given: given.to_owned(),
            // The first parse reports errors in the user's text, the second adds the anchors.
            regex: Regex::new(given).and_then(|_| Regex::new(&format!("^(?:{given})$")))?,
        })
    }

    /// The regular expression as the user gave it.
    #[must_use]
    pub fn given(&self) -> &str {
        &self.given
    }
}

/// Which tables to print.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// One table per domain.
    pub per_domain: bool,
    /// One table for each of these groups.
    pub groups: Vec<DomainGroup>,
    /// One table for all domains together, unless it would be empty.
    pub whole: bool,
    /// Unit of durations.
    pub units: Units,
    /// Percentiles of the durations to show in columns, 0 to 100; accurate to 1 %.
    pub percentiles: Vec<f64>,
    /// Whether the recording's remarks follow; a summary printed with the tables has them already.
    pub remarks: bool,
    /// Maximum width of lines in columns: longer names are clipped in the middle. `None` for no
    /// limit.
    pub columns: Option<usize>,
}

impl TableOptions {
    /// Whether no tables are to be printed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.per_domain && self.groups.is_empty() && !self.whole
    }
}

/// Statistics of a domain.
#[derive(Debug, Default)]
struct DomainUse {
    names: HashMap<String, NameUse>,
    /// Durations of GPU work with their standard errors.
    sum: Sum,
    /// Number of entries in the table that happened at an unknown time within their durations:
    /// scratch memory.
    at_most: u64,
    /// Number of entries not in the table: calls that had not returned, work without times of its
    /// own.
    not_counted: u64,
}

/// Statistics of a name.
#[derive(Debug, Default)]
struct NameUse {
    moments: Moments,
    /// Set if percentiles are shown.
    durations: Option<Durations>,
}

/// Collects statistics; `Display` renders the tables.
#[derive(Debug, Default)]
pub struct Tables {
    options: TableOptions,
    functions: Functions,
    gpus: Gpus,
    /// By group, see [`gputrace_export::functions::group`].
    domains: BTreeMap<&'static str, DomainUse>,
    notices: Vec<String>,
}

impl Tables {
    /// Starts with empty statistics.
    #[must_use]
    pub fn new(options: TableOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Takes an event.
    pub fn event(&mut self, event: &Event) {
        let with = !self.options.percentiles.is_empty();
        match event {
            Event::Function(info) => self.functions.learn(info),
            Event::Call(call) => {
                let known = self.domains.entry(group(call.domain)).or_default();
                match call.how {
                    CallEnd::Returned(_) => {
                        let took = call.end.saturating_sub(call.begin);
                        known.add(self.functions.name(call.function), took, with);
                    }
                    _ => known.not_counted += 1,
                }
            }
            Event::Dispatch(dispatch) => {
                let known = self
                    .domains
                    .entry(Domain::KernelDispatch.csv_stem())
                    .or_default();
                known.work(&self.gpus.kernel_name(dispatch), &dispatch.time, with);
            }
            Event::Copy(copy) => {
                let known = self
                    .domains
                    .entry(Domain::MemoryCopy.csv_stem())
                    .or_default();
                known.work(copy.direction.name(), &copy.time, with);
            }
            Event::Observation(one) => {
                if let Some(domain) = memory_domain(one) {
                    let known = self.domains.entry(domain.csv_stem()).or_default();
                    known.add(&one.name, one.duration(), with);
                    known.at_most += u64::from(domain == Domain::ScratchMemory);
                }
            }
            Event::Notice(notice) if self.notices.len() < LISTED_NOTICES => {
                self.notices.push(notice.text.clone());
            }
            Event::Kernel(_) => self.gpus.learn(event),
            _ => {}
        }
    }

    fn table(
        &self,
        title: &str,
        groups: &[&'static str],
        f: &mut Page<impl fmt::Write>,
    ) -> fmt::Result {
        let known: Vec<(&'static str, &DomainUse)> = groups
            .iter()
            .filter_map(|group| Some((*group, self.domains.get(group)?)))
            .collect();
        let mut rows: Vec<(&str, String, &NameUse)> = Vec::new();
        for (group, known) in &known {
            let names = known.names.iter();
            rows.extend(names.map(|(name, used)| (name.as_str(), domain(group), used)));
        }
        rows.sort_by(|(a, _, left), (b, _, right)| {
            let (left, right) = (left.moments.total, right.moments.total);
            right.cmp(&left).then_with(|| a.cmp(b))
        });
        let all: u128 = rows.iter().map(|(_, _, used)| used.moments.total).sum();
        let mut cells = vec![self.heading()];
        cells.extend(
            rows.into_iter()
                .map(|(name, domain, used)| self.cells(name, domain, used, all)),
        );
        f.paragraph(format_args!("ROCPROFV3 {title}:"))?;
        f.blank()?;
        grid(&cells, f)?;
        self.remarks(groups, &known, f)
    }

    fn heading(&self) -> Vec<String> {
        let unit = self.options.units.name();
        let mut heading = vec![
            "NAME".to_owned(),
            "DOMAIN".to_owned(),
            "CALLS".to_owned(),
            format!("DURATION ({unit})"),
            format!("AVERAGE ({unit})"),
            "PERCENT (INC)".to_owned(),
            format!("MIN ({unit})"),
            format!("MAX ({unit})"),
            "STDDEV".to_owned(),
        ];
        let percentiles = self.options.percentiles.iter();
        heading.extend(percentiles.map(|percent| format!("P{percent} ({unit})")));
        heading
    }

    /// The row of a name; `all` is the total duration of all rows, ns.
    fn cells(&self, name: &str, domain: String, used: &NameUse, all: u128) -> Vec<String> {
        let units = self.options.units;
        let moments = &used.moments;
        let share = if all == 0 {
            0.0
        } else {
            moments.total as f64 * 100.0 / all as f64
        };
        let mut row = vec![
            outside(name).terminal(),
            domain,
            moments.calls.to_string(),
            units.exact(moments.total),
            scientific(units.of(moments.average())),
            format!("{share:.6}"),
            units.exact(moments.min.into()),
            units.exact(moments.max.into()),
            scientific(units.of(moments.deviation())),
        ];
        let durations = used.durations.as_ref();
        row.extend(self.options.percentiles.iter().map(|percent| {
            let value = durations.map_or(0, |durations| durations.percentile(*percent));
            units.exact(value.into())
        }));
        row
    }

    /// Remarks about the durations in a table, and about what is not in it.
    fn remarks(
        &self,
        groups: &[&'static str],
        known: &[(&'static str, &DomainUse)],
        f: &mut Page<impl fmt::Write>,
    ) -> fmt::Result {
        let units = self.options.units;
        let mut sum = Sum::default();
        for (_, known) in known {
            sum.merge(&known.sum);
        }
        let at_most: u64 = known.iter().map(|(_, known)| known.at_most).sum();
        let not_counted: u64 = known.iter().map(|(_, known)| known.not_counted).sum();
        if sum.estimated() > 0 {
            f.line(format_args!(
                "Estimates: {} of the durations. The standard error of their sum is {} {}.",
                sum.estimated(),
                units.exact(sum.error().ceil() as u128),
                units.name(),
            ))?;
        }
        if at_most > 0 {
            f.line(format_args!(
                "No longer than shown (scratch memory changed between two looks): {at_most} of the durations."
            ))?;
        }
        if not_counted > 0 {
            f.line(format_args!(
                "Not in the table, because their durations are not known: {not_counted} of {}.",
                groups
                    .iter()
                    .map(|group| domain(group))
                    .collect::<Vec<_>>()
                    .join(" + ")
            ))?;
        }
        Ok(())
    }
}

impl DomainUse {
    fn add(&mut self, name: &str, ns: u64, with_percentiles: bool) {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), NameUse::default());
        }
        if let Some(used) = self.names.get_mut(name) {
            used.moments.add(ns);
            if with_percentiles {
                used.durations.get_or_insert_default().add(ns);
            }
        }
    }

    fn work(&mut self, name: &str, time: &GpuTime, with_percentiles: bool) {
        let length = Length::of(time);
        self.sum.add(length);
        match length {
            Some(length) => self.add(name, length.ns, with_percentiles),
            None => self.not_counted += 1,
        }
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Page::new(f).within(self.options.columns);
        let groups: Vec<&'static str> = self.domains.keys().copied().collect();
        if self.options.per_domain {
            for group in &groups {
                self.table(&format!("{} SUMMARY", domain(group)), &[*group], f)?;
            }
        }
        for asked in &self.options.groups {
            let matching: Vec<&'static str> = groups
                .iter()
                .filter(|group| asked.regex.is_match(&domain(group)))
                .copied()
                .collect();
            let names = |groups: &[&str], between: &str| {
                let names: Vec<String> = groups.iter().map(|group| domain(group)).collect();
                names.join(between)
            };
            if matching.is_empty() {
                let known = if groups.is_empty() {
                    "no domain".to_owned()
                } else {
                    names(&groups, ", ")
                };
                f.paragraph(format_args!(
                    "No domain is called '{}'; recorded: {known}.",
                    asked.given
                ))?;
            } else {
                self.table(
                    &format!("{} SUMMARY", names(&matching, " + ")),
                    &matching,
                    f,
                )?;
            }
        }
        let counted = self
            .domains
            .values()
            .any(|known| !known.names.is_empty() || known.not_counted > 0);
        if self.options.whole && counted {
            self.table("SUMMARY", &groups, f)?;
        }
        if self.options.remarks && !self.notices.is_empty() {
            f.paragraph(format_args!("Remarks"))?;
            for notice in &self.notices {
                f.line(format_args!("  {notice}"))?;
            }
        }
        Ok(())
    }
}

/// Formats like C's `%.3e`, whose exponent has a sign and at least two digits.
fn scientific(value: f64) -> String {
    let text = format!("{value:.3e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// Writes rows separated by bars, the heading first. Names are left-aligned, numbers right-aligned.
fn grid(rows: &[Vec<String>], f: &mut Page<impl fmt::Write>) -> fmt::Result {
    let width = |column| {
        let cells = rows.iter().filter_map(|row: &Vec<String>| row.get(column));
        cells
            .map(|cell: &String| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    // A bar before each column and after the last one, and a space on both sides of each cell.
    let between = 3 * widths.len() + 1;
    fit(&mut widths, |column| column == 0, between, f.columns());
    for (number, row) in rows.iter().enumerate() {
        f.part(format_args!("|"))?;
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let cell = clipped(cell, width);
            if column < 2 {
                f.part(format_args!(" {cell:<width$} |"))?;
            } else {
                f.part(format_args!(" {cell:>width$} |"))?;
            }
        }
        f.blank()?;
        if number == 0 {
            f.part(format_args!("|"))?;
            for width in &widths {
                f.part(format_args!("{:-<1$}|", "", width + 2))?;
            }
            f.blank()?;
        }
    }
    Ok(())
}

/// Writes the tables at the end of an export.
pub struct TablesExporter {
    tables: Tables,
    to: Box<dyn Write>,
}

impl TablesExporter {
    /// Writes to `stream`.
    pub fn new(options: TableOptions, stream: impl Write + 'static) -> Self {
        Self {
            tables: Tables::new(options),
            to: Box::new(stream),
        }
    }
}

impl Exporter for TablesExporter {
    fn format(&self) -> &'static str {
        "summary tables"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.tables.event(event);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        write!(self.to, "{}", self.tables)?;
        self.to.flush()?;
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_exact() {
        for (units, text) in [
            (Units::Nsec, "1234567"),
            (Units::Usec, "1234.567"),
            (Units::Msec, "1.234567"),
            (Units::Sec, "0.001234567"),
        ] {
            assert_eq!(units.exact(1_234_567), text);
        }
        assert_eq!(Units::Usec.exact(5), "0.005");
        // From the examples of rocprofv3's user guide.
        for (value, text) in [
            (70_019_405.25, "7.002e+07"),
            (106.2, "1.062e+02"),
            (0.0, "0.000e+00"),
        ] {
            assert_eq!(scientific(value), text);
        }
    }

    #[test]
    fn groups_match_whole_names() {
        let group = DomainGroup::new("KERNEL_DISPATCH|MEMORY_COPY").unwrap();
        assert!(group.regex.is_match("MEMORY_COPY") && group.regex.is_match("KERNEL_DISPATCH"));
        assert!(!group.regex.is_match("MEMORY_COPY_2"));
        assert!(DomainGroup::new("HIP)|(API").is_err());
    }
}
