//! `cargo xtask setup`: prepares the machine, and reports what it cannot do itself.
//!
//! Setup is a table of parts ([`PARTS`]). Each part first checks whether what it provides is there,
//! by using it instead of asking a package manager. If not, it tries to get it: packages by apt-get
//! as root, compilers by rustup, tools by cargo and pip into a cache outside the checkout. What it
//! cannot get is reported with the command that would get it, and the other parts go on, so that
//! one run shows everything that is missing.

mod apt;
mod bpf;
mod ebpf_tools;
mod machine;
mod mounts;
mod packages;
pub(crate) mod packaging;
pub(crate) mod python;

use std::time::Instant;

use anyhow::{Result, bail};

use self::machine::Machine;
use crate::progress;
use crate::workspace::Workspace;

/// What the machine is prepared for. Each purpose includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Purpose {
    /// Building the tool
    Build,
    /// Building it and tracing on this kernel
    Trace,
    /// Building it and tracing programs on real ROCm libraries
    Run,
    /// Running all tests as well
    Test,
}

/// Arguments of `cargo xtask setup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to prepare the machine for; each purpose includes those before it
    #[arg(
        long = "for",
        value_enum,
        value_name = "PURPOSE",
        default_value = "test"
    )]
    purpose: Purpose,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        prepare(workspace, self.purpose).require(self.purpose)
    }
}

/// The result of a part.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing had to be done; describes what is there.
    Ready(String),
    /// It was provided by this run; describes what.
    Done(String),
    /// It is missing, and this run could not get it.
    Missing {
        /// What is missing, and why it could not be provided if that is not obvious.
        what: String,
        /// The command or the action that provides it.
        remedy: String,
    },
}

/// The data available to a part.
struct Context<'a> {
    workspace: &'a Workspace,
    machine: Machine,
}

/// One requirement of the machine.
struct Part {
    name: &'static str,
    /// What needs it.
    why: &'static str,
    /// The first purpose that needs it.
    since: Purpose,
    run: fn(&Context<'_>) -> Result<State>,
}

/// Name of the part that tests can do without, see [`Report::lacks_rocm`].
const ROCM: &str = "ROCm";

/// All parts; later parts may use what earlier ones provide.
const PARTS: [Part; 8] = [
    Part {
        name: "build packages",
        why: "libbpf is C and is compiled with the tool",
        since: Purpose::Build,
        run: |context| packages::BUILD.ensure(&context.machine),
    },
    Part {
        name: "eBPF compiler",
        why: "`core` for BPF is built from source: a rustc that may, with its source",
        since: Purpose::Build,
        run: |context| ebpf_tools::compiler(&context.machine),
    },
    Part {
        name: "bpf-linker",
        why: "makes BPF objects from rustc's bitcode; must be built with rustc's LLVM",
        since: Purpose::Build,
        run: |context| ebpf_tools::linker(context.workspace, &context.machine),
    },
    Part {
        name: "tracefs",
        why: "tracepoint ids and formats are read there",
        since: Purpose::Trace,
        run: |context| mounts::TRACEFS.ensure(&context.machine),
    },
    Part {
        name: "bpffs",
        why: "where BPF objects can be pinned and seen",
        since: Purpose::Trace,
        run: |context| mounts::BPFFS.ensure(&context.machine),
    },
    Part {
        name: "bpf()",
        why: "tracing itself: ring buffer and probe program, tried on this kernel",
        since: Purpose::Trace,
        run: |context| Ok(bpf::check(&context.machine)),
    },
    Part {
        name: ROCM,
        why: "the real libraries to trace, and hipcc for the programs that call them",
        since: Purpose::Run,
        run: |context| packages::ROCM.ensure(&context.machine),
    },
    Part {
        name: "Python readers",
        why: "tests read the traces back with Perfetto's own decoder",
        since: Purpose::Test,
        run: |context| python::READERS.ensure(context.workspace, &context.machine),
    },
];

/// What is still missing after [`prepare`].
#[derive(Debug, Default)]
pub(crate) struct Report {
    missing: Vec<Gap>,
}

/// Something that is missing.
#[derive(Debug)]
struct Gap {
    part: &'static str,
    since: Purpose,
    what: String,
    remedy: String,
}

impl Report {
    /// # Errors
    ///
    /// When something that `purpose` needs is missing; names everything missing, with the commands.
    pub(crate) fn require(&self, purpose: Purpose) -> Result<()> {
        let needed: Vec<String> = self
            .missing
            .iter()
            .filter(|gap| gap.since <= purpose)
            .map(|gap| format!("- {}: {}\n  -> {}", gap.part, gap.what, gap.remedy))
            .collect();
        if needed.is_empty() {
            return Ok(());
        }
        let builds = self.missing.iter().all(|gap| gap.since > Purpose::Build);
        let hint = if builds {
            "\nBuilding works all the same: `cargo xtask build`."
        } else {
            ""
        };
        bail!("this machine is not ready:\n{}{hint}", needed.join("\n"))
    }

