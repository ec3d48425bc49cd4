//! Measures the cost of looks at read indices, for the recorder and for the program.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use gputrace_capture::ledger::{Ledger, Looks};
use gputrace_simrocm::{HipSoname, stage};

use crate::{
    Options, accounts,
    report::{Table, grouped, median},
};

/// Kernels per second, and their duration on the software GPU.
const RATE: u64 = 20_000;
const SETTINGS: &str = "default_duration = { fixed_ns = 20_000 }\n";

/// Budgets that are compared, in percent of a core.
const BUDGETS: [&str; 3] = ["0", "2", "20"];

/// A program that submits kernels without completion signals.
struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(libraries: &Path, place: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("dispatch")
            .arg(format!("--rate={RATE}"))
            .env("LD_LIBRARY_PATH", libraries)
            .env("SOFTGPU_CONFIG", place.join("softgpu.toml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut program = Self {
            child,
            stdin,
            stdout,
        };
        ensure!(program.line()? == "ready", "the program has not started");
        Ok(program)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// What it has submitted so far, and the time spent on that, ns.
    fn ask(&mut self) -> Result<(f64, f64)> {
        writeln!(self.stdin)?;
        let line = self.line()?;
        let (kernels, time) = line.split_once(' ').context("two numbers")?;
        Ok((kernels.parse()?, time.parse()?))
    }

    /// Over this time: kernels per second, and the thread's ns per kernel.
    fn watch(&mut self, time: Duration) -> Result<(f64, f64)> {
        let before = self.ask()?;
        thread::sleep(time);
        let after = self.ask()?;
        let kernels = after.0 - before.0;
        Ok((
            kernels / time.as_secs_f64(),
            (after.1 - before.1) / kernels.max(1.0),
        ))
    }

    fn end(mut self) -> Result<()> {
        drop(self.stdin);
        ensure!(self.child.wait()?.success(), "the program failed");
        Ok(())
    }
}

/// One round of a variant.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    rate: f64,
    each: f64,
    looks: Looks,
}

/// Prints the cost of looks at 20,000 kernels per second.
///
/// # Errors
///
/// When the stand-ins cannot be built, or gputrace fails.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let (turns, time) = if options.quick {
        (3, Duration::from_secs(3))
    } else {
        (7, Duration::from_secs(5))
    };
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    let libraries = stage(place, HipSoname::Six)?;
    fs::write(place.join("softgpu.toml"), SETTINGS)?;
    let mut alone = Vec::new();
    let mut variants = vec![Vec::new(); BUDGETS.len()];
    for _ in 0..turns {
        let mut program = Program::start(&libraries, place)?;
        let (rate, each) = program.watch(time)?;
        program.end()?;
        alone.push(Turn {
            rate,
            each,
            looks: Looks::default(),
        });
        for (budget, turns) in BUDGETS.iter().zip(&mut variants) {
            turns.push(recorded(options, &libraries, place, budget, time)?);
        }
    }
    print(&alone, &variants, time)
}

/// Records a program with this budget.
fn recorded(
    options: &Options,
    libraries: &Path,
    place: &Path,
    budget: &str,
    time: Duration,
) -> Result<Turn> {
    let mut program = Program::start(libraries, place)?;
    let mut recorder = Command::new(&options.gputrace)
        .args([
            "-r",
            "-f",
            "csv",
            "--force",
            "-o",
            "looks",
            "--look-budget",
            budget,
            "-d",
        ])
        .arg(place)
        .arg("-p")
        .arg(program.child.id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", options.gputrace.display()))?;
    let mut said = BufReader::new(recorder.stderr.take().context("a pipe")?);
    let mut line = String::new();
    while !line.contains("recording") {
        line.clear();
        ensure!(said.read_line(&mut line)? != 0, "gputrace has ended");
    }
    // Later output is ignored, but the recorder must not block on a full pipe.
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let (rate, each) = program.watch(time)?;
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&recorder),
        rustix::process::Signal::INT,
    )?;
    ensure!(recorder.wait()?.success(), "gputrace failed");
    program.end()?;
    let Ledger { looks, .. } = accounts::last(&place.join("looks.gtcap"))?;
    let looks = looks.context("what looks came to is not in the account")?;
    Ok(Turn { rate, each, looks })
}

fn print(alone: &[Turn], variants: &[Vec<Turn>], time: Duration) -> Result<()> {
    let mut table = Table::new(
        "Looks at read indices",
        &[
            "variant",
            "kernels/s",
            "submitting one, ns",
            "against alone",
            "against no looks",
            "looks/s",
            "CPU of looks, % of a core",
            "busiest second, %",
            "a look, us",
            "median period, us",
        ],
    );
    let middle = |turns: &[Turn], of: &dyn Fn(&Turn) -> f64| {
        median(&turns.iter().map(of).collect::<Vec<_>>())
    };
    // By round, so that a change of the machine's speed affects both.
    let against = |turns: &[Turn], others: &[Turn]| {
        let ratios = turns
            .iter()
            .zip(others)
            .map(|(one, other)| one.each / other.each);
        format!("{:.2}", median(&ratios.collect::<Vec<_>>()))
    };
    let submitted = |turns: &[Turn]| {
        (
            grouped(middle(turns, &|turn| turn.rate) as u64),
            format!("{:.0}", middle(turns, &|turn| turn.each)),
        )
    };
    let (rate, each) = submitted(alone);
    table.row(&[&"alone", &rate, &each]);
    let none = variants.first().map(Vec::as_slice).unwrap_or_default();
    for (budget, turns) in BUDGETS.iter().zip(variants) {
        let of = |of: &dyn Fn(&Looks) -> f64| middle(turns, &|turn: &Turn| of(&turn.looks));
        let (rate, each) = submitted(turns);
        table.row(&[
            &format!("`--look-budget {budget}`"),
            &rate,
            &each,
            &against(turns, alone),
            &against(turns, none),
            &format!(
                "{:.0}",
                of(&|looks| looks.looks as f64 * 1e9 / looks.time.max(1) as f64)
            ),
            &format!("{:.2}", of(&|looks| looks.share() * 100.0)),
            &format!("{:.2}", of(&|looks| looks.busiest as f64 / 1e7)),
            &format!(
                "{:.1}",
                of(&|looks| looks.cpu as f64 / 1e3 / looks.looks.max(1) as f64)
            ),
            &format!("{:.0}", of(&|looks| looks.period as f64 / 1e3)),
        ]);
    }
    table.note(format!(
        "{} kernels of 20 us without completion signals a second, in groups of 64, on the stand-ins; `gputrace -r -p` of it; \
         medians of {} turns of {} s in which the variants take turns. CPU of looks: the watching thread and the process that \
         reads for it. Aim: at most 2 % of a core, and a program that is not slower than without looks.",
        grouped(RATE),
        alone.len(),
        time.as_secs(),
    ));
    table.print()
}
