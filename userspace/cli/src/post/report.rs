//! `gputrace report`: an HTML page about a capture.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use gputrace_analysis::report::ReportExporter;
use gputrace_capture::{CaptureReader, ReadError};
use gputrace_export::{OutputDir, OutputError, OutputFile, StandardOutput};
use gputrace_files::own;
use gputrace_session::User;

use super::{FilterArgs, complaints, pass, tell_left_out};
use crate::{export::beside, kernels::KernelArgs, say};

/// Options of `report`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  gputrace report run.gtcap                     writes run.html
  gputrace report run.gtcap -o report.html --time-window 10%:20%")]
pub(crate) struct ReportArgs {
    /// The capture (.gtcap).
    pub(crate) capture: PathBuf,

    /// Output file, '-' for stdout [default: next to the capture, with its name and .html].
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace an existing page. Captures are never replaced.
    #[arg(long)]
    pub(crate) force: bool,

    /// Part of the recording.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Kernels.
    #[command(flatten)]
    pub(crate) kernels: KernelArgs,
}

/// Writes the page.
pub(crate) fn run(args: &ReportArgs) -> Result<u8> {
    let page = args
        .output
        .clone()
        .unwrap_or_else(|| args.capture.with_extension("html"));
    let title = args
        .capture
        .file_stem()
        .map_or("recording".into(), |stem| stem.to_string_lossy());
    // Checked before anything is created.
    let context = || format!("cannot read {}", args.capture.display());
    CaptureReader::open(&args.capture).with_context(context)?;
    let exporter = if page.as_os_str() == "-" {
        ReportExporter::to_stream(StandardOutput::default(), &title)
    } else {
        let file = file(&page, args.force)?;
        ReportExporter::new(file, &title)
    };
    let mut report = pass(
        &args.capture,
        &args.filter,
        &args.kernels,
        vec![Box::new(exporter)],
    )?;
    report.failures.retain(|(_, error)| !error.is_closed_pipe());
    tell_left_out(&report);
    let failed = complaints(&report);
    for output in &report.outputs {
        say(&format!(
            "{} ({} bytes); open it in a browser",
            output.path.display(),
            output.bytes
        ));
    }
    Ok(failed)
}

/// Begins the file of the page.
fn file(page: &Path, force: bool) -> Result<OutputFile, OutputError> {
    let name = match page.file_name() {
        Some(name) if !own::is_directory(page) => name.to_string_lossy(),
        _ => return Err(OutputError::directory(page)),
    };
    if is_capture(page) {
        return Err(OutputError::Capture {
            path: page.to_owned(),
        });
    }
    let directory = OutputDir::open(beside(page), User::behind_sudo().as_ref().map(User::owner))?;
    if !force {
        directory.must_not_have(&name)?;
    }
    directory.file(&name)
}

/// Whether a file contains a recording, even a damaged one or one of a newer version.
fn is_capture(path: &Path) -> bool {
    // Opening anything other than a regular file may have side effects.
    own::is_file(path)
        && !matches!(
            CaptureReader::open(path),
            Err(ReadError::Open { .. }
                | ReadError::Io { .. }
                | ReadError::Empty { bytes: 0 }
                | ReadError::NotACapture)
        )
}
