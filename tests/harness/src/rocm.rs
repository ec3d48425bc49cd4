//! The ROCm releases that `cargo xtask rocm` has fetched.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names of the releases that `cargo xtask rocm` knows, oldest first.
#[must_use]
pub fn names() -> impl DoubleEndedIterator<Item = &'static str> {
    gputrace_releases::RELEASES
        .iter()
        .map(|release| release.name)
}

/// The variable that names the releases to test on, separated by commas; unset, tests run on all of
/// them.
const SELECTED: &str = "GPUTRACE_TEST_RELEASES";

/// The releases that a test goes through, oldest first: those that `GPUTRACE_TEST_RELEASES` names,
/// or all. A test that is named after a release is for that one, whatever the variable says.
///
/// # Panics
///
/// If the variable names one that is not known, or none.
#[expect(clippy::panic, reason = "for tests: a wrong name fails them")]
#[must_use]
pub fn selected() -> Vec<&'static str> {
    let wanted = env::var_os(SELECTED).map(|wanted| wanted.to_string_lossy().into_owned());
    select(wanted.as_deref()).unwrap_or_else(|error| panic!("{SELECTED}: {error}"))
}

fn select(wanted: Option<&str>) -> Result<Vec<&'static str>, String> {
    let Some(wanted) = wanted else {
        return Ok(names().collect());
    };
    let wanted: Vec<&str> = wanted.split(',').map(str::trim).collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|wanted| !names().any(|name| name == **wanted))
    {
        let known: Vec<&str> = names().collect();
        return Err(format!(
            "there is no release {unknown:?}, but {}",
            known.join(", ")
        ));
    }
    Ok(names().filter(|name| wanted.contains(name)).collect())
}

pub use gputrace_releases::LIBRARY_DIRECTORY as LIBRARIES;

/// This project's cache directory by the XDG rules; `None` if neither `XDG_CACHE_HOME` nor `HOME`
/// is set.
#[must_use]
pub fn cache() -> Option<PathBuf> {
    directory(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
}

/// A relative path is ignored.
fn directory(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute(cache).or_else(|| Some(absolute(home)?.join(".cache")))?;
    Some(cache.join("gputrace"))
}

/// The root of a release, below which its files have the same paths as in Debian; `None` if it is
/// not available. The ROCm of this machine's own Debian 12 is used for 5.2.3 if that was not
/// fetched.
#[must_use]
pub fn root(release: &str) -> Option<PathBuf> {
    let fetched = cache().map(|cache| cache.join("rocm").join(release).join("root"));
    // Written last: without it the root is incomplete.
    let fetched = fetched.filter(|root| root.join("PACKAGES").is_file());
    let machine = || {
        let root = Path::new("/");
        let is_there = root.join(LIBRARIES).join("libamdhip64.so.5").exists();
        (release == "5.2.3" && is_there).then(|| root.to_owned())
    };
    fetched.or_else(machine)
}

/// How to get a missing release.
#[must_use]
pub fn missing(release: &str) -> String {
    format!("ROCm {release} is not there; `cargo xtask rocm --release {release} --fetch` gets it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_those_that_the_variable_names() {
        assert_eq!(select(None), Ok(names().collect()));
        assert_eq!(select(Some("6.4.3, 5.2.3")), Ok(vec!["5.2.3", "6.4.3"]));
        for wrong in ["6.4", "", "6.4.3,"] {
            let error = select(Some(wrong)).unwrap_err();
            assert!(error.contains("5.2.3, 5.7.1, 6.4.3"), "{error}");
        }
    }

    #[test]
    fn the_cache_follows_the_xdg_rule() {
        let cache = |cache: Option<&str>, home: Option<&str>| {
            directory(cache.map(Into::into), home.map(Into::into))
        };
        let is = |path: &str| Some(PathBuf::from(path));
        assert_eq!(cache(Some("/c"), Some("/home/u")), is("/c/gputrace"));
        assert_eq!(cache(None, Some("/home/u")), is("/home/u/.cache/gputrace"));
        assert_eq!(
            cache(Some("c"), Some("/home/u")),
            is("/home/u/.cache/gputrace")
        );
        assert_eq!(cache(Some(""), Some("u")), None);
        assert_eq!(cache(None, None), None);
    }
}
