//! Runs the matrix and prints the report: `cargo xtask fidelity` builds what it needs and calls it.

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use gputrace_fidelity::{
    Figures,
    release::{Release, SIMROCM, SIMROCM_NEWER},
    report::Report,
    run::measure,
    scenario::Scenario,
};
use gputrace_runs::rocm::NAMES;

/// Compare recordings with what the software GPU really did.
#[derive(Parser)]
struct Arguments {
    /// Which releases; all that are there if none is named
    #[arg(long, value_name = "RELEASE")]
    release: Vec<String>,
    /// Each value of each axis, not each combination
    #[arg(long)]
    quick: bool,
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
    match Arguments::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    /// Whether all recordings were true.
    fn run(&self) -> Result<bool> {
        gputrace_e2e::kernel::bpf_usable().map_err(|reason| anyhow!(reason))?;
        let gputrace = self.gputrace.canonicalize().context("--gputrace")?;
        let mut report = Report::new(self.quick);
        for name in NAMES.into_iter().chain([SIMROCM, SIMROCM_NEWER]) {
            if !self.release.is_empty() && !self.release.iter().any(|wanted| wanted == name) {
                continue;
            }
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
            std::fs::write(path, &text).with_context(|| path.display().to_string())?;
        }
        Ok(report.is_true())
    }

    fn on(&self, release: &Release, gputrace: &std::path::Path, report: &mut Report) {
        let scenarios = Scenario::matrix(self.quick);
        let scenarios: Vec<_> = scenarios
            .into_iter()
            .filter(|scenario| release.runs(scenario.workload) && scenario.to_string().contains(&self.only))
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
            report.add(release, scenario, &figures);
        }
    }
}

/// The flaws of a run in a few lines.
fn trouble(figures: &Figures) -> String {
    let mut lines = String::new();
    for (flaw, found) in &figures.flaws {
        let example = found.examples.first().map_or("", String::as_str);
        lines.push_str(&format!("\n    {} x {}: {example}", found.count, flaw.words()));
    }
    lines
}
