//! The ROCm releases that are there, and how a workload is started on one.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use gputrace_harness::rocm::{self, LIBRARIES};

use crate::scenario::Workload;

/// The stand-ins' name.
pub const SIMROCM: &str = "simrocm";

/// The stand-ins with all ways of newer releases.
pub const SIMROCM_NEWER: &str = "simrocm-7";

/// A ROCm that workloads can run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its number, [`SIMROCM`] or [`SIMROCM_NEWER`].
    pub name: String,
    /// Where its libraries are.
    libraries: PathBuf,
    /// Where the workloads built for it are.
    workloads: PathBuf,
    /// Where their code objects are.
    objects: PathBuf,
    /// Whether it needs the preloaded library to find the software GPU; the stand-ins have it inside.
    preload: bool,
}

impl Release {
    /// Finds a release ([`rocm::root`]), and builds the workloads for it.
    ///
    /// # Errors
    ///
    /// When it is not there, or the workloads cannot be built; says what to do.
    pub fn find(name: &str) -> Result<Self> {
        let root = rocm::root(name).with_context(|| rocm::missing(name))?;
        let workloads = built().join(name);
        let objects = built().join("objects");
        build(&workloads, &root, &objects)?;
        Ok(Self {
            name: name.to_owned(),
            libraries: root.join(LIBRARIES),
            workloads,
            objects,
            preload: true,
        })
    }

    /// The stand-ins under one of their names, staged in `libraries`, for programs built on this machine's ROCm.
    ///
    /// # Errors
    ///
    /// When they are not there, or the workloads cannot be built.
    pub fn simrocm(name: &str, libraries: &Path) -> Result<Self> {
        let libraries = libraries
            .canonicalize()
            .with_context(|| libraries.display().to_string())?;
        ensure!(
            libraries.join("libamdhip64.so.5").exists(),
            "{} does not hold the stand-ins",
            libraries.display()
        );
        let workloads = built().join(SIMROCM);
        let objects = built().join("objects");
        // Without a root, whose libraries the programs would name: then LD_LIBRARY_PATH is in vain.
        build(&workloads, Path::new(""), &objects)?;
        Ok(Self {
            name: name.to_owned(),
            libraries,
            workloads,
            objects,
            preload: false,
        })
    }

    /// Whether a workload can run on it.
    #[must_use]
    pub fn runs(&self, workload: &Workload) -> bool {
        // The stand-ins have no compiler, and submit within the call.
        self.preload || !workload.compiles && !workload.deferred
    }

    /// Whether HIP knows `GPU_FORCE_QUEUE_PROFILING` (5.4 and later), by which every kernel is stamped.
    #[must_use]
    pub fn stamps_all(&self) -> bool {
        self.name != "5.2.3"
    }

    /// A command that runs a workload with these arguments.
    #[must_use]
    pub fn program(&self, workload: &Workload, arguments: &[&str]) -> Command {
        // By env, so that a gputrace that starts it does not use the release's libraries itself.
        let mut command = Command::new("env");
        if !self.preload {
            command.args(["-u", "LD_PRELOAD"]);
        }
        if workload.deferred {
            command.arg("AMD_DIRECT_DISPATCH=0");
        }
        if self.name == SIMROCM_NEWER {
            command.arg("SIMROCM_NEWER=all");
        }
        command
            .arg(format!("LD_LIBRARY_PATH={}", self.libraries.display()))
            // Later releases do small copies by kernels, which are not copies then.
            .arg("GPU_FORCE_BLIT_COPY_SIZE=0")
            // HIP 7 makes pools of addresses that it maps to memory later, which the software GPU does not.
            .arg("DEBUG_HIP_MEM_POOL_VMHEAP=0")
            .arg(self.workloads.join(workload.program));
        let objects = self.objects.to_string_lossy();
        let arguments = arguments
            .iter()
            .map(|word| word.replace("{objects}", &objects));
        command.args(arguments);
        command
    }
}

/// Has a command see the software GPU, with the settings in `softgpu.toml` of a directory, and write there what happened
/// (`truth`) and what the program says of itself (`said`).
///
/// # Errors
///
/// As [`preload`].
pub fn equip(command: &mut Command, place: &Path) -> Result<()> {
    command.env("LD_PRELOAD", preload()?);
    gputrace_harness::equip(command, place);
    Ok(())
}

/// The library that makes a process see the software GPU as KFD's.
///
/// # Errors
///
/// When it is not built.
pub fn preload() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program's path")?;
    // Tests are in cargo's directory of dependencies, where the library is, too; binaries above it.
    let candidates = program.ancestors().skip(1).take(2);
    let libraries = candidates.flat_map(|directory| {
        ["libgputrace_mockkfd.so", "deps/libgputrace_mockkfd.so"].map(|name| directory.join(name))
    });
    let mut libraries = libraries.filter(|library| library.exists());
    libraries
        .next()
        .context("libgputrace_mockkfd.so is not built: `cargo build -p gputrace-mockkfd`")
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where workloads are built.
fn built() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| checkout().join("target"), PathBuf::from);
    target.join("tmp/gpu-workloads")
}

fn build(directory: &Path, root: &Path, objects: &Path) -> Result<()> {
    let script = checkout().join("tests/workloads/gpu/build.sh");
    let status = Command::new(&script)
        .args([directory, root, objects])
        .status()
        .with_context(|| script.display().to_string())?;
    ensure!(
        status.success(),
        "{} failed; it says above what is missing",
        script.display()
    );
    Ok(())
}
