//! Text for people, one line per event, in the style of strace: calls with their arguments and
//! results, kernels and copies once they are known, remarks. The lines are not meant to be parsed;
//! those of [`crate::ndjson`] are.
//!
//! ```text
//!   0.001234  4711/4712  hipMalloc(ptr=0x7ffc5e2a0b48, size=4096) = 0 hipSuccess <12.310 us>
//!   0.001471  4711/4712  kernel scale<float>(float*, int) 1024x1x1 by 256x1x1 on Agent 1 <105.200 us exact>
//!   0.001583  4711/4712  kernel scale<float>(float*, int) 2048x1x1 by 256x1x1 on Agent 1 <207 us +-5, sampled>
//! ```
//!
//! Each line begins with the seconds since the recording began, and the process and thread. Calls
//! inside others are indented.

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
};

use gputrace_text::{
    Line,
    tables::{plural, with_error},
};
use gputrace_timeline::{
    args,
    event::{Call, CallEnd, Event, LifetimeChange},
    gpu::{Copy, Dispatch, GpuTime, KnownBy},
    observation::Observation,
};

use crate::{
    functions::Functions,
    gpu::Gpus,
    lengths::Length,
    lines::line_exporters,
    output::{OutputDir, OutputError, OutputFile},
};

const FORMAT: &str = "text";

/// Maximum depth of indentation.
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
    /// Writes lines to `out`, each with one call of [`Write::write_all`].
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
            // Names and values come from the program, which must not be able to forge lines.
            let line = Line::from(&self.line);
            self.out.write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Formats the line of an event; returns `false` if it has none.
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
                    "--- {} seen, {} recorded, {} of them unfinished, {} lost ---",
                    plural(total.seen, "call or record", "calls and records"),
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
            CallEnd::NotSeen => self.line.write_str(" <end not recorded>"),
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
        let doubt = match copy.known_by {
            Some(KnownBy::Memory) => "",
            Some(KnownBy::Agents) => " as its call says",
            Some(KnownBy::Call) => " as the call of HIP says",
            None => " as its call says, direction unknown",
        };
        write!(
            self.line,
            "copy of {} bytes from {from} to {to}{doubt}",
            copy.bytes
        )?;
        self.time(&copy.time)
    }

    fn time(&mut self, time: &GpuTime) -> fmt::Result {
        let quality = time.quality.name();
        if time.unfinished {
            return write!(self.line, " <unfinished>");
        }
        if let Some(length) = Length::of(time) {
            return match length.estimate_error() {
                None => write!(self.line, " <{} {quality}>", Took(length.ns)),
                Some(error) => {
                    let shown = with_error(length.ns as f64, error as f64);
                    write!(self.line, " <{shown}, {quality}>")
                }
            };
        }
        match time.end_window.latest {
            Some(latest) => {
                let most = Took(latest.saturating_sub(time.begin_window.earliest));
                write!(self.line, " <at most {most}, {quality}>")
            }
            None => write!(self.line, " <not known how long, {quality}>"),
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

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// A duration in ns, formatted for people.
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
    use crate::synthetic::{estimates, events};

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
    fn durations_say_how_well_they_are_known() {
        let shown = |events: Vec<Event>| -> Vec<String> {
            let mut lines = TextWriter::new(Vec::new());
            events.iter().for_each(|event| lines.event(event).unwrap());
            let text = String::from_utf8(lines.into_inner()).unwrap();
            let kernels = text.lines().filter(|line| line.contains("  kernel "));
            let time = |line: &str| line.rsplit_once('<').unwrap().1.to_owned();
            kernels.map(time).collect()
        };
        assert_eq!(
            shown(events()),
            [
                "50.000 us exact>",
                "20.000 us exact>",
                "at most 20.000 us, sampled>",
                "at most 385.000 us, bounded>",
                "not known how long, submitted>",
                "unfinished>",
                "20.000 us exact>",
                "1.000 us exact>",
            ]
        );
        let estimates = shown(estimates());
        for (text, count) in [
            ("10.4 us +-0.3, sampled>", 10),
            ("200 us +-9, sampled>", 2),
            ("at most 7.000 ms, sampled>", 3),
            ("not known how long, submitted>", 1),
        ] {
            let found = estimates.iter().filter(|shown| *shown == text).count();
            assert_eq!(found, count, "{text} in {estimates:?}");
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
