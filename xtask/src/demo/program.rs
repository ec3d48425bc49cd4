//! The program that the demo records, from `tests/workloads/demo`, built for the libraries that are there.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::gpu::Gpu;
use crate::exec;
use crate::progress::long_step;
use crate::workspace::Workspace;

/// Whose libraries the program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Libraries {
    /// ROCm as installed on this machine.
    Installed,
    /// The stand-ins of `tests/simrocm`.
    StandIns,
}

impl fmt::Display for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Installed => "ROCm's own libamdhip64 and libhsa-runtime64, as installed on this machine, unmodified",
            Self::StandIns => {
                "stand-ins for ROCm's libamdhip64 and libhsa-runtime64: same functions and structures in memory, no ROCm"
            }
        })
    }
}

/// Where ROCm is when no distribution has put it among its own libraries.
const OPT: &str = "/opt/rocm";

/// The kernels of `kernels.hip` with the sizes of their arguments, for where no compiler can make them.
const KERNELS: [&str; 3] = ["blur:8,8,4,4", "sharpen:8,8,8,4", "histogram:8,8,4"];

/// What is to be run.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) file: PathBuf,
    /// Its kernels.
    pub(super) code_object: PathBuf,
}

impl Program {
    /// Builds the program and its kernels, and the stand-ins if it is to run on those.
    ///
    /// # Errors
    ///
    /// When a compiler is missing or fails.
    pub(super) fn build(workspace: &Workspace, libraries: Libraries, gpu: &Gpu) -> Result<Self> {
        let sources = workspace.root.join("tests/workloads/demo");
        let directory = workspace.target.join("demo-program").join(match libraries {
            Libraries::Installed => "rocm",
            Libraries::StandIns => "simrocm",
        });
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let program = Self {
            file: directory.join("demo"),
            code_object: directory.join("kernels.hsaco"),
        };
        let library_directory = match libraries {
            Libraries::Installed => Path::new(OPT).join("lib"),
            Libraries::StandIns => directory.join("lib"),
        };
        if libraries == Libraries::StandIns {
            program.build_stand_ins(workspace, &directory, gpu)?;
        }
        long_step(
            "build the program",
            "what is traced: tests/workloads/demo",
            || {
                if libraries == Libraries::Installed {
                    exec::stream(&mut program.compile_kernels(&sources.join("kernels.hip"), gpu))?;
                }
                exec::stream(&mut program.compile(&sources.join("demo.c"), &library_directory))
            },
        )?;
        Ok(program)
    }

    /// hipcc for the kernels.
    fn compile_kernels(&self, source: &Path, gpu: &Gpu) -> Command {
        let hipcc = exec::find_program("hipcc").unwrap_or_else(|| Path::new(OPT).join("bin/hipcc"));
        let mut command = Command::new(hipcc);
        // The variable keeps it from looking for a GPU.
        command.env("HCC_AMDGPU_TARGET", gpu.instruction_set());
        command
            .arg(format!("--offload-arch={}", gpu.instruction_set()))
            .args(["-O2", "--genco"])
            .arg(source)
            .arg("-o")
            .arg(&self.code_object);
        command
    }

    /// The C compiler for the program. It finds the libraries that it is linked to, and those that they need, by
    /// itself: gputrace runs it, and shall not use them.
    fn compile(&self, source: &Path, libraries: &Path) -> Command {
        let run_path = |option: &str| {
            let mut argument = OsString::from(option);
            argument.push(libraries);
            argument
        };
        let mut command = Command::new("cc");
        command
            .args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra"])
            .arg(source)
            .arg("-o")
            .arg(&self.file)
            .arg(run_path("-L"))
            .arg(run_path("-Wl,--disable-new-dtags,-rpath,"))
            .arg("-lamdhip64");
        command
    }

    /// Lays out the stand-ins in `directory`/lib and writes the code object.
    fn build_stand_ins(&self, workspace: &Workspace, directory: &Path, gpu: &Gpu) -> Result<()> {
        let tool = |name: &str| {
            let mut cargo = workspace.cargo();
            cargo.args([
                "run",
                "--quiet",
                "--package",
                "gputrace-simrocm",
                "--bin",
                name,
                "--",
            ]);
            cargo
        };
        long_step(
            "build the stand-ins",
            "small libraries with the names and interfaces of ROCm's: tests/simrocm",
            || {
                exec::stream(tool("simrocm-stage").arg(directory))?;
                exec::stream(
                    tool("simrocm-code-object")
                        .arg(&self.code_object)
                        .args(["--gfx", gpu.instruction_set()])
                        .args(KERNELS),
                )
            },
        )
    }
}
