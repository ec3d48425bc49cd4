//! The command line. Options have rocprofv3's names where it has them.

mod advice;
mod domains;
pub(crate) mod flight;
mod functions;
mod output;
mod period;
mod record;
mod select;
pub(crate) mod stacks;
mod tuning;
mod values;

use std::path::PathBuf;

use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use self::{
    advice::{advise, lacks_program},
    domains::DomainArgs,
    output::{AgentIndex, OutputArgs},
    record::RecordArgs,
    select::SelectArgs,
    tuning::{Backend, KfdProbes, LogLevel, TuningArgs},
    values::{boolean, duration},
};
use crate::{
    flight::DumpFlightArgs,
    inspect::{DoctorArgs, KfdArgs, PsArgs, StatusArgs, TopologyArgs, VerifyArgs, WorkArgs},
    post::{DiffArgs, DumpArgs, FilterArgs, MergeArgs, QueryArgs, ReportArgs, SummaryCommand},
    top::TopArgs,
};

/// First lines of the help: typical commands.
const EXAMPLES: &str = "\
Examples:
  sudo gputrace -- ./app --its-args       launch a program and trace it from its first call
  sudo gputrace -p 1234 --duration 10s    trace a running process for ten seconds
  sudo gputrace --job 1234                trace what runs of Slurm job 1234 on this node
  sudo gputrace -a                        trace every process of this node until Ctrl-C
  sudo gputrace -S -f csv -- ./app        print a summary, write rocprofv3's CSV files
  gputrace export run.gtcap -f pftrace    make outputs from an earlier recording, without root
  gputrace report run.gtcap               make an HTML page: timeline, tables, histograms
  gputrace query run.gtcap 'SELECT * FROM top_kernels'
  gputrace diff before.gtcap after.gtcap  show what became slower or faster
  sudo gputrace --flight --dump-on error  keep the last minute, and write it when a call fails
  sudo gputrace                           show who uses the GPUs now, and how: gputrace top
  gputrace list --probes                  show which functions can be traced, and their cost

Open NAME_results.pftrace at https://ui.perfetto.dev";

/// How to install completions.
const COMPLETIONS: &str = "\
Examples:
  gputrace completions bash > /etc/bash_completion.d/gputrace
  gputrace completions zsh > /usr/local/share/zsh/site-functions/_gputrace
  gputrace completions fish > ~/.config/fish/completions/gputrace.fish";

/// Explains the exit codes at the end of the long help.
const EXIT_CODES: &str = "\
Exit status: the program's, if gputrace launched one and recorded it successfully; otherwise
  0  success                                 6  no permission (run with sudo)
  1  any other failure                       7  the kernel lacks a required feature
  2  wrong usage                             8  the output or capture cannot be written
  3  no such process or program              9  the capture cannot be read
  4  the process has no ROCm libraries      10  the capture is from a newer version
  5  the process or library cannot be       11  a library file cannot be used
     traced (architecture, static runtime)  12  the SQL of a query is wrong
                                            13  the captures cannot be merged
                                            14  the file already exists (--force)
                                            15  the capture is damaged or has no end:
                                                the outputs have all that can be read
                                           130  stopped by a second Ctrl-C; export, query
                                                and so on: by Ctrl-C (143: SIGTERM)";

/// Trace AMD GPU work (HIP, HSA) of unmodified programs from outside, even while they run.
#[derive(Debug, Parser)]
#[command(
    name = "gputrace",
    version,
    disable_version_flag = true,
    before_help = EXAMPLES,
    after_long_help = EXIT_CODES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    // If an option is given twice, the last value counts, as in rocprofv3: scripts append options
    // to those that they were given.
    args_override_self = true
)]
pub(crate) struct Cli {
    /// What to do instead of recording.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Options of a recording.
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// Print version.
    #[arg(short = 'V', visible_short_alias = 'v', long, action = ArgAction::Version)]
    pub(crate) version: Option<bool>,
}

