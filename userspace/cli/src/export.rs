//! Makes outputs from a capture.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use gputrace_capture::{Block, CaptureReader, Meta, meta::Recording};
use gputrace_export::{OutputDir, OutputError, Report, kernels::AgentLabels};
use gputrace_perfetto::GpuGrouping;
use gputrace_session::{
    Format, Formats, LiveFormat, Names, OutputRequest, Outputs, User, export, split,
};

use crate::{
    args::{AgentIndex, ExportArgs, OutputArgs},
    exit,
    progress::ProgressView,
    say,
};

/// Makes outputs of an earlier recording.
pub(crate) fn run(args: &ExportArgs) -> Result<u8> {
    let capture = &args.capture;
    let context = || format!("cannot export {}", capture.display());
    // Checked before anything is created.
    CaptureReader::open(capture).with_context(context)?;
    let stem = capture
        .file_stem()
        .map_or("gputrace".into(), |stem| stem.to_string_lossy());
    let Destination {
        directory,
        name,
        mut formats,
    } = match destination(&args.output, capture, beside(capture), &stem)? {
        Ok(destination) => destination,
        Err(refused) => return Ok(refused),
    };
    formats.filter = args.filter.options();
    let view = ProgressView::new();
    let outputs = export(capture, &directory, &name, &formats, &mut |progress| {
        view.show(progress);
        ControlFlow::Continue(())
    })
    .with_context(context)?;
    view.finish();
    report(&outputs, &args.output)?;
    Ok(status(&outputs.report))
}

/// Where outputs of captures go.
pub(crate) struct Destination {
    pub(crate) directory: OutputDir,
    pub(crate) name: String,
    pub(crate) formats: Formats,
}

