//! `gputrace merge`: several captures on one timeline.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::Args;
use gputrace_export::{Filter, Stages, merge::Plan};
use gputrace_session::export_from;

use super::FilterArgs;
use crate::{
    args::OutputArgs,
    export::{Destination, destination, report, status},
    progress::ProgressView,
    say,
};

/// Options of `merge`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  gputrace merge node1.gtcap node2.gtcap -o job            writes job_results.pftrace
  gputrace merge *.gtcap -f rocpd,pftrace -d out -o job -S

Captures of different hosts are aligned by their clocks' time of day (NTP, PTP); gputrace says how well. Of the second host on,
process and thread ids have 10000000 added for each host before, and names of processes and agents end in @HOST.
Placeholders in -o and -d stand for what they were in the first capture.")]
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

/// Makes outputs from several captures.
pub(crate) fn run(args: &MergeArgs) -> Result<u8> {
    let plan = Plan::new(&args.captures)?.selected_regions(args.output.selected_regions);
    for remark in plan.remarks() {
        say(remark);
    }
    // Placeholders have the values of the first capture; there are at least two.
    let first = args
        .captures
        .first()
        .map_or(Path::new(""), PathBuf::as_path);
    let Destination {
        directory,
        name,
        formats,
    } = match destination(&args.output, first, Path::new("."), "merged")? {
        Ok(destination) => destination,
        Err(refused) => return Ok(refused),
    };
    let options = args.filter.options();
    let filter = match options.is_empty() {
        true => None,
        false => {
            let mut filter = Filter::new(options, plan.extent());
            // Read errors are reported when the outputs are made.
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
    let view = ProgressView::new();
    let outputs = export_from(
        plan.open()?,
        stages,
        &directory,
        &name,
        &formats,
        &mut |progress| {
            view.show(progress);
            ControlFlow::Continue(())
        },
    )?;
    view.finish();
    report(&outputs, &args.output)?;
    Ok(status(&outputs.report))
}
