//! Compares two recordings: which kernels, copies and calls became slower or faster.
//!
//! A [`Side`] holds the data of one recording that is compared; [`SideExporter`] collects it in an
//! export, in memory that grows with the number of names. [`Difference`] compares two sides by
//! domain and name. It counts the same as the statistics: calls that returned, and GPU work whose
//! times are real. Work that could not be measured is counted separately, because a kernel without
//! times in one of the recordings must not look fast.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use gputrace_abi::domain::Domain;
use gputrace_text::tables::{Align, count, duration, plural, table, with_error};
use gputrace_text::{Page, json, outside};
use gputrace_timeline::event::{CallEnd, Event};
use serde::Serialize;

use crate::summary::stats::Durations;
use gputrace_export::{
    exporter::{ExportError, Exporter, Output},
    functions::{Functions, group},
    gpu::Gpus,
    lengths::{Length, Sum},
};

/// A change within this many standard errors counts as none.
const ERRORS: f64 = 2.0;

/// Maximum width of a name in the text.
const WIDEST_NAME: usize = 60;

/// The data of one recording that is compared.
#[derive(Debug, Default)]
pub struct Side {
    /// Its name for the user, e.g. the capture's path.
    pub name: String,
    hostname: String,
    begin: u64,
    end: u64,
    /// Whether it was read to its end.
    is_whole: bool,
    /// By the domain's name in files, e.g. `hip_api`, `kernel`.
    domains: BTreeMap<&'static str, HashMap<String, Entry>>,
    functions: Functions,
    gpus: Gpus,
}

/// One function, kernel or direction.
#[derive(Debug, Default)]
struct Entry {
    durations: Durations,
    /// Sum of the durations, and the number of unknown ones: of calls that had not returned, and of
    /// work without known times.
    sum: Sum,
}

impl Side {
    /// Takes an event.
    pub fn event(&mut self, event: &Event) {
        self.gpus.learn(event);
        match event {
            Event::Recording(recording) => {
                self.hostname.clone_from(&recording.hostname);
                self.begin = recording.clocks.boottime;
                self.end = self.begin;
            }
            Event::Function(info) => self.functions.learn(info),
            Event::Call(call) => {
                let took = call.end.saturating_sub(call.begin);
                let returned = matches!(call.how, CallEnd::Returned(_));
                let names = self.domains.entry(group(call.domain)).or_default();
                entry(names, self.functions.name(call.function))
                    .add(returned.then(|| Length::exact(took)));
                self.end = self.end.max(call.end);
            }
            Event::Dispatch(dispatch) => {
                let names = self
                    .domains
                    .entry(Domain::KernelDispatch.csv_stem())
                    .or_default();
                entry(names, &self.gpus.kernel_name(dispatch)).add(Length::of(&dispatch.time));
            }
            Event::Copy(copy) => {
                let names = self
                    .domains
                    .entry(Domain::MemoryCopy.csv_stem())
                    .or_default();
                entry(names, copy.direction.name()).add(Length::of(&copy.time));
            }
            Event::End(end) => {
                self.end = end.time;
                self.is_whole = true;
            }
            _ => {}
        }
    }

    fn get(&self, domain: &str, name: &str) -> Option<&Entry> {
        self.domains.get(domain)?.get(name)
    }

    fn about(&self) -> About {
        About {
            capture: self.name.clone(),
            hostname: self.hostname.clone(),
            recorded_ns: self.end.saturating_sub(self.begin),
        }
    }
}

fn entry<'a>(names: &'a mut HashMap<String, Entry>, name: &str) -> &'a mut Entry {
    // Not `entry`, which would need a new string for each call.
    if !names.contains_key(name) {
        names.insert(name.to_owned(), Entry::default());
    }
    #[expect(clippy::unwrap_used, reason = "inserted above")]
    names.get_mut(name).unwrap()
}

impl Entry {
    fn add(&mut self, length: Option<Length>) {
        self.sum.add(length);
        if let Some(length) = length {
            self.durations.add(length.ns);
        }
    }

