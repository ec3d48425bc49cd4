//! The Python environment with the official readers of what gputrace writes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::machine::{Machine, PackageManager};
use super::{State, apt};
use crate::workspace::Workspace;
use crate::{exec, progress};

/// What is installed, with versions. A copy in the environment says what is in there.
const REQUIREMENTS: &str = include_str!("../../python-readers.txt");

/// Name of that copy; written last, so that an interrupted installation is done again.
const INSTALLED: &str = "installed.txt";

/// The environment's interpreter. Tests get it as `GPUTRACE_TEST_PYTHON`.
pub(crate) fn interpreter(workspace: &Workspace) -> PathBuf {
    directory(workspace).join("bin").join("python")
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.tools.join("python-readers")
}

/// Makes the environment, or makes it anew when [`REQUIREMENTS`] changed or its interpreter is gone.
///
/// # Errors
///
/// When apt-get fails, or the package index is out of reach.
pub(super) fn ensure(workspace: &Workspace, machine: &Machine) -> Result<State> {
    let directory = directory(workspace);
    let interpreter = interpreter(workspace);
    let contents = REQUIREMENTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join(" ");
    let current = fs::read_to_string(directory.join(INSTALLED))
        .is_ok_and(|installed| installed == REQUIREMENTS);
    if current && exec::capture(Command::new(&interpreter).args(["-c", ""])).is_ok() {
        return Ok(State::Ready(contents));
    }
    let python = match usable_python() {
        Some(python) => python,
        None if machine.packages == PackageManager::Apt && machine.is_root() => {
            apt::install(&["python3", "python3-venv"])?;
            usable_python()
                .context("python3-venv is installed and still python3 has no venv and ensurepip")?
        }
        None => {
            let command = machine.packages.install_command();
            return Ok(State::Missing {
                what: "Python 3 with its venv and ensurepip modules".into(),
                remedy: match machine.packages {
                    PackageManager::Apt => {
                        machine.as_root(&format!("{command} python3 python3-venv"))
                    }
                    PackageManager::Unknown => "install Python 3".into(),
                    _ => machine.as_root(&format!("{command} python3")),
                },
            });
        }
    };
    progress::note(format_args!("python -m venv, pip install {contents} ..."));
    exec::capture(
        Command::new(&python)
            .args(["-m", "venv", "--clear"])
            .arg(&directory),
    )?;
    let requirements = directory.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let mut pip = Command::new(&interpreter);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--requirement",
    ]);
    exec::capture(pip.arg(&requirements))?;
    fs::rename(&requirements, directory.join(INSTALLED))?;
    Ok(State::Done(format!(
        "{contents} in {}",
        directory.display()
    )))
}

/// A Python that can make environments: the system's own before one that a version manager put into `PATH` and may take
/// away again. Debian's python3 without python3-venv cannot.
fn usable_python() -> Option<PathBuf> {
    [
        Some(PathBuf::from("/usr/bin/python3")),
        exec::find_program("python3"),
    ]
    .into_iter()
    .flatten()
    .find(|python| {
        exec::capture(Command::new(python).args(["-c", "import venv, ensurepip"])).is_ok()
    })
}
