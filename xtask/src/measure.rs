//! `cargo xtask measure`: figures that no machine promises, each beside what earlier runs have seen.
//!
//! Tests print them as `figure NAME = VALUE UNIT`. They are kept in `target/figures.tsv`, a line for
//! each, with the commit and what the machine did meanwhile. There is no verdict: people judge.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::progress;
use crate::test::Prepared;
use crate::test::evidence::Evidence;
use crate::test::tiers::{Tier, Tiers};
use crate::workspace::Workspace;

/// Arguments of `cargo xtask measure`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests whose id contains this; those of other tiers print figures, too
    filter: Option<String>,
    /// How often each is run
    #[arg(long, default_value_t = 3)]
    times: u32,
}

/// How many earlier values a figure is compared with.
const COMPARED: usize = 20;

/// A figure that a test printed.
#[derive(Clone, Debug, PartialEq)]
struct Figure<'a> {
    name: &'a str,
    value: f64,
    unit: &'a str,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let tiers = Tiers::read(workspace)?;
        let prepared = Prepared::new(workspace, None)?;
        let chosen: Vec<_> = prepared
            .tests()
            .filter(|id| match &self.filter {
                Some(text) => id.to_string().contains(text),
                None => tiers.tier(id) == Tier::Measure,
            })
            .collect();
        if chosen.is_empty() {
            bail!("no test has such a name");
        }
        let mut runner = prepared.runner(workspace);
        fs::create_dir_all(&runner.outputs).context("cannot make a directory for outputs")?;
        // A new one each time, and enough of them.
        runner
            .environment
            .push(("GPUTRACE_MEASURE".to_owned(), "1".into()));
        let path = workspace.target.join("figures.tsv");
        let earlier = fs::read_to_string(&path).unwrap_or_default();
        let commit = commit(workspace);
        let mut seen: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        for id in chosen {
            let test = id.to_string();
            for _ in 0..self.times {
                let ran = runner.run(&id, Duration::from_secs(tiers.limit(&test)), 0)?;
                let state = if ran.passed() { "ran" } else { "outside" };
                progress::line(state, format_args!("{test}"), ran.evidence.wall);
                if !ran.passed() {
                    // What the test thinks is right of a machine like its author's.
                    progress::note(format_args!("{}", ran.output.trim_end()));
                }
                let figures: Vec<Figure<'_>> =
                    ran.output.lines().filter_map(Figure::parse).collect();
                for figure in &figures {
                    let key = (figure.name.to_owned(), figure.unit.to_owned());
                    seen.entry(key).or_default().push(figure.value);
                }
                keep(&path, &commit, &figures, &ran.evidence)?;
            }
        }
        progress::heading(format_args!(
            "figures, beside the last {COMPARED} of earlier runs"
        ));
        for ((name, unit), values) in &seen {
            let before = values_of(&earlier, name);
            let compared = match range(&before) {
                Some((low, middle, high)) => {
                    format!("before {low} to {high}, {middle} in the middle")
                }
                None => "never measured before".to_owned(),
            };
            let (low, middle, high) = range(values).unwrap_or_default();
            progress::result(format_args!(
                "{name} = {middle} {unit} ({low} to {high}; {compared})"
            ))?;
        }
        Ok(())
    }
}

impl<'a> Figure<'a> {
    /// Reads `figure NAME = VALUE UNIT`.
    fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.trim().strip_prefix("figure ")?.split_once(" = ")?;
        let (value, unit) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Self {
            name,
            value: value.parse().ok()?,
            unit,
        })
    }
}

/// The commit that is checked out, with a `+` if files differ from it.
fn commit(workspace: &Workspace) -> String {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        exec::capture(command.args(arguments).current_dir(&workspace.root)).unwrap_or_default()
    };
    let changed = if git(&["status", "--porcelain"]).is_empty() {
        ""
    } else {
        "+"
    };
    format!("{}{changed}", git(&["rev-parse", "--short", "HEAD"]).trim())
}

/// Adds figures to the file of all figures.
fn keep(path: &PathBuf, commit: &str, figures: &[Figure<'_>], noise: &Evidence) -> Result<()> {
    let mut lines = String::new();
    for Figure { name, value, unit } in figures {
        lines += &format!(
            "{}\t{commit}\t{name}\t{value}\t{unit}\t{noise}\n",
            jiff::Timestamp::now()
        );
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes()))
        .with_context(|| format!("cannot write {}", Path::new(path).display()))
}

/// The last values of a figure in the file of all figures.
fn values_of(file: &str, name: &str) -> Vec<f64> {
    let values = file.lines().rev().filter_map(|line| {
        let mut fields = line.split('\t').skip(2);
        (fields.next()? == name).then_some(fields.next()?.parse().ok()?)
    });
    values.take(COMPARED).collect()
}

/// The smallest, the middle and the largest of some values; none of none.
fn range(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    Some((
        *values.first()?,
        *values.get(values.len() / 2)?,
        *values.last()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_kept() {
        let figure = Figure::parse("  figure stop.sigterm = 0.25 s").unwrap();
        assert_eq!(
            figure,
            Figure {
                name: "stop.sigterm",
                value: 0.25,
                unit: "s"
            }
        );
        assert_eq!(Figure::parse("figure x = y"), None);
        assert_eq!(Figure::parse("a figure"), None);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("figures.tsv");
        for value in [3.0, 1.0, 2.0] {
            let figure = Figure {
                value,
                ..figure.clone()
            };
            keep(&path, "abc", &[figure], &Evidence::default()).unwrap();
        }
        let values = values_of(&fs::read_to_string(&path).unwrap(), "stop.sigterm");
        assert_eq!(values, [2.0, 1.0, 3.0]);
        assert_eq!(range(&values), Some((1.0, 2.0, 3.0)));
        assert_eq!(range(&[]), None);
    }
}
