//! Fetches a release: plans, downloads, unpacks, checks, and only then gives it its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use gputrace_releases::{LIBRARY_DIRECTORY, Release, SNAPSHOT};

use super::Cache;
use crate::apt::{self, Apt, Base, Package, Sources};
use crate::cache::{lock, remedied, remove};
use crate::exec;
use crate::progress::{self, long_step};

/// The package sources of a release.
fn sources(release: &Release) -> Sources<'static> {
    Sources {
        suite: release.suite,
        base: release.base.map(|suite| Base {
            suite,
            but_version: release.name,
        }),
    }
}

/// What the user asked for in addition to the release itself.
pub(super) struct Wanted<'a> {
    /// Further packages of the suite.
    pub(super) more: &'a [String],
    /// The archive to fetch from; `None` for that of the machine.
    pub(super) mirror: Option<&'a str>,
}

impl Wanted<'_> {
    /// The command that asks for this.
    fn command(&self, release: &Release) -> String {
        let mut command = release.fetch_command();
        for (option, value) in [
            (" --with ", self.more.join(",")),
            (" --mirror ", self.mirror.unwrap_or_default().to_owned()),
        ] {
            if !value.is_empty() {
                command.push_str(option);
                command.push_str(&value);
            }
        }
        command
    }
}

/// The file in a root that marks it as complete: what was asked for, and what it consists of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) asked: BTreeSet<String>,
    /// Each package with its version.
    pub(super) have: BTreeMap<String, String>,
}

/// Directories that are links into `/usr` since Debian 12. Debian's packages still contain files
/// under the old names.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Fetches `release` unless everything that is wanted is there.
///
/// A root gets its name only when it is finished, so an interrupted run leaves no root; the next
/// run reuses what was downloaded. A root is never half old and half new.
///
/// # Errors
///
/// When a package cannot be fetched, the suite has another version by now, or the disk is full; the
/// message contains the next command.
pub(super) fn ensure(cache: &Cache, release: &Release, wanted: &Wanted<'_>) -> Result<()> {
    let start = Instant::now();
    let directory = cache.of_release(release);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let _lock = lock(&directory)?;
    let root = cache.root(release);
    let before = Record::read(&root);
    let asked = asked(release, wanted.more, before.as_ref());
    if before.is_some_and(|record| record.has_all(&asked)) {
        progress::line(
            "ready",
            format_args!("{release} in {}", root.display()),
            start.elapsed(),
        );
        return Ok(());
    }

    // Suites move on, which must fail nobody's change: then a snapshot still has what they had.
    let (mirror, snapshot) = match wanted.mirror {
        Some(url) => (url.to_owned(), None),
        None => (apt::configured_mirror()?, Some(SNAPSHOT)),
    };
    let fetched = fetch_from(cache, release, wanted, &asked, &mirror);
    match (fetched, snapshot) {
        (Err(error), Some(snapshot)) => {
            progress::note(format_args!("{error:#}\n-> trying {snapshot}"));
            fetch_from(cache, release, wanted, &asked, snapshot).map_err(|second| {
                progress::note(format_args!("{second:#}"));
                error
            })
        }
        (fetched, _) => fetched,
    }
}

/// Makes the root of `release` with the packages `asked` of the archive at `mirror`.
fn fetch_from(
    cache: &Cache,
    release: &Release,
    wanted: &Wanted<'_>,
    asked: &BTreeSet<String>,
    mirror: &str,
) -> Result<()> {
    let directory = cache.of_release(release);
    let packages: Vec<String> = asked.iter().cloned().collect();
    let named = packages.join(", ");
    let from = format!("{} at {mirror}", release.distribution);
    let again = format!("`{}` goes on from here", wanted.command(release));
    long_step(
        &format!("fetch {release}"),
        &format!("{named} of {from}"),
        || {
            let cannot_list =
                format!("the package list of {from} cannot be had, so neither {named}");
            let apt = Apt::new(directory.join("apt"), &sources(release), mirror);
            let apt = remedied(apt, &cannot_list, &again)?;
            progress::note(format_args!(
                "reading the package list of {} ...",
                release.suite
            ));
            remedied(apt.update(), &cannot_list, &again)?;
            let plan = apt
                .plan(&packages)
                .and_then(|plan| check_versions(release, &plan).map(|()| plan));
            let cannot_plan = format!("{release} cannot be had from {from}");
            let plan = remedied(plan, &cannot_plan, &elsewhere(release, wanted))?;
            let cannot_download = format!("not all packages of {release} could be downloaded");
            remedied(apt.download(&packages), &cannot_download, &again)?;
            let new = directory.join("root.partial");
            unpack_all(&apt, &plan, &new)?;
            check_libraries(release, &new)?;
            Record::new(asked.clone(), &plan).write(&new)?;
            replace(&cache.root(release), &new)?;
            // Tens to hundreds of megabytes that are no longer needed.
            remove(&directory.join("apt"))
        },
    )
}

