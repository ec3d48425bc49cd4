//! The exporter, which turns events into packets.

use std::{
    collections::HashSet,
    io::{self, Write},
};

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{ClockSnapshot, Notice};
use gputrace_export::{
    ExportError, Exporter, Output, OutputDir, OutputError, OutputFile, WriterThread,
};
use gputrace_text::tables::plural;
use gputrace_timeline::event::Event;

use crate::{
    clock,
    gpu::{GpuWork, PerfettoOptions},
    lifetimes,
    observations::Observations,
    report,
    sampled::Sampled,
    sequence::Sequence,
    slices::Slices,
    tracks::Tracks,
};

/// Writes a Perfetto trace into `W`, packet by packet.
///
/// Memory grows with the number of processes, threads, functions, libraries, kernels and queues,
/// but not with the number of calls, dispatches or copies.
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: Sequence<W>,
    tracks: Tracks,
    slices: Slices,
    observations: Observations,
    sampled: Sampled,
    gpu: GpuWork,
    libraries: HashSet<String>,
    /// Latest time seen, ns `CLOCK_BOOTTIME`, used for events without a time.
    now: u64,
    /// `CLOCK_BOOTTIME` of the last clock snapshot written.
    clocks: Option<u64>,
    ledger: bool,
    end: bool,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace.
    ///
    /// # Errors
    /// When `output` cannot be written.
    pub fn new(output: W) -> io::Result<Self> {
        Self::with_options(output, PerfettoOptions::default())
    }

    /// As [`TraceWriter::new`], with `options`.
    ///
    /// # Errors
    /// When `output` cannot be written.
    pub fn with_options(output: W, options: PerfettoOptions) -> io::Result<Self> {
        let mut out = Sequence::new(output)?;
        if options.compress {
            out.compress();
        }
        Self::over(out, options)
    }

    pub(crate) fn over(mut out: Sequence<W>, options: PerfettoOptions) -> io::Result<Self> {
        Tracks::describe_own(&mut out)?;
        Ok(Self {
            out,
            tracks: Tracks::default(),
            slices: Slices::default(),
            observations: Observations::default(),
            sampled: Sampled::default(),
            gpu: GpuWork::new(options),
            libraries: HashSet::new(),
            now: 0,
            clocks: None,
            ledger: false,
            end: false,
        })
    }

    /// Adds an event. Events must come in the order that [`Event`] promises.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let Self { out, tracks, .. } = self;
        match event {
            Event::Recording(recording) => {
                self.now = recording.clocks.boottime;
                let gpu_work = [Domain::KernelDispatch, Domain::MemoryCopy];
                if gpu_work
                    .iter()
                    .any(|domain| recording.domains.iter().any(|name| name == domain.name()))
                {
                    self.slices.connect();
                }
                self.clocks(&recording.clocks)?;
                report::recording(&mut self.out, recording)
            }
            Event::Function(info) => {
                self.slices.function(info);
                if !self.libraries.contains(&info.library) {
                    self.libraries.insert(info.library.clone());
                    report::library(out, self.now, info)?;
                }
                Ok(())
            }
            Event::Process(info) => {
                tracks.know_process(info);
                Ok(())
            }
            Event::Thread(info) => {
                tracks.know_thread(info.pid, info.tid, &info.name);
                Ok(())
            }
            Event::Call(call) => {
                self.now = self.now.max(call.end);
                self.slices.call(out, tracks, call)
            }
            Event::Observation(one) => {
                self.now = self.now.max(one.end);
                self.observations.draw(out, tracks, one)?;
                self.gpu.memory(out, one)
            }
            Event::Counter(sample) => {
                self.now = self.now.max(sample.time);
                self.sampled.draw(out, tracks, &mut self.gpu, sample)
            }
            Event::Lifetime(lifetime) => {
                self.now = self.now.max(lifetime.time);
                lifetimes::change(out, tracks, lifetime)
            }
            Event::Agent(_)
            | Event::Queue(_)
            | Event::CodeObject(_)
            | Event::Stream(_)
            | Event::Kernel(_) => self.gpu.event(out, event, self.now),
            Event::Dispatch(dispatch) => {
                self.now = self.now.max(dispatch.origin.time).max(dispatch.time.end);
                self.gpu.event(out, event, self.now)
            }
            Event::Copy(copy) => {
                self.now = self.now.max(copy.origin.time).max(copy.time.end);
                self.gpu.event(out, event, self.now)
            }
            Event::KernelClass(_)
            | Event::Activity(_)
            | Event::CodeFile(_)
            | Event::Stack(_)
            | Event::Pending(_) => Ok(()),
            Event::Clocks(snapshot) => self.clocks(snapshot),
            Event::Notice(notice) => report::notice(out, notice),
            Event::Ledger(ledger) => {
                self.ledger = true;
                self.now = self.now.max(ledger.time);
                report::ledger(out, ledger)
            }
            Event::End(end) => {
                self.end = true;
                self.now = self.now.max(end.time);
                report::end(out, end)
            }
        }
    }

    /// Writes a snapshot, unless it is not later than the last one, which trace processor would
    /// report as an error.
    fn clocks(&mut self, snapshot: &ClockSnapshot) -> io::Result<()> {
        if snapshot.boottime == 0 || self.clocks >= Some(snapshot.boottime) {
            return Ok(());
        }
        self.clocks = Some(snapshot.boottime);
        self.out.packet(&clock::packet(snapshot))
    }

    /// Completes the trace and returns the output.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.tracks.finish(&mut self.out)?;
        let late = self.gpu.finish(&mut self.out, self.now)?;
        if late > 0 {
            let text = format!(
                "{} became known so late that the counters of work in flight do not show all of \
                 it.",
                plural(late, "kernel or copy", "kernels or copies")
            );
            report::notice(
                &mut self.out,
                &Notice {
                    time: self.now,
                    text,
                },
            )?;
        }
        if !self.ledger {
            report::no_ledger(&mut self.out, self.now)?;
        }
        if !self.end {
            report::no_end(&mut self.out, self.now)?;
        }
        self.out.finish()
    }
}

/// [`Exporter`] of Perfetto traces.
#[derive(Debug)]
pub struct PerfettoExporter {
    trace: TraceWriter<WriterThread<OutputFile>>,
}

impl PerfettoExporter {
    /// Starts the trace `file_name` (e.g. `app_results.pftrace`) in `directory`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn new(directory: &OutputDir, file_name: &str) -> Result<Self, OutputError> {
        Self::with_options(directory, file_name, PerfettoOptions::default())
    }

    /// As [`PerfettoExporter::new`], with `options`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn with_options(
        directory: &OutputDir,
        file_name: &str,
        options: PerfettoOptions,
    ) -> Result<Self, OutputError> {
        let file = directory.file(file_name)?;
        Ok(Self {
            trace: TraceWriter::with_options(WriterThread::new(file), options)?,
        })
    }
}

impl Exporter for PerfettoExporter {
    fn format(&self) -> &'static str {
        "pftrace"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        Ok(self.trace.event(event)?)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        let file = self.trace.finish()?.finish()?;
        Ok(vec![
            file.finish("Perfetto trace, for https://ui.perfetto.dev")?,
        ])
    }
}
