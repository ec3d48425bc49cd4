//! Runs apt for one Debian suite, with its own sources, lists and cache. Nothing on this machine is
//! changed, and only the network, its proxies and the archive's keys are used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::exec;

/// Debian's keys on Debian and its derivatives; elsewhere apt's own trusted keys are used.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt-get and dpkg-deb for one suite.
pub(crate) struct Apt {
    directory: PathBuf,
}

/// Where packages come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    /// A Debian suite.
    pub(crate) suite: &'a str,
    /// The suite below it, if `suite` is no complete distribution, such as Debian's experimental.
    pub(crate) base: Option<Base<'a>>,
}

/// The suite that most packages are taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base<'a> {
    pub(crate) suite: &'a str,
    /// Packages of this upstream version take precedence over the base's, in whatever suite they
    /// are.
    pub(crate) but_version: &'a str,
}

impl<'a> Sources<'a> {
    /// All packages from one suite.
    pub(crate) fn suite(suite: &'a str) -> Self {
        Self { suite, base: None }
    }

    fn suites(&self) -> impl Iterator<Item = &'a str> {
        std::iter::once(self.suite).chain(self.base.map(|base| base.suite))
    }

    /// Content of apt_preferences(5), whose pins by version support no `*`, but regular
    /// expressions. Without a base it is empty, so that the machine's own preferences do not apply.
    fn preferences(&self) -> String {
        self.base.map_or_else(String::new, |base| {
            format!(
                "Package: /./\nPin: version {}*\nPin-Priority: 990\n",
                base.but_version
            )
        })
    }
}

/// A package that an installation would contain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    architecture: String,
}

impl Apt {
    /// Prepares `directory` for `sources` of the archive at `mirror`. Downloads of an interrupted
    /// run are reused.
    ///
    /// # Errors
    ///
    /// When a required program is missing, or `directory` cannot be written.
    pub(crate) fn new(directory: PathBuf, sources: &Sources<'_>, mirror: &str) -> Result<Self> {
        require_programs(&["apt-get", "dpkg-deb", "tar"])?;
        for sub in ["lists/partial", "archives/partial"] {
            let sub = directory.join(sub);
            fs::create_dir_all(&sub).with_context(|| format!("cannot create {}", sub.display()))?;
        }
        let keyring = Path::new(KEYRING).is_file().then_some(KEYRING);
        let list = sources.suites().map(|suite| source(suite, mirror, keyring));
        for (name, text) in [
            ("apt.conf", settings(&directory)),
            ("sources.list", list.collect()),
            ("preferences", sources.preferences()),
            // Nothing counts as installed, so every dependency is fetched.
            ("status", String::new()),
        ] {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Self { directory })
    }

    /// An `apt-get` command with these settings.
    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command
            .env("LC_ALL", "C")
            .arg("-c")
            .arg(self.directory.join("apt.conf"));
        command
    }

    /// Reads the suite's package list.
    ///
    /// # Errors
    ///
    /// With apt's message when the list cannot be fetched or its signature is invalid.
    pub(crate) fn update(&self) -> Result<()> {
        exec::capture(self.get().arg("update")).map(drop)
    }

    /// The packages that an installation of `packages` on an empty system would contain.
    ///
    /// # Errors
    ///
    /// Names the packages that the suite does not have; otherwise contains apt's message.
    pub(crate) fn plan(&self, packages: &[String]) -> Result<Vec<Package>> {
        let simulation =
            exec::capture(self.install(packages).arg("--simulate")).map_err(|error| {
                let printed = error.to_string();
                let missing = unknown_packages(&printed);
                if missing.is_empty() {
                    error
                } else {
                    anyhow::anyhow!("there is no package {}", missing.join(", "))
                }
            })?;
        Ok(simulation.lines().filter_map(Package::parse).collect())
    }

    /// Downloads the packages of [`Apt::plan`], with apt's progress on standard error.
    ///
    /// # Errors
    ///
    /// When a package could not be downloaded; apt has printed which one. Completed downloads are
    /// kept.
    pub(crate) fn download(&self, packages: &[String]) -> Result<()> {
        let mut command = self.install(packages);
        // Standard output belongs to the program that may be run next.
        exec::stream(command.arg("--download-only").stdout(io::stderr()))
    }

    /// Downloads one package without its dependencies into `directory`.
    ///
    /// # Errors
    ///
    /// When the suite does not have it, or the download fails.
    pub(crate) fn download_alone(&self, package: &str, directory: &Path) -> Result<()> {
        let mut command = self.get();
        command.args(["download", package]).current_dir(directory);
        exec::capture(&mut command).map(drop)
    }

    fn install(&self, packages: &[String]) -> Command {
        let mut command = self.get();
        command
            .args(["install", "--no-install-recommends", "-y"])
            .args(packages);
        command
    }

    /// Unpacks the downloaded `package` over `root`.
    ///
    /// # Errors
    ///
    /// When dpkg-deb or tar fails: the package is damaged or the disk full.
    pub(crate) fn unpack(&self, package: &Package, root: &Path) -> Result<()> {
        let archive = self.directory.join("archives").join(package.file_name());
        // `dpkg-deb --extract` would replace the link /lib -> usr/lib by a directory.
        let script = r#"set -o pipefail; dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2""#;
        let mut command = Command::new("bash");
        command
            .args(["-c", script, "unpack"])
            .arg(&archive)
            .arg(root);
        exec::capture(&mut command)
            .map(drop)
            .with_context(|| format!("cannot unpack {}", archive.display()))
    }
}

