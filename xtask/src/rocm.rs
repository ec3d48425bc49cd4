//! `cargo xtask rocm`: real ROCm libraries of four generations, side by side, without installing
//! any.
//!
//! gputrace must support every ROCm in use, and a machine has at most one. So each release of
//! [`RELEASES`] is fetched from the Debian suite that carries it, with all its dependencies down to
//! glibc, into a root directory of its own in the user's cache:
//!
//! ```text
//! ~/.cache/gputrace/rocm/6.4.3/root/           usr, etc, var ... of that release; whole as soon as it exists
//! ~/.cache/gputrace/rocm/6.4.3/root/PACKAGES   what was asked for, and each package in it with its version
//! ```
//!
//! `-- PROGRAM` runs a program on a release: in a mount namespace in which `/usr`, `/etc` and
//! similar directories are the release's, and everything else is this machine's, under the usual
//! paths ([`enter`]). The program, its data and the current directory may be anywhere in this
//! machine's home or working directories, while the libraries are those that a program of that
//! distribution would load. The root is also the file system of a container without the container:
//! `chroot` works on it, and so does calling its `ld.so` by path.

mod enter;
mod fetch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use gputrace_releases::{RELEASES, Release};

use self::fetch::Wanted;
use crate::progress;
use crate::workspace::Workspace;

/// Typical commands, shown below the help.
const EXAMPLES: &str = "\
Examples:
  cargo xtask rocm                                      list the releases and what is there
  cargo xtask rocm --fetch                              fetch all of them
  cargo xtask rocm --release 6.4.3 --fetch -- rocminfo  fetch one, then run its rocminfo
  cargo xtask rocm --release 5.2.3 -- ./app --its-args  run a program of this machine on it
  cargo xtask rocm --release 5.7.1 --fetch --with librocblas0,librccl1";

/// Arguments of `cargo xtask rocm`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Release to fetch or run on [default: all of them]
    #[arg(long, value_name = "RELEASE", value_parser = PossibleValuesParser::new(RELEASES.iter().map(|r| r.name)))]
    release: Option<String>,

    /// Fetch missing releases into the user's cache
    #[arg(long)]
    fetch: bool,

    /// Further packages of the release's Debian suite, such as librocblas0 (rocBLAS: gigabytes)
    #[arg(
        long,
        value_name = "PACKAGE",
        value_delimiter = ',',
        requires = "fetch",
        requires = "release"
    )]
    with: Vec<String>,

    /// Debian archive to fetch from [default: the one that this machine's apt uses]
    #[arg(long, value_name = "URL", requires = "fetch")]
    mirror: Option<String>,

    /// A library to load into the program before all others
    #[arg(long, value_name = "LIBRARY", requires = "program")]
    preload: Option<PathBuf>,

    /// A program to run on the release, with its arguments
    #[arg(last = true, value_name = "PROGRAM", requires = "release")]
    program: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let cache = Cache::of(workspace);
        let selected = RELEASES.iter().filter(|release| {
            self.release
                .as_deref()
                .is_none_or(|name| name == release.name)
        });
        if self.fetch {
            let wanted = Wanted {
                more: &self.with,
                mirror: self.mirror.as_deref(),
            };
            for release in selected.clone() {
                fetch::ensure(&cache, release, &wanted)?;
            }
        }
        match (self.program.split_first(), selected.clone().next()) {
            (Some((program, arguments)), Some(release)) => {
                let root = cache.require(release)?;
                enter::Program {
                    program,
                    arguments,
                    preload: self.preload.as_deref(),
                }
                .run(workspace, release, &root)
            }
            _ if self.fetch => Ok(()),
            _ => {
                list(&cache, selected);
                Ok(())
            }
        }
    }
}

/// A release for tests.
pub(crate) struct ForTests {
    /// Its name, such as `6.4.3`.
    pub(crate) name: &'static str,
    /// Its root directory, or why it could not be fetched.
    pub(crate) root: Result<PathBuf>,
}

/// Fetches the missing releases of those with these names, or of all, for tests.
pub(crate) fn for_tests(workspace: &Workspace, names: Option<&[String]>) -> Vec<ForTests> {
    let cache = Cache::of(workspace);
    let wanted = Wanted {
        more: &[],
        mirror: None,
    };
    let fetch = |release: &Release| {
        fetch::ensure(&cache, release, &wanted)?;
        cache.require(release)
    };
    let wanted_names = |name: &str| names.is_none_or(|names| names.iter().any(|one| one == name));
    let chosen = RELEASES.iter().filter(|release| wanted_names(release.name));
    let releases = chosen.map(|release| ForTests {
        name: release.name,
        root: fetch(release),
    });
    releases.collect()
}

