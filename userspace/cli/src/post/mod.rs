//! Commands on captures after a recording, which need no root: filters, `summary`, `query`, `diff`,
//! `report`, `merge`, `dump`.

mod diff;
mod dump;
mod filter;
mod merge;
mod query;
mod report;
mod summary;

use std::{ops::ControlFlow, path::Path};

use anyhow::{Context as _, Result};
use gputrace_export::{Exporter, Filter, Prefetch, Report, Stages, kernels::AgentLabels, run_with};
use gputrace_timeline::Timeline;

pub(crate) use self::{
    diff::{DiffArgs, run as diff},
    dump::{DumpArgs, run as dump},
    filter::FilterArgs,
    merge::{MergeArgs, run as merge},
    query::{QueryArgs, run as query},
    report::{ReportArgs, run as report},
    summary::{SummaryCommand, run as summary},
};
use crate::{
    export::{complain, status},
    kernels::KernelArgs,
    progress::ProgressView,
    say,
};

/// Passes a capture through `filter` and `kernels` to `exporters`, and reports problems with it.
fn pass(
    capture: &Path,
    filter: &FilterArgs,
    kernels: &KernelArgs,
    exporters: Vec<Box<dyn Exporter>>,
) -> Result<Report> {
    let context = || format!("cannot read {}", capture.display());
    let options = filter.options();
    let filter = match options.is_empty() {
        true => None,
        false => Some(Filter::for_capture(options, capture).with_context(context)?),
    };
    let stages = Stages {
        kernels: kernels.options(AgentLabels::default()),
        filter,
    };
    let timeline = Timeline::open(capture).with_context(context)?;
    let view = ProgressView::new();
    let report = run_with(
        Prefetch::new(timeline),
        exporters,
        stages,
        &mut |progress| {
            view.show(progress);
            ControlFlow::Continue(())
        },
    );
    view.finish();
    Ok(report)
}

/// Reports problems of the capture, and returns the exit code. Remarks of filters are reported by
/// commands whose outputs have no place for them.
fn complaints(report: &Report) -> u8 {
    complain(report);
    status(report)
}

/// Reports how much the filters left out.
fn tell_left_out(report: &Report) {
    for text in [
        report.left_out.map(|left_out| left_out.to_string()),
        report
            .filtered_out
            .map(|filtered_out| filtered_out.to_string()),
    ]
    .into_iter()
    .flatten()
    {
        say(&text);
    }
}