/// The directory of a file.
pub(crate) fn beside(file: &Path) -> &Path {
    file.parent()
        .filter(|path| !path.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Where the options send outputs of `capture`: by default into `directory`, with names that begin
/// with `name`. Placeholders have the values of the recording. If the options are contradictory,
/// prints why and returns an exit code.
pub(crate) fn destination(
    args: &OutputArgs,
    capture: &Path,
    directory: &Path,
    name: &str,
) -> Result<Result<Destination, u8>> {
    let refuse = |why: &str| {
        say(&format!("error: {why}"));
        Ok(Err(exit::USAGE))
    };
    if args.output_config {
        return refuse(
            "--output-config is for recordings: it writes their options. Drop it; \
             `gputrace summary` shows how a capture was made",
        );
    }
    let mut formats = request(args, directory.to_owned(), None).formats;
    let names =
        recording(capture).map_or_else(Names::default, |recording| Names::of_recording(&recording));
    let base = match &args.output_directory {
        Some(directory) => names
            .expand_path(directory)
            .unwrap_or_else(|| directory.clone()),
        None => directory.to_owned(),
    };
    let given = args.output_file.as_ref();
    let given = given.map(|name| names.expand(name).unwrap_or_else(|| name.clone()));
    let (directory, name) = match given.as_deref() {
        Some("-") => {
            formats.stdout = live_format(&formats.list);
            if formats.stdout.is_none() {
                return refuse(
                    "-o - writes to stdout, which takes one format: -f text or -f ndjson",
                );
            }
            formats.list.clear();
            if formats.wall_clock == Some(true) || formats.summary_file.is_some() {
                return refuse(
                    "-o - makes no files: drop --wall-clock and --summary-output-file, or give a name",
                );
            }
            if args.summary.takes_stdout() {
                return refuse("-o - uses stdout for the events; send the summary to stderr");
            }
            formats.wall_clock = Some(false);
            (directory.to_owned(), name.to_owned())
        }
        Some(given) => split(&base, given)?,
        None => (base, name.to_owned()),
    };
    tell_useless(args);
    Ok(Ok(Destination {
        directory: OutputDir::open(&directory, User::behind_sudo().as_ref().map(User::owner))?,
        name,
        formats,
    }))
}

/// Reports options that have no effect with the chosen formats.
pub(crate) fn tell_useless(args: &OutputArgs) {
    if args
        .output_format
        .iter()
        .any(|format| format.name() == "csv")
    {
        return;
    }
    for (given, name) in [
        (args.stats, "--stats"),
        (args.csv_arguments, "--csv-arguments"),
    ] {
        if given {
            say(&format!(
                "{name} has no effect without CSV files; add -f csv"
            ));
        }
    }
}

/// The description of the recording in the capture.
fn recording(capture: &Path) -> Option<Recording> {
    match CaptureReader::open(capture).ok()?.next_block() {
        Ok(Some(Block::Meta(Meta::Recording(recording)))) => Some(*recording),
        _ => None,
    }
}

/// The outputs that the options ask for, in `directory`, with names that begin with `name`.
pub(crate) fn request(
    args: &OutputArgs,
    directory: PathBuf,
    name: Option<String>,
) -> OutputRequest {
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
    request.formats.gpu_events = args.perfetto_gpu_events;
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

/// The formats that the options name, without duplicates.
fn formats(given: &[Format]) -> Vec<Format> {
    let mut formats: Vec<Format> = Vec::new();
    for format in given {
        if !formats.contains(format) {
            formats.push(*format);
        }
    }
    formats
}

/// The format that goes to standard output, if `list` is a single format that can do so.
pub(crate) fn live_format(list: &[Format]) -> Option<LiveFormat> {
    match list {
        [format] => format.live(),
        _ => None,
    }
}

/// Reports which files were written, and what is missing in them.
///
/// # Errors
/// [`OutputError`] if the summary cannot be printed. Everything else has been reported then.
pub(crate) fn report(outputs: &Outputs, args: &OutputArgs) -> Result<(), OutputError> {
    let printed = args.summary.print(&outputs.summary);
    let report = &outputs.report;
    if outputs.too_small {
        say(&format!(
            "no files were made: the capture has less than {} KB (--minimum-output-data)",
            args.minimum_output_data
        ));
    }
    // The summary has this among its remarks.
    if let Some(left_out) = report.left_out.filter(|_| outputs.summary.is_empty()) {
        say(&left_out.to_string());
    }
    if let Some(filtered_out) = report.filtered_out.filter(|_| outputs.summary.is_empty()) {
        say(&filtered_out.to_string());
    }
    let tally = &report.tally;
    let messages = tally.nothing_selected.iter().chain(&tally.failed_calls);
    for text in messages.chain(&tally.undrawn) {
        if outputs.summary.is_empty() {
            say(text);
        }
    }
    complain(report);
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
    printed
}

/// Reports problems of the capture, and outputs that could not be made.
pub(crate) fn complain(report: &Report) {
    if let Some(truncation) = &report.truncation {
        say(&format!("warning: the capture is incomplete: {truncation}"));
    } else if is_incomplete(report) {
        say(
            "warning: the capture has no end mark: the recorder was killed or ran out of space; everything up to its last whole block was read",
        );
    }
    if let Some(error) = &report.read_error {
        say(&format!("error: {error}"));
    }
    for (format, error) in &report.failures {
        say(&format!("error: {format}: {error}"));
    }
}

/// Whether the capture ends too early.
fn is_incomplete(report: &Report) -> bool {
    report.read_error.is_none()
        && !report.cancelled
        && (report.truncation.is_some() || !report.ended)
}

/// The exit code if the outputs lack anything that they should have.
pub(crate) fn failure(report: &Report) -> Option<u8> {
    if report.read_error.is_some() {
        Some(exit::CAPTURE)
    } else {
        (!report.failures.is_empty()).then_some(exit::OUTPUT)
    }
}

/// The exit code for the outputs of a capture; not 0 if the capture itself is incomplete.
pub(crate) fn status(report: &Report) -> u8 {
    failure(report).unwrap_or(if is_incomplete(report) {
        exit::INCOMPLETE
    } else {
        0
    })
}
