//! Two recordings compared: which kernels, copies and calls became slower or faster.
//!
//! A [`Side`] is what is compared of one recording; [`SideExporter`] collects it in an export, in memory that grows
//! with the number of names. [`Difference`] sets two sides against each other, by domain and name. It counts what
//! the statistics count: calls that returned, and GPU work whose times are real; what it could not measure is
//! counted beside it, because a kernel without times in one of the recordings must not look fast.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use gputrace_abi::domain::Domain;
use gputrace_text::tables::{Align, duration, table, with_error};
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

/// Standard errors within which a change is none.
const ERRORS: f64 = 2.0;

/// Widest name in the text.
const WIDEST_NAME: usize = 60;

/// What is compared of one recording.
#[derive(Debug, Default)]
pub struct Side {
    /// What the user calls it, e.g. the capture's path.
    pub name: String,
    hostname: String,
    begin: u64,
    end: u64,
    /// By domain's name in files, e.g. `hip_api`, `kernel`.
    domains: BTreeMap<&'static str, HashMap<String, Entry>>,
    functions: Functions,
    gpus: Gpus,
}

/// One function, kernel or direction.
#[derive(Debug, Default)]
struct Entry {
    durations: Durations,
    /// Their sum, and how many have no duration: calls that had not returned, work of which it is not known.
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
            Event::End(end) => self.end = end.time,
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
    /// Collects into `side`, which is complete when the export is over.
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

/// What a recording is.
#[derive(Clone, Debug, Serialize)]
struct About {
    capture: String,
    hostname: String,
    recorded_ns: u64,
}

/// One name in one recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// How many there are.
    pub count: u64,
    /// Those with a duration; the rest is about these.
    pub measured: u64,
    /// Those of them whose times are estimates.
    pub sampled: u64,
    /// Those of these whose durations are the means of their classes: percentiles say nothing of single ones then.
    pub of_classes: u64,
    /// Sum of durations, ns.
    pub total_ns: u64,
    /// Standard error of the sum, ns; 0 if all are exact.
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
    /// Whether the means differ by no more than two standard errors. Exact ones have none.
    fn is_within_errors(&self, other: &Self) -> bool {
        let error = self.mean_error_ns.hypot(other.mean_error_ns);
        error > 0.0 && (self.mean_ns - other.mean_ns).abs() <= ERRORS * error
    }
}

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Only in the second recording.
    New,
    /// Only in the first.
    Gone,
    /// Its mean duration grew by more than 1 % and by more than two standard errors of the two means.
    Slower,
    /// It shrank by more than that.
    Faster,
    /// Neither.
    Same,
    /// One of the recordings has no durations of it.
    Unmeasured,
}