impl Package {
    /// Parses a line of `apt-get install --simulate`: `Inst libc6 (2.36-9 Debian:12.15/oldstable
    /// [amd64])`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
        let (details, _) = rest.strip_prefix('(')?.split_once(')')?;
        let (version, rest) = details.split_once(' ')?;
        let (_, architecture) = rest.rsplit_once('[')?;
        Some(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            architecture: architecture.strip_suffix(']')?.to_owned(),
        })
    }

    /// Name of the package's file in apt's cache, where the epoch's colon is escaped.
    fn file_name(&self) -> String {
        let version = self.version.replace(':', "%3a");
        format!("{}_{version}_{}.deb", self.name, self.architecture)
    }

    /// The version without the epoch and Debian's suffix: `1:6.4.3+dfsg-5` is 6.4.3.
    pub(crate) fn upstream_version(&self) -> &str {
        let version = self
            .version
            .split_once(':')
            .map_or(&*self.version, |(_, v)| v);
        let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
        end.and_then(|end| version.get(..end)).unwrap_or(version)
    }
}

/// The Debian archive that this machine's apt uses.
///
/// # Errors
///
/// When apt has none, as on another distribution or before the first `apt-get update`.
pub(crate) fn configured_mirror() -> Result<String> {
    require_programs(&["apt-get"])?;
    // apt parses all formats of its sources, and knows the origin of an archive from the signed
    // release files.
    let format = "--format=$(LABEL) $(COMPONENT) $(REPO_URI)";
    let targets = exec::capture(Command::new("apt-get").args(["indextargets", format]))?;
    match debian_archive(&targets) {
        Some(uri) => Ok(uri.to_owned()),
        None => bail!(
            "apt knows no Debian archive here: run `apt-get update` if this is Debian, else name one by `--mirror URL`"
        ),
    }
}

/// Parses `apt-get indextargets` with the format `LABEL COMPONENT URI`.
fn debian_archive(targets: &str) -> Option<&str> {
    targets
        .lines()
        .find_map(|line| line.strip_prefix("Debian main "))
}

/// # Errors
///
/// Names the missing ones of `programs`.
fn require_programs(programs: &[&str]) -> Result<()> {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| exec::find_program(program).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "Debian packages are fetched with apt-get, dpkg-deb and tar; not here: {}\n-> install this \
         distribution's packages apt, dpkg and tar",
        missing.join(", ")
    )
}

/// Content of apt.conf(5), read after this machine's own settings, such as its proxies.
fn settings(directory: &Path) -> String {
    let place = |sub: &str| directory.join(sub).display().to_string();
    let (lists, status, archives) = (place("lists"), place("status"), place("archives"));
    let (sources, preferences, base) = (place("sources.list"), place("preferences"), place(""));
    format!(
        r#"// The machine's own: hooks that clear or read its caches, pins, sources.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::preferences "{preferences}";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "{sources}";
Dir::Etc::sourceparts "/dev/null";
Dir::State "{base}";
Dir::State::lists "{lists}";
Dir::State::status "{status}";
Dir::Cache "{base}";
Dir::Cache::archives "{archives}";
APT::Architecture "amd64";
APT::Architectures "amd64";
// Below the user's home, where apt's own user may not look.
APT::Sandbox::User "root";
// A list that cannot be had is a failure, not a warning.
APT::Update::Error-Mode "any";
// A snapshot of the archive has lists whose week is over. Their signatures are checked all the
// same, and the versions of what is wanted are known.
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
"#
    )
}

