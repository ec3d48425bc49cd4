//! `gputrace summary`: where the time went, according to a capture.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use gputrace_analysis::summary::{
    SummaryExporter,
    tables::{DomainGroup, TableOptions, TablesExporter, Units},
};
use gputrace_export::{Exporter, SharedText};
use gputrace_text::terminal;

use super::{FilterArgs, complaints, pass};
use crate::{kernels::KernelArgs, stdout, summary::Unit};

/// Options of `summary`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  gputrace summary run.gtcap
  gputrace summary run.gtcap --time-window 50%:100% --domain kernel_dispatch
  gputrace summary run.gtcap --summary-groups 'KERNEL_DISPATCH|MEMORY_COPY' -u msec")]
pub(crate) struct SummaryCommand {
    /// The capture (.gtcap).
    pub(crate) capture: PathBuf,

    /// Print rocprofv3's table of statistics for each domain instead of the summary.
    #[arg(short = 'D', long)]
    pub(crate) summary_per_domain: bool,

    /// Print one table for all domains whose names match this regular expression instead of the
    /// summary; repeat for more tables.
    #[arg(long, value_name = "REGEX", value_parser = crate::summary::group)]
    pub(crate) summary_groups: Vec<DomainGroup>,

    /// Unit in rocprofv3's tables; the summary without options ends with that of all domains.
    #[arg(
        short = 'u',
        long,
        value_enum,
        value_name = "UNIT",
        default_value = "nsec"
    )]
    pub(crate) summary_units: Unit,

    /// Also show these percentiles of the durations in the tables, each to within 1 % [default if
    /// given without a value: 50,95,99].
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "LIST", value_delimiter = ',',
          value_parser = crate::summary::percentile, default_missing_values = ["50", "95", "99"])]
    pub(crate) percentiles: Vec<f64>,

    /// Print full names, even if lines do not fit the terminal. Files and pipes always get full
    /// names.
    #[arg(long)]
    pub(crate) wide: bool,

    /// Part of the recording.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Kernels.
    #[command(flatten)]
    pub(crate) kernels: KernelArgs,
}

/// Prints a summary to standard output.
pub(crate) fn run(args: &SummaryCommand) -> Result<u8> {
    // Percentiles need a table whose columns they can be.
    let per_domain =
        args.summary_per_domain || (!args.percentiles.is_empty() && args.summary_groups.is_empty());
    let overview = !per_domain && args.summary_groups.is_empty();
    let tables = TableOptions {
        per_domain,
        groups: args.summary_groups.clone(),
        whole: overview,
        units: Units::from(args.summary_units),
        percentiles: args.percentiles.clone(),
        remarks: !overview,
        columns: (!args.wide)
            .then(|| terminal::columns(&terminal::stdout()))
            .flatten(),
    };
    let text = SharedText::default();
    let mut exporters: Vec<Box<dyn Exporter>> = Vec::new();
    if overview {
        exporters.push(Box::new(
            SummaryExporter::to_stream(text.clone()).within(tables.columns),
        ));
    }
    exporters.push(Box::new(TablesExporter::new(tables, text.clone())));
    let report = pass(&args.capture, &args.filter, &args.kernels, exporters)?;
    stdout::print(&text.take())?;
    Ok(complaints(&report))
}
