//! The command line. Names follow rocprofv3's where it has one.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use regex::Regex;

use crate::{
    inspect::{DoctorArgs, KfdArgs, PsArgs, TopologyArgs},
    kernels::KernelArgs,
    summary::SummaryArgs,
};

/// First lines of the help: what people type.
const EXAMPLES: &str = "\
Examples:
  sudo gputrace -- ./app --its-args       trace a program from its first call on
  sudo gputrace -p 1234 --duration 10s    trace a running process for ten seconds
  sudo gputrace                           trace every process of this node, until Ctrl-C
  sudo gputrace -S -f csv -- ./app        print a summary, write rocprofv3's CSV files
  gputrace export run.gtcap -f pftrace    make outputs of an earlier recording, without root
  gputrace list --probes                  show which functions can be traced, and what each costs

Open NAME_results.pftrace at https://ui.perfetto.dev";

/// Explains the exit codes at the end of the long help.
const EXIT_CODES: &str = "\
Exit status: that of the program, if gputrace started one and its recording succeeded; otherwise
  0  success                                 6  no permission (run with sudo)
  1  any other failure                       7  the kernel lacks a feature that is needed
  2  wrong usage                             8  the output or capture cannot be written
  3  no such process or program              9  the capture cannot be read
  4  the process has no ROCm libraries      10  the capture is from a newer version
  5  the process or library cannot be       11  a library file cannot be used
     traced (architecture, static runtime) 130  given up by a second Ctrl-C";

/// Trace AMD GPU work (HIP, HSA) of unmodified, even already running, programs, from outside.
#[derive(Debug, Parser)]
#[command(
    name = "gputrace",
    version,
    before_help = EXAMPLES,
    after_long_help = EXIT_CODES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Cli {
    /// What to do instead of recording.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Options of a recording.
    #[command(flatten)]
    pub(crate) record: RecordArgs,
}

/// What to do instead of recording.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make outputs of a capture.
    Export(Box<ExportArgs>),
    /// List what can be traced.
    List(ListArgs),
    /// Show the agents: GPUs and CPUs with their memory, caches and links.
    Topology(TopologyArgs),
    /// Show the processes that use GPUs: runtime versions, queues, memory.
    Ps(PsArgs),
    /// Show what a process holds in the driver, and how fast it changes.
    Kfd(KfdArgs),
    /// Find out by trying what can be recorded here, and what to do about the rest.
    Doctor(DoctorArgs),
}

/// Options of a recording.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Trace these running processes (ids as seen on the host; repeat or separate by commas).
    #[arg(
        short = 'p',
        long = "pid",
        visible_alias = "attach",
        value_name = "PID",
        value_delimiter = ','
    )]
    pub(crate) pids: Vec<u32>,

    /// Trace every process of this node (the default without a program or -p).
    #[arg(short = 'a', long, conflicts_with_all = ["pids", "program"])]
    pub(crate) all: bool,

    /// With -p: wait for the process to load the ROCm libraries if it has not yet.
    #[arg(long, requires = "pids")]
    pub(crate) wait: bool,

    /// Trace also the processes that a traced one creates. With =False, -p puts breakpoints only into the
    /// processes named; otherwise every process that maps the same libraries has them, and pays for the
    /// first look at each call.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "true", hide_default_value = true)]
    pub(crate) follow_forks: bool,

    /// Stop after this time, e.g. 500ms, 10s, 5m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Stop after this many milliseconds (rocprofv3's name for --duration).
    #[arg(long, value_name = "MSEC", conflicts_with = "duration")]
    pub(crate) attach_duration_msec: Option<u64>,

    /// What to trace.
    #[command(flatten)]
    pub(crate) domains: DomainArgs,

    /// Trace only functions whose names match this regular expression.
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub(crate) include: Option<Regex>,

    /// Do not trace functions whose names match this regular expression.
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub(crate) exclude: Option<Regex>,

    /// Trace also those of HSA's polling functions (hsa_signal_load_* and the like, called millions of
    /// times a second, hence off) whose names match.
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub(crate) hsa_include: Option<Regex>,

    /// Outputs.
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// How probes are attached.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Tuning")]
    pub(crate) backend: Backend,

    /// Size of each CPU's ring buffer, e.g. 512KiB, 4MiB [default: by the number of CPUs].
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Tuning")]
    pub(crate) ring_size: Option<u32>,

    /// Threads that can be inside traced calls at once.
    #[arg(long, value_name = "N", default_value_t = 4096, help_heading = "Tuning")]
    pub(crate) max_threads: u32,

    /// Do not stop a launched program while its libraries get their probes; the first calls after it
    /// loads a library may then be missed.
    #[arg(long, help_heading = "Tuning")]
    pub(crate) no_stop: bool,

    /// Do not set GPU_FORCE_QUEUE_PROFILING=1 for a launched program. It makes HIP (5.4 and later) have every
    /// kernel stamped by the GPU; without it most kernels' times are only known within bounds.
    #[arg(long, help_heading = "Tuning")]
    pub(crate) no_queue_profiling: bool,

    /// Show the log of the kernel-side programs.
    #[arg(long, help_heading = "Tuning")]
    pub(crate) debug_ebpf: bool,

    /// How much gputrace says about its own work.
    #[arg(long, value_enum, default_value = "warning", help_heading = "Tuning")]
    pub(crate) log_level: LogLevel,

    /// Program to start and trace, with its arguments.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "pids")]
    pub(crate) program: Vec<OsString>,
}

