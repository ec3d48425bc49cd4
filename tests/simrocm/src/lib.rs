//! `simrocm`: stand-ins for `libamdhip64`, `libhsa-runtime64` and `libroctx64` on the software GPU.
//!
//! The libraries themselves are the packages `gputrace-simrocm-hsa`, `-hip` and `-roctx`;
//! `gputrace-simrocm-core` explains their purpose and structure. This package links and stages
//! them:
//!
//! ```text
//! cargo run -p gputrace-simrocm --bin simrocm-stage -- DIR
//! LD_LIBRARY_PATH=DIR/lib SOFTGPU_LOG=/tmp/truth ./program
//! ```
//!
//! It also measures them (`simrocm-bench`), and tests them with the programs of
//! `tests/workloads/gpu`.
//!
//! # Staging
//!
//! Cargo builds static libraries, and the C compiler driver links each into a shared one. Rust's
//! own shared libraries are unsuitable: rustc gives them an anonymous version script, which linkers
//! cannot combine with named version nodes.

pub mod queue;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

/// Why staging failed.
#[derive(Debug, Error)]
pub enum StageError {
    /// A tool cannot be run.
    #[error(
        "cannot run {tool}: {source}; cargo and a C compiler driver (cc, or what CC names) are needed"
    )]
    Run {
        /// The tool.
        tool: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A tool failed; it has printed the reason on stderr.
    #[error("{tool} failed ({status}); it says above why")]
    Failed {
        /// The tool.
        tool: String,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
    /// A file or directory cannot be created.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The `libamdhip64` that programs were linked with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HipSoname {
    /// `libamdhip64.so.5`.
    Five,
    /// `libamdhip64.so.6`.
    #[default]
    Six,
}

/// A library to link.
struct Library {
    /// Suffix of the Cargo package, which is also the directory below this package.
    part: &'static str,
    /// Name without version.
    name: &'static str,
    soname: &'static str,
    /// Name of the file behind the soname in the real package.
    file: &'static str,
    /// Names of the staged libraries that it depends on.
    needs: &'static [&'static str],
}

const HSA: Library = Library {
    part: "hsa",
    name: "libhsa-runtime64.so",
    soname: "libhsa-runtime64.so.1",
    file: "libhsa-runtime64.so.1.15.0",
    needs: &[],
};
const HIP_SIX: Library = Library {
    part: "hip",
    name: "libamdhip64.so",
    soname: "libamdhip64.so.6",
    file: "libamdhip64.so.6.4.43484",
    needs: &["libhsa-runtime64.so.1"],
};
const HIP_FIVE: Library = Library {
    soname: "libamdhip64.so.5",
    file: "libamdhip64.so.5.7.31921",
    ..HIP_SIX
};
const ROCTX: Library = Library {
    part: "roctx",
    name: "libroctx64.so",
    soname: "libroctx64.so.4",
    file: "libroctx64.so.4.1.0",
    needs: &[],
};

/// Environment variable with a directory of static libraries that have already been built.
const ARCHIVES: &str = "GPUTRACE_SIMROCM_ARCHIVES";

/// Builds the libraries and stages them in `directory`/lib. Returns that directory.
///
/// If `GPUTRACE_SIMROCM_ARCHIVES` names a directory with the static libraries, it only links them:
/// `cargo xtask test` has built them with all tests.
///
/// # Errors
///
/// When a tool is missing or fails, or a file cannot be written.
pub fn stage(directory: &Path, hip: HipSoname) -> Result<PathBuf, StageError> {
    let lib = directory.join("lib");
    std::fs::create_dir_all(&lib).map_err(|source| StageError::File {
        path: lib.clone(),
        source,
    })?;
    let archives = match std::env::var_os(ARCHIVES) {
        Some(directory) => PathBuf::from(directory),
        None => build()?,
    };
    let hip = match hip {
        HipSoname::Five => &HIP_FIVE,
        HipSoname::Six => &HIP_SIX,
    };
    for library in [&HSA, hip, &ROCTX] {
        library.link(&archives, &lib)?;
    }
    Ok(lib)
}

fn package_directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> Result<(), StageError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Err(source) => Err(StageError::Run { tool, source }),
        Ok(status) if !status.success() => Err(StageError::Failed { tool, status }),
        Ok(_) => Ok(()),
    }
}

/// Builds the static libraries; returns their directory.
fn build() -> Result<PathBuf, StageError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let workspace = package_directory().join("../..");
    // Not the target directory of a build that may be waiting for this one.
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), PathBuf::from);
    let mut command = Command::new(cargo);
    command.current_dir(&workspace).arg("build").arg("--quiet");
    command.arg("--target-dir").arg(&target);
    for part in ["hsa", "hip", "roctx"] {
        command
            .arg("--package")
            .arg(format!("gputrace-simrocm-{part}"));
    }
    run(&mut command)?;
    Ok(target.join("debug"))
}

impl Library {
    fn link(&self, archives: &Path, lib: &Path) -> Result<(), StageError> {
        let cc = std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"));
        let file = lib.join(self.file);
        // Written to a new file and renamed, because a program may be running with the old one.
        let new = lib.join(format!(".{}.{}", self.file, std::process::id()));
        let script = package_directory().join(self.part).join("exports.map");
        let mut option = OsString::from("-Wl,--version-script=");
        option.push(&script);
        let mut command = Command::new(cc);
        command
            .arg("-shared")
            .arg("-o")
            .arg(&new)
            .arg(format!("-Wl,-soname,{}", self.soname))
            .arg(option)
            .arg("-Wl,--whole-archive")
            .arg(archives.join(format!("libsimrocm_{}.a", self.part)))
            .arg("-Wl,--no-whole-archive,--gc-sections,--strip-debug,-z,defs,--as-needed")
            .args(self.needs.iter().map(|name| lib.join(name)))
            .args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"]);
        run(&mut command)?;
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| StageError::File { path, source }
        };
        std::fs::rename(&new, &file).map_err(error(&file))?;
        for (link, to) in [(self.soname, self.file), (self.name, self.soname)] {
            let path = lib.join(link);
            match std::fs::remove_file(&path) {
                Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(error(&path))?,
            }
            std::os::unix::fs::symlink(to, &path).map_err(error(&path))?;
        }
        Ok(())
    }
}
