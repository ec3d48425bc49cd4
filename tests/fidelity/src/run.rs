//! Runs a program and gputrace, and collects what both leave behind.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use gputrace_e2e::{Running, Trace, process};
use rustix::process::Signal;

use crate::{
    compare::{Evidence, compare},
    cut::Cut,
    figures::{Cost, Figures, Flaw},
    release::{Release, equip},
    scenario::{Mode, Moment, Scenario},
    truth::Truth,
};

/// The longest time that a step of a run may take. It is generous, because only a step that hangs
/// takes that long.
const PATIENCE: Duration = Duration::from_mins(5);

/// Room for the program's records while the recorder waits for a CPU: losses for that reason are not
/// compared here.
pub const ROOM: [&str; 2] = ["--ring-size", "64MiB"];

/// Maximum number of attempts if the program ends before it can be stopped, which says nothing
/// about gputrace.
const ATTEMPTS: u32 = 5;

/// Polling interval for conditions that cannot be waited for.
const LOOK: Duration = Duration::from_millis(1);

/// Runs a scenario and compares. A failure counts as a flaw in the result.
#[must_use]
pub fn measure(scenario: &Scenario, release: &Release, gputrace: &Path) -> Figures {
    let outcome = caught(|| run(scenario, release, gputrace));
    let failed = |error: &anyhow::Error| {
        let mut figures = Figures {
            runs: 1,
            ..Figures::default()
        };
        figures.flaw(Flaw::NotRun, || format!("{error:#}"));
        figures
    };
    match outcome {
        Ok((evidence, cost)) => {
            let mut figures = compare(&evidence);
            if !figures.flaws.is_empty() {
                // Shown if a test fails.
                eprintln!("{scenario}: notices: {:?}", evidence.trace.notices);
            }
            let work = figures.dispatches.found + figures.copies.found;
            figures.costs.extend(cost.map(|(busy, wall)| Cost {
                busy,
                wall,
                work,
                name: String::new(),
            }));
            figures
        }
        Err(error) => failed(&error),
    }
}

/// Turns panics into errors: the harness of the end-to-end tests panics if it waits for something
/// in vain.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(anyhow!(text.unwrap_or_else(|| "a panic".to_owned())))
    })
}

/// The differences between running our own programs and those of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Options of gputrace.
    pub(crate) options: &'static [&'static str],
    /// The longest time that a step of a run may take.
    pub(crate) patience: Duration,
    /// Whether the program may fail because it checks results, although kernels compute nothing
    /// here.
    pub(crate) may_fail: bool,
}

/// Our own programs; everything is recorded.
const OURS: How = How {
    options: &["-s"],
    patience: PATIENCE,
    may_fail: false,
};

/// Programs that launch faster than they could with a breakpoint in each function.
const MIXES: How = How {
    options: &["--kernel-trace"],
    ..OURS
};

/// The files of a run.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    how: How,
}

impl Place {
    /// Creates the files for a run on a software GPU with these settings.
    pub(crate) fn new(settings: &str, how: How) -> Result<Self> {
        let place = Self {
            directory: tempfile::tempdir()?,
            how,
        };
        fs::create_dir(place.at("truth"))?;
        fs::write(place.at("softgpu.toml"), settings)?;
        Ok(place)
    }

    fn of(scenario: &Scenario) -> Result<Self> {
        let how = if scenario.workload.is_mix {
            MIXES
        } else {
            OURS
        };
        Self::new(&scenario.toml(process::now()), how)
    }

