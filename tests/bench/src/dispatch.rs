//! What tracing costs a program that does nothing but launch kernels, on real runtimes with a
//! software GPU.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use gputrace_fidelity::{
    release::{Release, equip},
    scenario::{WORKLOADS, Workload},
};
use gputrace_releases::RELEASES;

use crate::{
    Options,
    programs::{Statistics, measured_of},
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
    let mut hits = Table::new(
        "Hits for each launch",
        &[
            "release; options",
            "hits/launch",
            "in programs, ns/launch",
            "hits of each program",
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
        for (with, arguments) in VARIANTS {
            let name = format!("{} {with}", release.name);
            hits_of(options, &release, arguments, &name, &mut hits)?;
        }
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
    table.print()?;
    hits.note(format!(
        "Runs of gputrace's eBPF programs, as the kernel counts and times them, of {MORE} launches \
         less those of {LESS}."
    ));
    hits.print()
}

/// Numbers of launches of two runs. What is hit at the begin and at the end is the same in both, so
/// their difference leaves it out.
const LESS: u32 = 10_000;
const MORE: u32 = 30_000;

/// Adds a row with what is hit for each launch.
fn hits_of(
    options: &Options,
    release: &Release,
    with: &[&str],
    name: &str,
    table: &mut Table,
) -> Result<()> {
    let less = runs(options, release, with, LESS)?;
    let more = runs(options, release, with, MORE)?;
    let mut all = Vec::new();
    let (mut hits, mut time) = (0.0, 0.0);
    for (program, (runs, nanoseconds)) in more {
        let (fewer, earlier) = less.get(&program).copied().unwrap_or_default();
        let each = |more: u64, less: u64| (more as f64 - less as f64) / f64::from(MORE - LESS);
        let runs = each(runs, fewer);
        hits += runs;
        time += each(nanoseconds, earlier);
        if runs >= 0.005 {
            all.push(format!("{program} {runs:.2}"));
        }
    }
    table.row(&[
        &name,
        &format!("{hits:.2}"),
        &format!("{time:.0}"),
        &all.join(", "),
    ]);
    Ok(())
}

/// Runs of each of gputrace's programs, and the time in them, ns, until so many kernels have been
/// launched.
fn runs(
    options: &Options,
    release: &Release,
    with: &[&str],
    launches: u32,
) -> Result<BTreeMap<String, (u64, u64)>> {
    let _statistics = Statistics::enable()?;
    let place = tempfile::tempdir()?;
    let mut command = launching(options, release, Some(with), place.path(), launches)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut recorder = command.spawn()?;
    let said = recorder.stdout.take().context("its output")?;
    let ended = BufReader::new(said)
        .lines()
        .map_while(Result::ok)
        .any(|line| line.ends_with(" launches/s"));
    ensure!(ended, "the program did not launch its kernels");
    let mut programs = BTreeMap::new();
    for program in measured_of(recorder.id()) {
        let known: &mut (u64, u64) = programs.entry(program.name).or_default();
        known.0 += program.runs;
        known.1 += program.nanoseconds;
    }
    drop(recorder.stdin.take());
    let status = recorder.wait()?;
    ensure!(status.success(), "gputrace ended with {status}");
    Ok(programs)
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
    let mut command = launching(options, release, traced, place.path(), 20_000)?;
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

/// The command that launches so many kernels, traced with these options or alone.
fn launching(
    options: &Options,
    release: &Release,
    traced: Option<&[&str]>,
    place: &Path,
    launches: u32,
) -> Result<Command> {
    fs::write(place.join("softgpu.toml"), SETTINGS)?;
    let workload = Workload {
        program: "launches",
        ..*WORKLOADS.first().context("no workload")?
    };
    let launches = launches.to_string();
    let program = release.program(&workload, &["1", &launches]);
    let mut command = match traced {
        None => Command::new(program.get_program()),
        Some(with) => recorder(options, with, place, &program),
    };
    command.args(program.get_args());
    equip(&mut command, place)?;
    // The truth is not needed, and costs the software GPU time.
    command.env_remove("SOFTGPU_LOG");
    Ok(command)
}

fn recorder(options: &Options, with: &[&str], place: &Path, program: &Command) -> Command {
    let mut command = Command::new(&options.gputrace);
    command.args(["-f", "csv", "-d"]).arg(place).args(with);
    command.arg("--").arg(program.get_program());
    command
}
