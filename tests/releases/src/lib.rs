//! The releases of ROCm on which gputrace is tested: one row each.
//!
//! `cargo xtask rocm` fetches them, and tests run on each:
//!
//! ```
//! fn on(release: &str) {
//!     assert!(gputrace_releases::RELEASES.iter().any(|row| row.name == release));
//! }
//!
//! gputrace_releases::on_each_release!(on);
//! ```

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// A generation of ROCm as packaged by one Debian suite.
#[derive(Debug)]
pub struct Release {
    /// Name of the release here: the version of HIP.
    pub name: &'static str,
    /// The Debian suite that carries it.
    pub suite: &'static str,
    /// The suite for all other packages, if `suite` is no complete distribution.
    pub base: Option<&'static str>,
    /// The suite's distribution, for people.
    pub distribution: &'static str,
    /// The libraries that gputrace traces.
    pub libraries: [Library; 2],
    /// Packages with parts that earlier releases have in the libraries.
    pub split: &'static [&'static str],
}

/// A library that gputrace traces.
#[derive(Debug)]
pub struct Library {
    /// What it implements.
    pub api: &'static str,
    /// The package that contains it.
    pub package: &'static str,
    /// The upstream version that the suite is expected to have.
    pub version: &'static str,
    /// The name by which programs load it.
    pub soname: &'static str,
}

/// Packages that every root has in addition to the libraries: rocminfo, a shell and small tools,
/// `/etc/os-release`.
const COMMON: [&str; 6] = [
    "base-files",
    "coreutils",
    "dash",
    "grep",
    "libc-bin",
    "rocminfo",
];

/// Debian's archive on a day on which its suites had all of [`RELEASES`].
pub const SNAPSHOT: &str = "http://snapshot.debian.org/archive/debian/20261125T000000Z/";

/// Debian's library directory, relative to a root.
pub const LIBRARY_DIRECTORY: &str = "usr/lib/x86_64-linux-gnu";

macro_rules! releases {
    (($d:tt) $($test:ident = $name:literal { $($row:tt)* })*) => {
        /// All releases, oldest first.
        ///
        /// Testing (forky) and experimental move on. Versions that they no longer have are fetched
        /// from [`SNAPSHOT`]; then add a row for the new version.
        pub const RELEASES: &[Release] = &[$(Release { name: $name, $($row)* },)*];

        /// Defines a test per release, oldest first, that calls the function with the release's
        /// name.
        #[macro_export]
        macro_rules! on_each_release {
            ($d test:path) => {
                $(
                    #[test]
                    fn $test() {
                        $d test($name);
                    }
                )*
            };
        }
    };
}

releases! { ($)
    on_rocm_5_2_3 = "5.2.3" {
        suite: "bookworm",
        base: None,
        distribution: "Debian 12 (bookworm)",
        libraries: [
            Library {
                api: "HIP",
                package: "libamdhip64-5",
                version: "5.2.3",
                soname: "libamdhip64.so.5",
            },
            Library {
                api: "HSA",
                package: "libhsa-runtime64-1",
                version: "5.2.3",
                soname: "libhsa-runtime64.so.1",
            },
        ],
        split: &[],
    }
    on_rocm_5_7_1 = "5.7.1" {
        suite: "trixie",
        base: None,
        distribution: "Debian 13 (trixie)",
        libraries: [
            Library {
                api: "HIP",
                package: "libamdhip64-5",
                version: "5.7.1",
                soname: "libamdhip64.so.5",
            },
            Library {
                api: "HSA",
                package: "libhsa-runtime64-1",
                version: "6.1.2",
                soname: "libhsa-runtime64.so.1",
            },
        ],
        split: &[],
    }
    on_rocm_6_4_3 = "6.4.3" {
        suite: "forky",
        base: None,
        distribution: "Debian testing (forky)",
        libraries: [
            Library {
                api: "HIP",
                package: "libamdhip64-6",
                version: "6.4.3",
                soname: "libamdhip64.so.6",
            },
            Library {
                api: "HSA",
                package: "libhsa-runtime64-1",
                version: "6.4.3",
                soname: "libhsa-runtime64.so.1",
            },
        ],
        split: &[],
    }
    on_rocm_7_2_4 = "7.2.4" {
        suite: "experimental",
        base: Some("forky"),
        distribution: "Debian experimental, on testing (forky)",
        libraries: [
            Library {
                api: "HIP",
                package: "libamdhip64-7",
                version: "7.2.4",
                soname: "libamdhip64.so.7",
            },
            Library {
                api: "HSA",
                package: "libhsa-runtime64-1",
                version: "7.2.4",
                soname: "libhsa-runtime64.so.1",
            },
        ],
        // The run-time compiler.
        split: &["libhiprtc7"],
    }
}

impl Release {
    /// The packages that must be requested; apt adds their dependencies.
    pub fn packages(&self) -> impl Iterator<Item = &'static str> {
        let libraries = self.libraries.iter().map(|library| library.package);
        libraries.chain(self.split.iter().copied()).chain(COMMON)
    }

    /// E.g. `HIP 5.7.1, HSA 6.1.2 of Debian 13 (trixie)`.
    #[must_use]
    pub fn contents(&self) -> String {
        let [hip, hsa] = &self.libraries;
        format!(
            "{} {}, {} {} of {}",
            hip.api, hip.version, hsa.api, hsa.version, self.distribution
        )
    }

    /// The command that fetches the release.
    #[must_use]
    pub fn fetch_command(&self) -> String {
        format!("cargo xtask rocm --release {} --fetch", self.name)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ROCm {}", self.name)
    }
}

impl Library {
    /// The file in `root` that the soname refers to, if it exists.
    #[must_use]
    pub fn file(&self, root: &Path) -> Option<PathBuf> {
        // Links between libraries are relative, so the result stays inside the root; if not, it is
        // not the root's file.
        let path = fs::canonicalize(root.join(LIBRARY_DIRECTORY).join(self.soname)).ok()?;
        let root = fs::canonicalize(root).ok()?;
        path.starts_with(root).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_release_is_called_after_its_hip() {
        for release in RELEASES {
            assert_eq!(release.libraries[0].version, release.name);
        }
        assert_eq!(
            RELEASES[1].contents(),
            "HIP 5.7.1, HSA 6.1.2 of Debian 13 (trixie)"
        );
    }

    #[test]
    fn a_library_is_looked_for_in_the_root_only() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(LIBRARY_DIRECTORY);
        fs::create_dir_all(&directory).unwrap();
        let [hip, hsa] = &RELEASES[2].libraries;
        assert_eq!(hip.file(root.path()), None);
        fs::write(directory.join("libamdhip64.so.6.4.43484"), "").unwrap();
        symlink("libamdhip64.so.6.4.43484", directory.join(hip.soname)).unwrap();
        let file = hip.file(root.path()).unwrap();
        assert!(
            file.ends_with("libamdhip64.so.6.4.43484"),
            "{}",
            file.display()
        );
        symlink("/etc/passwd", directory.join(hsa.soname)).unwrap();
        assert_eq!(hsa.file(root.path()), None);
    }
}