    /// Waits for a program to end, or for gputrace together with its program.
    fn end(&self, running: &mut Running) -> Result<()> {
        let status = running.wait_within(self.how.patience);
        // gputrace passes on its program's status. Death by a signal does not count as a failure.
        let is_failure = status.code().is_some_and(|code| (1..128).contains(&code));
        ensure!(
            status.success() || self.how.may_fail && is_failure,
            "{status}: {}",
            running.describe()
        );
        Ok(())
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a command use the software GPU and write its logs here.
    fn prepare(&self, command: &mut Command) -> Result<()> {
        equip(command, self.directory.path())?;
        command.current_dir(self.directory.path());
        Ok(())
    }

    pub(crate) fn truth(&self) -> Result<Truth> {
        Truth::read(&self.at("truth"), &self.at("said"))
    }

    /// A gputrace command that records everything; the caller adds the program or process.
    fn gputrace(&self, gputrace: &Path) -> Result<Command> {
        let mut command = Command::new(gputrace);
        command
            .arg("-d")
            .arg(self.at("out"))
            .args(["-o", "run", "-f", "csv"])
            .args(ROOM)
            .args(self.how.options);
        self.prepare(&mut command)?;
        Ok(command)
    }
}

/// Runs a scenario's program under gputrace from the start, and passes the path of the capture to
/// `look`.
///
/// # Errors
///
/// If the program or gputrace fails, and errors of `look`.
pub fn launched<T>(
    scenario: &Scenario,
    release: &Release,
    gputrace: &Path,
    look: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let place = Place::of(scenario)?;
    let program = release.program(scenario.workload, scenario.arguments());
    launch(&place, gputrace, &program)?;
    look(&place.at("out/run.gtcap"))
}

/// Starts a scenario's program, attaches while it runs, and passes the path of the capture to
/// `look` when it has ended.
///
/// # Errors
///
/// If the program or gputrace fails, if the program ends before it can be stopped in every attempt,
/// and errors of `look`.
pub fn attached<T>(
    scenario: &Scenario,
    release: &Release,
    gputrace: &Path,
    look: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    for _ in 0..ATTEMPTS {
        let place = Place::of(scenario)?;
        let program = release.program(scenario.workload, scenario.arguments());
        if attach(&place, gputrace, program, scenario.workload.moment)?.is_some() {
            return look(&place.at("out/run.gtcap"));
        }
    }
    bail!("it was done before it could be stopped, {ATTEMPTS} times")
}

/// CPU time of gputrace, and the wall time in which it was spent; s.
pub(crate) type Spent = (f64, f64);

/// Runs a scenario. The second value is present only for runs that gputrace attached to.
fn run(
    scenario: &Scenario,
    release: &Release,
    gputrace: &Path,
) -> Result<(Evidence, Option<Spent>)> {
    for _ in 0..ATTEMPTS {
        let place = Place::of(scenario)?;
        let program = release.program(scenario.workload, scenario.arguments());
        let (cut, spent) = match scenario.mode {
            Mode::Launch => {
                launch(&place, gputrace, &program)?;
                (None, None)
            }
            Mode::Attach => match attach(&place, gputrace, program, scenario.workload.moment)? {
                Some((cut, spent)) => (Some(cut), Some(spent)),
                None => continue,
            },
        };
        return Ok((evidence(&place, scenario, release, gputrace, cut)?, spent));
    }
    bail!("it was done before it could be stopped, {ATTEMPTS} times")
}

/// Reads the files that a run left behind.
fn evidence(
    place: &Place,
    scenario: &Scenario,
    release: &Release,
    gputrace: &Path,
    cut: Option<Cut>,
) -> Result<Evidence> {
    let capture = place.at("out/run.gtcap");
    let is_mix = scenario.workload.is_mix;
    let evidence = Evidence {
        summary: is_mix.then(|| summary(gputrace, &capture)).transpose()?,
        truth: place.truth()?,
        trace: Trace::try_read(&capture)?,
        cut,
        one_thread: scenario.workload.one_thread,
        graph_nodes: scenario.workload.graph_nodes,
        says: true,
    };
    keep(place, scenario, release, evidence.cut.as_ref())?;
    Ok(evidence)
}

/// The summary tables that gputrace prints for a capture.
fn summary(gputrace: &Path, capture: &Path) -> Result<String> {
    let output = Command::new(gputrace)
        .arg("summary")
        .arg(capture)
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Copies the files of a run into the directory named by `GPUTRACE_FIDELITY_KEEP`, if it is set.
fn keep(place: &Place, scenario: &Scenario, release: &Release, cut: Option<&Cut>) -> Result<()> {
    let Some(to) = std::env::var_os("GPUTRACE_FIDELITY_KEEP") else {
        return Ok(());
    };
    let name = format!("{} {scenario}", release.name).replace([' ', ','], "_");
    let to = PathBuf::from(to).join(name);
    for directory in ["", "truth", "out"] {
        fs::create_dir_all(to.join(directory))?;
        for entry in fs::read_dir(place.at(directory))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), to.join(directory).join(entry.file_name()))?;
            }
        }
    }
    if let Some(cut) = cut {
        fs::write(to.join("cut"), cut.text())?;
    }
    Ok(())
}

