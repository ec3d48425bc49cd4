//! Text for people, one line per event, as strace writes it: calls with their arguments and results, kernels and copies when
//! they are known, remarks. The lines are not made to be parsed; [`crate::ndjson`] is.
//!
//! ```text
//!   0.001234  4711/4712  hipMalloc(ptr=0x7ffc5e2a0b48, size=4096) = 0 hipSuccess <12.310 us>
//!   0.001471  4711/4712  kernel scale<float>(float*, int) 1024x1x1 by 256x1x1 on Agent 1 <105.200 us exact>
//! ```
//!
//! Before each line stand seconds since the recording began, and process and thread. Calls inside others are indented.

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
};

use gputrace_text::Line;
use gputrace_timeline::{
    args,
    event::{Call, CallEnd, Event, LifetimeChange},
    gpu::{Copy, Dispatch, GpuTime},
    observation::Observation,
};

use crate::{
    functions::Functions,
    gpu::Gpus,
    lines::line_exporters,
    output::{OutputDir, OutputError, OutputFile},
};

const FORMAT: &str = "text";

/// Calls are indented up to this depth.
const DEEPEST: u16 = 20;

/// Writes lines.
#[derive(Debug)]
pub struct TextWriter<W> {
    out: W,
    line: String,
    functions: Functions,
    gpus: Gpus,
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    began: u64,
}

