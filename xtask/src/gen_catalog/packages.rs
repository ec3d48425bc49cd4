//! Fetches header packages of several Debian releases, and unpacks them side by side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use gputrace_catalog::release::Release;

use crate::{
    apt::{Apt, Sources, configured_mirror},
    exec, progress,
};

/// Debian suites with different ROCm releases.
pub(super) const SUITES: &[&str] = &["bookworm", "trixie", "forky"];

/// Downloads and unpacks a package, unless that was done before; returns its release and include
/// directory.
///
/// Cached packages are used as they are: to get a suite's newest package, delete the cache.
///
/// # Errors
///
/// If apt or dpkg-deb is missing or fails; their message is included.
pub(super) fn fetch(cache: &Path, suite: &str, package: &str) -> Result<(Release, PathBuf)> {
    let dir = cache.join(suite).join(package);
    if !dir.join("usr").is_dir() {
        progress::note(format_args!(
            "fetching {package} of Debian {suite} into {}",
            dir.display()
        ));
        let sources = Sources::suite(suite);
        let apt = Apt::new(
            cache.join(suite).join("apt"),
            &sources,
            &configured_mirror()?,
        )?;
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        apt.update()?;
        apt.download_alone(package, &dir)?;
        exec::capture(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(archive(&dir)?)
                .arg(&dir),
        )?;
    }
    let name = archive(&dir)?;
    Ok((release_of(&name)?, dir.join("usr/include")))
}

/// The only package file in a directory.
fn archive(dir: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .max()
        .with_context(|| {
            format!(
                "no package in {}; delete that directory and try again",
                dir.display()
            )
        })
}

/// The upstream release in a package's file name: `libhsa-runtime-dev_6.4.3+dfsg-5_amd64.deb` is
/// 6.4.3.
fn release_of(archive: &Path) -> Result<Release> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let version = name.split('_').nth(1).unwrap_or_default();
    let end = version
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(version.len());
    let upstream = version.get(..end).unwrap_or_default();
    upstream
        .parse()
        .with_context(|| format!("the version of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_upstream_version() {
        let release = |name: &str| {
            release_of(Path::new(name))
                .map(|release| release.to_string())
                .ok()
        };
        assert_eq!(
            release("/c/libhsa-runtime-dev_6.4.3+dfsg-5_amd64.deb").as_deref(),
            Some("6.4.3")
        );
        assert_eq!(
            release("libamdhip64-dev_5.7.1-6+deb13u1_amd64.deb").as_deref(),
            Some("5.7.1")
        );
        assert_eq!(release("libamdhip64-dev.deb"), None);
    }
}