/// Runs the program under gputrace from the start.
pub(crate) fn launch(place: &Place, gputrace: &Path, program: &Command) -> Result<()> {
    let mut command = place.gputrace(gputrace)?;
    command
        .arg("--")
        .arg(program.get_program())
        .args(program.get_args());
    place.end(&mut Running::start("gputrace", &mut command))
}

/// Handles a program that ended before it could be stopped. This is no result, unless it failed.
fn ended_early<T>(place: &Place, program: &mut Running) -> Result<Option<T>> {
    place.end(program)?;
    Ok(None)
}

/// Starts the program, stops it while it runs, attaches, and lets it run to its end. `None` if it
/// ended before it could be stopped.
pub(crate) fn attach(
    place: &Place,
    gputrace: &Path,
    mut program: Command,
    moment: Moment,
) -> Result<Option<(Cut, Spent)>> {
    place.prepare(&mut program)?;
    let mut program = Running::start("the workload", &mut program);
    let deadline = Instant::now() + place.how.patience;
    let mut progress = Progress::default();
    while !progress.has_come(moment) {
        progress.follow(&place.at("truth"), moment)?;
        if !program.is_running() {
            return ended_early(place, &mut program);
        }
        ensure!(
            Instant::now() < deadline,
            "it did not get far: {}",
            program.describe()
        );
        thread::sleep(LOOK);
    }
    program.signal_group(Signal::STOP);
    let pids = stopped_group(program.pid(), deadline)?;
    if !pids.contains(&program.pid()) {
        return ended_early(place, &mut program);
    }
    let time = process::now();
    let cut = Cut::take(time, &pids, &place.truth_of_stopped()?.queues)?;

    let mut command = place.gputrace(gputrace)?;
    for pid in &pids {
        command.arg("-p").arg(pid.to_string());
    }
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.wait_for_stderr("recording");
    let before = (Instant::now(), process::cpu_time(gputrace.pid())?);
    program.signal_group(Signal::CONT);
    let mut after = before;
    while program.is_running() {
        ensure!(
            Instant::now() < deadline,
            "it does not end: {}",
            program.describe()
        );
        // While gputrace ends, its threads disappear from the sum.
        if let Ok(time) = process::cpu_time(gputrace.pid())
            && time >= after.1
        {
            after = (Instant::now(), time);
        }
        thread::sleep(10 * LOOK);
    }
    place.end(&mut program)?;
    let status = gputrace.wait_within(place.how.patience);
    ensure!(status.success(), "{status}: {}", gputrace.describe());
    let wall = after.0.duration_since(before.0).as_secs_f64();
    let busy = after.1.saturating_sub(before.1).as_secs_f64();
    Ok(Some((cut, (busy, wall))))
}

impl Place {
    /// The truth up to now, without lines that a stopped program is in the middle of writing.
    fn truth_of_stopped(&self) -> Result<Truth> {
        let whole = tempfile::tempdir()?;
        for entry in fs::read_dir(self.at("truth"))? {
            let entry = entry?;
            let bytes = fs::read(entry.path())?;
            let used = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            let used = bytes.get(..used).unwrap_or_default();
            let lines = used
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1);
            fs::write(
                whole.path().join(entry.file_name()),
                used.get(..lines).unwrap_or_default(),
            )?;
        }
        Truth::read(whole.path(), Path::new(""))
    }
}

/// Follows the software GPU's logs while they grow. Only counts lines, because a running program
/// writes many thousands of them per second.
#[derive(Default)]
struct Progress {
    /// How many bytes of each log have been read.
    read: HashMap<PathBuf, u64>,
    dispatches: usize,
    copies: usize,
    queues: usize,
}

