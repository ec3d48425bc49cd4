//! `cargo xtask package --check`: the packages are installed, used and removed on new Debian
//! systems.
//!
//! A system is a directory made by debootstrap ([`system`]). Nothing of this machine is in it, so
//! what works there works on a machine where only the package was installed.

mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::geteuid;

use self::system::System;
use super::{VERSION, create};
use crate::cache::remove;
use crate::exec;
use crate::progress::{self, long_step};
use crate::workspace::Workspace;

/// A release of Debian to try packages on.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    distribution: &'static str,
}

/// All of them, oldest first.
pub(super) const SUITES: [Suite; 3] = [
    Suite {
        name: "bookworm",
        distribution: "Debian 12 (bookworm)",
    },
    Suite {
        name: "trixie",
        distribution: "Debian 13 (trixie)",
    },
    Suite {
        name: "forky",
        distribution: "Debian testing (forky)",
    },
];

/// What `gputrace doctor` exits with on a system without `/sys`, from which it cannot tell what the
/// kernel has.
const DOCTOR_STATUS: i32 = 7;

/// The packages in `target/package`.
struct Packages {
    /// What they hold, as it lies below `/`.
    root: PathBuf,
    tarball: PathBuf,
    deb: PathBuf,
    rpm: PathBuf,
    image: PathBuf,
}

impl Packages {
    /// Those that `package` has made in `directory`.
    fn find(directory: &Path) -> Result<Self> {
        let find = |name: String| {
            let path = directory.join(&name);
            ensure!(path.exists(), "{name} was not made, see above");
            Ok(path)
        };
        Ok(Self {
            root: find("root".to_owned())?,
            tarball: find(format!("gputrace-{VERSION}-x86_64.tar.gz"))?,
            deb: find(format!("gputrace_{VERSION}_amd64.deb"))?,
            rpm: find(format!("gputrace-{VERSION}-1.x86_64.rpm"))?,
            image: find(format!("gputrace-{VERSION}-image.tar"))?,
        })
    }
}

/// # Errors
///
/// When this process may not make systems.
pub(super) fn require_root() -> Result<()> {
    ensure!(
        geteuid().is_root(),
        "packages are installed by root only, also on a system in a directory\n-> run this as root, \
         or leave `--check` out"
    );
    Ok(())
}

/// Tries all packages of `directory` on each of `suites`.
///
/// # Errors
///
/// When a system cannot be made, or says what is wrong with a package.
pub(super) fn run(workspace: &Workspace, directory: &Path, suites: &[&Suite]) -> Result<()> {
    let packages = Packages::find(directory)?;
    let place = directory.join("check");
    create(&place)?;
    read_rpm(&packages)?;
    try_image(&packages, &place)?;
    progress::note(format_args!(
        "the .rpm is whole, and the image runs by itself"
    ));
    for suite in suites {
        let what = format!("check on {}", suite.distribution);
        let why = "install, run and remove the .deb, the .rpm and the tarball";
        long_step(&what, why, || try_on(workspace, suite, &packages, &place))?;
    }
    remove(&place)
}

fn try_on(workspace: &Workspace, suite: &Suite, packages: &Packages, place: &Path) -> Result<()> {
    let system = System::new(workspace, suite.name, place)?;
    let depends = exec::capture(
        Command::new("dpkg-deb")
            .arg("-f")
            .args([packages.deb.as_os_str(), "Depends".as_ref()]),
    )?;
    system.satisfy(depends.trim())?;
    let before = system.paths()?;

    let inside = system.bring(&packages.deb)?;
    // It refuses a package whose dependencies are not there.
    system.run("dpkg", &["--install", &inside])?;
    used(&system, packages).context("the .deb")?;
    system.run("dpkg", &["--purge", "gputrace"])?;
    left_nothing(&before, &system.paths()?).context("the .deb")?;

    // Debian's rpm wants to be told that this is meant.
    system.rpm(&["--install", "--nodeps", "--force-debian"], &packages.rpm)?;
    used(&system, packages).context("the .rpm")?;
    system.rpm(&["--verify", "--nodeps"], Path::new("gputrace"))?;
    system.rpm(&["--erase", "--force-debian"], Path::new("gputrace"))?;
    left_nothing(&before, &system.paths()?).context("the .rpm")?;

    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "-xzf"])
        .arg(&packages.tarball)
        .arg("-C")
        .arg(system.root());
    exec::capture(&mut tar)?;
    used(&system, packages).context("the tarball")?;
    remove(system.root())
}

/// Whether everything is there, and the program runs.
fn used(system: &System, packages: &Packages) -> Result<()> {
    let version = system.run("gputrace", &["--version"])?;
    ensure!(
        version.trim() == format!("gputrace {VERSION}"),
        "`gputrace --version` prints {version:?}"
    );
    let help = system.run("gputrace", &["--help"])?;
    ensure!(
        help.contains("Usage: gputrace"),
        "`gputrace --help` shows no usage:\n{help}"
    );
    let doctor = system.output("gputrace", &["doctor"])?;
    let said = String::from_utf8_lossy(&doctor.stdout);
    ensure!(
        doctor.status.code() == Some(DOCTOR_STATUS) && said.contains("BTF of the kernel"),
        "`gputrace doctor` ended with {} and said:\n{said}{}",
        doctor.status,
        String::from_utf8_lossy(&doctor.stderr)
    );
    installed(&files(&packages.root)?, system.root())
}