    fn figures(&self) -> Figures {
        let measured = &self.durations;
        let (mean, mean_error) = self.sum.mean();
        Figures {
            count: self.sum.count(),
            measured: measured.calls,
            sampled: self.sum.estimated(),
            of_classes: self.sum.estimated_by_classes(),
            total_ns: u64::try_from(measured.total).unwrap_or(u64::MAX),
            total_error_ns: self.sum.error(),
            mean_ns: mean,
            mean_error_ns: mean_error,
            p50_ns: measured.percentile(50.0),
            p95_ns: measured.percentile(95.0),
        }
    }
}

/// Collects a [`Side`] in an export.
#[derive(Debug)]
pub struct SideExporter {
    side: Arc<Mutex<Side>>,
}

impl SideExporter {
    /// Collects into `side`, which is complete when the export has ended.
    #[must_use]
    pub fn new(side: Arc<Mutex<Side>>) -> Self {
        Self { side }
    }
}

impl Exporter for SideExporter {
    fn format(&self) -> &'static str {
        "diff"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.side
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .event(event);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        Ok(Vec::new())
    }
}

/// Identifies a recording.
#[derive(Clone, Debug, Serialize)]
struct About {
    capture: String,
    hostname: String,
    recorded_ns: u64,
}

/// Figures of one name in one recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Number of calls or pieces of work.
    pub count: u64,
    /// How many of them have a known duration; the fields below are about these.
    pub measured: u64,
    /// How many of `measured` have estimated times.
    pub sampled: u64,
    /// How many of `sampled` have the mean duration of their class: percentiles then do not
    /// describe single ones.
    pub of_classes: u64,
    /// Sum of durations, ns.
    pub total_ns: u64,
    /// Standard error of the sum, ns; 0 if all durations are exact.
    pub total_error_ns: f64,
    /// Mean duration, ns.
    pub mean_ns: f64,
    /// Standard error of the mean, ns.
    pub mean_error_ns: f64,
    /// Median, ns, at most 1 % too high.
    pub p50_ns: u64,
    /// 95th percentile, ns, at most 1 % too high.
    pub p95_ns: u64,
}

impl Figures {
    /// Whether the means differ by at most two standard errors. Exact means have no error.
    fn is_within_errors(&self, other: &Self) -> bool {
        let error = self.mean_error_ns.hypot(other.mean_error_ns);
        error > 0.0 && (self.mean_ns - other.mean_ns).abs() <= ERRORS * error
    }

    /// By how much the mean over all can differ from that over the measured ones, if the others take
    /// nothing at least and twice their mean at most; ns.
    fn unmeasured_ns(&self) -> f64 {
        let unmeasured = self.count.saturating_sub(self.measured);
        self.mean_ns * unmeasured as f64 / self.count.max(1) as f64
    }

    /// Whether the means differ, but by no more than durations that are not known can explain.
    fn is_within_unmeasured(&self, other: &Self) -> bool {
        let unmeasured = self.unmeasured_ns() + other.unmeasured_ns();
        unmeasured > 0.0 && (self.mean_ns - other.mean_ns).abs() <= unmeasured
    }
}

/// How a name changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is only in the second recording.
    New,
    /// It is only in the first recording.
    Gone,
    /// Its mean duration grew by more than 1 %, and by more than two standard errors of the two
    /// means.
    Slower,
    /// Its mean duration shrank by more than that.
    Faster,
    /// Neither.
    Same,
    /// One of the recordings has no durations of it, or so few that those of the others may be the
    /// whole difference; or it was not read to its end, and what was read has nothing of it.
    Unmeasured,
}

