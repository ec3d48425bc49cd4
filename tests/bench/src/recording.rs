//! A recording inside this process: call programs, and a collector that writes to a file.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use gputrace_capture::{
    CaptureWriter,
    ledger::Ledger,
    meta::{EndReason, Recording as Description},
};
use gputrace_collect::{Collector, CollectorHandle, Settings, SizeLimit};
use gputrace_loader::calls::{BackendChoice, Calls, Options};

use crate::{
    accounts,
    machine::{self, Pinned},
};

/// gputrace's default on a machine with few CPUs.
pub(crate) const RING_BYTES: u32 = 4 << 20;

/// A running recording.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) calls: Arc<Calls>,
    collector: CollectorHandle,
    capture: PathBuf,
}

/// Result of a recording.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) ledger: Ledger,
    /// CPU time of the collector.
    pub(crate) collector: Duration,
}

impl Recording {
    /// Loads the programs and starts a collector on CPU `cpu` that writes to `capture`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses or the file cannot be made.
    pub(crate) fn start(capture: &Path, cpu: usize) -> Result<Self> {
        let calls = Arc::new(load(BackendChoice::UprobeMulti)?);
        let file = File::create(capture)
            .with_context(|| format!("cannot create {}", capture.display()))?;
        let settings = Settings {
            calls: Arc::clone(&calls),
            tasks: None,
            debug: false,
            ring_bytes: RING_BYTES,
            follow_forks: false,
            size_limit: SizeLimit::default(),
            gpu: None,
            writer: CaptureWriter::create(
                file,
                &Description {
                    cpus: calls.cpus(),
                    ..Description::default()
                },
            )?,
        };
        // The collector's thread inherits the CPU of the thread that starts it.
        let pinned = Pinned::to(cpu)?;
        let collector = Collector::start(settings, |_| {})?;
        drop(pinned);
        Ok(Self {
            calls,
            collector,
            capture: capture.to_owned(),
        })
    }

    /// CPU time that the collector has used so far.
    pub(crate) fn collector_time() -> Duration {
        machine::thread_time("collector").unwrap_or_default()
    }

    /// Stops, and compares the accounts with the capture, and with the true number of events if
    /// known.
    ///
    /// # Errors
    ///
    /// When something failed or the accounts do not balance.
    pub(crate) fn finish(self, happened: Option<u64>) -> Result<Recorded> {
        if !self.calls.stop()? {
            bail!("this kernel cannot tell when programs are done");
        }
        let collector = Self::collector_time();
        let stopped = self.collector.finish(EndReason::Interrupted)?;
        if let Some(failure) = stopped.failure {
            bail!("{failure}");
        }
        accounts::check(&stopped.ledger, happened, &self.capture)?;
        Ok(Recorded {
            ledger: stopped.ledger,
            collector,
        })
    }
}

/// Loads the call programs as gputrace does.
///
/// # Errors
///
/// When the kernel refuses.
pub(crate) fn load(backend: BackendChoice) -> Result<Calls> {
    let options = Options {
        backend,
        ring_bytes: RING_BYTES,
        max_threads: 4096,
        max_processes: 1024,
        limit: None,
        stacks: false,
        every_library: false,
        follow_forks: false,
    };
    Ok(Calls::load(&options)?)
}
