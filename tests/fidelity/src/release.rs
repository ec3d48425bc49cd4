//! The installed ROCm releases, and how to start a workload on one.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use gputrace_harness::rocm::{self, LIBRARIES};

use crate::scenario::Workload;

/// Name of the stand-ins.
pub const SIMROCM: &str = "simrocm";

/// Name of the stand-ins with all behaviours of newer releases.
pub const SIMROCM_NEWER: &str = "simrocm-7";

/// A ROCm release, or the stand-ins, for running workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Release number, [`SIMROCM`] or [`SIMROCM_NEWER`].
    pub name: String,
    /// Directory of its libraries.
    libraries: PathBuf,
    /// Directory of the workloads built for it.
    workloads: PathBuf,
    /// Directory of their code objects.
    objects: PathBuf,
    /// Whether it needs the preloaded library to find the software GPU, which the stand-ins
    /// contain.
    preload: bool,
}

impl Release {
    /// Finds a release ([`rocm::root`]), and builds the workloads for it.
    ///
    /// # Errors
    ///
    /// If it is not installed, or the workloads cannot be built. The message says what to do.
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

    /// The stand-ins under one of their names, staged in `libraries`, for programs built with this
    /// machine's ROCm.
    ///
    /// # Errors
    ///
    /// If they do not exist, or the workloads cannot be built.
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
        // Build without a root: with one, the programs would name its libraries, and
        // LD_LIBRARY_PATH would have no effect.
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
        // The stand-ins have no compiler, and always submit within the call.
        self.preload || !workload.compiles && !workload.deferred
    }

    /// Whether HIP supports `GPU_FORCE_QUEUE_PROFILING` (5.4 and later), which makes the GPU stamp
    /// every kernel.
    #[must_use]
    pub fn stamps_all(&self) -> bool {
        self.name != "5.2.3"
    }

    /// A command that runs a workload with these arguments.
    #[must_use]
    pub fn program(&self, workload: &Workload, arguments: &[&str]) -> Command {
        // Through `env`, so that a gputrace that starts this command does not use the release's
        // libraries itself.
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
            // Later releases make small copies with kernels, which then do not count as copies.
            .arg("GPU_FORCE_BLIT_COPY_SIZE=0")
            // HIP 7 creates pools of addresses to which it maps memory later. The software GPU does
            // not support that.
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

/// Makes a command use the software GPU, with the settings in `softgpu.toml` of a directory. The
/// software GPU's log (`truth`) and the program's own log (`said`) go to the same directory.
///
/// # Errors
///
/// As for [`preload`].
pub fn equip(command: &mut Command, place: &Path) -> Result<()> {
    command.env("LD_PRELOAD", preload()?);
    gputrace_harness::equip(command, place);
    Ok(())
}

/// The library through which a process sees the software GPU as KFD's.
///
/// # Errors
///
/// If it is not built.
pub fn preload() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program's path")?;
    // Tests are in cargo's directory of dependencies, which also contains the library; binaries are
    // one level above.
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

/// Directory of built workloads.
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
