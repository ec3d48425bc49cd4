//! Shows snapshots while a recording is made.

use std::{
    fmt,
    io::{self, Write},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use gputrace_export::ExportError;
use gputrace_session::View;
use gputrace_text::{json, terminal};
use gputrace_timeline::event::Event;
use rustix::time::{ClockId, clock_gettime};

use crate::{
    group::GroupBy, intervals::Intervals, jobs::Starter, page, snapshot::Snapshot, terminal::Shown,
};

/// How long after its end an interval is shown, ns. Records of the GPU's work are used half a
/// second after they were made. The rest is for ends of kernels that the recorder sees late.
pub const DELAY: u64 = 1_500_000_000;

/// The form in which snapshots are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A screen of the terminal, with keys.
    Screen,
    /// Tables for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// What to show.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of an interval.
    pub interval: Duration,
    /// Show only the last interval of the recording.
    pub once: bool,
    /// The form.
    pub format: Format,
    /// Show processes in these groups. A screen begins with it.
    pub group_by: Option<GroupBy>,
    /// Does what a user of the screen asks for; `None`: nothing can be asked for.
    pub start: Option<Starter>,
    /// Maximum number of rows of each table of the text.
    pub rows: usize,
    /// Number of columns that tables should fit into; `None`: any.
    pub columns: Option<usize>,
}

/// Shows a recording as snapshots.
pub struct TopView {
    options: Options,
    intervals: Intervals,
    used: Used,
    out: Out,
}

/// How much gputrace itself works.
struct Used {
    /// When it was measured last.
    at: Instant,
    /// Processor time until then.
    time: Duration,
}

impl Used {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            time: Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default(),
        }
    }

    /// Processors in use since the last time; `None` if it was just now.
    fn cpus(&mut self) -> Option<f64> {
        let now = Self::now();
        let passed = now.at.duration_since(self.at).as_secs_f64();
        let worked = now.time.saturating_sub(self.time).as_secs_f64();
        *self = now;
        (passed > 0.0).then(|| worked / passed)
    }
}

/// Where snapshots go.
enum Out {
    Stream(Box<dyn Write>),
    Screen(Box<Shown>),
}

impl fmt::Debug for TopView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopView")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl TopView {
    /// Writes snapshots to `out`.
    ///
    /// # Errors
    ///
    /// When a screen is wanted, and there is no terminal for it.
    pub fn new(out: Box<dyn Write>, options: Options) -> io::Result<Self> {
        let length = u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX);
        let groups = match options.format {
            Format::Screen => &GroupBy::ALL[..],
            Format::Text | Format::Json => options.group_by.as_slice(),
        };
        Ok(Self {
            intervals: Intervals::new(length, options.once, groups),
            used: Used::now(),
            out: match options.format {
                Format::Screen => Out::Screen(Box::new(Shown::new(out, &options)?)),
                Format::Text | Format::Json => Out::Stream(out),
            },
            options,
        })
    }

    fn show(&mut self, mut snapshot: Snapshot) -> io::Result<()> {
        snapshot.gputrace_cpus = self.used.cpus();
        let out = match &mut self.out {
            Out::Stream(out) => out,
            Out::Screen(shown) => {
                return if shown.screen().take(snapshot) {
                    shown.draw()
                } else {
                    Ok(())
                };
            }
        };
        if self.options.format == Format::Json {
            let mut line = Vec::new();
            json::to_writer(&mut line, &snapshot)?;
            line.push(b'\n');
            out.write_all(&line)?;
        } else {
            let mut text = String::new();
            // Writing to a string does not fail.
            let _ = page::write(&mut text, &snapshot, &self.options);
            terminal::write(out, &text)?;
        }
        out.flush()
    }
}

impl View for TopView {
    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.intervals.event(event);
        Ok(())
    }

    fn caught_up(&mut self, time: u64) -> Result<ControlFlow<()>, ExportError> {
        while let Some(snapshot) = self.intervals.ended(time.saturating_sub(DELAY)) {
            self.show(snapshot)?;
        }
        if let Out::Screen(shown) = &mut self.out
            && shown.keys()?
        {
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn finish(&mut self) -> Result<(), ExportError> {
        if matches!(self.out, Out::Screen(_)) {
            return Ok(());
        }
        while let Some(snapshot) = self.intervals.rest() {
            self.show(snapshot)?;
        }
        Ok(())
    }
}
