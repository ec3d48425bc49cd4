//! Writes pprof profiles: by stack, GPU time, work, copied bytes, calls, and time in calls and in
//! waits.
//!
//! `go tool pprof` and other tools read them ([`profile`]). A sample is a stack in a process, with
//! all values; the process is a label. The innermost frame is a kernel, a kind of copy, or a
//! function of an API. See [`gputrace_export::stacks`] for what is added up.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod build;
mod profile;
#[cfg(test)]
mod tests;

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use gputrace_capture::meta::ClockSnapshot;
use gputrace_export::{
    exporter::{ExportError, Exporter, Output},
    output::{OutputDir, OutputFile},
    stacks::ByStack,
};
use gputrace_timeline::event::Event;
use prost::Message as _;

use crate::build::Builder;

/// Writes a profile. Memory grows with the number of different stacks.
#[derive(Debug)]
pub struct PprofExporter {
    file: OutputFile,
    stacks: ByStack,
    clocks: ClockSnapshot,
    version: String,
    /// Number of lost records.
    lost: u64,
    /// When the recording ended, ns `CLOCK_BOOTTIME`.
    end: u64,
}

impl PprofExporter {
    /// Writes the file `NAME_stacks.pb.gz` in `directory`.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if it cannot be created.
    pub fn new(directory: &OutputDir, name: &str) -> Result<Self, ExportError> {
        Ok(Self {
            file: directory.file(&format!("{name}_stacks.pb.gz"))?,
            stacks: ByStack::default(),
            clocks: ClockSnapshot::default(),
            version: String::new(),
            lost: 0,
            end: 0,
        })
    }
}

impl Exporter for PprofExporter {
    fn format(&self) -> &'static str {
        "pprof"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.stacks.event(event);
        match event {
            Event::Recording(recording) => {
                self.clocks = recording.clocks;
                self.version.clone_from(&recording.tool_version);
            }
            Event::Ledger(ledger) => self.lost = ledger.total().lost(),
            Event::End(end) => self.end = end.time,
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        let duration = self.end.saturating_sub(self.clocks.boottime);
        let mut profile = Builder::new(self.clocks.realtime, duration);
        profile.comment(&format!("recorded by gputrace {}", self.version));
        profile.comment(&format!("lost: {} calls and other events", self.lost));
        for row in self.stacks.take() {
            profile.row(&row, &mut self.stacks);
        }
        let bytes = profile.finish().encode_to_vec();
        let mut packed = GzEncoder::new(&mut self.file, Compression::default());
        packed.write_all(&bytes)?;
        packed.finish()?;
        Ok(vec![
            self.file
                .finish("pprof profile of stacks, for `go tool pprof`")?,
        ])
    }
}
