//! `gputrace top`: a recording that is shown instead of kept.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use clap::{Args, Parser as _, ValueEnum};
use gputrace_session::{LiveOutput, NewView};
use gputrace_text::terminal;
use gputrace_top::{Format, GroupBy, Options, Task, TopView};

use crate::{
    args::{Cli, DomainArgs, SelectArgs, TuningArgs, duration},
    record, say,
};

/// What is recorded if no domain is chosen.
const DOMAINS: [&str; 3] = [
    "--hip-runtime-trace",
    "--kernel-trace",
    "--memory-copy-trace",
];

/// Options of `top`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  sudo gputrace top                       every process of this node, until Ctrl-C
  sudo gputrace top -p 1234               one process
  sudo gputrace top --pod 'ml/trainer-*'  the processes of a pod
  sudo gputrace top --group-by job        processes and Slurm jobs
  sudo gputrace top --once                one second, then end
  sudo gputrace top --format json | jq .  one JSON object each second
  sudo gputrace top -- ./app              start a program and watch it")]
pub(crate) struct TopArgs {
    /// Watch these running processes (ids as seen on the host; repeat or separate by commas).
    #[arg(
        short = 'p',
        long = "pid",
        visible_alias = "attach",
        value_name = "PID",
        value_delimiter = ',',
        group = "running"
    )]
    pub(crate) pids: Vec<u32>,

    /// Choice of running processes.
    #[command(flatten)]
    pub(crate) select: SelectArgs,

    /// Watch every process of this node (the default if neither a program nor -p is given).
    #[arg(short = 'a', long, conflicts_with_all = ["pids", "program"])]
    pub(crate) all: bool,

    /// Length of an interval, e.g. 500ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,

    /// Show one interval, and end.
    #[arg(long, conflicts_with = "duration")]
    pub(crate) once: bool,

    /// Stop after this time, e.g. 10s, 5m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Add up the processes of each container, pod, job or user. On a screen, g changes it.
    #[arg(long, value_enum, value_name = "GROUP")]
    pub(crate) group_by: Option<TopGroup>,

    /// Form of the output. `json`: one object per line and interval, see docs/guide/top.md.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: TopFormat,

    /// Maximum number of rows of each table.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rows: u16,

    /// What to trace; by default HIP's calls, kernels and copies.
    #[command(flatten)]
    pub(crate) domains: DomainArgs,

    /// How gputrace works.
    #[command(flatten)]
    pub(crate) tuning: TuningArgs,

    /// Program to start and watch, with its arguments.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "pids")]
    pub(crate) program: Vec<OsString>,
}

/// Forms of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopFormat {
    /// Tables for people.
    Text,
    /// JSON.
    Json,
}

/// Groups of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopGroup {
    /// Containers.
    Container,
    /// Kubernetes pods.
    Pod,
    /// Slurm jobs.
    Job,
    /// Users.
    User,
}

/// The length of an interval: shorter ones would show only noise.
fn interval(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    if length < Duration::from_millis(100) {
        return Err("must be at least 100ms".to_owned());
    }
    Ok(length)
}

/// Shows who uses the GPUs until the end of the recording.
pub(crate) fn run(args: &TopArgs) -> Result<u8> {
    let cli = as_recording(args)?;
    let pids = record::pids(&cli.record)?;
    let mut request = record::request(&cli.record, &pids);
    request.counter_rate = Some(1);
    request.duration = if args.once {
        Some(args.interval)
    } else {
        args.duration
    };
    let options = options(args);
    // On a terminal, messages would be in the tables' way. They are shown afterwards.
    let held = (options.format == Format::Screen).then(|| Mutex::new(Vec::new()));
    request.output.live = Some(LiveOutput::View(NewView::new(move |out| {
        Ok(Box::new(TopView::new(out, options.clone())?))
    })));
    let finished = gputrace_session::record(&request, &|line| match &held {
        Some(held) => lock(held).push(line.as_str().to_owned()),
        None => say(line.as_str()),
    });
    gputrace_top::restore();
    if let Some(held) = &held {
        lock(held).iter().for_each(|line| say(line));
    }
    Ok(record::conclude(finished?, &cli.record.output)?.status)
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is a terminal for a screen and for keys.
pub(crate) fn has_a_terminal() -> bool {
    terminal::stdout().is_terminal() && io::stdin().is_terminal()
}

fn options(args: &TopArgs) -> Options {
    let stdout = terminal::stdout();
    // A program that was started here writes to the same terminal.
    let has_keys = has_a_terminal() && args.program.is_empty();
    Options {
        interval: args.interval,
        once: args.once,
        format: match args.format {
            TopFormat::Text if has_keys && !args.once => Format::Screen,
            TopFormat::Text => Format::Text,
            TopFormat::Json => Format::Json,
        },
        group_by: args.group_by.map(|by| match by {
            TopGroup::Container => GroupBy::Container,
            TopGroup::Pod => GroupBy::Pod,
            TopGroup::Job => GroupBy::Job,
            TopGroup::User => GroupBy::User,
        }),
        start: Some(start),
        rows: args.rows.into(),
        columns: terminal::columns(&stdout),
    }
}

/// Makes the command for what a user of the screen asks for.
fn start(task: Task) -> io::Result<(Command, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    let result = match task {
        Task::Record(pid) => {
            let time = jiff::Zoned::now().strftime("%H%M%S");
            let name = format!("gputrace-{pid}-{time}");
            command.args(["-p", &pid.to_string(), "-d", ".", "-o", &name]);
            format!("{name}.gtcap")
        }
        Task::DumpFlight => {
            command.arg("dump-flight");
            String::new()
        }
    };
    Ok((command, result))
}

/// The recording that has what is shown.
fn as_recording(args: &TopArgs) -> Result<Cli> {
    let mut cli = Cli::try_parse_from(std::iter::once("gputrace").chain(DOMAINS))?;
    let record = &mut cli.record;
    record.pids.clone_from(&args.pids);
    record.select = args.select.clone();
    record.all = args.all;
    record.program.clone_from(&args.program);
    record.tuning = args.tuning.clone();
    if args.domains.any() {
        record.domains = args.domains.clone();
    }
    Ok(cli)
}
