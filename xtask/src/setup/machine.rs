//! Describes the machine: distribution, package manager, user.

use std::collections::HashMap;
use std::fmt;
use std::fs;

/// The facts that determine what setup can do itself.
#[derive(Debug)]
pub(super) struct Machine {
    /// The distribution's name.
    name: String,
    pub(super) packages: PackageManager,
    pub(super) process: Process,
}

impl Machine {
    /// Reads the facts. What cannot be read counts as unknown or absent: setup then does less and
    /// reports that.
    pub(super) fn look() -> Self {
        let release = fs::read_to_string("/etc/os-release")
            .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
            .unwrap_or_default();
        let release = parse_os_release(&release);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            name: release
                .get("PRETTY_NAME")
                .cloned()
                .unwrap_or_else(|| "an unknown distribution".into()),
            packages: PackageManager::of(&release),
            process: Process::parse(&status),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.process.effective_uid == Some(0)
    }

    /// `command` as the user must type it; root needs no sudo.
    pub(super) fn as_root(&self, command: &str) -> String {
        if self.is_root() {
            format!("`{command}`")
        } else {
            format!("`sudo {command}`")
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}",
            self.name,
            if self.is_root() {
                "as root"
            } else {
                "not as root"
            }
        )
    }
}

/// The tool that installs packages, which determines their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageManager {
    /// Debian and Ubuntu; the only one that setup itself uses.
    Apt,
    Dnf,
    Pacman,
    Zypper,
    Unknown,
}

impl PackageManager {
    /// Determined from `ID`, otherwise from the distributions in `ID_LIKE`.
    fn of(release: &HashMap<String, String>) -> Self {
        let words = |key: &str| {
            release
                .get(key)
                .map(String::as_str)
                .unwrap_or_default()
                .split_whitespace()
        };
        words("ID")
            .chain(words("ID_LIKE"))
            .find_map(|id| match id {
                "debian" | "ubuntu" => Some(Self::Apt),
                "fedora" | "rhel" | "centos" => Some(Self::Dnf),
                "arch" => Some(Self::Pacman),
                "suse" | "opensuse" | "opensuse-tumbleweed" => Some(Self::Zypper),
                _ => None,
            })
            .unwrap_or(Self::Unknown)
    }

    /// The command that installs packages, without package names.
    pub(super) fn install_command(self) -> &'static str {
        match self {
            Self::Apt => "apt-get install --no-install-recommends",
            Self::Dnf => "dnf install",
            Self::Pacman => "pacman -S --needed",
            Self::Zypper => "zypper install",
            Self::Unknown => "",
        }
    }
}

/// Parses os-release(5): `KEY=value` lines, values optionally in quotes, `#` comments.
fn parse_os_release(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.trim().split_once('='))
        .map(|(key, value)| (key.to_owned(), value.trim_matches(['"', '\'']).to_owned()))
        .collect()
}

/// The rights of this process, from proc_pid_status(5).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) effective_uid: Option<u32>,
    effective_capabilities: u64,
    /// Whether a seccomp filter is active, as in most containers.
    pub(super) seccomp: bool,
}

/// Capabilities that tracing needs, numbered as in `linux/capability.h`. `CAP_SYS_ADMIN` includes
/// the others.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

impl Process {
    fn parse(status: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        Self {
            // Real, effective, saved, file system.
            effective_uid: field("Uid:")
                .and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok()),
            effective_capabilities: field("CapEff:")
                .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
                .unwrap_or_default(),
            seccomp: field("Seccomp:").is_some_and(|mode| mode.trim() != "0"),
        }
    }

    /// Names of the tracing capabilities that this process lacks.
    pub(super) fn lacking_capabilities(&self) -> Vec<&'static str> {
        let has = |capability: u32| self.effective_capabilities >> capability & 1 == 1;
        if has(CAP_SYS_ADMIN) {
            return Vec::new();
        }
        [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
            .into_iter()
            .filter(|(capability, _)| !has(*capability))
            .map(|(_, name)| name)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(release: &str) -> PackageManager {
        PackageManager::of(&parse_os_release(release))
    }

    #[test]
    fn os_release_is_read_with_its_quoting() {
        let release = parse_os_release(
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n# x=y\nID=debian\nbroken\n A='b'\n",
        );
        assert_eq!(
            release.get("PRETTY_NAME").unwrap(),
            "Debian GNU/Linux 12 (bookworm)"
        );
        assert_eq!(release.get("A").unwrap(), "b");
        assert_eq!(release.len(), 3);
    }

    #[test]
    fn package_manager_follows_id_and_then_id_like() {
        assert_eq!(manager("ID=debian"), PackageManager::Apt);
        assert_eq!(
            manager("ID=linuxmint\nID_LIKE=\"ubuntu debian\""),
            PackageManager::Apt
        );
        assert_eq!(
            manager("ID=rocky\nID_LIKE=\"rhel centos fedora\""),
            PackageManager::Dnf
        );
        assert_eq!(manager("ID=manjaro\nID_LIKE=arch"), PackageManager::Pacman);
        assert_eq!(
            manager("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\""),
            PackageManager::Zypper
        );
        assert_eq!(manager("ID=void"), PackageManager::Unknown);
        assert_eq!(manager(""), PackageManager::Unknown);
    }

    #[test]
    fn process_status_says_what_is_allowed() {
        let root =
            Process::parse("Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001fffeffffff\nSeccomp:\t0\n");
        assert_eq!((root.effective_uid, root.seccomp), (Some(0), false));
        assert!(root.lacking_capabilities().is_empty());
        let user = Process::parse(
            "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t2\n",
        );
        assert_eq!((user.effective_uid, user.seccomp), (Some(1000), true));
        assert_eq!(user.lacking_capabilities(), ["CAP_BPF", "CAP_PERFMON"]);
        let granted = Process::parse("CapEff:\t000000c000000000\n");
        assert!(granted.lacking_capabilities().is_empty());
        assert_eq!(Process::parse("CapEff: zz\nUid:\n"), Process::default());
    }
}
