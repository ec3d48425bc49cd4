//! Measures the cost of recording a whole node on which many untraced programs are active.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use gputrace_collect::clocks;
use gputrace_e2e::process::cpu_time;

use crate::{
    Options, accounts,
    library::Library,
    machine::most_resident,
    report::{Table, grouped, median},
};

/// Programs executed and processes created per second.
const EXECS: u32 = 500;
const FORKS: u32 = 200;
/// Number of mappings in each process.
const MAPPINGS: u32 = 500;

/// The amount of activity.
struct Size {
    processes: u32,
    containers: u32,
    /// How long the recorder is measured.
    time: Duration,
    /// Number of new libraries.
    libraries: u32,
    /// Number of recordings that are started and interrupted.
    recordings: u32,
}

impl Size {
    fn of(options: &Options) -> Self {
        if options.quick {
            Self {
                processes: 1000,
                containers: 20,
                time: Duration::from_secs(10),
                libraries: 5,
                recordings: 3,
            }
        } else {
            Self {
                processes: 10_000,
                containers: 200,
                time: Duration::from_secs(30),
                libraries: 10,
                recordings: 2,
            }
        }
    }
}

/// A program that runs until its standard input is closed.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("a pipe")?;
        Ok(Self {
            child,
            stdout: BufReader::new(stdout),
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Lets it end; returns the last line that it prints.
    fn end(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let line = self.line()?;
        self.child.wait()?;
        Ok(line)
    }
}

/// Prints the cost of `gputrace --all`.
///
/// # Errors
///
/// When the activity cannot be set up, or gputrace fails.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let size = Size::of(options);
    let library = Library::build()?;
    let me = std::env::current_exe()?;
    let mut crowd = Running::start(Command::new(&me).arg("crowd").args([
        format!("--processes={}", size.processes),
        format!("--mappings={MAPPINGS}"),
        format!("--execs={EXECS}"),
        format!("--forks={FORKS}"),
    ]))?;
    ensure!(crowd.line()? == "ready", "the crowd has not come together");
    let mut containers = (0..size.containers)
        .map(|number| container(&library, &me, number))
        .collect::<Result<Vec<Running>>>()?;
    for container in &mut containers {
        ensure!(container.line()? == "ready", "a container has not started");
    }

    let mut recorder = record(options, &library)?;
    // The time shortly after the start still belongs to starting.
    thread::sleep(Duration::from_secs(3));
    let before = cpu_time(recorder.child.id())?;
    let begin = Instant::now();
    thread::sleep(size.time);
    let share = (cpu_time(recorder.child.id())?.saturating_sub(before)).as_secs_f64()
        / begin.elapsed().as_secs_f64();
    let fresh = (0..size.libraries)
        .map(|number| new_library(&library, &me, number))
        .collect::<Result<Vec<f64>>>()?;
    let memory = most_resident(recorder.child.id()).unwrap_or(0);
    let mut firsts = vec![recorder.first.as_secs_f64() * 1e3];
    let mut stops = vec![interrupt(&mut recorder.child, &library)?];
    for _ in 1..size.recordings {
        let mut recorder = record(options, &library)?;
        firsts.push(recorder.first.as_secs_f64() * 1e3);
        stops.push(interrupt(&mut recorder.child, &library)?);
    }
    for container in containers {
        container.end()?;
    }
    let rates = crowd.end()?;
    Figures {
        share,
        memory,
        firsts,
        fresh,
        stops,
        rates,
    }
    .print(&size)
}

/// What was measured.
struct Figures {
    /// Of one CPU, in the steady state.
    share: f64,
    /// Bytes, at most.
    memory: u64,
    /// Until a recording begins, ms.
    firsts: Vec<f64>,
    /// From dlopen of a new library to its probes, ms.
    fresh: Vec<f64>,
    /// From Ctrl-C to the end of a recording, and to the end of gputrace, ms.
    stops: Vec<(f64, f64)>,
    /// Programs executed and processes created per second.
    rates: String,
}