impl Progress {
    /// Reads what has been added, up to `moment`. An incomplete line is left for the next time.
    fn follow(&mut self, directory: &Path, moment: Moment) -> Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let mut read = self.read.get(&path).copied().unwrap_or(0);
            let mut file = BufReader::new(fs::File::open(&path)?);
            file.seek(SeekFrom::Start(read))?;
            let mut line = Vec::new();
            loop {
                line.clear();
                // The unused part of a log is filled with zeros and has no line end.
                let length = (&mut file)
                    .take(MOST_OF_A_LINE)
                    .read_until(b'\n', &mut line)?;
                if line.last() != Some(&b'\n') {
                    break;
                }
                read += length as u64;
                self.read.insert(path.clone(), read);
                let line = String::from_utf8_lossy(&line);
                if line.starts_with(r#"{"record":"dispatch""#) && !line.contains(r#""kernel":"","#)
                {
                    self.dispatches += 1;
                } else if line.starts_with(r#"{"record":"copy""#) {
                    self.copies += 1;
                } else if line.starts_with(r#"{"record":"queue","#)
                    && line.contains(r#""kind":"aql""#)
                {
                    self.queues += 1;
                }
                // A running program may write faster than this reads.
                if self.has_come(moment) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn has_come(&self, moment: Moment) -> bool {
        match moment {
            Moment::Dispatches(count) => self.dispatches >= count,
            Moment::Copies(count) => self.copies >= count,
            Moment::Queues(count) => self.queues >= count,
        }
    }
}

/// The maximum length of a line in a log: a copy with very many pieces.
const MOST_OF_A_LINE: u64 = 1 << 20;

/// Waits until all threads of a process group are stopped. Returns its processes.
fn stopped_group(leader: u32, deadline: Instant) -> Result<Vec<u32>> {
    loop {
        let members = group(leader)?;
        let mut running = BTreeSet::new();
        for pid in &members {
            // A process may have ended in the meantime.
            for stat in process::of_threads(*pid, "stat").into_iter().flatten() {
                let (state, _) = fields(&stat).context("the state of a thread")?;
                if !"TtZ".contains(state) {
                    running.insert(*pid);
                }
            }
        }
        if running.is_empty() {
            return Ok(members);
        }
        if Instant::now() > deadline {
            bail!("processes {running:?} do not stop");
        }
        thread::sleep(LOOK);
    }
}

/// The running processes of a group.
fn group(leader: u32) -> Result<Vec<u32>> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process has ended in the meantime.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        if let Some((state, group)) = fields(&stat)
            && group == leader
            && state != "Z"
        {
            members.push(pid);
        }
    }
    Ok(members)
}

/// State and process group from `/proc/PID/stat`. The name before them may contain anything.
fn fields(stat: &str) -> Option<(&str, u32)> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    Some((state, words.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_hold_anything() {
        assert_eq!(fields("12 (a) b (c) T 1 77 77 0"), Some(("T", 77)));
        assert_eq!(fields("12"), None);
    }

    #[test]
    fn progress_is_what_has_been_added() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("truth-1.jsonl");
        let mut progress = Progress::default();
        let mut log = br#"{"record":"queue","pid":1,"kind":"aql"}
{"record":"queue","pid":1,"kind":"sdma"}
{"record":"dispatch","kernel":"a","x":1}
{"record":"dispatch","kernel":"","x":1}
{"record":"copy","by"#
            .to_vec();
        let mut write = |more: &[u8]| {
            log.extend_from_slice(more);
            let mut whole = log.clone();
            whole.extend([0; 5000]);
            fs::write(&path, whole).unwrap();
        };
        write(b"");
        progress
            .follow(directory.path(), Moment::Copies(9))
            .unwrap();
        assert_eq!(
            (progress.queues, progress.dispatches, progress.copies),
            (1, 1, 0)
        );
        write(b"tes\":1}\n");
        progress
            .follow(directory.path(), Moment::Copies(9))
            .unwrap();
        assert_eq!(
            (progress.queues, progress.dispatches, progress.copies),
            (1, 1, 1)
        );
    }
}