/// What to do instead of recording.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make outputs from a capture.
    ///
    /// Replaces files of the same names, like rocprofv3. Keeps files of an earlier export that this
    /// one does not write.
    Export(Box<ExportArgs>),
    /// Print where the time went in a capture.
    Summary(Box<SummaryCommand>),
    /// Make an HTML page from a capture: timeline, tables, histograms, losses.
    Report(Box<ReportArgs>),
    /// Run SQL on a capture, with rocpd's tables and views.
    Query(Box<QueryArgs>),
    /// Compare two captures: which kernels and calls became slower or faster.
    Diff(Box<DiffArgs>),
    /// Combine captures from one or several hosts on one timeline.
    Merge(Box<MergeArgs>),
    /// Print the blocks and records of a capture as they are stored, for developers of gputrace.
    Dump(DumpArgs),
    /// List what can be traced.
    List(ListArgs),
    /// Show the agents: GPUs and CPUs with their memory, caches and links.
    Topology(TopologyArgs),
    /// Show the processes that use GPUs: runtime versions, queues, memory.
    Ps(PsArgs),
    /// Show who uses the GPUs now, and how, from second to second.
    Top(Box<TopArgs>),
    /// Have running flight recorders (--flight) write what they have kept.
    DumpFlight(DumpFlightArgs),
    /// Show who records on this node: the gputraces that run, since when, and what they use.
    Status(StatusArgs),
    /// Show what a process holds in the driver, and how fast it changes.
    Kfd(KfdArgs),
    /// Check what can be recorded here, and show how to fix the rest.
    Doctor(DoctorArgs),
    /// Check that recordings are right on this machine's GPU.
    ///
    /// Takes about a minute. A bundled program asks the GPU's runtime for the times of its kernels
    /// and copies, while gputrace records it in every mode.
    Verify(VerifyArgs),
    /// The program that `verify` records.
    #[command(hide = true)]
    VerifyWork(WorkArgs),
    /// Print a shell completion script.
    #[command(before_help = COMPLETIONS)]
    Completions {
        /// Name of the shell.
        shell: Shell,
    },
    /// Write gputrace's manual pages.
    #[command(before_help = "Example: gputrace man /usr/local/share/man/man1 && man gputrace")]
    Man {
        /// Output directory [default: only the first page, to stdout].
        directory: Option<PathBuf>,
    },
}

impl Command {
    /// Whether the command works on captures, which may take long.
    pub(crate) const fn reads_captures(&self) -> bool {
        matches!(
            self,
            Self::Export(_)
                | Self::Summary(_)
                | Self::Report(_)
                | Self::Query(_)
                | Self::Diff(_)
                | Self::Merge(_)
                | Self::Dump(_)
        )
    }
}

/// The command line's definition, built.
pub(crate) fn command() -> clap::Command {
    let mut command = advice::take_negative_values(Cli::command());
    command.build();
    command
}

/// Options of `export`.
#[derive(Debug, Args)]
#[command(before_help = "Example: gputrace export run.gtcap -f csv,pftrace -d out -o run")]
pub(crate) struct ExportArgs {
    /// The capture (.gtcap).
    pub(crate) capture: PathBuf,
    /// Outputs; by default next to the capture, with its name. Existing files are replaced.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Part of the recording.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Options of `list`.
#[derive(Debug, Args)]
#[command(before_help = "Example: gputrace list --probes --library /opt/rocm/lib/libamdhip64.so")]
pub(crate) struct ListArgs {
    /// Also list every function with the place and cost of its probe.
    #[arg(long)]
    pub(crate) probes: bool,
    /// Only this library file (default: the libraries of running processes, and installed ones).
    #[arg(long, value_name = "PATH")]
    pub(crate) library: Vec<PathBuf>,
    /// Show every option of rocprofv3, and what gputrace does with it (Markdown).
    #[arg(long, conflicts_with_all = ["probes", "library"])]
    pub(crate) rocprofv3: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
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
            (
                cli.record.domains.get("hip-trace"),
                cli.record.domains.get("hsa-trace")
            ),
            (Some(true), Some(false))
        );
        let cli = Cli::try_parse_from(["gputrace", "--attach", "1,2", "-p", "3"]).unwrap();
        assert_eq!(cli.record.pids, [1, 2, 3]);
        assert!(Cli::try_parse_from(["gputrace", "-p", "1", "--", "app"]).is_err());
        assert!(Cli::try_parse_from(["gputrace", "-a", "-p", "1"]).is_err());
        assert!(Cli::try_parse_from(["gputrace", "--wait", "--", "app"]).is_err());
        assert!(Cli::try_parse_from(["gputrace", "--wait", "-a"]).is_err());
        assert!(Cli::try_parse_from(["gputrace", "--wait", "-p", "1"]).is_ok());
        let chosen = [
            "gputrace", "--wait", "--user", "a", "--user", "b", "--job", "7",
        ];
        let selection = Cli::try_parse_from(chosen)
            .unwrap()
            .record
            .select
            .selection();
        assert_eq!(selection.to_string(), "--job 7 --user a --user b");
        for option in ["name", "cgroup", "container", "pod", "job", "user", "gpu"] {
            let option = format!("--{option}");
            for other in [&["-a"][..], &["-p", "1"], &["--", "app"]] {
                let words = [&["gputrace", option.as_str(), "x"], other].concat();
                assert!(Cli::try_parse_from(&words).is_err(), "{words:?}");
            }
            assert!(Cli::try_parse_from(["gputrace", &option, ""]).is_err());
        }
        assert!(matches!(
            Cli::try_parse_from(["gputrace", "export", "x.gtcap"])
                .unwrap()
                .command,
            Some(Command::Export(_))
        ));
    }
}
