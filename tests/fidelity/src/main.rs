//! Runs the matrix and prints the report. `cargo xtask fidelity` builds everything needed and calls
//! it.

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use gputrace_fidelity::{
    Figures, exit_code, mixes,
    release::{Release, SIMROCM, SIMROCM_NEWER},
    report::Report,
    run::measure,
    scenario::Scenario,
};
use gputrace_harness::rocm;

/// Compare recordings with what the software GPU really did.
#[derive(Parser)]
struct Arguments {
    /// Which releases; all that are there if none is named
    #[arg(long, value_name = "RELEASE")]
    release: Vec<String>,
    /// Each value of each axis, not each combination, and of real releases the oldest and the
    /// newest
    #[arg(long)]
    quick: bool,
    /// Only the programs whose estimated mean durations are compared; the report's file keeps its
    /// other sections
    #[arg(long)]
    means: bool,
    /// Only scenarios whose description contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Directory of the staged stand-ins for ROCm's libraries
    #[arg(long, value_name = "DIR")]
    simrocm: Option<PathBuf>,
    /// The program under test
    #[arg(long, value_name = "FILE")]
    gputrace: PathBuf,
    /// Write the report into this file, too
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code(Arguments::parse().run())
}

impl Arguments {
    /// Runs the matrix. Returns whether all recordings were true.
    fn run(&self) -> Result<bool> {
        gputrace_e2e::kernel::bpf_usable().map_err(|reason| anyhow!(reason))?;
        let gputrace = self.gputrace.canonicalize().context("--gputrace")?;
        let mut report = Report::new(self.quick);
        for name in self.releases() {
            let release = match (name, &self.simrocm) {
                (SIMROCM | SIMROCM_NEWER, Some(libraries)) => Release::simrocm(name, libraries),
                (SIMROCM | SIMROCM_NEWER, None) => Err(anyhow!("the stand-ins are not staged")),
                _ => Release::find(name),
            };
            match release {
                Ok(release) => self.on(&release, &gputrace, &mut report),
                Err(error) => report.leave_out(name, &format!("{error:#}")),
            }
        }
        let text = report.markdown();
        std::io::stdout().write_all(text.as_bytes())?;
        if let Some(path) = &self.write {
            let text = if self.means {
                let old =
                    std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
                report
                    .with_means(&old)
                    .with_context(|| format!("{}: no report of an earlier run", path.display()))?
            } else {
                text
            };
            std::fs::write(path, &text).with_context(|| path.display().to_string())?;
        }
        Ok(report.is_true())
    }

    /// The names of the releases to run on: the requested ones, or else all of them. With
    /// `--quick`, the oldest and the newest real one, and the stand-ins.
    fn releases(&self) -> Vec<&'static str> {
        let ends = [rocm::names().next(), rocm::names().next_back()];
        let is_wanted = |name: &&'static str| match self.release.as_slice() {
            [] => {
                !self.quick
                    || !rocm::names().any(|real| real == *name)
                    || ends.contains(&Some(*name))
            }
            wanted => wanted.iter().any(|wanted| wanted == name),
        };
        let all = rocm::names().chain([SIMROCM, SIMROCM_NEWER]);
        all.filter(is_wanted).collect()
    }

    fn on(&self, release: &Release, gputrace: &std::path::Path, report: &mut Report) {
        // They take seconds each, and test the recorder more than the release.
        let mixes = if self.quick && release.name != SIMROCM_NEWER {
            Vec::new()
        } else {
            mixes::matrix(self.quick)
        };
        let others = if self.means {
            Vec::new()
        } else {
            Scenario::matrix(self.quick)
        };
        let scenarios: Vec<_> = others
            .into_iter()
            .chain(mixes)
            .filter(|scenario| {
                release.runs(scenario.workload) && scenario.to_string().contains(&self.only)
            })
            .collect();
        for (number, scenario) in scenarios.iter().enumerate() {
            let begin = Instant::now();
            let figures = measure(scenario, release, gputrace);
            eprintln!(
                "{} {}/{} {scenario}: {:.1} s{}",
                release.name,
                number + 1,
                scenarios.len(),
                begin.elapsed().as_secs_f64(),
                trouble(&figures)
            );
            classes(&figures);
            report.add(release, scenario, &figures);
        }
    }
}

/// The flaws of a run in a few lines.
fn trouble(figures: &Figures) -> String {
    let mut lines = String::new();
    for (flaw, found) in &figures.flaws {
        let example = found.examples.first().map_or("", String::as_str);
        lines.push_str(&format!(
            "\n    {} x {}: {example}",
            found.count,
            flaw.words()
        ));
    }
    lines
}

/// Prints the estimates of all classes, if `GPUTRACE_FIDELITY_CLASSES` is set.
fn classes(figures: &Figures) {
    if std::env::var_os("GPUTRACE_FIDELITY_CLASSES").is_none() {
        return;
    }
    for means in &figures.means {
        eprintln!(
            "    {:.0} looks a second, GPU use {:?}",
            means.looks, means.used
        );
        for class in &means.classes {
            let truth = class.truth / 1e3;
            match class.told {
                Some((mean, error)) => eprintln!(
                    "    {:6} x {truth:9.2} us: {:+6.1} %, {:+5.1} errors of {:.1} %",
                    class.count,
                    100.0 * (mean / class.truth - 1.0),
                    (mean - class.truth) / error,
                    100.0 * error / mean
                ),
                None => eprintln!("    {:6} x {truth:9.2} us: not told", class.count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_matrix_is_run_on_both_ends() {
        let releases = |words: &[&str]| {
            let words = ["fidelity", "--gputrace", "g"]
                .into_iter()
                .chain(words.iter().copied());
            Arguments::parse_from(words).releases()
        };
        let stand_ins = [SIMROCM, SIMROCM_NEWER];
        assert_eq!(
            releases(&[]),
            rocm::names().chain(stand_ins).collect::<Vec<_>>()
        );
        assert_eq!(
            releases(&["--quick"]),
            [&["5.2.3", "7.2.4"], &stand_ins[..]].concat()
        );
        assert_eq!(releases(&["--quick", "--release", "5.7.1"]), ["5.7.1"]);
    }
}
