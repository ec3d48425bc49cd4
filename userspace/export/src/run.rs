//! The driver: one pass over a capture for any number of exporters.

use std::{
    io::{Read, Seek},
    ops::ControlFlow,
};

use gputrace_capture::{ReadError, Truncation, meta::Notice};
use gputrace_timeline::{Tally, Timeline, event::Event, gpu::Dispatch};

use crate::{
    exporter::{ExportError, Exporter, Output},
    filter::{Filter, FilteredOut},
    kernels::{KernelOptions, KernelStage, LeftOut},
};

/// A source of events: one capture, or several.
pub trait Source: Iterator<Item = Result<Event, ReadError>> {
    /// Number of bytes read so far.
    fn position(&self) -> u64;
    /// Total number of bytes to read.
    fn size(&self) -> u64;
    /// Where and why reading stopped before the end; known when the iterator has ended.
    fn truncation(&self) -> Option<Truncation>;
    /// Counts of what was read so far; complete when the iterator has ended.
    fn tally(&self) -> &Tally;
    /// Takes back an emitted dispatch that is no longer needed, to reuse its memory.
    fn take_back(&mut self, _dispatch: Box<Dispatch>) {}
}

impl<R: Read + Seek> Source for Timeline<R> {
    fn position(&self) -> u64 {
        Timeline::position(self)
    }

    fn size(&self) -> u64 {
        Timeline::size(self)
    }

    fn truncation(&self) -> Option<Truncation> {
        Timeline::truncation(self)
    }

    fn tally(&self) -> &Tally {
        Timeline::tally(self)
    }

    fn take_back(&mut self, dispatch: Box<Dispatch>) {
        Timeline::take_back(self, dispatch);
    }
}

/// The stages between a source and the exporters.
#[derive(Debug, Default)]
pub struct Stages {
    /// Which kernels are shown, and under which names.
    pub kernels: KernelOptions,
    /// Which part of the recording is shown.
    pub filter: Option<Filter>,
}

/// Number of events between two progress reports.
const PROGRESS_INTERVAL: u64 = 1 << 16;

/// Progress of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the capture read so far.
    pub bytes: u64,
    /// Size of the capture in bytes.
    pub total: u64,
    /// Events given to the exporters so far.
    pub events: u64,
}

/// Result of an export.
#[derive(Debug, Default)]
pub struct Report {
    /// Files written, in the order of the exporters.
    pub outputs: Vec<Output>,
    /// Formats that failed, by name. The others are complete.
    pub failures: Vec<(&'static str, ExportError)>,
    /// Where the capture ends too early, if it does. The outputs hold everything before and say so.
    pub truncation: Option<Truncation>,
    /// Why reading stopped, if an I/O error stopped it. The outputs hold everything before and say
    /// so.
    pub read_error: Option<ReadError>,
    /// Whether the capture ends with its end mark, because the recorder stopped in order.
    pub ended: bool,
    /// Whether `progress` asked to stop; there are then no outputs.
    pub cancelled: bool,
    /// Counts of what was read from the capture.
    pub tally: Tally,
    /// What the kernel filters removed from the outputs, if there are any filters.
    pub left_out: Option<LeftOut>,
    /// What the other filters removed from the outputs, if there are any.
    pub filtered_out: Option<FilteredOut>,
}

/// Gives every event of `source` to every exporter and finishes them.
///
/// An exporter that fails is dropped, which removes its unfinished files; the others go on.
/// `progress` is called at intervals, and at the end of reading; returning [`ControlFlow::Break`]
/// cancels the export and leaves no file behind.
pub fn run(
    source: impl Source,
    exporters: Vec<Box<dyn Exporter>>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Report {
    run_with(source, exporters, Stages::default(), progress)
}

/// As [`run`], with the selection and names of `stages`.
pub fn run_with(
    mut source: impl Source,
    mut exporters: Vec<Box<dyn Exporter>>,
    stages: Stages,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Report {
    let mut report = Report::default();
    let mut kernels = KernelStage::new(stages.kernels);
    let mut filter = stages.filter;
    let mut events = 0;
    loop {
        match source.next() {
            None => break,
            // Fast path: most events need not be moved from one stage to the next.
            Some(Ok(event)) if filter.is_none() && kernels.passes(&event) => {
                give(&event, &mut exporters, &mut report);
                if let Event::Dispatch(dispatch) = event {
                    source.take_back(dispatch);
                }
            }
            Some(event) => {
                let event = event.unwrap_or_else(|error| {
                    let notice = Notice {
                        time: 0,
                        text: format!("Reading stopped early: {error}."),
                    };
                    report.read_error = Some(error);
                    Event::Notice(notice)
                });
                report.ended |= matches!(event, Event::End(_));
                kernels.take(event, &mut |event| {
                    pass(event, &mut filter, &mut exporters, &mut report);
                });
            }
        }
        events += 1;
        if events % PROGRESS_INTERVAL == 0 && progress(at(&source, events)).is_break() {
            return Report {
                cancelled: true,
                ..report
            };
        }
    }
    kernels.finish(0, &mut |event| {
        pass(event, &mut filter, &mut exporters, &mut report);
    });
    if let Some(filter) = &mut filter {
        filter.finish(0, &mut |event| give(&event, &mut exporters, &mut report));
        report.filtered_out = Some(filter.left_out());
    }
    report.left_out = kernels.left_out();
    report.truncation = source.truncation();
    report.tally = source.tally().clone();
    if progress(at(&source, events)).is_break() {
        return Report {
            cancelled: true,
            ..report
        };
    }
    for exporter in exporters {
        let format = exporter.format();
        match exporter.finish() {
            Ok(outputs) => report.outputs.extend(outputs),
            Err(error) => report.failures.push((format, error)),
        }
    }
    report
}

fn at(source: &impl Source, events: u64) -> Progress {
    Progress {
        bytes: source.position(),
        total: source.size(),
        events,
    }
}

/// Emits what passes the filter.
fn pass(
    event: Event,
    filter: &mut Option<Filter>,
    exporters: &mut Vec<Box<dyn Exporter>>,
    report: &mut Report,
) {
    match filter {
        Some(filter) => filter.take(event, &mut |event| give(&event, exporters, report)),
        None => give(&event, exporters, report),
    }
}

fn give(event: &Event, exporters: &mut Vec<Box<dyn Exporter>>, report: &mut Report) {
    exporters.retain_mut(|exporter| match exporter.event(event) {
        Ok(()) => true,
        Err(error) => {
            report.failures.push((exporter.format(), error));
            false
        }
    });
}
