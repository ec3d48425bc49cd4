//! The kernels, one row each, and fetching of their files into the cache.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::modules;
use crate::apt::{self, Apt, Package, Sources};
use crate::cache::{lock, remedied, remove};
use crate::progress::{self, long_step};
use crate::workspace::Workspace;

/// A kernel as one Debian suite packages it.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Its name for `--kernel`.
    pub(super) name: &'static str,
    /// Prefix of its version.
    series: &'static str,
    suite: &'static str,
    distribution: &'static str,
}

/// All kernels, oldest first. Testing (forky) moves on; its row only says that the kernel is of the
/// 7 series.
pub(super) const KERNELS: [Kernel; 3] = [
    Kernel {
        name: "6.1",
        series: "6.1.",
        suite: "bookworm",
        distribution: "Debian 12 (bookworm)",
    },
    Kernel {
        name: "6.12",
        series: "6.12.",
        suite: "trixie",
        distribution: "Debian 13 (trixie)",
    },
    Kernel {
        name: "7.x",
        series: "7.",
        suite: "forky",
        distribution: "Debian testing (forky)",
    },
];

/// The metapackage that depends on the suite's current kernel.
const META_PACKAGE: &str = "linux-image-amd64";

/// A statically linked shell with small tools, which is the guest's first program.
const BUSYBOX_PACKAGE: &str = "busybox-static";

/// Name of the file that marks a directory as complete: the packages with their versions.
const RECORD: &str = "PACKAGES";

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {} of {}", self.name, self.distribution)
    }
}

/// The files from which a guest boots.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
}

impl Files {
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The kernel's image.
    pub(super) fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    pub(super) fn busybox(&self) -> PathBuf {
        self.directory.join("busybox")
    }

    /// Directory of the modules, and of the files that list them in the order of loading.
    pub(super) fn modules(&self) -> PathBuf {
        self.directory.join("modules")
    }

    /// Version of the kernel's package.
    pub(super) fn version(&self) -> Option<String> {
        let record = fs::read_to_string(self.directory.join(RECORD)).ok()?;
        let line = record.lines().find(|line| line.starts_with(META_PACKAGE))?;
        Some(line.split_once(' ')?.1.to_owned())
    }
}

/// The files of `kernel`, fetched if they are missing.
///
/// # Errors
///
/// When a package cannot be fetched, the suite has another kernel by now, or the disk is full; the
/// message contains the next command.
pub(super) fn ensure(
    workspace: &Workspace,
    kernel: &Kernel,
    mirror: Option<&str>,
) -> Result<Files> {
    let start = Instant::now();
    let directory = workspace.tools.with_file_name("vm").join(kernel.name);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let _lock = lock(&directory)?;
    let files = Files { directory };
    if let Some(version) = files.version() {
        progress::line(
            "ready",
            format_args!("{kernel}: {version} in {}", files.directory.display()),
            start.elapsed(),
        );
        return Ok(files);
    }
    let mirror = match mirror {
        Some(url) => url.to_owned(),
        None => apt::configured_mirror()?,
    };
    let why = format!("{META_PACKAGE} and {BUSYBOX_PACKAGE} at {mirror}");
    long_step(&format!("fetch {kernel}"), &why, || {
        let again = format!(
            "`cargo xtask vm --kernel {} -- true` goes on from here; `--mirror URL` names another archive",
            kernel.name
        );
        let what = format!("{kernel} cannot be had from {mirror}");
        remedied(fetch(kernel, &files, &mirror), &what, &again)
    })?;
    Ok(files)
}

fn fetch(kernel: &Kernel, files: &Files, mirror: &str) -> Result<()> {
    let scratch = files.directory.join("apt");
    let apt = Apt::new(scratch.clone(), &Sources::suite(kernel.suite), mirror)?;
    progress::note(format_args!(
        "reading the package list of {} ...",
        kernel.suite
    ));
    apt.update()?;
    let plan = apt.plan(&[META_PACKAGE.to_owned(), BUSYBOX_PACKAGE.to_owned()])?;
    let version = plan
        .iter()
        .find(|package| package.name == META_PACKAGE)
        .map_or("nothing", |package| &package.version);
    if !version.starts_with(kernel.series) {
        bail!("{} has {version} of {META_PACKAGE} by now", kernel.suite);
    }
    let unpacked = files.directory.join("unpacked");
    remove(&unpacked)?;
    fs::create_dir_all(&unpacked)
        .with_context(|| format!("cannot create {}", unpacked.display()))?;
    for package in plan.iter().filter(|package| is_needed(package)) {
        progress::note(format_args!("{} {} ...", package.name, package.version));
        apt.download_alone(&package.name, &scratch.join("archives"))?;
        apt.unpack(package, &unpacked)?;
    }
    let busybox = find(&unpacked, &["bin", "usr/bin"], |name| name == "busybox")?;
    fs::copy(busybox, files.busybox())?;
    fs::set_permissions(files.busybox(), fs::Permissions::from_mode(0o755))?;
    let release = find(&unpacked, &["lib/modules", "usr/lib/modules"], |_| true)?;
    let image = ["vmlinuz"]
        .iter()
        .map(|name| release.join(name))
        .find(|path| path.is_file())
        .map_or_else(
            || find(&unpacked, &["boot"], |name| name.starts_with("vmlinuz-")),
            Ok,
        )?;
    fs::copy(image, files.image())?;
    modules::collect(&release, &files.modules(), &files.busybox())?;
    let record: String = plan
        .iter()
        .filter(|package| is_needed(package) || package.name == META_PACKAGE)
        .map(|package| format!("{} {}\n", package.name, package.version))
        .collect();
    remove(&scratch)?;
    remove(&unpacked)?;
    // Written last, when everything else is there.
    let path = files.directory.join(RECORD);
    fs::write(&path, record).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether anything of the package is used: the kernel, which Debian splits since version 7, and
/// busybox.
fn is_needed(package: &Package) -> bool {
    let kernel = ["linux-image-", "linux-binary-", "linux-modules-"]
        .iter()
        .filter_map(|start| package.name.strip_prefix(start))
        // Not the metapackage that only depends on the current one.
        .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    kernel || package.name == BUSYBOX_PACKAGE
}

/// The first entry in one of `places` below `root` whose name `matches`.
fn find(root: &Path, places: &[&str], matches: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for place in places {
        let Ok(entries) = fs::read_dir(root.join(place)) else {
            continue;
        };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(&matches) {
                return Ok(entry.path());
            }
        }
    }
    bail!(
        "the packages contain nothing of what is expected in {}",
        places.join(" or ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_packages_are_needed() {
        let needed = |name: &str| {
            let line = format!("Inst {name} (7.2.12-1 Debian:testing [amd64])");
            is_needed(&Package::parse(&line).unwrap())
        };
        assert!(needed("linux-image-6.1.0-50-amd64"));
        assert!(
            needed("linux-binary-7.2.12+deb14-amd64") && needed("linux-modules-7.2.12+deb14-amd64")
        );
        assert!(needed("busybox-static"));
        assert!(
            !needed("linux-image-amd64") && !needed("linux-base") && !needed("linux-base-amd64")
        );
    }

    #[test]
    fn files_without_their_record_are_not_whole() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files {
            directory: directory.path().to_owned(),
        };
        assert_eq!(files.version(), None);
        fs::write(
            directory.path().join(RECORD),
            "linux-image-amd64 6.1.176-1\n",
        )
        .unwrap();
        assert_eq!(files.version().as_deref(), Some("6.1.176-1"));
    }
}