/// What a root must contain: the release, what is asked for now, and what was asked for before.
fn asked(release: &Release, more: &[String], before: Option<&Record>) -> BTreeSet<String> {
    let earlier = before.into_iter().flat_map(|record| &record.asked).cloned();
    release
        .packages()
        .map(str::to_owned)
        .chain(more.iter().cloned())
        .chain(earlier)
        .collect()
}

/// # Errors
///
/// When the suite has moved on to another version of a traced library.
fn check_versions(release: &Release, plan: &[Package]) -> Result<()> {
    for library in &release.libraries {
        let found = plan.iter().find(|package| package.name == library.package);
        let found = found.map_or("nothing", Package::upstream_version);
        if found != library.version {
            bail!(
                "it has {found} of {}, not {}",
                library.package,
                library.version
            )
        }
    }
    Ok(())
}

/// What to do when a suite does not have a package, or no longer has it in the wanted version.
fn elsewhere(release: &Release, wanted: &Wanted<'_>) -> String {
    let snapshot = Wanted {
        mirror: Some("URL"),
        ..*wanted
    };
    format!(
        "check the names; what {} had once, a snapshot of that day's archive still has: `{}`",
        release.suite,
        snapshot.command(release)
    )
}

/// Creates a new root at `root` from the packages of `plan`.
fn unpack_all(apt: &Apt, plan: &[Package], root: &Path) -> Result<()> {
    let start = Instant::now();
    // An interrupted run may have left one.
    remove(root)?;
    for name in MERGED {
        let place = root.join("usr").join(name);
        fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
        std::os::unix::fs::symlink(Path::new("usr").join(name), root.join(name))?;
    }
    for package in plan {
        apt.unpack(package, root)?;
    }
    progress::line(
        "done",
        format_args!("{} packages unpacked", plan.len()),
        start.elapsed(),
    );
    Ok(())
}

/// Loads each traced library with the root's own `ld.so`, which reports missing dependencies.
///
/// # Errors
///
/// When a library or one of its dependencies is not in the root.
fn check_libraries(release: &Release, root: &Path) -> Result<()> {
    for library in &release.libraries {
        let Some(file) = library.file(root) else {
            bail!("{} contains no {}", library.package, library.soname)
        };
        let mut loader = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
        loader
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("LD_PRELOAD");
        loader
            .arg("--library-path")
            .arg(root.join(LIBRARY_DIRECTORY));
        let listed = exec::capture(loader.arg("--list").arg(&file))?;
        let strays = dependencies_elsewhere(&listed, root);
        if !strays.is_empty() {
            bail!(
                "{} needs what is not among its packages: {}",
                library.soname,
                strays.join(", ")
            )
        }
    }
    Ok(())
}

/// The lines of `ld.so --list` for libraries that are missing or not in `root`.
fn dependencies_elsewhere<'a>(listed: &'a str, root: &Path) -> Vec<&'a str> {
    listed
        .lines()
        .map(str::trim)
        .filter(|line| {
            line.split_once(" => ")
                .is_some_and(|(_, file)| !Path::new(file).starts_with(root))
        })
        .collect()
}

/// Gives the new root the name of the old one. Programs that run in the old one keep their open
/// files.
fn replace(root: &Path, new: &Path) -> Result<()> {
    // First, because a partially removed old root must not count as complete.
    if let Err(error) = fs::remove_file(root.join(Record::FILE))
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot write to {}", root.display()));
    }
    remove(root)?;
    fs::rename(new, root)
        .with_context(|| format!("cannot rename {} to {}", new.display(), root.display()))
}

impl Record {
    /// Name of the file in a root.
    const FILE: &'static str = "PACKAGES";

    fn new(asked: BTreeSet<String>, plan: &[Package]) -> Self {
        let have = plan
            .iter()
            .map(|package| (package.name.clone(), package.version.clone()))
            .collect();
        Self { asked, have }
    }