impl<W: Write> TextWriter<W> {
    /// Lines go to `out`, each in one call of [`Write::write_all`].
    pub fn new(out: W) -> Self {
        Self {
            out,
            line: String::new(),
            functions: Functions::default(),
            gpus: Gpus::default(),
            began: 0,
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.gpus.learn(event);
        self.line.clear();
        // Writing to a string does not fail.
        let is_shown = self.describe(event).is_ok_and(|shown| shown);
        if is_shown {
            // Names and values are the program's, which must not write lines of its own.
            let line = Line::from(&self.line);
            self.out.write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Writes the line of an event; false if it has none.
    fn describe(&mut self, event: &Event) -> Result<bool, fmt::Error> {
        match event {
            Event::Recording(recording) => {
                self.began = recording.clocks.boottime;
                return Ok(false);
            }
            Event::Function(info) => {
                self.functions.learn(info);
                return Ok(false);
            }
            Event::Call(call) => self.call(call)?,
            Event::Dispatch(dispatch) => self.dispatch(dispatch)?,
            Event::Copy(copy) => self.copy(copy)?,
            Event::Observation(one) => self.observation(one)?,
            Event::Counter(sample) => {
                let counter = &sample.counter;
                if counter.pid == 0 {
                    self.at(sample.time)?;
                } else {
                    self.begin(sample.time, counter.pid, counter.pid)?;
                }
                write!(
                    self.line,
                    "{} = {} {}",
                    counter.name, sample.value, counter.unit
                )?;
                if counter.gpu_id != 0 {
                    write!(self.line, " <GPU {}>", counter.gpu_id)?;
                }
            }
            Event::Lifetime(lifetime) => {
                let text = match &lifetime.what {
                    LifetimeChange::ProcessStarted { parent } => {
                        format!("process, started by {parent}")
                    }
                    LifetimeChange::Executed { name } => format!("executes {name}"),
                    LifetimeChange::Exited if lifetime.tid == lifetime.pid => "exited".to_owned(),
                    _ => return Ok(false),
                };
                self.begin(lifetime.time, lifetime.pid, lifetime.tid)?;
                write!(self.line, "+++ {text} +++")?;
            }
            Event::Notice(notice) => {
                self.at(notice.time)?;
                write!(self.line, "--- {} ---", notice.text)?;
            }
            Event::Ledger(ledger) => {
                let total = ledger.total();
                self.at(ledger.time)?;
                write!(
                    self.line,
                    "--- {} calls and records seen, {} recorded, {} of them unfinished, {} lost ---",
                    total.seen,
                    total.written + total.unfinished,
                    total.unfinished,
                    total.lost()
                )?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn at(&mut self, time: u64) -> fmt::Result {
        let since = time.saturating_sub(self.began);
        write!(
            self.line,
            "{:>3}.{:06}  ",
            since / 1_000_000_000,
            since % 1_000_000_000 / 1000
        )
    }

    fn begin(&mut self, time: u64, pid: u32, tid: u32) -> fmt::Result {
        self.at(time)?;
        write!(self.line, "{pid}/{tid}  ")
    }

    fn call(&mut self, call: &Call) -> fmt::Result {
        self.begin(call.begin, call.pid, call.tid)?;
        for _ in 0..call.depth.min(DEEPEST) {
            self.line.push_str("  ");
        }
        let info = self.functions.get(call.function);
        write!(self.line, "{}(", self.functions.name(call.function))?;
        let mut separator = "";
        for (name, value) in info.into_iter().flat_map(|info| args::decoded(info, call)) {
            write!(self.line, "{separator}{name}={value}")?;
            separator = ", ";
        }
        self.line.push(')');
        let took = call.end.saturating_sub(call.begin);
        match call.how {
            CallEnd::Returned(_) => {
                if let Some(value) = info.and_then(|info| args::returned(info, call)) {
                    write!(self.line, " = {value}")?;
                }
                write!(self.line, " <{}>", Took(took))
            }
            CallEnd::ThreadExited => {
                write!(
                    self.line,
                    " <unfinished after {}: the thread ended>",
                    Took(took)
                )
            }
            CallEnd::Executed => write!(
                self.line,
                " <unfinished after {}: another program>",
                Took(took)
            ),
            CallEnd::RecordingStopped => write!(self.line, " <unfinished after {}>", Took(took)),
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> fmt::Result {
        self.begin(
            dispatch.time.begin,
            dispatch.origin.pid,
            dispatch.origin.tid,
        )?;
        let ([x, y, z], [i, j, k]) = (dispatch.grid, dispatch.workgroup);
        let name = self.gpus.kernel_name(dispatch);
        let agent = self.gpus.agent_title(self.gpus.node_of(dispatch));
        write!(
            self.line,
            "kernel {name} {x}x{y}x{z} by {i}x{j}x{k} on {agent}"
        )?;
        self.time(&dispatch.time)
    }

    fn copy(&mut self, copy: &Copy) -> fmt::Result {
        self.begin(copy.time.begin, copy.origin.pid, copy.origin.tid)?;
        let [from, to] =
            [copy.source_node, copy.destination_node].map(|node| self.gpus.agent_title(node));
        write!(
            self.line,
            "copy of {} bytes from {from} to {to}",
            copy.bytes
        )?;
        self.time(&copy.time)
    }

    fn time(&mut self, time: &GpuTime) -> fmt::Result {
        let took = Took(time.end.saturating_sub(time.begin));
        match (time.unfinished, time.is_drawn()) {
            (true, _) => write!(self.line, " <unfinished>"),
            (false, true) => write!(self.line, " <{took} {}>", time.quality.name()),
            (false, false) => write!(self.line, " <at most {took}, {}>", time.quality.name()),
        }
    }

    fn observation(&mut self, one: &Observation) -> fmt::Result {
        self.begin(one.begin, one.whose.pid, one.whose.tid)?;
        write!(self.line, "{}", one.name)?;
        for field in &one.fields {
            write!(self.line, " {}={}", field.name, field.value)?;
        }
        write!(self.line, " <{}>", Took(one.duration()))
    }

    /// The output.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// A time for people, from ns.
struct Took(u64);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = match self.0 {
            0..1_000_000 => ("us", 1_000),
            1_000_000..1_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        write!(
            f,
            "{}.{:03} {unit}",
            self.0 / size,
            self.0 % size * 1000 / size
        )
    }
}

/// Exporter of a text file.
#[derive(Debug)]
pub struct TextExporter {
    lines: TextWriter<OutputFile>,
}

impl TextExporter {
    /// Starts the file `file_name` (e.g. `app_results.txt`) in `directory`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn new(directory: &OutputDir, file_name: &str) -> Result<Self, OutputError> {
        Ok(Self {
            lines: TextWriter::new(directory.file(file_name)?),
        })
    }
}

line_exporters!(
    TextWriter,
    TextExporter,
    FORMAT,
    "all events, one line each"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::events;

    #[test]
    fn times_have_units() {
        for (ns, text) in [
            (0, "0.000 us"),
            (12_310, "12.310 us"),
            (1_500_000, "1.500 ms"),
            (61_000_000_000, "61.000 s"),
            (u64::MAX, "18446744073.709 s"),
        ] {
            assert_eq!(Took(ns).to_string(), text);
        }
    }

    #[test]
    fn lines_are_plain_and_single() {
        let mut lines = TextWriter::new(Vec::new());
        for event in events() {
            lines.event(&event).unwrap();
        }
        let text = String::from_utf8(lines.into_inner()).unwrap();
        assert!(
            text.lines()
                .any(|line| line.contains("kernel add(float*, float*)") && line.contains("exact>")),
            "{text}"
        );
        assert!(text.lines().any(|line| line.contains("copy of ")), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