    /// Whether there is no ROCm to compile programs with.
    pub(crate) fn lacks_rocm(&self) -> bool {
        self.rocm_gap().is_some()
    }

    /// What is missing of ROCm, if anything, and how to get it.
    pub(crate) fn rocm_gap(&self) -> Option<String> {
        let gap = self.missing.iter().find(|gap| gap.part == ROCM)?;
        Some(format!("{}\n-> {}", gap.what, gap.remedy))
    }
}

/// Runs the parts that `purpose` needs and shows the results.
pub(crate) fn prepare(workspace: &Workspace, purpose: Purpose) -> Report {
    let verb = match purpose {
        Purpose::Build => "build",
        Purpose::Trace => "build and trace",
        Purpose::Run => "build and run",
        Purpose::Test => "build, run and test",
    };
    let parts = PARTS.iter().filter(|part| part.since <= purpose);
    provide(workspace, verb, parts)
}

/// Runs `parts` and shows each.
fn provide<'a>(
    workspace: &Workspace,
    verb: &str,
    parts: impl IntoIterator<Item = &'a Part>,
) -> Report {
    let context = Context {
        workspace,
        machine: Machine::look(),
    };
    progress::heading(format_args!("make ready to {verb}: {}", context.machine));
    let mut report = Report::default();
    for part in parts {
        let start = Instant::now();
        let state = (part.run)(&context).unwrap_or_else(|error| State::Missing {
            what: format!("{error:#}"),
            remedy: "remove the cause above and run `cargo xtask setup` again".into(),
        });
        let Part { name, why, .. } = part;
        match state {
            State::Ready(what) => {
                progress::line("ready", format_args!("{name}: {what}"), start.elapsed());
            }
            State::Done(what) => {
                progress::line("done", format_args!("{name}: {what}"), start.elapsed());
            }
            State::Missing { what, remedy } => {
                // Details and remedies are shown together at the end, see [`Report::require`].
                progress::line("MISSING", format_args!("{name} ({why})"), start.elapsed());
                report.missing.push(Gap {
                    part: name,
                    since: part.since,
                    what,
                    remedy,
                });
            }
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(part: &'static str, since: Purpose) -> Gap {
        Gap {
            part,
            since,
            what: "not there".into(),
            remedy: format!("get {part}"),
        }
    }

    #[test]
    fn only_what_the_purpose_needs_is_required() {
        let report = Report {
            missing: vec![gap(ROCM, Purpose::Run), gap("Python", Purpose::Test)],
        };
        report.require(Purpose::Build).unwrap();
        report.require(Purpose::Trace).unwrap();
        let run = report.require(Purpose::Run).unwrap_err().to_string();
        assert!(
            run.contains("get ROCm")
                && !run.contains("Python")
                && run.contains("cargo xtask build"),
            "{run}"
        );
        assert!(
            report
                .require(Purpose::Test)
                .unwrap_err()
                .to_string()
                .contains("get Python")
        );
        assert!(report.lacks_rocm());
        assert_eq!(report.rocm_gap().unwrap(), "not there\n-> get ROCm");
        let report = Report {
            missing: vec![gap("cc", Purpose::Build)],
        };
        assert!(
            !report
                .require(Purpose::Test)
                .unwrap_err()
                .to_string()
                .contains("Building works")
        );
        assert!(!report.lacks_rocm());
    }
}
