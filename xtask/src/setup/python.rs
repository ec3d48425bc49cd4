//! Python environments of xtask's own, with what comes from the Python package index.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::machine::{Machine, PackageManager};
use super::{State, apt};
use crate::workspace::Workspace;
use crate::{exec, progress};

/// The official readers of what gputrace writes. Tests get the interpreter as
/// `GPUTRACE_TEST_PYTHON`.
pub(crate) const READERS: Environment = Environment {
    name: "python-readers",
    requirements: include_str!("../../python-readers.txt"),
};

/// Zig, whose C compiler and linker know the symbols of every glibc.
pub(crate) const ZIG: Environment = Environment {
    name: "python-zig",
    requirements: include_str!("../../python-zig.txt"),
};

/// Makes the wheel of the Python module, and tests it.
pub(crate) const WHEEL: Environment = Environment {
    name: "python-wheel",
    requirements: include_str!("../../python-wheel.txt"),
};

/// Name of the copy of the requirements; written last, so that an interrupted installation is done
/// again.
const INSTALLED: &str = "installed.txt";

/// An environment in the cache of tools.
pub(crate) struct Environment {
    /// Its directory there.
    name: &'static str,
    /// The packages to install with their versions. A copy in the environment tells what is installed.
    requirements: &'static str,
}

impl Environment {
    /// Its interpreter.
    pub(crate) fn interpreter(&self, workspace: &Workspace) -> PathBuf {
        self.directory(workspace).join("bin").join("python")
    }

    fn directory(&self, workspace: &Workspace) -> PathBuf {
        workspace.tools.join(self.name)
    }

    /// Makes the environment, or makes it anew when the requirements changed or its interpreter is
    /// gone.
    ///
    /// # Errors
    ///
    /// When apt-get fails, or the package index is unreachable.
    pub(super) fn ensure(&self, workspace: &Workspace, machine: &Machine) -> Result<State> {
        let directory = self.directory(workspace);
        let interpreter = self.interpreter(workspace);
        let contents = self
            .requirements
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect::<Vec<_>>()
            .join(" ");
        let current = fs::read_to_string(directory.join(INSTALLED))
            .is_ok_and(|installed| installed == self.requirements);
        if current && exec::capture(Command::new(&interpreter).args(["-c", ""])).is_ok() {
            return Ok(State::Ready(contents));
        }
        let python = match usable_python() {
            Some(python) => python,
            None if machine.packages == PackageManager::Apt && machine.is_root() => {
                apt::install(&["python3", "python3-venv"])?;
                usable_python().context(
                    "python3-venv is installed and still python3 has no venv and ensurepip",
                )?
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
        fs::write(&requirements, self.requirements)?;
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
}

/// A Python that can create environments. The system's own is preferred to one that a version
/// manager has put into `PATH` and may remove again. Debian's python3 cannot without python3-venv.
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
