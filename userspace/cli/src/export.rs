//! Outputs of a capture.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use gputrace_capture::{Block, CaptureReader, Meta, meta::Recording};
use gputrace_export::{OutputDir, Progress, kernels::AgentLabels};
use gputrace_perfetto::GpuGrouping;
use gputrace_session::{Format, Names, OutputRequest, Outputs, User, export};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    args::{self, AgentIndex, ExportArgs, OutputArgs},
    exit, say,
};

/// Makes outputs of an earlier recording.
pub(crate) fn run(args: &ExportArgs) -> Result<u8> {
    let capture = &args.capture;
    let beside = capture
        .parent()
        .filter(|path| !path.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let names = recording(capture).map_or_else(Names::default, |recording| Names::of_recording(&recording));
    let directory = match &args.output.output_directory {
        Some(directory) => names.expand_path(directory).unwrap_or_else(|| directory.clone()),
        None => beside.to_owned(),
    };
    let stem = capture
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    let name = args
        .output
        .output_file
        .as_ref()
        .map(|name| names.expand(name).unwrap_or_else(|| name.clone()))
        .or(stem)
        .unwrap_or_else(|| "gputrace".to_owned());
    let directory = OutputDir::open(&directory, User::behind_sudo().as_ref().map(User::owner))?;
    let mut formats = request(&args.output, beside.to_owned(), None).formats;
    formats.filter = args.filter.options();
    let bar = progress_bar();
    let outputs = export(capture, &directory, &name, &formats, &mut |progress| {
        show(&bar, progress);
        ControlFlow::Continue(())
    })
    .with_context(|| format!("cannot export {}", capture.display()))?;
    bar.finish_and_clear();
    report(&outputs, &args.output);
    Ok(failure(&outputs).unwrap_or(0))
}

/// How the capture says that it was made.
fn recording(capture: &Path) -> Option<Recording> {
    match CaptureReader::open(capture).ok()?.next_block() {
        Ok(Some(Block::Meta(Meta::Recording(recording)))) => Some(*recording),
        _ => None,
    }
}

/// Outputs as options ask for them, in `directory`, beginning with `name`.
pub(crate) fn request(args: &OutputArgs, directory: PathBuf, name: Option<String>) -> OutputRequest {
    let mut request = OutputRequest::new(directory, name);
    request.formats.list = formats(&args.output_format);
    request.formats.kernels = args.kernels.options(match args.agent_index {
        AgentIndex::Absolute => AgentLabels::Absolute,
        AgentIndex::Relative => AgentLabels::Relative,
        AgentIndex::TypeRelative => AgentLabels::TypeRelative,
    });
    request.formats.minimum_bytes = u64::from(args.minimum_output_data) << 10;
    request.force = args.force;
    request.formats.compress = args.perfetto_compress;
    request.formats.selected_regions = args.selected_regions;
    request.formats.stats = args.stats;
    request.formats.csv_arguments = args.csv_arguments;
    request.formats.wall_clock = args.wall_clock;
    request.formats.summary = args.summary.summary;
    request.formats.tables = args.summary.tables();
    request.formats.summary_file = args.summary.file();
    request.formats.grouping = if args.group_by_queue {
        GpuGrouping::Queues
    } else {
        GpuGrouping::Streams
    };
    request
}

/// The formats that options name.
fn formats(given: &[args::Format]) -> Vec<Format> {
    let mut formats: Vec<Format> = Vec::new();
    for format in given {
        let format = match format {
            args::Format::Pftrace => Format::Pftrace,
            args::Format::Csv => Format::Csv,
            args::Format::Json => Format::Json,
            args::Format::Rocpd => Format::Rocpd,
            args::Format::Otf2 => Format::Otf2,
            args::Format::Ndjson => Format::Ndjson,
            args::Format::Text => Format::Text,
        };
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    formats
}

/// Tells which files there are, and what is missing in them.
pub(crate) fn report(outputs: &Outputs, args: &OutputArgs) {
    args.summary.print(&outputs.summary);
    let report = &outputs.report;
    if outputs.too_small {
        say(&format!(
            "no files were made: the capture has less than {} KB (--minimum-output-data)",
            args.minimum_output_data
        ));
    }
    if let Some(truncation) = &report.truncation {
        say(&format!("warning: the capture is incomplete: {truncation}"));
    }
    if !report.ended && report.truncation.is_none() {
        say(
            "warning: the capture has no end mark: the recorder was killed or ran out of space; everything up to its last whole block was read",
        );
    }
    // The summary has it among its remarks.
    if let Some(left_out) = report.left_out.filter(|_| outputs.summary.is_empty()) {
        say(&left_out.to_string());
    }
    if let Some(filtered_out) = report.filtered_out.filter(|_| outputs.summary.is_empty()) {
        say(&filtered_out.to_string());
    }
    if let Some(nothing) = report
        .tally
        .nothing_selected
        .as_ref()
        .filter(|_| outputs.summary.is_empty())
    {
        say(nothing);
    }
    if let Some(error) = &report.read_error {
        say(&format!("error: {error}"));
    }
    for (format, error) in &report.failures {
        say(&format!("error: {format}: {error}"));
    }
    for output in &report.outputs {
        let hint = if output
            .path
            .extension()
            .is_some_and(|extension| extension == "pftrace")
        {
            "; open it at https://ui.perfetto.dev"
        } else {
            ""
        };
        say(&format!(
            "{} ({}, {} bytes){hint}",
            output.path.display(),
            output.content,
            output.bytes
        ));
    }
}

/// The exit code if anything is missing in the outputs that could have been made.
pub(crate) fn failure(outputs: &Outputs) -> Option<u8> {
    let report = &outputs.report;
    (!report.failures.is_empty() || report.read_error.is_some()).then_some(exit::OUTPUT)
}

pub(crate) fn progress_bar() -> ProgressBar {
    // Drawn on stderr, and only if that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {msg} {eta}") {
        bar.set_style(style);
    }
    bar
}

pub(crate) fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total);
    bar.set_position(progress.bytes);
    bar.set_message(format!("{} events", progress.events));
}