    /// The record of `root`; `None` if there is no root or it is incomplete.
    pub(super) fn read(root: &Path) -> Option<Self> {
        Some(Self::parse(
            &fs::read_to_string(root.join(Self::FILE)).ok()?,
        ))
    }

    fn write(&self, root: &Path) -> Result<()> {
        let path = root.join(Self::FILE);
        fs::write(&path, self.to_text()).with_context(|| format!("cannot write {}", path.display()))
    }

    fn to_text(&self) -> String {
        let asked = self.asked.iter().map(|name| format!("asked {name}\n"));
        let have = self
            .have
            .iter()
            .map(|(name, version)| format!("have {name} {version}\n"));
        asked.chain(have).collect()
    }

    fn parse(text: &str) -> Self {
        let mut record = Self::default();
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["asked", name] => drop(record.asked.insert((*name).to_owned())),
                ["have", name, version] => {
                    drop(
                        record
                            .have
                            .insert((*name).to_owned(), (*version).to_owned()),
                    );
                }
                _ => {}
            }
        }
        record
    }

    fn has_all(&self, packages: &BTreeSet<String>) -> bool {
        packages.iter().all(|name| self.have.contains_key(name))
    }

    /// Packages that were asked for in addition to the release itself.
    pub(super) fn asked_beyond(&self, release: &Release) -> impl Iterator<Item = &str> {
        self.asked
            .iter()
            .map(String::as_str)
            .filter(|name| !release.packages().any(|own| own == *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_releases::RELEASES;

    #[test]
    fn a_record_says_what_is_there() {
        let text = "asked rocminfo\nhave libc6 2.36-9\nhave rocminfo 5.2.3-2\n";
        let record = Record::parse(text);
        assert_eq!(record.to_text(), text);
        assert!(record.has_all(&["libc6".to_owned()].into()));
        assert!(!record.has_all(&["libc6".to_owned(), "librccl1".to_owned()].into()));
        assert_eq!(
            Record::parse("have broken\n\nother line here\n"),
            Record::default()
        );
    }

    #[test]
    fn what_was_asked_for_before_stays() {
        let release = &RELEASES[1];
        let first = asked(release, &["librocblas0".into()], None);
        let record = Record {
            asked: first,
            have: BTreeMap::new(),
        };
        let second = asked(release, &["librccl1".into()], Some(&record));
        assert!(second.contains("librocblas0") && second.contains("librccl1"));
        assert!(second.contains("libamdhip64-5"));
        assert_eq!(
            record.asked_beyond(release).collect::<Vec<_>>(),
            ["librocblas0"]
        );
    }

    #[test]
    fn a_release_that_the_suite_no_longer_has_is_refused() {
        let plan = |hip: &str| {
            let line =
                |name: &str, version: &str| format!("Inst {name} ({version} Debian:x [amd64])");
            [
                line("libamdhip64-6", hip),
                line("libhsa-runtime64-1", "6.4.3+dfsg-5"),
            ]
            .iter()
            .filter_map(|line| Package::parse(line))
            .collect::<Vec<_>>()
        };
        check_versions(&RELEASES[2], &plan("6.4.3-5")).unwrap();
        let error = check_versions(&RELEASES[2], &plan("6.4.30-1"))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "it has 6.4.30 of libamdhip64-6, not 6.4.3");
    }

    #[test]
    fn the_command_to_repeat_has_all_options() {
        let more = ["librocblas0".to_owned(), "librccl1".to_owned()];
        let wanted = Wanted {
            more: &more,
            mirror: Some("http://m/debian"),
        };
        assert_eq!(
            wanted.command(&RELEASES[1]),
            "cargo xtask rocm --release 5.7.1 --fetch --with librocblas0,librccl1 --mirror http://m/debian"
        );
    }

    #[test]
    fn a_root_without_its_record_is_not_whole() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(root.path()), None);
        Record::default().write(root.path()).unwrap();
        assert_eq!(Record::read(root.path()), Some(Record::default()));
    }

    #[test]
    fn a_dependency_outside_the_root_is_seen() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                      \tlibc.so.6 => /c/root/usr/lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)\n\
                      \tlibnuma.so.1 => not found\n";
        let strays = dependencies_elsewhere(listed, Path::new("/c/root"));
        assert_eq!(
            strays,
            [
                "libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)",
                "libnuma.so.1 => not found"
            ]
        );
    }
}
