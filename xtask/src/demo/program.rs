//! The program that the demo records, from `tests/workloads/demo`, built for the available
//! libraries.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::gpu::Gpu;
use crate::exec;
use crate::progress::long_step;
use crate::rocm;
use crate::workspace::Workspace;

/// The libraries that the program runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Libraries {
    /// A release in the cache of `cargo xtask rocm`.
    Fetched {
        /// Version of the release.
        name: &'static str,
        /// Its root directory.
        root: PathBuf,
    },
    /// ROCm as installed on this machine.
    Installed,
    /// The stand-ins of `tests/simrocm`.
    StandIns,
}

impl Libraries {
    /// The newest fetched release if there is one, otherwise this machine's ROCm.
    pub(super) fn newest(fetched: Option<(&'static str, PathBuf)>) -> Self {
        fetched.map_or(Self::Installed, |(name, root)| Self::Fetched { name, root })
    }

    /// Name of the directory for the program that is built for them.
    fn directory(&self) -> String {
        match self {
            Self::Fetched { name, .. } => format!("rocm-{name}"),
            Self::Installed => "rocm".to_owned(),
            Self::StandIns => "simrocm".to_owned(),
        }
    }
}

impl fmt::Display for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fetched { name, .. } => {
                return write!(f, "ROCm {name}'s own libamdhip64 and libhsa-runtime64, unmodified");
            }
            Self::Installed => "ROCm's own libamdhip64 and libhsa-runtime64, as installed on this machine, unmodified",
            Self::StandIns => {
                "stand-ins for ROCm's libamdhip64 and libhsa-runtime64: same functions and structures in memory, no ROCm"
            }
        })
    }
}

/// Directory of ROCm unless a distribution has put it among its own libraries.
const OPT: &str = "/opt/rocm";

/// The kernels of `kernels.hip` with the sizes of their arguments, used where no compiler can build
/// them.
const KERNELS: [&str; 3] = ["blur:8,8,4,4", "sharpen:8,8,8,4", "histogram:8,8,4"];

/// The program to run.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) file: PathBuf,
    /// Its kernels as a code object.
    pub(super) code_object: PathBuf,
    /// Library directory of a fetched release.
    pub(super) libraries: Option<PathBuf>,
}

impl Program {
    /// Builds the program and its kernels, and the stand-ins if it runs on those.
    ///
    /// # Errors
    ///
    /// When a compiler is missing or fails.
    pub(super) fn build(workspace: &Workspace, libraries: &Libraries, gpu: &Gpu) -> Result<Self> {
        let sources = workspace.root.join("tests/workloads/demo");
        let directory = workspace
            .target
            .join("demo-program")
            .join(libraries.directory());
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let program = Self {
            file: directory.join("demo"),
            code_object: directory.join("kernels.hsaco"),
            libraries: match libraries {
                Libraries::Fetched { root, .. } => Some(root.join(rocm::LIBRARIES)),
                Libraries::Installed | Libraries::StandIns => None,
            },
        };
        let library_directory = match libraries {
            Libraries::Fetched { root, .. } => root.join(rocm::LIBRARIES),
            Libraries::Installed => Path::new(OPT).join("lib"),
            Libraries::StandIns => directory.join("lib"),
        };
        if *libraries == Libraries::StandIns {
            program.build_stand_ins(workspace, &directory, gpu)?;
        }
        long_step(
            "build the program",
            "what is traced: tests/workloads/demo",
            || {
                if *libraries != Libraries::StandIns {
                    exec::stream(&mut program.compile_kernels(&sources.join("kernels.hip"), gpu))?;
                }
                let mut compile = program.compile(&sources.join("demo.c"), &library_directory);
                exec::stream(match libraries {
                    Libraries::Fetched { root, .. } => elsewhere(&mut compile, root)?,
                    Libraries::Installed | Libraries::StandIns => compile.arg("-lamdhip64"),
                })
            },
        )?;
        Ok(program)
    }

    /// The hipcc command for the kernels.
    fn compile_kernels(&self, source: &Path, gpu: &Gpu) -> Command {
        let hipcc = exec::find_program("hipcc").unwrap_or_else(|| Path::new(OPT).join("bin/hipcc"));
        let mut command = Command::new(hipcc);
        // The variable keeps hipcc from looking for a GPU.
        command.env("HCC_AMDGPU_TARGET", gpu.instruction_set());
        command
            .arg(format!("--offload-arch={}", gpu.instruction_set()))
            .args(["-O2", "--genco"])
            .arg(source)
            .arg("-o")
            .arg(&self.code_object);
        command
    }

    /// The C compiler command for the program, without the libraries to link. The program finds
    /// these libraries and their dependencies by its run path, because gputrace, which runs it,
    /// must not use them.
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
            .arg(run_path("-Wl,--disable-new-dtags,-rpath,"));
        command
    }

    /// Puts the stand-ins into `directory`/lib and writes the code object.
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

/// Adds to the C compiler's command what links a program with the HIP of a release in `root`, under
/// that release's loader: its libraries need a newer glibc than this machine's.
///
/// # Errors
///
/// When there is no HIP in `root`.
fn elsewhere<'a>(compile: &'a mut Command, root: &Path) -> Result<&'a mut Command> {
    let libraries = root.join(rocm::LIBRARIES);
    // By soname, because a release's root has no development links.
    let hip = fs::read_dir(&libraries)
        .with_context(|| format!("cannot read {}", libraries.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let version = name.strip_prefix("libamdhip64.so.");
            version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
        })
        .with_context(|| format!("{} has no libamdhip64", libraries.display()))?;
    let mut loader = OsString::from("-Wl,--allow-shlib-undefined,--dynamic-linker,");
    loader.push(libraries.join("ld-linux-x86-64.so.2"));
    Ok(compile.arg(hip).arg(loader))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_for_a_release_names_its_loader_and_its_hip() {
        let root = tempfile::tempdir().unwrap();
        let libraries = root.path().join(rocm::LIBRARIES);
        fs::create_dir_all(&libraries).unwrap();
        elsewhere(&mut Command::new("cc"), root.path()).unwrap_err();
        for name in ["libamdhip64.so.7.2.53211", "libamdhip64.so.7"] {
            fs::write(libraries.join(name), "").unwrap();
        }
        let mut compile = Command::new("cc");
        let arguments: Vec<_> = elsewhere(&mut compile, root.path())
            .unwrap()
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        let [hip, loader] = arguments.as_slice() else {
            panic!("{arguments:?}")
        };
        assert!(hip.ends_with("/libamdhip64.so.7"), "{hip}");
        assert!(loader.ends_with("/ld-linux-x86-64.so.2"), "{loader}");
    }

    #[test]
    fn without_a_release_it_is_the_machines_rocm() {
        assert_eq!(Libraries::newest(None), Libraries::Installed);
        let newest = Libraries::newest(Some(("7.2.4", PathBuf::from("/root"))));
        assert_eq!(newest.directory(), "rocm-7.2.4");
        assert!(newest.to_string().starts_with("ROCm 7.2.4's own"));
    }
}
