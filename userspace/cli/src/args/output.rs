//! Options about outputs.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::values::boolean;
use crate::{kernels::KernelArgs, summary::SummaryArgs};

/// Where outputs go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Directory for outputs [default: HOSTNAME, or . if -o is given].
    #[arg(short = 'd', long, value_name = "DIR")]
    pub(crate) output_directory: Option<PathBuf>,

    /// First part of every file name [default: the process id of the program].
    #[arg(short = 'o', long, value_name = "NAME")]
    pub(crate) output_file: Option<String>,

    /// Formats, separated by commas.
    #[arg(
        short = 'f',
        long,
        value_enum,
        value_name = "FORMAT",
        value_delimiter = ',',
        default_value = "pftrace",
        ignore_case = true
    )]
    pub(crate) output_format: Vec<Format>,

    /// With -f csv: write also statistics, NAME_DOMAIN_stats.csv and NAME_domain_stats.csv.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) stats: bool,

    /// With -f pftrace: rows of GPU work are those of HSA queues (the default). With =False they are
    /// those of HIP streams, as rocprofv3 has them without this option; work whose stream is not known is in a
    /// row of its own.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "true", hide_default_value = true)]
    pub(crate) group_by_queue: bool,

    /// Summaries.
    #[command(flatten)]
    pub(crate) summary: SummaryArgs,

    /// Kernels.
    #[command(flatten)]
    pub(crate) kernels: KernelArgs,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Perfetto trace.
    Pftrace,
    /// rocprofv3's CSV files.
    Csv,
    /// rocprofv3's JSON document.
    Json,
    /// rocprofv3's SQLite database.
    Rocpd,
    /// Open Trace Format 2; needs OTF2's library.
    Otf2,
    /// One JSON object per line, see docs/ndjson.md.
    Ndjson,
}
