//! What tracing costs a program that does nothing but launch kernels, on real runtimes with a
//! software GPU.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use gputrace_fidelity::{
    release::{Release, equip},
    scenario::{WORKLOADS, Workload},
};
use gputrace_releases::RELEASES;

use crate::{
    Options,
    report::{Table, median},
};

/// Options of gputrace, and what to call them.
const VARIANTS: [(&str, &[&str]); 3] = [
    ("`--kernel-trace`", &["--kernel-trace"]),
    ("`-r`", &["-r"]),
    ("`-s`", &["-s"]),
];

/// Kernels that take no time: the program never waits for the GPU.
const SETTINGS: &str = "default_duration = { fixed_ns = 0 }\n";

/// Prints, for each release that is installed, launches per second alone and traced.
///
/// # Errors
///
/// When no release is installed, or a program fails.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let turns = if options.quick { 3 } else { 7 };
    let mut table = Table::new(
        "What an empty launch costs",
        &[
            "release; options",
            "launches/s",
            "of alone",
            "added, us/launch",
        ],
    );
    let mut is_any = false;
    for release in RELEASES {
        // The others are not installed.
        let Ok(release) = Release::find(release.name) else {
            continue;
        };
        is_any = true;
        of_release(options, &release, turns, &mut table)?;
    }
    ensure!(
        is_any,
        "no release of ROCm is installed: `cargo xtask rocm --fetch`"
    );
    table.note(format!(
        "Medians of {turns} turns, in which alone and traced take turns; the ratio and what is \
         added are computed per turn. One thread launches kernels that take no time and waits \
         after each 50. The software GPU, the program and gputrace share the processors."
    ));
    table.print()
}

fn of_release(options: &Options, release: &Release, turns: usize, table: &mut Table) -> Result<()> {
    let mut alone = Vec::new();
    let mut traced = VARIANTS.map(|_| (Vec::new(), Vec::new(), Vec::new()));
    for _ in 0..turns {
        let base = rate(options, release, None)?;
        alone.push(base);
        for ((_, with), (rates, ratios, added)) in VARIANTS.iter().zip(&mut traced) {
            let rate = rate(options, release, Some(with))?;
            rates.push(rate);
            ratios.push(rate / base);
            added.push(1e6 / rate - 1e6 / base);
        }
    }
    let name = &release.name;
    table.row(&[
        &format!("{name} alone"),
        &format!("{:.0}", median(&alone)),
        &"",
        &"",
    ]);
    for ((with, _), (rates, ratios, added)) in VARIANTS.iter().zip(&traced) {
        table.row(&[
            &format!("{name} {with}"),
            &format!("{:.0}", median(rates)),
            &format!("{:.3}", median(ratios)),
            &format!("{:.2}", median(added)),
        ]);
    }
    Ok(())
}

/// Launches per second, traced with these options or alone.
fn rate(options: &Options, release: &Release, traced: Option<&[&str]>) -> Result<f64> {
    let place = tempfile::tempdir()?;
    fs::write(place.path().join("softgpu.toml"), SETTINGS)?;
    let workload = Workload {
        program: "launches",
        ..*WORKLOADS.first().context("no workload")?
    };
    let program = release.program(&workload, &["1", "20000"]);
    let mut command = match traced {
        None => Command::new(program.get_program()),
        Some(with) => recorder(options, with, place.path(), &program),
    };
    command.args(program.get_args());
    equip(&mut command, place.path())?;
    // The truth is not needed, and costs the software GPU time.
    command.env_remove("SOFTGPU_LOG");
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rate = said
        .lines()
        .find_map(|line| line.strip_suffix(" launches/s"));
    rate.with_context(|| format!("no rate: {said}"))?
        .parse()
        .context("a rate")
}

fn recorder(options: &Options, with: &[&str], place: &Path, program: &Command) -> Command {
    let mut command = Command::new(&options.gputrace);
    command.args(["-f", "csv", "-d"]).arg(place).args(with);
    command.arg("--").arg(program.get_program());
    command
}
