//! The exporter: events in, packets out.

use std::{
    collections::HashSet,
    io::{self, Write},
};

use gputrace_capture::meta::ClockSnapshot;
use gputrace_export::{ExportError, Exporter, Output, OutputDir, OutputError, OutputFile};
use gputrace_timeline::event::Event;

use crate::{clock, lifetimes, report, sequence::Sequence, slices::Slices, tracks::Tracks};

/// Writes a Perfetto trace into `W`, packet by packet.
///
/// Memory grows with the number of processes, threads, functions and libraries, not with that of calls.
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: Sequence<W>,
    tracks: Tracks,
    slices: Slices,
    libraries: HashSet<String>,
    /// Latest moment heard of, ns `CLOCK_BOOTTIME`: for what has no time of its own.
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
        Self::over(Sequence::new(output)?)
    }

    pub(crate) fn over(mut out: Sequence<W>) -> io::Result<Self> {
        Tracks::describe_own(&mut out)?;
        Ok(Self {
            out,
            tracks: Tracks::default(),
            slices: Slices::default(),
            libraries: HashSet::new(),
            now: 0,
            clocks: None,
            ledger: false,
            end: false,
        })
    }

    /// Adds an event. Events come in the order that [`Event`] promises.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let Self { out, tracks, .. } = self;
        match event {
            Event::Recording(recording) => {
                self.now = recording.clocks.boottime;
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
            Event::Lifetime(lifetime) => {
                self.now = self.now.max(lifetime.time);
                lifetimes::change(out, tracks, lifetime)
            }
            Event::Agent(_)
            | Event::Queue(_)
            | Event::CodeObject(_)
            | Event::Kernel(_)
            | Event::Dispatch(_)
            | Event::Copy(_) => Ok(()),
            Event::Clocks(snapshot) => self.clocks(snapshot),
            Event::Notice(notice) => report::notice(out, notice),
            Event::Ledger(ledger) => {
                self.ledger = true;
                report::ledger(out, ledger)
            }
            Event::End(end) => {
                self.end = true;
                report::end(out, end)
            }
        }
    }

    /// Writes a snapshot, unless it is not later than the last one: trace processor takes that for an
    /// error.
    fn clocks(&mut self, snapshot: &ClockSnapshot) -> io::Result<()> {
        if snapshot.boottime == 0 || self.clocks >= Some(snapshot.boottime) {
            return Ok(());
        }
        self.clocks = Some(snapshot.boottime);
        self.out.packet(clock::packet(snapshot))
    }

    /// Completes the trace and returns the output.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.tracks.finish(&mut self.out)?;
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
    trace: TraceWriter<OutputFile>,
}

impl PerfettoExporter {
    /// Starts the trace `file_name` (e.g. `app_results.pftrace`) in `directory`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn new(directory: &OutputDir, file_name: &str) -> Result<Self, OutputError> {
        let file = directory.file(file_name)?;
        Ok(Self {
            trace: TraceWriter::new(file)?,
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
        let file = self.trace.finish()?;
        Ok(vec![file.finish("Perfetto trace, for https://ui.perfetto.dev")?])
    }
}