impl Verdict {
    /// `are_whole`: whether the recordings were read to their ends.
    fn of(before: Option<Figures>, after: Option<Figures>, are_whole: [bool; 2]) -> Self {
        match (before, after) {
            (None, _) if are_whole[0] => Self::New,
            (_, None) if are_whole[1] => Self::Gone,
            (None, _) | (_, None) => Self::Unmeasured,
            (Some(before), Some(after)) if before.measured == 0 || after.measured == 0 => {
                Self::Unmeasured
            }
            (Some(before), Some(after)) if before.is_within_errors(&after) => Self::Same,
            (Some(before), Some(after)) => {
                let changed = if after.mean_ns > before.mean_ns * 1.01 {
                    Self::Slower
                } else if after.mean_ns < before.mean_ns / 1.01 {
                    Self::Faster
                } else {
                    return Self::Same;
                };
                if before.is_within_unmeasured(&after) {
                    Self::Unmeasured
                } else {
                    changed
                }
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Unmeasured => "unmeasured",
        }
    }
}

/// One function, kernel or direction in both recordings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The domain's name in files, e.g. `hip_api`, `kernel`.
    pub domain: &'static str,
    /// Name as shown.
    pub name: String,
    /// Figures in the first recording.
    pub before: Option<Figures>,
    /// Figures in the second recording.
    pub after: Option<Figures>,
    /// Second total minus first total, ns.
    pub change_ns: i64,
    /// Second mean divided by first mean, if both are measured and not 0.
    pub ratio: Option<f64>,
    /// How it changed.
    pub verdict: Verdict,
}

/// A comparison of two recordings.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    before: About,
    after: About,
    /// Largest change of total time first.
    pub rows: Vec<Row>,
}

impl Difference {
    /// Compares `after` with `before`.
    #[must_use]
    pub fn new(before: &Side, after: &Side) -> Self {
        let names_of = |side: &Side| -> Vec<(&'static str, String)> {
            side.domains
                .iter()
                .flat_map(|(domain, names)| names.keys().map(|name| (*domain, name.clone())))
                .collect()
        };
        let mut names = names_of(before);
        names.extend(names_of(after));
        names.sort_unstable();
        names.dedup();
        let mut rows: Vec<Row> = names
            .into_iter()
            .map(|(domain, name)| {
                let [old, new] =
                    [before, after].map(|side| side.get(domain, &name).map(Entry::figures));
                let total = |figures: Option<Figures>| {
                    i128::from(figures.map_or(0, |figures| figures.total_ns))
                };
                let change = total(new) - total(old);
                let ratio = old
                    .zip(new)
                    .filter(|(old, new)| old.mean_ns > 0.0 && new.measured > 0)
                    .map(|(old, new)| new.mean_ns / old.mean_ns);
                Row {
                    domain,
                    name,
                    before: old,
                    after: new,
                    change_ns: change.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
                    ratio,
                    verdict: Verdict::of(old, new, [before.is_whole, after.is_whole]),
                }
            })
            .collect();
        // The sort is stable: equal changes stay in order of domains and names.
        rows.sort_by_key(|row| std::cmp::Reverse(row.change_ns.unsigned_abs()));
        Self {
            before: before.about(),
            after: after.about(),
            rows,
        }
    }

