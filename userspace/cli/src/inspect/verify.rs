//! `gputrace verify`: runs the bundled program under recording in every mode, and prints a line per
//! verdict. Also runs that program itself (`gputrace verify-work`, hidden in the help).

use std::{
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use gputrace_export::{OutputDir, OutputError};
use gputrace_files::kernel;
use gputrace_kfd::topology::{AgentType, Topology};
use gputrace_session::{User, kernel_release, split};
use gputrace_text::{
    json,
    terminal::{self, Colour},
};
use gputrace_verify::{
    record::{self, Mode, Setting},
    report::{Report, Row, Section, Status, Verdict, Versions},
    verify, work,
};

use super::{
    Machine,
    lines::{self, Line},
    table::wrapped,
};
use crate::{exit, interrupt, say};

/// Options of `verify`.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: sudo gputrace verify --output verify.json",
    after_help = "Exit status: 0 if everything is right; 1 if something is wrong; 2 if nothing could be verified: \
                  no GPU, no HSA runtime, no permission."
)]
pub(crate) struct VerifyArgs {
    /// Write what was found as JSON, for an issue: figures and versions, no names of hosts, users,
    /// paths or processes.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Only these ways to record; by default all.
    #[arg(long, value_name = "MODE", value_enum, value_delimiter = ',')]
    pub(crate) mode: Vec<ModeName>,
    /// Which GPU, counted from 0 as the first line of the report counts them [default: 0].
    #[arg(long, value_name = "N")]
    pub(crate) gpu: Option<usize>,
    /// Library of the HSA runtime [default: libhsa-runtime64.so.1 as programs find it, or below
    /// /opt/rocm].
    #[arg(long, value_name = "PATH")]
    pub(crate) hsa_library: Option<PathBuf>,
}

/// A way to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// gputrace starts the program.
    Launch,
    /// The same, with SDMA engines switched off, so that kernels copy.
    KernelCopies,
    /// gputrace comes to the running program.
    Attach,
    /// gputrace records the whole node.
    Node,
}

impl ModeName {
    const fn is(self, mode: Mode) -> bool {
        matches!(
            (self, mode),
            (Self::Launch, Mode::Launch)
                | (Self::KernelCopies, Mode::KernelCopies)
                | (Self::Attach, Mode::Attach)
                | (Self::Node, Mode::Node)
        )
    }
}

/// Options of the bundled program.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// Wait for a line on stdin before the main part.
    #[arg(long)]
    wait: bool,
    /// Only copies.
    #[arg(long)]
    copies_only: bool,
    /// Also a stream of kernels that is long enough for estimates.
    #[arg(long)]
    streams: bool,
    /// KFD's topology node of the GPU to use.
    #[arg(long)]
    node: Option<u32>,
    /// Only see whether the driver's device can be opened.
    #[arg(long = "try")]
    only_try: bool,
    /// Library of the HSA runtime.
    #[arg(long, value_name = "PATH")]
    hsa_library: Option<PathBuf>,
}

/// Runs the bundled program.
pub(crate) fn work(args: &WorkArgs) -> Result<u8> {
    if args.only_try {
        let opened = kernel::open_writable(&Machine::this().paths.dev_kfd);
        return Ok(if opened.is_ok() { 0 } else { exit::FAILURE });
    }
    let options = work::Options {
        library: args.hsa_library.clone(),
        waits: args.wait,
        copies_only: args.copies_only,
        streams: args.streams,
        node: args.node,
    };
    let mut output = terminal::stdout().lock();
    let done = work::run(&options, &mut output, || {
        // An end of the input counts, too.
        io::stdin().read(&mut [0]).map(drop)
    })?;
    Ok(if done { 0 } else { exit::FAILURE })
}

/// Runs the verification.
pub(crate) fn run(args: &VerifyArgs) -> Result<u8> {
    let machine = Machine::this();
    let mut versions = Versions {
        gputrace: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel_release(),
        driver: machine.line("sys/module/amdgpu/version"),
        ..Versions::default()
    };
    let mut sections = Vec::new();
    let mut before = Vec::new();
    let interrupted = interrupt::noted();
    let verdict = match ready(&machine, args.gpu, &mut before) {
        None => Verdict::NotRun,
        Some(node) => {
            let user = user(&mut before)?;
            let directory = tempfile::tempdir().context("no directory for captures")?;
            let setting = Setting {
                gputrace: std::env::current_exe().context("this program's path")?,
                library: args.hsa_library.clone(),
                user,
                directory: directory.path().to_owned(),
                // Without the option, the runtime's first GPU: the user may hide GPUs from the
                // runtime.
                node: args.gpu.map(|_| node),
                interrupted: Arc::clone(&interrupted.flag),
            };
            let wanted =
                |mode: &Mode| args.mode.is_empty() || args.mode.iter().any(|name| name.is(*mode));
            for mode in Mode::ALL.into_iter().filter(wanted) {
                say(&format!("{} ...", mode.name()));
                sections.push(verify(&setting, mode, &mut versions));
                if let Some(status) = interrupted.status() {
                    drop(directory);
                    say("interrupted; no file was left behind");
                    return Ok(status);
                }
                if could_not_run(&sections) {
                    break;
                }
            }
            verdict(&sections)
        }
    };
    sections.insert(
        0,
        Section {
            name: "Machine",
            mode: None,
            rows: before,
        },
    );
    let report = Report {
        format: Report::FORMAT,
        versions,
        verdict,
        sections,
    };
    lines::show(&text(&report), &[OK, WARNING, WRONG])?;
    if let Some(path) = &args.output {
        write(path, &report)?;
        say(&format!("wrote {}", path.display()));
    }
    Ok(match verdict {
        Verdict::Right => 0,
        Verdict::Wrong => exit::FAILURE,
        Verdict::NotRun => exit::USAGE,
    })
}

