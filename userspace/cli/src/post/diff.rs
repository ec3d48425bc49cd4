//! `gputrace diff`: what became slower or faster from one capture to another.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use clap::Args;
use gputrace_analysis::diff::{Difference, Side, SideExporter};

use super::{FilterArgs, complaints, pass, tell_left_out};
use crate::{exit, kernels::KernelArgs, stdout};

/// Options of `diff`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  gputrace diff before.gtcap after.gtcap
  gputrace diff before.gtcap after.gtcap --domain kernel_dispatch --top 10
  gputrace diff before.gtcap after.gtcap --json | jq '.rows[0]'")]
pub(crate) struct DiffArgs {
    /// The capture to compare with (.gtcap).
    pub(crate) before: PathBuf,

    /// The capture to compare (.gtcap).
    pub(crate) after: PathBuf,

    /// Show this many rows, those with the greatest change of total time; 0 shows all.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) top: usize,

    /// Print JSON, with all rows.
    #[arg(long)]
    pub(crate) json: bool,

    /// Part of both recordings.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Kernels.
    #[command(flatten)]
    pub(crate) kernels: KernelArgs,
}

/// Compares two captures and prints to standard output.
pub(crate) fn run(args: &DiffArgs) -> Result<u8> {
    let (before, failed_before) = side(&args.before, args)?;
    let (after, failed_after) = side(&args.after, args)?;
    let difference = Difference::new(&before, &after);
    let text = if args.json {
        difference.json()
    } else {
        difference.text(if args.top == 0 { usize::MAX } else { args.top })
    };
    stdout::print(&text)?;
    Ok(exit::worse(failed_before, failed_after))
}

fn side(capture: &Path, args: &DiffArgs) -> Result<(Side, u8)> {
    let side = Arc::new(Mutex::new(Side::default()));
    let exporter = SideExporter::new(Arc::clone(&side));
    let report = pass(
        capture,
        &args.filter,
        &args.kernels,
        vec![Box::new(exporter)],
    )?;
    tell_left_out(&report);
    let mut side = std::mem::take(&mut *side.lock().unwrap_or_else(PoisonError::into_inner));
    side.name = capture.display().to_string();
    Ok((side, complaints(&report)))
}