    /// The whole comparison as a JSON document.
    #[must_use]
    pub fn json(&self) -> String {
        // Strings and numbers can always be serialized.
        let mut text = json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Text for people: the `top` rows with the largest changes.
    #[must_use]
    pub fn text(&self, top: usize) -> String {
        let mut page = Page::new(String::new());
        // Writing to a string cannot fail.
        let _ = self.write(&mut page, top);
        page.into_inner()
    }

    fn write(&self, text: &mut Page<String>, top: usize) -> fmt::Result {
        for (title, about) in [("before", &self.before), ("after ", &self.after)] {
            text.line(format_args!(
                "{title}  {}: {} on {}",
                about.capture,
                duration(about.recorded_ns as f64),
                about.hostname
            ))?;
        }
        if self.rows.is_empty() {
            return text.paragraph(format_args!(
                "Neither recording has calls, dispatches or copies."
            ));
        }
        text.blank()?;
        let mut cells = vec![
            [
                "domain", "name", "count", "", "total", "", "change", "mean", "", "ratio", "p50",
                "", "p95", "", "",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        cells.extend(self.rows.iter().take(top).map(cells_of));
        let right = [Align::Right; 12];
        let align: Vec<Align> = [Align::Left; 2]
            .iter()
            .chain(&right)
            .chain(&[Align::Left])
            .copied()
            .collect();
        table(text, &align, &cells)?;
        if self.rows.len() > top {
            text.paragraph(format_args!(
                "{} changed less (--top 0 shows all).",
                count((self.rows.len() - top) as u64, "more row")
            ))?;
        }
        let unmeasured = self
            .rows
            .iter()
            .flat_map(|row| [row.before, row.after])
            .flatten();
        let (unmeasured, sampled) = unmeasured.fold((0, 0), |(unmeasured, sampled), figures| {
            (
                unmeasured + figures.count - figures.measured,
                sampled + figures.sampled,
            )
        });
        if unmeasured > 0 {
            let many = "calls, dispatches and copies have";
            text.paragraph(format_args!(
                "{} no duration (not returned, or nothing tells how long it took on the GPU): \
                 counted, not in times. Totals marked >= are those of the others. unmeasured: \
                 theirs may be the whole difference.",
                plural(unmeasured, "call, dispatch or copy has", many)
            ))?;
        }
        if sampled > 0 {
            text.paragraph(format_args!(
                "Times of {} are estimates; +- is the standard error. A change within two standard \
                 errors counts as none.",
                plural(sampled, "dispatch or copy", "dispatches and copies")
            ))?;
        }
        text.paragraph(format_args!(
            "Pairs of columns: before, after. Ratio: mean after / mean before."
        ))
    }
}

fn cells_of(row: &Row) -> Vec<String> {
    let pair = |show: &dyn Fn(&Figures) -> String| {
        [row.before, row.after].map(|figures| figures.as_ref().map_or("-".to_owned(), show))
    };
    let time = |of: fn(&Figures) -> (f64, f64)| {
        pair(&move |figures: &Figures| {
            let (ns, error) = of(figures);
            if figures.measured == 0 {
                "?".to_owned()
            } else {
                with_error(ns, error)
            }
        })
    };
    let is_unmeasured = row.verdict == Verdict::Unmeasured;
    let percentile = |of: fn(&Figures) -> u64| {
        pair(
            &move |figures: &Figures| match (figures.measured, figures.of_classes) {
                (0, _) => "?".to_owned(),
                (_, 0) => duration(of(figures) as f64),
                _ => "-".to_owned(),
            },
        )
    };
    let shown = outside(&row.name).terminal();
    let mut name: String = shown.chars().take(WIDEST_NAME).collect();
    if name.len() < shown.len() {
        name.push_str("...");
    }
    let sign = if row.change_ns < 0 { '-' } else { '+' };
    let error = |figures: Option<Figures>| figures.map_or(0.0, |figures| figures.total_error_ns);
    let error = error(row.before).hypot(error(row.after));
    let change = if is_unmeasured {
        "?".to_owned()
    } else {
        format!(
            "{sign}{}",
            with_error(row.change_ns.unsigned_abs() as f64, error)
        )
    };
    let ratio = match row.ratio {
        _ if is_unmeasured => "?".to_owned(),
        Some(ratio) => format!("{ratio:.2}"),
        None => "-".to_owned(),
    };
    let mut cells = vec![row.domain.to_owned(), name];
    cells.extend(pair(&|figures| figures.count.to_string()));
    let at_least = |figures: Option<Figures>| {
        figures.is_some_and(|figures| (1..figures.count).contains(&figures.measured))
    };
    let totals = time(|figures| (figures.total_ns as f64, figures.total_error_ns));
    for (total, figures) in totals.into_iter().zip([row.before, row.after]) {
        cells.push(if at_least(figures) {
            format!(">= {total}")
        } else {
            total
        });
    }
    cells.push(change);
    cells.extend(time(|figures| (figures.mean_ns, figures.mean_error_ns)));
    cells.push(ratio);
    cells.extend(percentile(|figures| figures.p50_ns));
    cells.extend(percentile(|figures| figures.p95_ns));
    cells.push(row.verdict.name().to_owned());
    cells
}

#[cfg(test)]
mod tests;