/// The newest release that can be fetched, with its root directory; `None` if there is none. Prints
/// why newer ones cannot be fetched.
pub(crate) fn newest(workspace: &Workspace) -> Option<(&'static str, PathBuf)> {
    let cache = Cache::of(workspace);
    let wanted = Wanted {
        more: &[],
        mirror: None,
    };
    RELEASES.iter().rev().find_map(|release| {
        let root = fetch::ensure(&cache, release, &wanted).and_then(|()| cache.require(release));
        match root {
            Ok(root) => Some((release.name, root)),
            Err(error) => {
                progress::note(format_args!("without {release}: {error:#}"));
                None
            }
        }
    })
}

/// Library directory within a root directory.
pub(crate) const LIBRARIES: &str = gputrace_releases::LIBRARY_DIRECTORY;

/// The directory of all releases.
struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Beside the tools that setup keeps: outside the checkout, shared by all checkouts.
    fn of(workspace: &Workspace) -> Self {
        Self {
            directory: workspace.tools.with_file_name("rocm"),
        }
    }

    /// The directory for everything that belongs to `release`.
    fn of_release(&self, release: &Release) -> PathBuf {
        self.directory.join(release.name)
    }

    /// The root directory of `release`, which exists only when it is complete.
    fn root(&self, release: &Release) -> PathBuf {
        self.of_release(release).join("root")
    }

    /// The root directory of `release`.
    ///
    /// # Errors
    ///
    /// When it has not been fetched; the message says what it consists of and how to fetch it.
    fn require(&self, release: &Release) -> Result<PathBuf> {
        let root = self.root(release);
        if fetch::Record::read(&root).is_some() {
            return Ok(root);
        }
        bail!(
            "{release} is not there: it needs {} of {}\n-> `{}`",
            release.packages().collect::<Vec<_>>().join(", "),
            release.distribution,
            release.fetch_command()
        )
    }
}

/// Shows the state of each release.
fn list<'a>(cache: &Cache, releases: impl Iterator<Item = &'a Release>) {
    progress::heading(format_args!(
        "ROCm releases in {}",
        cache.directory.display()
    ));
    for release in releases {
        let root = cache.root(release);
        match fetch::Record::read(&root) {
            Some(record) => {
                let (contents, count) = (release.contents(), record.have.len());
                progress::note(format_args!(
                    "{release}: ready: {contents}, {count} packages"
                ));
                for library in &release.libraries {
                    let version = record.have.get(library.package).map_or("?", String::as_str);
                    let file = library.file(&root);
                    let name = file
                        .as_deref()
                        .and_then(Path::file_name)
                        .unwrap_or_default();
                    let name = name.to_string_lossy();
                    progress::note(format_args!("    {name} of {} {version}", library.package));
                }
                let more: Vec<_> = record.asked_beyond(release).collect();
                if !more.is_empty() {
                    progress::note(format_args!("    with {}", more.join(", ")));
                }
            }
            None => progress::note(format_args!(
                "{release}: not fetched: {} -> `{}`",
                release.contents(),
                release.fetch_command()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_release_is_named_with_its_packages_and_the_way_to_get_it() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
        };
        for release in RELEASES {
            let missing = cache.require(release).unwrap_err().to_string();
            for needed in release
                .packages()
                .chain(["cargo xtask rocm --release", release.name])
            {
                assert!(missing.contains(needed), "{needed} is not in: {missing}");
            }
        }
    }

    #[test]
    fn without_an_archive_the_packages_that_cannot_be_had_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
        };
        let wanted = Wanted {
            more: &["librocblas0".to_owned()],
            // Fails like a missing network, but at once.
            mirror: Some("file:///nonexistent/debian"),
        };
        let release = &RELEASES[1];
        let failed = fetch::ensure(&cache, release, &wanted)
            .unwrap_err()
            .to_string();
        for needed in release.packages().chain(["librocblas0"]) {
            assert!(failed.contains(needed), "{needed} is not in: {failed}");
        }
        assert!(!cache.root(release).exists());
    }
}
