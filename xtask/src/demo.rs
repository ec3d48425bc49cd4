//! `cargo xtask demo`: from a clean clone to a first trace that can be opened, including GPU work.
//!
//! It uses the best that the machine offers: ROCm's own libraries on a GPU of the machine;
//! otherwise ROCm's libraries on the software GPU of `tests/softgpu`, which `tests/mockkfd`
//! presents to them as a real one; and where ROCm cannot be installed at all, the stand-ins of
//! `tests/simrocm`. On the software GPU it uses the newest release that can be fetched (`cargo
//! xtask rocm`), because older ones do not allow every kernel to be timed. It prints which of these
//! it uses.

mod gpu;
mod program;

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use self::gpu::{Gpu, TOPOLOGY};
use self::program::{Libraries, Program};
use crate::build::{self, Profile};
use crate::exec;
use crate::progress::{self, long_step};
use crate::rocm;
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the program on small stand-ins for ROCm's libraries, as where ROCm cannot be installed
    #[arg(long)]
    simrocm: bool,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let (libraries, gpu) = self.libraries(workspace)?;
        // Not --release: dependencies are optimised anyway, and link-time optimisation would add
        // minutes to a first run.
        build::build(workspace, Profile::Debug)?;
        let preload = match gpu {
            Gpu::Real(_) => None,
            Gpu::Software => Some(build_software_gpu(workspace)?),
        };
        let program = Program::build(workspace, &libraries, &gpu)?;
        progress::heading(format_args!("what will be seen"));
        progress::note(format_args!("the libraries:  {libraries}"));
        progress::note(format_args!("the GPU:        {gpu}"));
        let output = workspace.target.join("demo");
        record(workspace, &program, preload.as_deref(), &output)?;
        show(workspace, &output)
    }

    /// Prepares the machine, and determines what the program can run on.
    fn libraries(&self, workspace: &Workspace) -> Result<(Libraries, Gpu)> {
        if self.simrocm {
            setup::prepare(workspace, Purpose::Trace).require(Purpose::Trace)?;
            return Ok((Libraries::StandIns, Gpu::Software));
        }
        let report = setup::prepare(workspace, Purpose::Run);
        report.require(Purpose::Trace)?;
        // Without a compiler for kernels, other libraries are useless, too.
        if let Some(gap) = report.rocm_gap() {
            progress::note(format_args!(
                "ROCm cannot be had here: {gap}\nThe demo goes on with stand-ins for its libraries."
            ));
            return Ok((Libraries::StandIns, Gpu::Software));
        }
        let gpu = Gpu::find(Path::new(TOPOLOGY));
        Ok(match gpu {
            // The installed libraries fit the machine's driver.
            Gpu::Real(_) => (Libraries::Installed, gpu),
            Gpu::Software => (Libraries::newest(rocm::newest(workspace)), gpu),
        })
    }
}

/// Builds the library that presents the software GPU to programs.
fn build_software_gpu(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--package", "gputrace-mockkfd", "--lib"]);
    long_step(
        "build the software GPU",
        "what the demo uses without an AMD GPU: tests/softgpu, tests/mockkfd",
        || exec::stream(&mut cargo),
    )?;
    Ok(workspace.target.join("debug/libgputrace_mockkfd.so"))
}

/// Runs gputrace on the program, with outputs in `output`.
fn record(
    workspace: &Workspace,
    program: &Program,
    preload: Option<&Path>,
    output: &Path,
) -> Result<()> {
    // Leftovers of an earlier demo must not be mistaken for this one's.
    match fs::remove_dir_all(output) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::create_dir(output),
    }
    .with_context(|| format!("cannot make {} anew", output.display()))?;

    let mut gputrace = Command::new(workspace.gputrace("debug"));
    gputrace.current_dir(&workspace.root);
    if let Some(library) = preload {
        // Preloaded into both: gputrace reads the clocks and the list of GPUs from the same driver
        // as the program.
        gputrace.env("LD_PRELOAD", library).env(
            "SOFTGPU_CONFIG",
            workspace.root.join("tests/workloads/demo/softgpu.toml"),
        );
        progress::note(format_args!(
            "gputrace and the program are started with LD_PRELOAD={},\nwhich stands in for the driver. With a real \
             GPU nothing is preloaded.",
            workspace.relative(library).display()
        ));
    }
    gputrace.arg("-d").arg(workspace.relative(output)).args([
        "-o",
        "demo",
        "--force",
        "-S",
        "-f",
        "pftrace,csv",
        "--",
    ]);
    if let Some(libraries) = &program.libraries {
        // Only the program must search this directory for libraries that the release's libraries
        // open by themselves, not gputrace.
        let mut variable = OsString::from("LD_LIBRARY_PATH=");
        variable.push(libraries);
        gputrace.arg("env").arg(variable);
    }
    gputrace
        .arg(workspace.relative(&program.file))
        .arg(workspace.relative(&program.code_object));
    let typed = exec::describe(&gputrace);
    long_step("trace", &typed, || exec::stream(&mut gputrace))
}

/// Prints what to open, and where.
fn show(workspace: &Workspace, output: &Path) -> Result<()> {
    let trace = output.join("demo_results.pftrace");
    if !trace.is_file() {
        bail!("gputrace ended well but did not write {}", trace.display())
    }
    let directory = workspace.relative(output).display();
    progress::heading(format_args!("next"));
    progress::note(format_args!(
        "the trace:         open https://ui.perfetto.dev and drop {} on it",
        trace.display()
    ));
    progress::note(format_args!(
        "its tables:        demo_kernel_trace.csv, demo_memory_copy_trace.csv, demo_hip_api_trace.csv in {directory}"
    ));
    progress::note(format_args!(
        "its times:         exact where the GPU stamps its work, which ROCm 5.4 and later ask of it for every kernel;"
    ));
    progress::note(format_args!(
        "                   else sampled from outside, or bounds"
    ));
    progress::note(format_args!(
        "your own program:  target/debug/gputrace -S -- ./app"
    ));
    progress::note(format_args!(
        "one that runs:     target/debug/gputrace -S -p PID"
    ));
    Ok(())
}