/// # Errors
///
/// Names the files of the packages that are below `root` in another way than they should be.
fn installed(files: &BTreeMap<PathBuf, Packed>, root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for (below, packed) in files {
        let path = root.join(below);
        let problem = match fs::symlink_metadata(&path) {
            Err(error) => Some(error.to_string()),
            Ok(data) if (data.uid(), data.gid()) != (0, 0) => {
                Some(format!("belongs to {}:{}", data.uid(), data.gid()))
            }
            Ok(data) if data.mode() != packed.mode => Some(format!("has mode {:o}", data.mode())),
            Ok(_) if fs::read(&path)? != fs::read(&packed.path)? => {
                Some("has other contents".to_owned())
            }
            Ok(_) => None,
        };
        wrong.extend(problem.map(|problem| format!("/{}: {problem}", below.display())));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// # Errors
///
/// Names the paths that the system did not have before, and those that it has no longer.
fn left_nothing(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Result<()> {
    let left = after.difference(before);
    let gone = before.difference(after);
    let wrong: Vec<String> = left
        .map(|path| format!("/{path} is left"))
        .chain(gone.map(|path| format!("/{path} is gone")))
        .collect();
    ensure!(wrong.is_empty(), "after its removal:\n{}", wrong.join("\n"));
    Ok(())
}

/// A file that is packed.
struct Packed {
    path: PathBuf,
    mode: u32,
}

/// Files that packages must hold: one of each kind, so that no kind gets lost.
const WANTED: [&str; 10] = [
    "usr/bin/gputrace",
    "usr/lib/systemd/system/gputrace.service",
    "usr/share/bash-completion/completions/gputrace",
    "usr/share/doc/gputrace/LICENSE-APACHE",
    "usr/share/doc/gputrace/LICENSE-MIT",
    "usr/share/doc/gputrace/copyright",
    "usr/share/fish/vendor_completions.d/gputrace.fish",
    "usr/share/man/man1/gputrace-export.1.gz",
    "usr/share/man/man1/gputrace.1.gz",
    "usr/share/zsh/site-functions/_gputrace",
];

/// The files below `root`, by their paths there.
///
/// # Errors
///
/// When one that packages must hold is missing, or a directory cannot be read.
fn files(root: &Path) -> Result<BTreeMap<PathBuf, Packed>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            let data = fs::symlink_metadata(&path)?;
            if data.is_dir() {
                directories.push(path);
                continue;
            }
            let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
            let mode = data.mode();
            found.insert(below, Packed { path, mode });
        }
    }
    let missing = WANTED
        .iter()
        .find(|name| !found.contains_key(Path::new(name)));
    if let Some(name) = missing {
        bail!("/{name} is not packed");
    }
    Ok(found)
}

/// Reads the .rpm as rpm does: its digests are right, and it holds the files.
fn read_rpm(packages: &Packages) -> Result<()> {
    let mut check = Command::new("rpm");
    check.args(["--checksig", "--nosignature"]);
    exec::capture(check.arg(&packages.rpm))?;
    let listed = exec::capture(Command::new("rpm").arg("-qpl").arg(&packages.rpm))?;
    let listed: Vec<&str> = listed.lines().collect();
    for path in files(&packages.root)?.keys() {
        let path = format!("/{}", path.display());
        ensure!(
            listed.contains(&path.as_str()),
            "{path} is not in the .rpm, which has\n{}",
            listed.join("\n")
        );
    }
    Ok(())
}

/// Runs the program in the image, where nothing else is.
fn try_image(packages: &Packages, place: &Path) -> Result<()> {
    let root = place.join("image");
    create(&root.join("proc"))?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&packages.image).arg("-C").arg(&root);
    exec::capture(&mut tar)?;
    let image = System::at(root);
    let version = image.run("gputrace", &["--version"]).context("the image")?;
    ensure!(
        version.trim() == format!("gputrace {VERSION}"),
        "`gputrace --version` in the image prints {version:?}"
    );
    remove(image.root())
}

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    #[test]
    fn what_is_left_and_what_is_gone_is_named() {
        let paths = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let before = paths(&["etc/kept", "etc/taken"]);
        left_nothing(&before, &before).unwrap();
        let error = left_nothing(&before, &paths(&["etc/kept", "usr/new"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "after its removal:\n/usr/new is left\n/etc/taken is gone"
        );
    }

    #[test]
    fn files_that_are_not_as_packed_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let (packed, system) = (directory.path().join("root"), directory.path().join("to"));
        for name in WANTED {
            write(&packed.join(name), name).unwrap();
        }
        let problem = |path: &str| {
            let error = installed(&files(&packed).unwrap(), &system).unwrap_err();
            let text = error.to_string();
            text.lines()
                .find_map(|line| line.strip_prefix(&format!("/{path}: ")).map(str::to_owned))
        };
        let [one, other, ..] = WANTED;
        assert!(problem(one).unwrap().contains("No such file"));
        // Who it belongs to is not for a test to choose: it is this user's, or has other contents.
        write(&system.join(one), "something else").unwrap();
        let expected = if geteuid().is_root() {
            "has other contents".to_owned()
        } else {
            format!("belongs to {}", geteuid().as_raw())
        };
        assert!(problem(one).unwrap().starts_with(&expected));
        if geteuid().is_root() {
            write(&system.join(one), one).unwrap();
            assert_eq!(problem(one), None);
            assert!(problem(other).is_some());
        }
        fs::remove_file(packed.join(other)).unwrap();
        let error = files(&packed).err().unwrap();
        assert_eq!(error.to_string(), format!("/{other} is not packed"));
    }
}
