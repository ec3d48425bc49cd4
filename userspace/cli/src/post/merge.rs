//! `gputrace merge`: several captures on one timeline.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::Args;
use gputrace_export::{Filter, OutputDir, Stages, merge::Plan};
use gputrace_session::{User, export_from};

use super::FilterArgs;
use crate::{
    args::OutputArgs,
    export::{failure, progress_bar, report, request, show},
    say,
};

/// Options of `merge`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  gputrace merge node1.gtcap node2.gtcap -o job            writes job_results.pftrace
  gputrace merge *.gtcap -f rocpd,pftrace -d out -o job -S

Captures of different hosts are aligned by their clocks' time of day (NTP, PTP); gputrace says how well. Of the second host on,
process and thread ids have 10000000 added for each host before, and names of processes and agents end in @HOST.")]
pub(crate) struct MergeArgs {
    /// The captures (.gtcap). Times are those of the host that booted first.
    #[arg(required = true, num_args = 2.., value_name = "CAPTURE")]
    pub(crate) captures: Vec<PathBuf>,

    /// Outputs; by default in the current directory, with names that begin with merged.
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Part of the whole.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Makes outputs of several captures.
pub(crate) fn run(args: &MergeArgs) -> Result<u8> {
    let plan = Plan::new(&args.captures)?;
    for remark in plan.remarks() {
        say(remark);
    }
    let directory = args.output.output_directory.as_deref().unwrap_or(Path::new("."));
    let name = args.output.output_file.as_deref().unwrap_or("merged");
    let formats = request(&args.output, directory.to_owned(), None).formats;
    let options = args.filter.options();
    let filter = match options.is_empty() {
        true => None,
        false => {
            let mut filter = Filter::new(options, plan.extent());
            // What cannot be read is reported when the outputs are made.
            for event in plan.open()?.map_while(Result::ok) {
                filter.learn(&event);
            }
            Some(filter)
        }
    };
    let stages = Stages {
        kernels: formats.kernels.clone(),
        filter,
    };
    let directory = OutputDir::open(directory, User::behind_sudo().as_ref().map(User::owner))?;
    let bar = progress_bar();
    let outputs = export_from(
        plan.open()?,
        stages,
        &directory,
        name,
        &formats,
        &mut |progress| {
            show(&bar, progress);
            ControlFlow::Continue(())
        },
    )?;
    bar.finish_and_clear();
    report(&outputs, &args.output);
    Ok(failure(&outputs).unwrap_or(0))
}
