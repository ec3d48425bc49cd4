//! Options about outputs.

use std::path::PathBuf;

use clap::{
    ArgAction, Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use gputrace_session::Format;

use super::values::boolean;
use crate::{kernels::KernelArgs, summary::SummaryArgs};

/// Where outputs go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Directory for outputs [default: %hostname%, or . if -o is given]. Accepts the placeholders
    /// of -o.
    #[arg(short = 'd', long, value_name = "DIR")]
    pub(crate) output_directory: Option<PathBuf>,

    /// First part of every file name [default: %pid%]. Placeholders: %hostname%, %pid%, %ppid%,
    /// %nid%, %rank%, %size%, %job%, %tag%, %argv%, %argN%, %cwd%, %launch_time%, %launch_date%,
    /// %env{NAME}%. In their values, '_' replaces '/' and leading dots. With - and -f text or -f
    /// ndjson, gputrace prints to stdout while recording and keeps no file.
    #[arg(short = 'o', long, value_name = "NAME")]
    pub(crate) output_file: Option<String>,

    /// Formats, separated by commas.
    #[arg(
        short = 'f',
        long,
        value_parser = format(),
        value_name = "FORMAT",
        value_delimiter = ',',
        default_value = "pftrace",
        ignore_case = true
    )]
    pub(crate) output_format: Vec<Format>,

    /// Also write the effective options to NAME_config.json (recordings only).
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) output_config: bool,

    /// Replace an earlier recording of the same name: remove all files that gputrace writes under
    /// that name, including its report (NAME.html). For recordings only: `export` and `merge`
    /// always replace the files that they write, like rocprofv3, and leave other files alone.
    #[arg(long)]
    pub(crate) force: bool,

    /// Write the formats only if the capture is at least this large, in KB.
    #[arg(
        long,
        value_name = "KB",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) minimum_output_data: u32,

    /// How agents are named: "Agent N", numbered by node (absolute) or among all visible agents
    /// (relative), or "GPU N" and "CPU N" (type-relative).
    #[arg(
        short = 'A',
        long,
        value_enum,
        value_name = "INDEX",
        default_value = "relative"
    )]
    pub(crate) agent_index: AgentIndex,

    /// With -f csv: also write statistics, NAME_DOMAIN_stats.csv and NAME_domain_stats.csv.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) stats: bool,

    /// With -f csv: also write NAME_arguments.csv, with one row per argument and per result of a
    /// call.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) csv_arguments: bool,

    /// Write NAME_wall_clock.txt and .json: the time of functions and API calls by caller and
    /// callee, for each thread and for all threads [default: if --functions was given].
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set)]
    pub(crate) wall_clock: Option<bool>,

    /// With -f pftrace: show GPU work in one row per HSA queue (the default). With =False, in one
    /// row per HIP stream, as rocprofv3 does without this option; work without a known stream has
    /// its own row.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "true", hide_default_value = true)]
    pub(crate) group_by_queue: bool,

    /// With -f pftrace: compress the trace (deflate) to about a sixth of its size. Viewers open it
    /// directly; it takes longer to write.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) perfetto_compress: bool,

    /// With -f pftrace: write kernels and copies a second time, as Perfetto's own GPU events, which
    /// fill the viewer's GPU section and the table gpu_slice. Sums of durations over the table
    /// slice then count this work twice.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) perfetto_gpu_events: bool,

    /// Show only what programs did between roctxProfilerResume and roctxProfilerPause, or between
    /// similar calls (hipProfilerStart, roctracer_start, rocprofsys_user_start_trace). The capture
    /// contains everything.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) selected_regions: bool,

    /// Summaries.
    #[command(flatten)]
    pub(crate) summary: SummaryArgs,

    /// Kernels.
    #[command(flatten)]
    pub(crate) kernels: KernelArgs,
}

/// Ways to number agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentIndex {
    /// Numbered by node.
    Absolute,
    /// Numbered among all visible agents.
    Relative,
    /// Numbered among visible agents of the same kind.
    TypeRelative,
}

/// Parser of the value of `-f`: a name from the registry of formats.
fn format() -> impl TypedValueParser<Value = Format> {
    let names = Format::all().map(|format| PossibleValue::new(format.name()).help(format.help()));
    PossibleValuesParser::new(names)
        .try_map(|name| Format::named(&name).ok_or_else(|| format!("there is no format {name}")))
}
