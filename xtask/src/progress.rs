//! Progress messages: one line per step, with the result and the time it took.
//!
//! All of them go to standard error; standard output belongs to the programs that xtask runs.

use std::fmt;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// A title above a group of steps.
pub(crate) fn heading(text: fmt::Arguments<'_>) {
    eprint!("{}", heading_text(text));
}

/// A remark between steps, for example that the next one takes long. Further lines are indented
/// like the first.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    eprint!("{}", note_text(text));
}

/// The line of a finished step: `state`, the step, and the time taken.
pub(crate) fn line(state: &str, text: fmt::Arguments<'_>, took: Duration) {
    eprint!("{}", line_text(state, text, took));
}

/// Prints the result that the command was run for, on standard output.
///
/// # Errors
///
/// When nobody reads it any more.
pub(crate) fn result(text: fmt::Arguments<'_>) -> Result<()> {
    writeln!(io::stdout(), "{text}").context("cannot print the result")
}

/// The text that [`heading`] prints.
pub(crate) fn heading_text(text: fmt::Arguments<'_>) -> String {
    format!("\n== {text}\n")
}

/// The text that [`note`] prints.
pub(crate) fn note_text(text: fmt::Arguments<'_>) -> String {
    let mut lines = String::new();
    for line in text.to_string().lines() {
        lines.push_str("            ");
        lines.push_str(line);
        lines.push('\n');
    }
    lines
}

/// The text that [`line()`] prints.
pub(crate) fn line_text(state: &str, text: fmt::Arguments<'_>, took: Duration) -> String {
    format!("  {state:<8}  {text}  [{}]\n", Seconds(took))
}

/// Runs a step whose output is shown while it runs: prints its name and reason before, and the time
/// taken afterwards.
///
/// # Errors
///
/// Those of `step`.
pub(crate) fn long_step<T>(what: &str, why: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("\n== {what}: {why}");
    let start = Instant::now();
    let result = step();
    let state = if result.is_ok() { "done" } else { "FAILED" };
    line(state, format_args!("{what}"), start.elapsed());
    result
}

/// A duration as `0.4 s` or `2 min 05 s`.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0.as_secs();
        if whole < 60 {
            write!(f, "{:.1} s", self.0.as_secs_f64())
        } else {
            write!(f, "{} min {:02} s", whole / 60, whole % 60)
        }
    }
}

/// A size as `812 B`, `40.4 KiB` or `3.2 MiB`.
#[derive(Clone, Copy)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In tenths with integers, so that no float rounds a size wrongly.
        let tenths = |unit: u64| self.0.saturating_mul(10) / unit;
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..1_048_576 => write!(f, "{}.{} KiB", tenths(1024) / 10, tenths(1024) % 10),
            _ => write!(
                f,
                "{}.{} MiB",
                tenths(1_048_576) / 10,
                tenths(1_048_576) % 10
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(Seconds(Duration::from_millis(420)).to_string(), "0.4 s");
        assert_eq!(Seconds(Duration::from_secs(125)).to_string(), "2 min 05 s");
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(Bytes(812).to_string(), "812 B");
        assert_eq!(Bytes(40_448).to_string(), "39.5 KiB");
        assert_eq!(Bytes(3_400_000).to_string(), "3.2 MiB");
    }
}
