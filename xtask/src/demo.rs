//! `cargo xtask demo`: from a clean clone to a first trace that one can open.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build::{self, Profile};
use crate::progress::{self, Bytes, long_step};
use crate::setup::{self, Purpose};
use crate::test::build_workloads;
use crate::workspace::Workspace;
use crate::{exec, progress::heading};

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The program that is traced: HIP calls on several threads, from `tests/workloads`.
const WORKLOAD: &str = "hip_calls";

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run by a method")]
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Run).require(Purpose::Run)?;
        // Not --release: dependencies are optimised anyway, and link-time optimisation would add minutes to a first run.
        build::build(workspace, Profile::Debug)?;
        build_workloads(workspace)?;
        let workload = workspace.workloads().join(WORKLOAD);
        let output = workspace.target.join("demo");
        fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;

        let mut gputrace = Command::new(workspace.gputrace("debug"));
        gputrace.current_dir(&workspace.root);
        gputrace.arg("-d").arg(workspace.relative(&output)).args([
            "-o",
            "demo",
            "-S",
            "-f",
            "pftrace,csv",
            "--",
        ]);
        gputrace.arg(workspace.relative(&workload));
        let typed = exec::describe(&gputrace);
        long_step("trace", &typed, || exec::stream(&mut gputrace))?;

        heading(format_args!(
            "written to {}",
            workspace.relative(&output).display()
        ));
        let mut files: Vec<_> = fs::read_dir(&output)?.collect::<Result<_, _>>()?;
        files.sort_by_key(fs::DirEntry::file_name);
        let mut trace = None;
        for file in files {
            let path = file.path();
            progress::note(format_args!(
                "{}, {}",
                workspace.relative(&path).display(),
                Bytes(file.metadata()?.len())
            ));
            if path.extension().is_some_and(|extension| extension == "pftrace") {
                trace = Some(path);
            }
        }
        let Some(trace) = trace else {
            bail!("gputrace ended well but wrote no .pftrace file")
        };
        heading(format_args!("look at it"));
        progress::note(format_args!(
            "open https://ui.perfetto.dev and drop {} on it;",
            trace.display()
        ));
        progress::note(format_args!(
            "your own program: sudo target/debug/gputrace -S -- ./app, or -p PID"
        ));
        Ok(())
    }
}
