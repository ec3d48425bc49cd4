//! A Debian system in a directory.
//!
//! debootstrap makes one in a minute. It is kept as an archive in the cache of fetched things, and
//! unpacked for each check:
//!
//! ```text
//! ~/.cache/gputrace/debian/trixie/root.tar     whole as soon as it exists; remove it to get a new one
//! ```

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};

use crate::apt;
use crate::cache::{lock, remedied, remove};
use crate::exec;
use crate::package::create;
use crate::progress;
use crate::workspace::Workspace;

/// Name of the archive of a system.
const ARCHIVE: &str = "root.tar";

/// What debootstrap knows of suites that are newer than it is.
const SCRIPTS: &str = "/usr/share/debootstrap/scripts";

/// Where package managers write down what they did, which stays when a package goes.
const RECORDS: [&str; 6] = [
    "etc/ld.so.cache",
    "root/.rpmdb",
    "tmp",
    "var/cache",
    "var/lib",
    "var/log",
];

/// A system, in which programs run as root with processes and mounts of their own.
#[derive(Debug)]
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// A new system of `suite` below `place`.
    ///
    /// # Errors
    ///
    /// When debootstrap fails, or there is no room.
    pub(super) fn new(workspace: &Workspace, suite: &str, place: &Path) -> Result<Self> {
        let archive = archive(workspace, suite)?;
        let root = place.join(suite);
        create(&root)?;
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "-xpf"]);
        tar.arg(&archive).arg("-C").arg(&root);
        exec::capture(&mut tar)?;
        // How this machine finds the archive.
        for name in ["etc/resolv.conf", "etc/hosts"] {
            let from = Path::new("/").join(name);
            let to = root.join(name);
            if from.exists() {
                // It may be a link that leads out of the directory.
                fs::remove_file(&to).or_else(|error| match error.kind() {
                    ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })?;
                fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            }
        }
        Ok(Self { root })
    }

    /// One that is there already.
    pub(super) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Its directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .arg(format!("--root={}", self.root.display()))
            .args(["--wd=/", "--", program])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("HOME", "/root")
            .env("LC_ALL", "C")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a program there and returns what it printed.
    ///
    /// # Errors
    ///
    /// When it cannot be started or fails.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        exec::capture(&mut self.command(program, arguments))
    }

    /// Runs a program there that may fail.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(super) fn output(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command(program, arguments);
        command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start `{}`", exec::describe(&command)))
    }

    /// Copies a file into `/tmp` there, and returns its path there.
    ///
    /// # Errors
    ///
    /// When it cannot be copied.
    pub(super) fn bring(&self, file: &Path) -> Result<String> {
        let name = file.file_name().unwrap_or_default();
        let to = self.root.join("tmp").join(name);
        fs::copy(file, &to).with_context(|| format!("cannot copy to {}", to.display()))?;
        Ok(format!("/tmp/{}", name.to_string_lossy()))
    }

    /// Installs what a package with these dependencies needs. The network is used only if something
    /// is missing.
    ///
    /// # Errors
    ///
    /// With apt's own words when it cannot be had.
    pub(super) fn satisfy(&self, depends: &str) -> Result<()> {
        let there = self.run("apt-get", &["satisfy", "-y", "--no-download", depends]);
        if there.is_err() {
            // The lists of a mirror that is rarely updated are too old for apt. Their signatures are
            // checked all the same.
            let any_age = "Acquire::Check-Valid-Until=false";
            self.run("apt-get", &["update", "-o", any_age])?;
            self.run(
                "apt-get",
                &["satisfy", "-y", "--no-install-recommends", depends],
            )?;
        }
        Ok(())
    }

    /// This machine's rpm on that system, which has none.
    ///
    /// # Errors
    ///
    /// With rpm's own words.
    pub(super) fn rpm(&self, arguments: &[&str], package: &Path) -> Result<()> {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(&self.root).args(arguments);
        exec::capture(rpm.arg(package)).map(drop)
    }

    /// All paths there, but for the records of package managers.
    ///
    /// # Errors
    ///
    /// When a directory cannot be read.
    pub(super) fn paths(&self) -> Result<BTreeSet<String>> {
        let mut find = Command::new("find");
        find.arg(&self.root).args(["-xdev", "-mindepth", "1"]);
        find.args(["-printf", "%P\\n"]);
        let printed = exec::capture(&mut find)?;
        let is_record = |path: &str| {
            RECORDS
                .iter()
                .any(|record| Path::new(path).starts_with(record))
        };
        Ok(printed
            .lines()
            .filter(|path| !is_record(path))
            .map(str::to_owned)
            .collect())
    }
}

/// The archive of a new system of `suite`, made if it is not there yet.
fn archive(workspace: &Workspace, suite: &str) -> Result<PathBuf> {
    let directory = workspace.tools.with_file_name("debian").join(suite);
    create(&directory)?;
    let _lock = lock(&directory)?;
    let archive = directory.join(ARCHIVE);
    if archive.exists() {
        return Ok(archive);
    }
    let made = bootstrap(&directory, suite, &archive);
    remedied(
        made,
        &format!("a new system of {suite} cannot be made"),
        "see whether `apt-get update` works, and run this again",
    )?;
    Ok(archive)
}

fn bootstrap(directory: &Path, suite: &str, archive: &Path) -> Result<()> {
    let mirror = apt::configured_mirror()?;
    progress::note(format_args!(
        "debootstrap {suite} {mirror}, a minute or two ..."
    ));
    // A run that was interrupted has left it.
    let root = directory.join("root");
    remove(&root)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", suite]).arg(&root);
    debootstrap.arg(&mirror);
    let script = Path::new(SCRIPTS).join(suite);
    if !script.exists() {
        debootstrap.arg(script.with_file_name("sid"));
    }
    exec::capture(&mut debootstrap)?;
    let partial = archive.with_extension("partial");
    let mut tar = Command::new("tar");
    tar.args([OsStr::new("--numeric-owner"), OsStr::new("-cf")])
        .arg(&partial)
        // What was downloaded is installed.
        .arg("--exclude=./var/cache/apt/archives/*.deb")
        .arg("-C")
        .arg(&root)
        .arg(".");
    exec::capture(&mut tar)?;
    fs::rename(&partial, archive).with_context(|| format!("cannot write {}", archive.display()))?;
    remove(&root)
}