const OK: (&str, Colour) = ("  ok       ", Colour::Green);
const WARNING: (&str, Colour) = ("  warning  ", Colour::Yellow);
const WRONG: (&str, Colour) = ("  wrong    ", Colour::Red);

/// The node of the GPU to verify, if there is one and it may be used.
fn ready(machine: &Machine, wanted: Option<usize>, rows: &mut Vec<Row>) -> Option<u32> {
    let row = |name, status, found: String, meaning: &str, next: Option<&str>| Row {
        name,
        status,
        found,
        meaning: meaning.to_owned(),
        next: next.map(ToOwned::to_owned),
        detail: None,
        figures: Default::default(),
    };
    let topology = Topology::read(&machine.paths).unwrap_or_default();
    let agents = topology.agents(&machine.paths);
    let gpus: Vec<(u32, &str)> = agents
        .iter()
        .filter(|agent| agent.agent_type == AgentType::Gpu)
        .map(|agent| (agent.node_id, agent.name.as_str()))
        .collect();
    if gpus.is_empty() {
        rows.push(row(
            "GPU",
            Status::Wrong,
            machine.why_no_kfd(),
            "there is nothing to verify",
            Some("run this on a machine with an AMD GPU and its driver; gputrace doctor says more"),
        ));
        return None;
    }
    let names: Vec<String> = gpus
        .iter()
        .enumerate()
        .map(|(number, (_, name))| format!("{number}: {name}"))
        .collect();
    let names = names.join(", ");
    let number = wanted.unwrap_or(0);
    let Some((node, _)) = gpus.get(number) else {
        rows.push(row(
            "GPU",
            Status::Wrong,
            format!("there is no GPU {number}, but {names}"),
            "there is nothing to verify",
            Some("gputrace verify --gpu with one of these numbers"),
        ));
        return None;
    };
    let more = (gpus.len() > 1 && wanted.is_none())
        .then_some("gputrace verify --gpu 1 verifies the second");
    rows.push(row(
        "GPU",
        Status::Ok,
        match gpus.len() {
            1 => names,
            _ => format!("{names}; GPU {number} is verified"),
        },
        "there is something to verify",
        more,
    ));
    if !rustix::process::geteuid().is_root() {
        rows.push(row(
            "permission",
            Status::Wrong,
            "not root".to_owned(),
            "attaching and watching the node need more rights",
            Some("sudo gputrace verify"),
        ));
        return None;
    }
    Some(*node)
}

/// The user as whom the program runs: the user behind sudo, if that user may use the GPU.
fn user(rows: &mut Vec<Row>) -> Result<Option<User>> {
    let Some(user) = User::behind_sudo() else {
        rows.push(Row {
            name: "user",
            status: Status::Ok,
            found: "the bundled program runs as root".to_owned(),
            meaning: "there is no user behind sudo".to_owned(),
            next: None,
            detail: None,
            figures: Default::default(),
        });
        return Ok(None);
    };
    let gputrace = std::env::current_exe().context("this program's path")?;
    let can = record::can_use(&gputrace, &user);
    rows.push(Row {
        name: "user",
        status: Status::Ok,
        found: if can {
            "the bundled program runs as the user behind sudo".to_owned()
        } else {
            "the bundled program runs as root".to_owned()
        },
        meaning: if can {
            "it needs no other rights".to_owned()
        } else {
            "the user behind sudo may not open /dev/kfd, or not execute gputrace where it is"
                .to_owned()
        },
        next: None,
        detail: None,
        figures: Default::default(),
    });
    Ok(can.then_some(user))
}

/// Whether the program failed before it used the GPU: then no other mode will do better.
fn could_not_run(sections: &[Section]) -> bool {
    let rows = sections.last().map(|section| section.rows.as_slice());
    rows.is_some_and(|rows| {
        rows.iter()
            .any(|row| row.name == "program" && row.not_run())
    })
}

fn verdict(sections: &[Section]) -> Verdict {
    let mut rows = sections.iter().flat_map(|section| &section.rows);
    if could_not_run(sections) {
        Verdict::NotRun
    } else if rows.any(|row| row.status == Status::Wrong) {
        Verdict::Wrong
    } else {
        Verdict::Right
    }
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    for section in &report.sections {
        let lines = section.rows.iter().map(|row| Line {
            status: match row.status {
                Status::Ok => OK.0,
                Status::Warning => WARNING.0,
                Status::Wrong => WRONG.0,
            },
            name: row.name,
            text: match &row.detail {
                Some(detail) => format!("{} ({detail}): {}", row.found, row.meaning),
                None => format!("{}: {}", row.found, row.meaning),
            },
            next: row.next.as_deref(),
        });
        lines::write(&mut out, section.name, lines);
    }
    out.push_str(&wrapped("", 0, report.verdict.sentence()));
    out
}

/// Writes the report with the ownership of the user behind sudo.
fn write(path: &Path, report: &Report) -> Result<()> {
    let name = path.to_str().context("the file's name is not UTF-8")?;
    let (directory, name) = split(Path::new("."), name)?;
    let owner = User::behind_sudo().as_ref().map(User::owner);
    let directory = OutputDir::open(&directory, owner)?.public();
    let mut file = directory.file(&name)?;
    let text = json::to_string_pretty(report)? + "\n";
    file.write_all(text.as_bytes()).map_err(OutputError::from)?;
    file.finish("report")?;
    Ok(())
}
