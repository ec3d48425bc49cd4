//! Options of a recording.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, ArgGroup, Args};
use regex::Regex;

use super::{
    domains::DomainArgs,
    flight::FlightArgs,
    functions::FunctionArgs,
    output::OutputArgs,
    period::{PeriodUnit, Triple},
    select::SelectArgs,
    stacks::StackedCalls,
    tuning::TuningArgs,
    values::{boolean, bytes, duration, tracepoint},
};
use crate::controlled::Kept;

/// Options of a recording.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("running").multiple(true))]
pub(crate) struct RecordArgs {
    /// Trace these running processes (ids as seen on the host; repeat or separate by commas).
    #[arg(
        short = 'p',
        long = "pid",
        visible_alias = "attach",
        value_name = "PID",
        value_delimiter = ',',
        group = "running"
    )]
    pub(crate) pids: Vec<u32>,

    /// Record for the program at the other end of standard input: the library `gputrace`.
    #[arg(
        long,
        hide = true,
        require_equals = true,
        value_enum,
        value_name = "KEPT"
    )]
    pub(crate) controlled: Option<Kept>,

    /// Choice of running processes.
    #[command(flatten)]
    pub(crate) select: SelectArgs,

    /// Read options from this YAML or JSON file: `jobs:` with a list of jobs, each with options and
    /// their values. Each job runs the program once. Outputs of several jobs go to pass_1, pass_2,
    /// ...
    #[arg(short = 'i', long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Trace every process of this node (the default if neither a program nor -p is given, but
    /// without any option, gputrace on a terminal is `gputrace top`).
    #[arg(short = 'a', long, conflicts_with_all = ["pids", "program"])]
    pub(crate) all: bool,

    /// With -p, or --name and so on: if a process has not loaded the ROCm libraries yet, wait until
    /// it does.
    // The parser does not require an option that conflicts with a given one.
    #[arg(long, requires = "running", conflicts_with_all = ["program", "all"])]
    pub(crate) wait: bool,

    /// Also trace the children of traced processes. With =False, -p puts breakpoints only into the
    /// named processes. Otherwise every process that maps the same libraries gets breakpoints, and
    /// each of its calls pays for a first check.
    #[arg(long, visible_alias = "attach-children", num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "true", hide_default_value = true)]
    pub(crate) follow_forks: bool,

    /// Stop after this time, e.g. 500ms, 10s, 5m.
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) duration: Option<Duration>,

    /// Stop after this many milliseconds (rocprofv3's name for --duration).
    #[arg(long, value_name = "MSEC", conflicts_with = "duration")]
    pub(crate) attach_duration_msec: Option<u64>,

    /// Stop when the capture has this size, e.g. 500MiB, 20GiB. What was recorded until the probes
    /// are gone comes on top. With --keep, another capture begins.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_size: Option<u64>,

    /// Stop after this time, as with --duration. With --keep, another capture begins.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_duration: Option<Duration>,

    /// Stop after this many calls, kernels, copies and other events. What was recorded until the
    /// probes are gone comes on top.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// Record only in periods: wait DELAY, record for TIME, and repeat this REPEAT times (0:
    /// without end), e.g. 1:0.5:3. Several values run one after the other. Whatever begins in a
    /// period is recorded, even if it ends later.
    #[arg(short = 'P', long, value_name = "DELAY:TIME:REPEAT", value_parser = str::parse::<Triple>,
          allow_hyphen_values = true)]
    pub(crate) collection_period: Vec<Triple>,

    /// Unit of the delays and times of --collection-period.
    #[arg(long, value_enum, value_name = "UNIT", default_value = "sec")]
    pub(crate) collection_period_unit: PeriodUnit,

    /// What to trace.
    #[command(flatten)]
    pub(crate) domains: DomainArgs,

    /// Trace only functions whose names match this regular expression.
    ///
    /// `A|B` matches both. If the option is given twice, the last one counts.
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub(crate) include: Option<Regex>,

    /// Do not trace functions whose names match this regular expression.
    ///
    /// If the option is given twice, the last one counts.
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub(crate) exclude: Option<Regex>,

    /// Also trace those of HSA's very frequent functions whose names match.
    ///
    /// hsa_signal_load_*, hsa_queue_load_*_index_* and hsa_executable_symbol_get_info are off by
    /// default: they are called millions of times and say little.
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub(crate) hsa_include: Option<Regex>,

    /// Other functions.
    #[command(flatten)]
    pub(crate) functions: FunctionArgs,

    /// Record these tracepoints of the kernel, of all processes: CATEGORY:NAME or CATEGORY:*
    /// (repeat or separate by commas).
    #[arg(long, value_name = "TRACEPOINT", value_delimiter = ',', value_parser = tracepoint, help_heading = "What to trace")]
    pub(crate) tracepoint: Vec<String>,

    /// Read clocks, power, temperatures, memory and use of the GPUs, and of the traced processes on
    /// them, HZ times a second (1 to 100; default 1). A reading can take a GPU's firmware
    /// milliseconds. What is read while a kernel runs is also in NAME_counter_collection.csv.
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "What to trace")]
    pub(crate) counters: Option<u32>,

    /// Also record who called: the stacks of calls that launch work (launch), allocate (alloc),
    /// wait (sync), or of all calls [default: launch,alloc,sync].
    #[arg(long, value_name = "CALLS", num_args = 0..=1, require_equals = true, value_delimiter = ',',
          default_missing_value = "launch,alloc,sync", help_heading = "What to trace")]
    pub(crate) stacks: Option<Vec<StackedCalls>>,

    /// Outputs.
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Flight recorder.
    #[command(flatten)]
    pub(crate) flight: FlightArgs,

    /// How gputrace works.
    #[command(flatten)]
    pub(crate) tuning: TuningArgs,

    /// Program to start and trace, with its arguments.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "pids")]
    pub(crate) program: Vec<OsString>,
}
