//! Compares estimated mean durations of kernel classes and estimated GPU use with the truth.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use gputrace_timeline::gpu::{KernelClass, Told};

use crate::{
    compare::Evidence,
    dispatches::Matched,
    figures::{Figures, Flaw},
};

/// A mean is wrong if its error exceeds both this share of the true value and this many of its
/// standard errors: its uncertainty was understated. Chance does not explain that many standard
/// errors.
const WRONG: (f64, f64) = (0.1, 5.0);

/// A dispatch that took longer than the median of its class by more than this, ns, was paused by
/// the kernel, and is left out. The software GPU's processors are real-time threads. Linux lets
/// starved threads run ahead of these for 50 ms in each second, and no GPU does that: one such
/// dispatch doubled the true mean of a class of 2,500.
const PAUSE: u64 = 30_000_000;

/// GPU use is wrong if it lies outside its stated range by more than this many percentage points.
const WRONG_USE: f64 = 2.0;

/// Estimates are required for the classes that make up this share of the GPU's time.
pub const MOST: f64 = 0.95;

/// A class of kernels: its estimate and the truth. Durations in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Number of recorded dispatches.
    pub count: u64,
    /// Their true mean duration.
    pub truth: f64,
    /// Reported mean and standard error; `None` if nothing was reported.
    pub told: Option<(f64, f64)>,
    /// Sum of the durations of these dispatches in the recording.
    pub drawn: u64,
}

impl Class {
    fn total(&self) -> f64 {
        self.truth * self.count as f64
    }

    /// Error of the reported mean, as a share of the true value.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.told.map(|(mean, _)| (mean / self.truth - 1.0).abs())
    }
}

/// GPU use in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// The value in the summary; `None` if it gives only the range.
    pub shown: Option<f64>,
    /// Its range.
    pub range: (f64, f64),
    /// The true value.
    pub truth: f64,
}

impl Use {
    /// Error in percentage points, if a value is given.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.shown.map(|shown| (shown - self.truth).abs())
    }

    /// By how many percentage points the truth lies outside the range.
    fn distance(&self) -> f64 {
        let (least, most) = self.range;
        (least - self.truth).max(self.truth - most).max(0.0)
    }

    /// Whether the truth is in the range, within the precision of its digits.
    #[must_use]
    pub fn is_in_range(&self) -> bool {
        let (least, most) = self.range;
        (least - 0.01..=most + 0.01).contains(&self.truth)
    }
}

/// All classes of a run, and its GPU use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Means {
    /// Classes.
    pub classes: Vec<Class>,
    /// `None` if the summary does not contain it.
    pub used: Option<Use>,
    /// Looks at queues per second.
    pub looks: f64,
}

impl Means {
    /// The classes that make up [`MOST`] of the GPU's time, largest total first.
    #[must_use]
    pub fn heavy(&self) -> Vec<Class> {
        let mut classes = self.classes.clone();
        classes.sort_by(|one, other| other.total().total_cmp(&one.total()));
        let all: f64 = classes.iter().map(Class::total).sum();
        let mut sum = 0.0;
        classes
            .into_iter()
            .take_while(|class| {
                let is_before = sum < MOST * all;
                sum += class.total();
                is_before
            })
            .collect()
    }

    /// The share of the GPU's time in classes whose mean has a relative error of at most `most`; 0
    /// to 1.
    #[must_use]
    pub fn within(&self, most: f64) -> f64 {
        let all: f64 = self.classes.iter().map(Class::total).sum();
        let near = self
            .classes
            .iter()
            .filter(|class| class.error().is_some_and(|error| error <= most));
        // The sum over no classes is -0.
        (near.map(Class::total).sum::<f64>() + 0.0) / all.max(f64::MIN_POSITIVE)
    }

    /// How many reported means are within two of their standard errors of the truth, and the number
    /// of reported means.
    #[must_use]
    pub fn covered(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        for class in &self.classes {
            if let Some((mean, error)) = class.told {
                counts.1 += 1;
                counts.0 += usize::from((mean - class.truth).abs() <= 2.0 * error);
            }
        }
        counts
    }