impl Verdict {
    fn of(before: Option<Figures>, after: Option<Figures>) -> Self {
        match (before, after) {
            (None, _) => Self::New,
            (_, None) => Self::Gone,
            (Some(before), Some(after)) if before.measured == 0 || after.measured == 0 => {
                Self::Unmeasured
            }
            (Some(before), Some(after)) if before.is_within_errors(&after) => Self::Same,
            (Some(before), Some(after)) if after.mean_ns > before.mean_ns * 1.01 => Self::Slower,
            (Some(before), Some(after)) if after.mean_ns < before.mean_ns / 1.01 => Self::Faster,
            _ => Self::Same,
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
    /// In the first recording.
    pub before: Option<Figures>,
    /// In the second.
    pub after: Option<Figures>,
    /// Second total less first total, ns.
    pub change_ns: i64,
    /// Second mean / first mean, if both are measured and not 0.
    pub ratio: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
}

/// Two recordings compared.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    before: About,
    after: About,
    /// Greatest change of total time first.
    pub rows: Vec<Row>,
}

impl Difference {
    /// `after` compared with `before`.
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
                    verdict: Verdict::of(old, new),
                }
            })
            .collect();
        // Stable: what changed equally stays in the order of domains and names.
        rows.sort_by_key(|row| std::cmp::Reverse(row.change_ns.unsigned_abs()));
        Self {
            before: before.about(),
            after: after.about(),
            rows,
        }
    }

    /// All of it as one JSON document.
    #[must_use]
    pub fn json(&self) -> String {
        // Strings and numbers always have a text.
        let mut text = json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// For people: the `top` rows of greatest change.
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
                "{} more rows changed less (--top 0 shows all).",
                self.rows.len() - top
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
            text.paragraph(format_args!("{unmeasured} calls, dispatches and copies have no duration (not returned, or nothing tells how long they took on the GPU): \
                 counted, not in times."))?;
        }
        if sampled > 0 {
            text.paragraph(format_args!(
                "Times of {sampled} dispatches and copies are estimates; +-: standard error. A change within two of them \
                 is called none."
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
    let change = format!(
        "{sign}{}",
        with_error(row.change_ns.unsigned_abs() as f64, error)
    );
    let ratio = row
        .ratio
        .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut cells = vec![row.domain.to_owned(), name];
    cells.extend(pair(&|figures| figures.count.to_string()));
    cells.extend(time(|figures| {
        (figures.total_ns as f64, figures.total_error_ns)
    }));
    cells.push(change);
    cells.extend(time(|figures| (figures.mean_ns, figures.mean_error_ns)));
    cells.push(ratio);
    cells.extend(percentile(|figures| figures.p50_ns));
    cells.extend(percentile(|figures| figures.p95_ns));
    cells.push(row.verdict.name().to_owned());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_export::synthetic::{START, dispatch, estimated, events};

    fn side(change: impl Fn(Event) -> Option<Event>) -> Side {
        let mut side = Side::default();
        for event in events().into_iter().filter_map(change) {
            side.event(&event);
        }
        side
    }

    #[test]
    fn a_recording_does_not_differ_from_itself() {
        let difference = Difference::new(&side(Some), &side(Some));
        assert!(!difference.rows.is_empty());
        for row in &difference.rows {
            assert_eq!(row.change_ns, 0);
            assert!(
                matches!(row.verdict, Verdict::Same | Verdict::Unmeasured),
                "{row:?}"
            );
        }
    }

    #[test]
    fn slower_kernels_come_first_and_gone_calls_are_named() {
        let after = side(|event| match event {
            Event::Dispatch(mut dispatch) => {
                dispatch.time.end += 1_000_000;
                Some(Event::Dispatch(dispatch))
            }
            Event::Call(call) if call.function == 1 => None,
            other => Some(other),
        });
        let difference = Difference::new(&side(Some), &after);
        let first = &difference.rows[0];
        assert_eq!((first.domain, first.verdict), ("kernel", Verdict::Slower));
        assert!(first.ratio.unwrap() > 1.0 && first.change_ns > 0);
        let gone: Vec<_> = difference
            .rows
            .iter()
            .filter(|row| row.verdict == Verdict::Gone)
            .collect();
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].name, "hsa_signal_store_relaxed");
        let text = difference.text(2);
        assert!(
            text.contains("slower") && text.contains("more rows changed less"),
            "{text}"
        );
        let value: serde_json::Value = serde_json::from_str(&difference.json()).unwrap();
        assert_eq!(value["rows"][0]["verdict"], "slower");
        assert_eq!(
            value["rows"].as_array().unwrap().len(),
            difference.rows.len()
        );
    }

    #[test]
    fn a_change_within_the_errors_is_none() {
        let of = |us: u64, error: u64| {
            let mut side = Side::default();
            for id in 1..=10 {
                let begin = START + id * 1_000_000;
                let work = dispatch(id, begin, estimated(begin, begin + us * 1000, 1, error));
                side.event(&Event::Dispatch(Box::new(work)));
            }
            side
        };
        let verdict = |before: &Side, after: &Side| {
            let difference = Difference::new(before, after);
            (difference.rows[0].verdict, difference.text(0))
        };
        // The error of the difference is 5 us.
        assert_eq!(verdict(&of(100, 3000), &of(109, 4000)).0, Verdict::Same);
        assert_eq!(verdict(&of(109, 3000), &of(100, 4000)).0, Verdict::Same);
        let (slower, text) = verdict(&of(100, 3000), &of(111, 4000));
        assert_eq!(slower, Verdict::Slower);
        assert_eq!(verdict(&of(111, 3000), &of(100, 4000)).0, Verdict::Faster);
        assert!(text.contains("estimates"), "{text}");
        let text = Difference::new(&of(100, 3000), &of(111, 4000)).text(5);
        assert!(
            text.contains("100 us +-3") && text.contains("111 us +-4"),
            "{text}"
        );
    }

    #[test]
    fn one_side_may_be_empty() {
        let empty = Side::default();
        let full = side(Some);
        for row in Difference::new(&empty, &full).rows {
            assert_eq!((row.verdict, row.before), (Verdict::New, None));
        }
        for row in Difference::new(&full, &empty).rows {
            assert_eq!((row.verdict, row.after), (Verdict::Gone, None));
        }
        assert!(
            Difference::new(&empty, &empty)
                .text(10)
                .contains("Neither recording")
        );
    }
}