impl Figures {
    fn print(self, size: &Size) -> Result<()> {
        let Self {
            share,
            memory,
            firsts,
            mut fresh,
            stops,
            rates,
        } = self;
        let (execs, forks) = rates.split_once(' ').unwrap_or_default();

        let mut table = Table::new(
            "A crowded node",
            &["of `gputrace --all`", "median", "longest", "aim"],
        );
        let longest =
            |times: &[f64]| format!("{:.0} ms", times.iter().copied().fold(0.0, f64::max));
        let middle = |times: &[f64]| format!("{:.0} ms", median(times));
        table.row(&[
            &"CPU in the steady state",
            &format!("{:.1} %", share * 100.0),
            &"",
            &"5 %",
        ]);
        table.row(&[
            &"until the recording begins",
            &middle(&firsts),
            &longest(&firsts),
            &"",
        ]);
        fresh.sort_by(f64::total_cmp);
        table.row(&[
            &"from dlopen of a new library to its probes",
            &middle(&fresh),
            &longest(&fresh),
            &"100 ms",
        ]);
        let (stops, ends): (Vec<f64>, Vec<f64>) = stops.into_iter().unzip();
        table.row(&[
            &"from Ctrl-C to the end of the recording",
            &middle(&stops),
            &longest(&stops),
            &"100 ms",
        ]);
        table.row(&[
            &"until the probes are off and the files written",
            &middle(&ends),
            &longest(&ends),
            &"",
        ]);
        table.row(&[
            &"most memory",
            &format!("{} KiB", grouped(memory / 1024)),
            &"",
            &"",
        ]);
        table.note(format!(
        "{} processes of {MAPPINGS} mappings; {execs} programs executed and {forks} processes created per second; {} \
         containers, each with a library of interest on an overlay mount of its own, called once a second. CPU: all threads \
         of gputrace for {} s, of one CPU.",
        grouped(size.processes.into()),
        size.containers,
        size.time.as_secs(),
    ));
        table.print()
    }
}

/// A recording of the node.
struct Recorder {
    child: Child,
    /// Time from its start until it reports that it is recording.
    first: Duration,
}

fn record(options: &Options, library: &Library) -> Result<Recorder> {
    let begin = Instant::now();
    let mut child = Command::new(&options.gputrace)
        .args(["--all", "-f", "csv", "--force", "-o", "node", "-d"])
        .arg(library.directory())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", options.gputrace.display()))?;
    let mut said = BufReader::new(child.stderr.take().context("a pipe")?);
    let mut line = String::new();
    while !line.contains("recording every process") {
        line.clear();
        ensure!(said.read_line(&mut line)? != 0, "gputrace has ended");
    }
    let first = begin.elapsed();
    // Later output is ignored, but the recorder must not block on a full pipe.
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Ok(Recorder { child, first })
}

/// Times in ms from the signal to the end of the recording, and to the end of the program.
fn interrupt(child: &mut Child, library: &Library) -> Result<(f64, f64)> {
    let (begin, sent) = (Instant::now(), clocks::now());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(child),
        rustix::process::Signal::INT,
    )?;
    let status = child.wait()?;
    let ended = begin.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "gputrace failed: {status}");
    let over = accounts::end(&library.directory().join("node.gtcap"))?;
    Ok((over.saturating_sub(sent) as f64 / 1e6, ended))
}

/// A process in its own mount and pid namespaces, which uses the library through an overlay.
fn container(library: &Library, me: &Path, number: u32) -> Result<Running> {
    let own = library.directory().join(format!("container{number}"));
    fs::create_dir(&own)?;
    let script = format!(
        "mount -t tmpfs none {own} && cd {own} && mkdir upper work merged &&
         mount -t overlay -o lowerdir={lower},upperdir=upper,workdir=work none merged &&
         exec {me} hold merged/{name}",
        own = own.display(),
        lower = library.directory().display(),
        me = me.display(),
        name = library.path().file_name().unwrap_or_default().display(),
    );
    let namespaces = ["--mount", "--propagation=private", "--pid", "--fork"];
    Running::start(
        Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", &script]),
    )
}

/// Time in ms from mapping a new library to the probes on it.
fn new_library(library: &Library, me: &Path, number: u32) -> Result<f64> {
    let directory = library.directory().join(format!("new{number}"));
    fs::create_dir(&directory)?;
    let copy = directory.join(library.path().file_name().context("a file name")?);
    fs::copy(library.path(), &copy)?;
    let output = Command::new(me).arg("fresh").arg(&copy).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let nanoseconds: f64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(nanoseconds / 1e6)
}
