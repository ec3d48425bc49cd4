//! Makes outputs of a capture, at the end of a recording or later.

mod artifacts;
pub(crate) mod config;
pub(crate) mod flight;
pub(crate) mod formats;
pub(crate) mod live;
pub(crate) mod location;
pub(crate) mod placeholders;

use std::{io::Write, ops::ControlFlow, path::Path};

use gputrace_analysis::{
    costs::CostExporter,
    summary::{SummaryExporter, tables::TablesExporter},
    wall_clock::WallClockExporter,
};
use gputrace_export::{
    ExportError, Exporter, Filter, Output, OutputDir, OutputError, Prefetch, Progress, Report,
    SharedText, Source, Stages, StandardOutput, ndjson::NdjsonWriter, run_with, text::TextWriter,
};
use gputrace_timeline::Timeline;

use crate::{
    SessionError,
    request::{Formats, LiveFormat},
};

/// Result of an export.
#[derive(Debug)]
pub struct Outputs {
    /// Files written, failures, and gaps in the recording.
    pub report: Report,
    /// The requested summary and tables; empty if they were written into a file.
    pub summary: String,
    /// What tracing cost, if it was more than a little of a thread's time; else empty.
    pub costs: String,
    /// Whether formats were left out because the capture is smaller than the requested minimum.
    pub too_small: bool,
}

impl Outputs {
    /// Those of a recording of which only dumps are kept.
    pub(crate) fn none() -> Self {
        Self {
            report: Report {
                ended: true,
                ..Report::default()
            },
            summary: String::new(),
            costs: String::new(),
            too_small: false,
        }
    }
}

/// Makes outputs of the capture at `path`. File names in `directory` begin with `name`.
///
/// # Errors
///
/// [`SessionError`] if the capture cannot be read at all or no output file can be created. A later
/// failure of one format is in the report; the other formats are then complete.
pub fn export(
    path: &Path,
    directory: &OutputDir,
    name: &str,
    formats: &Formats,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outputs, SessionError> {
    let mut timeline = Timeline::open(path)?;
    if formats.selected_regions {
        timeline = timeline.selected_regions();
    }
    let filter = match &formats.filter {
        filter if filter.is_empty() => None,
        filter => Some(Filter::for_capture(filter.clone(), path)?),
    };
    let stages = Stages {
        kernels: formats.kernels.clone(),
        filter,
    };
    export_from(timeline, stages, directory, name, formats, progress)
}

/// Like [`export`], for the events of any source that pass `stages`.
///
/// # Errors
///
/// [`SessionError`] if no output file can be created.
pub fn export_from(
    source: impl Source + Send + 'static,
    stages: Stages,
    directory: &OutputDir,
    name: &str,
    formats: &Formats,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outputs, SessionError> {
    let mut exporters: Vec<Box<dyn Exporter>> = Vec::new();
    let summaries = Summaries::new(formats, &mut exporters);
    let costs = SharedText::default();
    exporters.push(Box::new(CostExporter::new(costs.clone())));
    if formats.wall_clock != Some(false) {
        let asked = formats.wall_clock == Some(true);
        exporters.push(Box::new(WallClockExporter::new(
            directory.clone(),
            name,
            asked,
        )));
    }
    match formats.stdout {
        Some(LiveFormat::Text) => {
            exporters.push(Box::new(TextWriter::new(StandardOutput::default())));
        }
        Some(LiveFormat::Ndjson) => {
            exporters.push(Box::new(NdjsonWriter::new(StandardOutput::default())));
        }
        None => {}
    }
    let mut failures = Vec::new();
    let too_small = source.size() < formats.minimum_bytes;
    let wanted = formats.list.iter().filter(|_| !too_small);
    for format in wanted {
        match format.begin(directory, name, formats) {
            Ok(exporter) => exporters.push(exporter),
            Err(ExportError::Output(error)) => return Err(error.into()),
            // A requirement of this format is missing; the other formats do not need it.
            Err(error) => failures.push((format.name(), error)),
        }
    }
    let mut report = run_with(Prefetch::new(source), exporters, stages, progress);
    // The reader of standard output may be gone (`gputrace export … -o - | head`).
    report.failures.retain(|(_, error)| !error.is_closed_pipe());
    report.failures.extend(failures);
    let mut summary = summaries.take();
    if let Some(file) = formats
        .summary_file
        .as_deref()
        .filter(|_| !summary.is_empty())
    {
        match write_summary(directory, &format!("{name}_{file}.txt"), &summary) {
            Ok(output) => report.outputs.push(output),
            Err(error) => report.failures.push(("summary", error.into())),
        }
        summary.clear();
    }
    Ok(Outputs {
        report,
        summary,
        costs: costs.take(),
        too_small,
    })
}

fn write_summary(directory: &OutputDir, name: &str, text: &str) -> Result<Output, OutputError> {
    let mut file = directory.file(name)?;
    file.write_all(text.as_bytes())?;
    file.finish("summary")
}

/// The requested summary and tables.
#[derive(Debug)]
pub(crate) struct Summaries(SharedText);

impl Summaries {
    /// Adds the exporters that make them to `exporters`.
    pub(crate) fn new(formats: &Formats, exporters: &mut Vec<Box<dyn Exporter>>) -> Self {
        let text = SharedText::default();
        if formats.summary {
            exporters.push(Box::new(
                SummaryExporter::to_stream(text.clone()).within(formats.tables.columns),
            ));
        }
        if !formats.tables.is_empty() {
            let tables = TablesExporter::new(formats.tables.clone(), text.clone());
            exporters.push(Box::new(tables));
        }
        Self(text)
    }

    /// Takes the text, once the exporters are done.
    pub(crate) fn take(&self) -> String {
        self.0.take()
    }
}
