//! The test programs that cargo has built, and the tests in them.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::exec;
use crate::workspace::Workspace;

/// A test program.
#[derive(Debug)]
pub(crate) struct Program {
    /// `PACKAGE` for a library's unit tests, `PACKAGE::TEST` for a file in
    /// `tests`, `PACKAGE::bin/NAME` for a program's unit tests.
    pub(crate) id: String,
    /// The file to run.
    pub(crate) file: PathBuf,
    /// The source file that it is compiled from.
    pub(crate) source: PathBuf,
    /// What it is a program of.
    pub(crate) package: Package,
    /// Names of its tests, without the ignored ones.
    pub(crate) tests: Vec<String>,
}

/// A package of the workspace.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Package {
    id: String,
    name: String,
    version: String,
    manifest_path: PathBuf,
}

/// A test, by its program and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestId<'a> {
    pub(crate) program: &'a Program,
    pub(crate) name: &'a str,
}

impl fmt::Display for TestId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program.id, self.name)
    }
}

/// What is read of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// What is read of a line of `cargo test --no-run --message-format=json`.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    package_id: String,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// All test programs, built by `cargo`, a command as [`super::cargo_for_tests`] makes it, and the
/// tests in them.
///
/// # Errors
///
/// When something does not compile, or a program does not list its tests.
pub(crate) fn all(workspace: &Workspace, mut cargo: Command) -> Result<Vec<Program>> {
    let mut metadata = workspace.cargo();
    metadata.args(["metadata", "--no-deps", "--format-version=1"]);
    let metadata: Metadata = serde_json::from_str(&exec::capture(&mut metadata)?)
        .context("cannot read what `cargo metadata` prints")?;
    cargo.args([
        "test",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let mut programs = artifacts(&exec::capture(&mut cargo)?, metadata.packages)?;
    for program in &mut programs {
        program.tests = list(&program.file)?;
    }
    programs.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(programs)
}

/// The test programs in cargo's messages.
fn artifacts(messages: &str, packages: Vec<Package>) -> Result<Vec<Program>> {
    let packages: HashMap<String, Package> = packages
        .into_iter()
        .map(|package| (package.id.clone(), package))
        .collect();
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("cannot read cargo's message `{line}`"))?;
        let is_test = message.profile.is_some_and(|profile| profile.test);
        let (Some(target), Some(file)) = (message.target, message.executable) else {
            continue;
        };
        if message.reason != "compiler-artifact" || !is_test {
            continue;
        }
        let package = packages
            .get(&message.package_id)
            .with_context(|| format!("`cargo metadata` does not know {}", message.package_id))?;
        let (package_name, name) = (&package.name, &target.name);
        let id = match target.kind.first().map_or("", String::as_str) {
            "test" => format!("{package_name}::{name}"),
            kind @ ("bin" | "example" | "bench") => format!("{package_name}::{kind}/{name}"),
            _ => package_name.clone(),
        };
        programs.push(Program {
            id,
            file,
            source: target.src_path,
            package: package.clone(),
            tests: Vec::new(),
        });
    }
    Ok(programs)
}

/// Names of the tests in a program, without the ignored ones.
fn list(program: &Path) -> Result<Vec<String>> {
    let names = |ignored: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(program);
        command.args(["--list", "--format", "terse"]).args(ignored);
        let listed = exec::capture(&mut command)?;
        let tests = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        Ok(tests.map(str::to_owned).collect())
    };
    let ignored = names(&["--ignored"])?;
    let mut tests = names(&[])?;
    tests.retain(|test| !ignored.contains(test));
    Ok(tests)
}

impl Program {
    pub(crate) fn id_of<'a>(&'a self, test: &'a str) -> TestId<'a> {
        TestId {
            program: self,
            name: test,
        }
    }

    /// The package's directory.
    pub(crate) fn directory(&self) -> &Path {
        self.package
            .manifest_path
            .parent()
            .unwrap_or(Path::new("/"))
    }

    /// The command that runs one test, as `cargo test` would.
    pub(crate) fn command(&self, test: &str) -> Command {
        let mut command = Command::new(&self.file);
        let manifest = &self.package.manifest_path;
        let directory = self.directory();
        command
            .args(["--exact", test, "--nocapture"])
            .current_dir(directory)
            .env("CARGO_MANIFEST_DIR", directory)
            .env("CARGO_MANIFEST_PATH", manifest)
            .env("CARGO_PKG_NAME", &self.package.name)
            .env("CARGO_PKG_VERSION", &self.package.version);
        command
    }

    /// A program that is not there, for tests of xtask's own.
    #[cfg(test)]
    pub(crate) fn with_tests(id: &str, tests: &[&str]) -> Self {
        Self {
            id: id.to_owned(),
            file: PathBuf::new(),
            source: PathBuf::new(),
            package: Package::default(),
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
        }
    }

    /// Says where such a program would be compiled from.
    #[cfg(test)]
    pub(crate) fn place(&mut self, directory: &str, source: &str) {
        self.package.manifest_path = Path::new(directory).join("Cargo.toml");
        self.source = source.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let message = |kind: &str, name: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"p#1","manifest_path":"/p/Cargo.toml",
                   "target":{{"kind":["{kind}"],"name":"{name}","src_path":"/p/x.rs"}},"profile":{{"test":{test}}},
                   "executable":{executable}}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            message("lib", "p", true, r#""/t/p-1""#),
            message("lib", "p", false, "null"),
            message("test", "stop", true, r#""/t/stop-1""#),
            message("bin", "tool", true, r#""/t/tool-1""#),
            message("bin", "tool", false, r#""/t/tool""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let package = Package {
            id: "p#1".to_owned(),
            name: "p".to_owned(),
            ..Package::default()
        };
        let programs = artifacts(&messages.join("\n"), vec![package]).unwrap();
        let found: Vec<_> = programs
            .iter()
            .map(|program| (&*program.id, program.file.to_str().unwrap()))
            .collect();
        assert_eq!(
            found,
            [
                ("p", "/t/p-1"),
                ("p::stop", "/t/stop-1"),
                ("p::bin/tool", "/t/tool-1")
            ]
        );
    }
}
