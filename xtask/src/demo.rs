//! `cargo xtask demo`: from a clean clone to a first trace that one can open.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build::{self, Profile};
use crate::exec;
use crate::progress::{self, Bytes, long_step};
use crate::setup::{self, Purpose};
use crate::test::build_workloads;
use crate::workspace::Workspace;

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The program that is traced, from `tests/workloads`: fifty rounds of HIP calls on each of three threads. Without a GPU
/// they fail, which is what the trace then shows.
const WORKLOAD: [&str; 4] = ["hip_calls", "threads", "3", "50"];

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run by a method")]
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Run).require(Purpose::Run)?;
        // Not --release: dependencies are optimised anyway, and link-time optimisation would add minutes to a first run.
        build::build(workspace, Profile::Debug)?;
        build_workloads(workspace)?;
        let output = workspace.target.join("demo");
        record(workspace, &output)?;
        show(workspace, &output)
    }
}

/// Runs gputrace on the workload, with its outputs in `output`.
fn record(workspace: &Workspace, output: &Path) -> Result<()> {
    // The program writes down its calls, for tests; here nobody reads that.
    let log = workspace.target.join("demo-calls");
    for directory in [output, &log] {
        // What is left of an earlier demo must not be taken for this one's.
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => fs::create_dir(directory),
        }
        .with_context(|| format!("cannot make {} anew", directory.display()))?;
    }
    // Under sudo gputrace runs the program as the user who called sudo.
    fs::set_permissions(&log, Permissions::from_mode(0o1777))?;

    let [program, arguments @ ..] = WORKLOAD;
    let program = workspace.workloads().join(program);
    let mut gputrace = Command::new(workspace.gputrace("debug"));
    gputrace.current_dir(&workspace.root).env("WORKLOAD_LOG", &log);
    gputrace
        .arg("-d")
        .arg(workspace.relative(output))
        .args(["-o", "demo", "-S", "-f", "pftrace,csv", "--"]);
    gputrace.arg(workspace.relative(&program)).args(arguments);
    let typed = exec::describe(&gputrace);
    long_step("trace", &typed, || exec::stream(&mut gputrace))
}

/// Says what was written, and where to open it.
fn show(workspace: &Workspace, output: &Path) -> Result<()> {
    progress::heading(format_args!("written"));
    let mut files: Vec<_> = fs::read_dir(output)?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let mut trace = None;
    for file in files {
        let path = file.path();
        let size = Bytes(file.metadata()?.len());
        progress::note(format_args!("{}, {size}", workspace.relative(&path).display()));
        if path.extension().is_some_and(|extension| extension == "pftrace") {
            trace = Some(path);
        }
    }
    let Some(trace) = trace else {
        bail!("gputrace ended well but wrote no .pftrace file")
    };
    progress::heading(format_args!("next"));
    progress::note(format_args!(
        "the trace:         open https://ui.perfetto.dev and drop {} on it",
        trace.display()
    ));
    progress::note(format_args!(
        "your own program:  target/debug/gputrace -S -- ./app"
    ));
    progress::note(format_args!("one that runs:     target/debug/gputrace -S -p PID"));
    Ok(())
}
