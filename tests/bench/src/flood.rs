//! A program to trace: calls a function of the benchmark library at a steady rate.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::library::{EMULATED, Site};

/// How to call.
#[derive(Debug, clap::Args)]
pub(crate) struct Flood {
    /// The library
    library: PathBuf,
    /// Calls in all
    #[arg(long)]
    calls: u64,
    /// Calls per second; as many as possible if 0
    #[arg(long, default_value_t = 0)]
    rate: u64,
}

/// Interval at which a steady flood reads the clock.
const STEP: Duration = Duration::from_millis(1);

impl Flood {
    /// Maps the library and makes the calls.
    ///
    /// # Errors
    ///
    /// When it is not such a library.
    pub(crate) fn run(&self) -> Result<()> {
        let site = Site::load(&self.library, EMULATED)?;
        if self.rate == 0 {
            site.call(self.calls);
            return Ok(());
        }
        let begin = Instant::now();
        let mut made = 0;
        while made < self.calls {
            let due = begin.elapsed().as_secs_f64() * self.rate as f64;
            // Only whole calls; not negative.
            let due = (due as u64).min(self.calls);
            site.call(due.saturating_sub(made));
            made = made.max(due);
            thread::sleep(STEP);
        }
        Ok(())
    }
}