/// A line of sources.list(5) for binary packages only.
fn source(suite: &str, mirror: &str, keyring: Option<&str>) -> String {
    let keyring = keyring
        .map(|path| format!(" signed-by={path}"))
        .unwrap_or_default();
    format!("deb [arch=amd64 target=Packages{keyring}] {mirror} {suite} main\n")
}

/// The packages that apt-get reports as not found.
fn unknown_packages(printed: &str) -> Vec<&str> {
    printed
        .lines()
        .filter_map(|line| {
            let line = line.strip_prefix("E: ")?;
            let unknown = line.strip_prefix("Unable to locate package ");
            unknown.or_else(|| {
                line.strip_prefix("Package '")?
                    .strip_suffix("' has no installation candidate")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_lines_are_read() {
        let line = "Inst libllvm15 (1:15.0.6-4+b1 Debian:12.15/oldstable [amd64]) []";
        let package = Package::parse(line).unwrap();
        assert_eq!(package.file_name(), "libllvm15_1%3a15.0.6-4+b1_amd64.deb");
        assert_eq!(package.upstream_version(), "15.0.6");
        let two_sources =
            "Inst libdrm-common (2.4.114-1 Debian:12.15/oldstable, Debian:12/x [all])";
        assert_eq!(
            Package::parse(two_sources).unwrap().file_name(),
            "libdrm-common_2.4.114-1_all.deb"
        );
        for other in [
            "Conf libc6 (2.36-9 Debian:12.15/oldstable [amd64])",
            "Inst libc6",
            "Inst libc6 (2.36-9",
            "",
        ] {
            assert_eq!(Package::parse(other), None, "{other}");
        }
    }

    #[test]
    fn upstream_version_is_without_debians_part() {
        let upstream = |version: &str| {
            let line = format!("Inst p ({version} Debian:x [amd64])");
            Package::parse(&line).unwrap().upstream_version().to_owned()
        };
        assert_eq!(upstream("6.4.3+dfsg-5"), "6.4.3");
        assert_eq!(upstream("5.7.1-6+deb13u1"), "5.7.1");
        assert_eq!(upstream("1:17.0.6"), "17.0.6");
    }

    #[test]
    fn the_debian_archive_is_told_from_others() {
        let targets = "$(LABEL) main http://third.party/apt/\n\
                       Debian-Security main http://a.mirror/debian-security/\n\
                       Debian contrib http://a.mirror/debian/\n\
                       Debian main http://a.mirror/debian/\n";
        assert_eq!(debian_archive(targets), Some("http://a.mirror/debian/"));
        assert_eq!(
            debian_archive("Ubuntu main http://a.mirror/ubuntu/\n"),
            None
        );
    }

    #[test]
    fn missing_packages_are_named() {
        let printed = "`apt-get` failed\nE: Unable to locate package libamdhip64-6\n\
                       E: Package 'rocminfo' has no installation candidate\nE: other";
        assert_eq!(unknown_packages(printed), ["libamdhip64-6", "rocminfo"]);
    }

    #[test]
    fn a_suite_that_is_no_distribution_stands_on_another() {
        let alone = Sources::suite("forky");
        assert_eq!(alone.suites().collect::<Vec<_>>(), ["forky"]);
        assert_eq!(alone.preferences(), "");
        let on_base = Sources {
            suite: "experimental",
            base: Some(Base {
                suite: "forky",
                but_version: "7.2.4",
            }),
        };
        assert_eq!(
            on_base.suites().collect::<Vec<_>>(),
            ["experimental", "forky"]
        );
        assert!(on_base.preferences().contains("Pin: version 7.2.4*\n"));
    }

    #[test]
    fn the_archive_must_be_signed_by_debian_where_its_keys_are_known() {
        assert_eq!(
            source("forky", "http://m/debian", Some("/k.gpg")),
            "deb [arch=amd64 target=Packages signed-by=/k.gpg] http://m/debian forky main\n"
        );
        assert!(!source("forky", "http://m/debian", None).contains("signed-by"));
    }
}