macro_rules! domain_args {
    ($($(#[$doc:meta])* $field:ident $(= $short:literal)?;)*) => {
        /// Domains, each with an optional `=False`.
        #[derive(Debug, Default, Args)]
        #[command(next_help_heading = "What to trace")]
        pub(crate) struct DomainArgs {
            $(
                $(#[$doc])*
                #[arg(long, $(short = $short,)? value_name = "BOOL", num_args = 0..=1,
                      default_missing_value = "true", value_parser = boolean, action = ArgAction::Set)]
                pub(crate) $field: Option<bool>,
            )*
        }
    };
}

domain_args! {
    /// HIP runtime and compiler API.
    hip_trace;
    /// HIP runtime API: hip*.
    hip_runtime_trace;
    /// HIP compiler API: __hip*.
    hip_compiler_trace;
    /// HSA core, AMD extension, image and finalizer API.
    hsa_trace;
    /// HSA core API: hsa_*.
    hsa_core_trace;
    /// HSA AMD extension: hsa_amd_*.
    hsa_amd_trace;
    /// HSA image extension: hsa_ext_image_*, hsa_ext_sampler_*.
    hsa_image_trace;
    /// HSA finalizer extension: hsa_ext_program_*.
    hsa_finalizer_trace;
    /// Kernel dispatches: what ran on which GPU and queue, when, and who asked for it.
    kernel_trace;
    /// Copies that engines of a GPU do.
    memory_copy_trace;
    /// What applications call and what comes of it: the HIP runtime API, kernels, copies (the default).
    runtime_trace = 'r';
    /// Everything: HIP, HSA, kernels, copies.
    sys_trace = 's';
}

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

/// Options of `export`.
#[derive(Debug, Args)]
#[command(before_help = "Example: gputrace export run.gtcap -f csv,pftrace -d out -o run")]
pub(crate) struct ExportArgs {
    /// The capture (.gtcap).
    pub(crate) capture: PathBuf,
    /// Outputs; by default beside the capture, with its name.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Options of `list`.
#[derive(Debug, Args)]
#[command(before_help = "Example: gputrace list --probes --library /opt/rocm/lib/libamdhip64.so")]
pub(crate) struct ListArgs {
    /// List every function with the place and cost of its probe, not only the libraries.
    #[arg(long)]
    pub(crate) probes: bool,
    /// Only this library file; by default those of running processes and those installed.
    #[arg(long, value_name = "PATH")]
    pub(crate) library: Vec<PathBuf>,
}

/// Attach back-ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// uprobe_multi where the kernel has it, else perf.
    Auto,
    /// One link for hundreds of functions (Linux 6.6 and later).
    #[value(name = "uprobe_multi")]
    UprobeMulti,
    /// One perf event for each function and direction: slow to remove.
    Perf,
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

/// How much gputrace says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Everything.
    Trace,
    /// What it does.
    Debug,
    /// The main steps.
    Info,
    /// What may spoil a result.
    Warning,
    /// Failures.
    Error,
}

/// As rocprofv3 reads booleans.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "y" | "on" | "t" => Ok(true),
        "0" | "false" | "no" | "n" | "off" | "f" => Ok(false),
        _ => Err("expected True or False".to_owned()),
    }
}

/// A number with a unit of time; seconds if there is none.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit '{unit}'; use us, ms, s, m or h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number, e.g. 10s".to_owned())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be more than 0 and not absurdly long".to_owned()),
    }
}

/// A number of bytes with an optional unit.
fn size(text: &str) -> Result<u32, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        other => return Err(format!("unknown unit '{other}'; use KiB, MiB or GiB")),
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    match bytes.and_then(|bytes| u32::try_from(bytes).ok()) {
        Some(bytes) if (4096..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("must be between 4KiB and 1GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn units() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("1.5").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        assert!(duration("0s").is_err());
        assert!(duration("1e400s").is_err());
        assert!(duration("3 parsecs").is_err());
        assert_eq!(size("64KiB").unwrap(), 65536);
        assert_eq!(size("4096").unwrap(), 4096);
        assert!(size("1").is_err());
        assert!(size("99999999999GiB").is_err());
    }

    #[test]
    fn programs_and_booleans() {
        let cli = Cli::try_parse_from([
            "gputrace",
            "--hip-trace",
            "--hsa-trace=False",
            "--",
            "./app",
            "-p",
        ])
        .unwrap();
        assert_eq!(cli.record.program, ["./app", "-p"]);
        assert_eq!(
            (cli.record.domains.hip_trace, cli.record.domains.hsa_trace),
            (Some(true), Some(false))
        );
        let cli = Cli::try_parse_from(["gputrace", "--attach", "1,2", "-p", "3"]).unwrap();
        assert_eq!(cli.record.pids, [1, 2, 3]);
        assert!(Cli::try_parse_from(["gputrace", "-p", "1", "--", "app"]).is_err());
        assert!(Cli::try_parse_from(["gputrace", "-a", "-p", "1"]).is_err());
        assert!(matches!(
            Cli::try_parse_from(["gputrace", "export", "x.gtcap"])
                .unwrap()
                .command,
            Some(Command::Export(_))
        ));
    }
}
