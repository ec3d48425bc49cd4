//! Following a guest's output, step by step.

use std::io::{self, Write};
use std::time::Instant;

use super::STEP_SECONDS;
use crate::vm::turns::Voice;

/// Marks in the guest's output, at the beginning of a line.
pub(super) const STEP_BEGINS: &str = "@@ step ";
pub(super) const STEP_ENDED: &str = "@@ ended ";

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) name: String,
    /// Its exit status; `None` if the guest died before its end.
    pub(super) status: Option<i32>,
    pub(super) output: String,
}

/// Follows the output of a guest: reports the result of each finished step, and shows the output of
/// those that failed.
pub(super) struct Progress<'a> {
    voice: &'a Voice<'a>,
    line: Vec<u8>,
    current: Option<(Outcome, Instant)>,
    done: Vec<Outcome>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(voice: &'a Voice<'a>) -> Self {
        Self {
            voice,
            line: Vec::new(),
            current: None,
            done: Vec::new(),
        }
    }

    /// The results of all steps; the last one may have been cut short.
    pub(super) fn finish(mut self) -> Vec<Outcome> {
        if self.current.is_some() {
            self.ended(None);
        }
        self.done
    }

    fn add_line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix(STEP_BEGINS) {
            let outcome = Outcome {
                name: name.to_owned(),
                ..Outcome::default()
            };
            self.current = Some((outcome, Instant::now()));
        } else if let Some(status) = line.strip_prefix(STEP_ENDED) {
            self.ended(status.parse().ok());
        } else if let Some((outcome, _)) = &mut self.current {
            outcome.output.push_str(line);
            outcome.output.push('\n');
        }
    }

    fn ended(&mut self, status: Option<i32>) {
        let Some((mut outcome, start)) = self.current.take() else {
            return;
        };
        outcome.status = status;
        outcome.output = outcome.output.trim().to_owned();
        let (state, how) = match status {
            Some(0) => ("passed", String::new()),
            // Exit statuses of timeout(1), in busybox and coreutils.
            Some(124 | 137 | 143) => ("FAILED", format!(" (ended after {STEP_SECONDS} s)")),
            Some(status) => ("FAILED", format!(" (exit status {status})")),
            None => ("died", " (the guest ended)".to_owned()),
        };
        self.voice.line(
            state,
            format_args!("{}{how}", outcome.name),
            start.elapsed(),
        );
        if state != "passed" {
            self.voice.note(format_args!("{}", outcome.output));
        }
        self.done.push(outcome);
    }
}

impl Write for Progress<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                self.add_line(line.trim_end());
            } else {
                self.line.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::turns::Turns;

    #[test]
    fn outcomes_are_read_from_the_guests_output() {
        let turns = Turns::new(1);
        let voice = turns.voice(0);
        let mut progress = Progress::new(&voice);
        for part in [
            "boot noise\n\n@@ step kfd\nKFD interface ",
            "1.17\n\n@@ ended 0\n\n@@ step a::b\nnot so good",
            "\n\n@@ ended 101\n@@ step c\nhalf",
        ] {
            progress.write_all(part.as_bytes()).unwrap();
        }
        let outcome = |name: &str, status, output: &str| Outcome {
            name: name.to_owned(),
            status,
            output: output.to_owned(),
        };
        assert_eq!(
            progress.finish(),
            [
                outcome("kfd", Some(0), "KFD interface 1.17"),
                outcome("a::b", Some(101), "not so good"),
                outcome("c", None, ""),
            ]
        );
    }
}