    /// Spearman's rank correlation of the totals of the reported classes; `None` for fewer than
    /// three classes.
    #[must_use]
    pub fn rank(&self) -> Option<f64> {
        let told: Vec<&Class> = self
            .classes
            .iter()
            .filter(|class| class.told.is_some())
            .collect();
        let count = told.len() as f64;
        let ranks = |total: &dyn Fn(&Class) -> f64| -> Vec<usize> {
            let below = |one: &&Class| {
                told.iter()
                    .filter(|other| total(other) < total(one))
                    .count()
            };
            told.iter().map(below).collect()
        };
        let (truth, shown) = (ranks(&Class::total), ranks(&|class| class.drawn as f64));
        let squares: f64 = truth
            .iter()
            .zip(shown)
            .map(|(one, other)| (*one as f64 - other as f64).powi(2))
            .sum();
        (told.len() >= 3).then(|| 1.0 - 6.0 * squares / (count * (count * count - 1.0)))
    }
}

/// Process, kernel object, grid, workgroup.
type Key = (u32, u64, [u32; 3], [u32; 3]);

/// Compares reported means and GPU use with the truth.
pub fn compare(evidence: &Evidence, matched: &[Matched<'_>], figures: &mut Figures) {
    let Some(summary) = &evidence.summary else {
        return;
    };
    let mut spans: BTreeMap<Key, Vec<(u64, u64)>> = BTreeMap::new();
    for one in matched {
        let dispatch = one.dispatch;
        let Some(end) = one.executed.end else {
            continue;
        };
        let key = (
            dispatch.origin.pid,
            dispatch.kernel_object,
            dispatch.grid,
            dispatch.workgroup,
        );
        spans.entry(key).or_default().push((
            end.ns.saturating_sub(one.executed.begin.ns),
            dispatch.time.end.saturating_sub(dispatch.time.begin),
        ));
    }
    let told = |(pid, kernel_object, grid, workgroup): &Key| {
        let is_it = |class: &&KernelClass| {
            (class.pid, class.kernel_object, class.grid, class.workgroup)
                == (*pid, *kernel_object, *grid, *workgroup)
        };
        let class = evidence.trace.gpu.classes.iter().find(is_it)?;
        let mean = class.mean.filter(|_| class.told == Told::Apart)?;
        Some((mean.value, mean.error))
    };
    let mut means = Means::default();
    for (key, spans) in &mut spans {
        let (count, truth, drawn) = sums(spans);
        let class = Class {
            count,
            truth: truth as f64 / count.max(1) as f64,
            told: told(key),
            drawn,
        };
        if let Some((mean, error)) = class.told {
            let off = (mean - class.truth).abs();
            if off > WRONG.0 * class.truth && off > WRONG.1 * error {
                figures.flaw(Flaw::Mean, || {
                    format!(
                        "grid {:?}: {mean:.0} +- {error:.0} ns for {:.0}",
                        key.2, class.truth
                    )
                });
            }
        }
        means.classes.push(class);
    }
    match gpu_use(evidence, summary) {
        Ok(used) => {
            if used.distance() > WRONG_USE {
                figures.flaw(Flaw::Use, || format!("{used:?}"));
            }
            means.used = Some(used);
        }
        Err(error) => figures.flaw(Flaw::Use, || format!("{error:#}")),
    }
    means.looks = looks(evidence, summary).unwrap_or(0.0);
    figures.means.push(means);
}

/// The number of dispatches that were not paused, and the sums of their true and of their drawn
/// durations, ns; `spans` has both durations of each.
fn sums(spans: &mut [(u64, u64)]) -> (u64, u64, u64) {
    spans.sort_unstable();
    let median = spans.get(spans.len() / 2).map_or(0, |(truth, _)| *truth);
    let whole = spans
        .iter()
        .filter(|(truth, _)| *truth <= median.saturating_add(PAUSE));
    whole.fold((0, 0, 0), |(count, truths, drawns), (truth, drawn)| {
        (count + 1, truths + truth, drawns + drawn)
    })
}

/// Looks at queues per second.
fn looks(evidence: &Evidence, summary: &str) -> Option<f64> {
    let rest = summary.split_once("looks at queues: ")?.1;
    let count: f64 = rest.split(',').next()?.parse().ok()?;
    let recorded = evidence.trace.end.as_ref()?.time - evidence.trace.recording.clocks.boottime;
    Some(count * 1e9 / recorded.max(1) as f64)
}

/// GPU use in the summary's table of GPUs, and the true value.
fn gpu_use(evidence: &Evidence, summary: &str) -> Result<Use> {
    let (shown, range) = shown(summary).with_context(|| format!("no GPU use in: {summary}"))?;
    let begin = evidence.trace.recording.clocks.boottime;
    let end = evidence
        .trace
        .end
        .as_ref()
        .context("the recording has no end")?
        .time;
    let mut spans: Vec<(u64, u64)> = evidence
        .truth
        .dispatches
        .iter()
        .map(|one| {
            let ended = one.end.map_or(end, |ended| ended.ns);
            (one.begin.ns.clamp(begin, end), ended.clamp(begin, end))
        })
        .collect();
    spans.sort_unstable();
    let (mut busy, mut until) = (0, begin);
    for (from, to) in spans {
        busy += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    Ok(Use {
        shown,
        range,
        truth: 100.0 * busy as f64 / end.saturating_sub(begin).max(1) as f64,
    })
}

/// The column `% of recording` of the first GPU: `1.25`, `1.25 (1.10-1.40)`, `>= 1.25 (1.10-92.00)`
/// or `0.00-92.00`.
fn shown(summary: &str) -> Option<(Option<f64>, (f64, f64))> {
    const COLUMN: &str = "% of recording";
    let mut lines = summary
        .lines()
        .skip_while(|line| !line.starts_with("GPUs ("));
    let heading = lines.find(|line| line.contains(COLUMN))?;
    let row = lines.find(|line| line.chars().any(|letter| letter.is_ascii_digit()))?;
    // Numbers are right-aligned.
    let end = heading.find(COLUMN)? + COLUMN.len();
    let start = heading.find("Busy")? + "Busy".len();
    let cell = row.get(start..end)?;
    // The column before it ends with a unit, or contains `?`.
    let cell = cell.rsplit_once("  ").map_or(cell, |(_, last)| last).trim();
    let between = |range: &str| {
        let (least, most) = range.split_once('-')?;
        Some((least.parse().ok()?, most.parse().ok()?))
    };
    Some(match cell.split_once('(') {
        None => match (cell.parse().ok(), between(cell)) {
            (Some(shown), _) => (Some(shown), (shown, shown)),
            (None, range) => (None, range?),
        },
        // With `>=`, the value shown is not an estimate.
        Some((shown, range)) => (
            shown.trim().parse().ok(),
            between(range.strip_suffix(')')?)?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(count: u64, truth: f64, told: Option<(f64, f64)>) -> Class {
        let mean = told.map_or(truth, |told| told.0);
        Class {
            count,
            truth,
            told,
            drawn: (mean * count as f64) as u64,
        }
    }

    #[test]
    fn a_dispatch_that_was_paused_does_not_count() {
        let mut spans = vec![(28_000, 30_000); 99];
        spans.push((50_000_000, 27_000));
        assert_eq!(sums(&mut spans), (99, 99 * 28_000, 99 * 30_000));
        // Three of ten take five times as long.
        let mut spans = [vec![(3_000_000, 1); 7], vec![(15_000_000, 1); 3]].concat();
        assert_eq!(sums(&mut spans), (10, 66_000_000, 10));
        assert_eq!(sums(&mut []), (0, 0, 0));
    }

    #[test]
    fn measures_are_of_what_was_told() {
        let means = Means {
            classes: vec![
                class(10, 100.0, Some((104.0, 3.0))),
                class(10, 50.0, Some((54.0, 1.0))),
                class(10, 40.0, None),
                class(1, 5.0, Some((5.0, 1.0))),
            ],
            ..Means::default()
        };
        assert_eq!(means.covered(), (2, 3));
        assert_eq!(means.heavy().len(), 3);
        assert!((means.within(0.05) - 1005.0 / 1905.0).abs() < 1e-9);
        assert!((means.within(0.1) - 1505.0 / 1905.0).abs() < 1e-9);
        assert_eq!(means.rank(), Some(1.0));
    }

    #[test]
    fn gpu_use_is_read_from_the_table() {
        let table = |cells: &str| {
            format!(
                "Kernels\n\nGPUs (executing)\n  GPU               Kernels    Busy       % of recording  Idle gaps\n  \
                 Agent 1 (gfx906)    11475  {cells}       4097\n"
            )
        };
        assert_eq!(
            shown(&table("5.60 s  87.09 (69.37-92.77)")),
            Some((Some(87.09), (69.37, 92.77)))
        );
        assert_eq!(
            shown(&table("     -          0.00-92.77")),
            Some((None, (0.0, 92.77)))
        );
        assert_eq!(
            shown(&table("5.60 s                87.09")),
            Some((Some(87.09), (87.09, 87.09)))
        );
        assert_eq!(shown("no GPUs"), None);
    }
}
