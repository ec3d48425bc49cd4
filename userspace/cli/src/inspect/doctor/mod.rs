//! `gputrace doctor`: tries what can be recorded on this machine, and suggests remedies for the
//! rest.
//!
//! Each check is one line: what was found, what it means for gputrace, and the command to run next.
//! Nothing on the machine is changed; the trial probes are on a function of gputrace itself.

mod bpf;
mod gpu;
mod kernel;
mod sandbox;

use anyhow::Result;
use gputrace_text::{json, terminal::Colour};
use serde::Serialize;

use super::{
    DoctorArgs, Machine,
    lines::{self, Line},
    table::wrapped,
};
use crate::{exit, stdout};

/// Runs all checks and shows the results.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8> {
    let machine = Machine::this();
    let mut sections = Vec::new();
    sections.push(kernel::privilege(&machine));
    let tracing = bpf::tracing(&machine);
    let verdict = tracing.verdict;
    sections.push(tracing.section);
    sections.push(kernel::settings(&machine, verdict));
    sections.push(gpu::driver(&machine, verdict));
    sections.push(gpu::libraries());
    sections.push(kernel::output(&args.output_directory));
    let report = Report { verdict, sections };
    if args.json {
        stdout::print(&(json::to_string_pretty(&report)? + "\n"))?;
    } else {
        lines::show(&report.text(), &Status::ALL.map(Status::shown))?;
    }
    Ok(report.verdict.code())
}

/// Whether calls can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// A call was recorded.
    Ready,
    /// Permission is missing.
    NoPermission,
    /// The kernel lacks a feature.
    KernelLacks,
    /// Calls can be seen, but processes are not recognised by their ids in this pid namespace.
    PidNamespace,
}

impl Verdict {
    const fn code(self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::NoPermission => exit::NO_PERMISSION,
            Self::KernelLacks => exit::KERNEL,
            Self::PidNamespace => exit::FAILURE,
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Ready => {
                "gputrace can record here: a call of a probed function was seen from start to end."
            }
            Self::NoPermission => {
                "gputrace may not record here: it lacks permission; see what is marked as missing \
                 under Tracing."
            }
            Self::KernelLacks => {
                "gputrace cannot record here: the kernel lacks what is marked as missing under Tracing."
            }
            Self::PidNamespace => {
                "gputrace cannot record here: it runs in its own pid namespace, as in a container. \
                 Run it on the host, or with --pid=host."
            }
        }
    }
}

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    verdict: Verdict,
    sections: Vec<Section>,
}

/// Checks that belong together.
#[derive(Debug, Serialize)]
struct Section {
    name: &'static str,
    checks: Vec<Check>,
}

impl Section {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            checks: Vec::new(),
        }
    }

    fn push(&mut self, check: Check) {
        self.checks.push(check);
    }
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// Everything is as it should be.
    Ok,
    /// Something works less well, or may not work.
    Warning,
    /// Something does not work.
    Missing,
}

impl Status {
    const ALL: [Self; 3] = [Self::Ok, Self::Warning, Self::Missing];

    /// The beginning of its line, and that text's colour.
    const fn shown(self) -> (&'static str, Colour) {
        match self {
            Self::Ok => ("  ok       ", Colour::Green),
            Self::Warning => ("  warning  ", Colour::Yellow),
            Self::Missing => ("  missing  ", Colour::Red),
        }
    }
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    status: Status,
    /// What was found.
    found: String,
    /// What that means for gputrace.
    meaning: String,
    /// What to do: a command, or a sentence if there is none.
    next: Option<String>,
}

impl Check {
    fn new(
        name: impl Into<String>,
        status: Status,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            status,
            found: found.into(),
            meaning: meaning.into(),
            next: None,
        }
    }

    fn ok(name: impl Into<String>, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, found, meaning)
    }

    fn warning(
        name: impl Into<String>,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self::new(name, Status::Warning, found, meaning)
    }

    fn missing(
        name: impl Into<String>,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self::new(name, Status::Missing, found, meaning)
    }

    fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

impl Report {
    /// Human-readable text, at most as wide as a table.
    fn text(&self) -> String {
        let mut out = String::new();
        for section in &self.sections {
            let lines = section.checks.iter().map(|check| Line {
                status: check.status.shown().0,
                name: &check.name,
                text: format!("{}: {}", check.found, check.meaning),
                next: check.next.as_deref(),
            });
            lines::write(&mut out, section.name, lines);
        }
        out.push_str(&wrapped("", 0, self.verdict.sentence()));
        out
    }
}

#[cfg(test)]
mod tests {
    use gputrace_text::terminal;

    use super::{super::table::WIDTH, *};

    #[test]
    fn reports_fit_a_terminal_and_name_the_next_step() {
        let mut section = Section::new("Tracing");
        section.push(Check::ok(
            "bpf() system call",
            "a map was created",
            "programs can be loaded",
        ));
        section.push(
            Check::missing("x".repeat(40), "evil\x1b[31m", "word ".repeat(50))
                .next("sudo mount -t tracefs tracefs /sys/kernel/tracing"),
        );
        let report = Report {
            verdict: Verdict::NoPermission,
            sections: vec![section],
        };
        let text = report.text();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(!text.contains('\x1b'), "{text}");
        assert!(
            text.contains(
                "  ok       bpf() system call       a map was created: programs can be loaded\n"
            ),
            "{text}"
        );
        assert!(text.contains("next: sudo mount -t tracefs"), "{text}");
        let mut coloured = Vec::new();
        let heads = Status::ALL.map(Status::shown);
        terminal::write_coloured(&mut coloured, &text, &heads).unwrap();
        let coloured = String::from_utf8(coloured).unwrap();
        assert!(
            coloured.contains("\x1b[32m  ok       \x1b[0mbpf()"),
            "{coloured}"
        );
        assert_eq!(coloured.matches("\x1b[").count(), 4, "{coloured}");
        assert_eq!(report.verdict.code(), 6);
    }
}
