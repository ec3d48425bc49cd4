//! Groups of the distribution's packages, and checks whether a group is installed.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::State;
use super::apt;
use super::machine::{Machine, PackageManager};
use crate::exec;

/// Packages that belong together.
pub(super) struct Group {
    /// What the group provides, for the message that it is there.
    provides: &'static str,
    /// Returns what does not work yet.
    lacking: fn() -> Vec<String>,
    apt: &'static str,
    dnf: &'static str,
    pacman: &'static str,
    zypper: &'static str,
    /// What to do if the distribution has no such packages.
    elsewhere: &'static str,
}

/// Tools for compiling gputrace, and libraries that bpf-linker and `protoc` link with.
pub(super) const BUILD: Group = Group {
    provides: "cc, c++, make, pkg-config, libelf, zlib",
    lacking: || {
        let mut lacking = programs_lacking(&["cc", "c++", "make", "pkg-config"]);
        let libraries = ["libelf", "zlib"].into_iter();
        let missing = libraries.filter(|name| !pkg_config_knows(name));
        lacking.extend(missing.map(str::to_owned));
        lacking
    },
    apt: "gcc g++ libc6-dev make pkg-config libelf-dev zlib1g-dev",
    dnf: "gcc gcc-c++ make pkgconf-pkg-config elfutils-libelf-devel zlib-devel",
    pacman: "base-devel pkgconf libelf zlib",
    zypper: "gcc gcc-c++ make pkg-config libelf-devel zlib-devel",
    elsewhere: "install a C and C++ compiler, make, pkg-config, and libelf and zlib with their headers",
};

/// The traced libraries, and the compiler for programs that use them.
pub(super) const ROCM: Group = Group {
    provides: "hipcc, libamdhip64, libhsa-runtime64",
    lacking: || {
        let mut lacking = Vec::new();
        if exec::find_program("hipcc").is_none() && !Path::new("/opt/rocm/bin/hipcc").is_file() {
            lacking.push("hipcc");
        }
        let anywhere = |directories: &[&str], file: &str| {
            directories
                .iter()
                .any(|d| Path::new(d).join(file).is_file())
        };
        let libraries = [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib64",
            "/usr/lib",
            "/opt/rocm/lib",
        ];
        let headers = ["/usr/include", "/opt/rocm/include"];
        // By the names that the linker uses: these come with the development packages, which depend
        // on the libraries.
        lacking.extend(
            ["libamdhip64.so", "libhsa-runtime64.so"]
                .iter()
                .filter(|file| !anywhere(&libraries, file)),
        );
        lacking.extend(
            ["hip/hip_runtime_api.h", "hsa/hsa.h"]
                .iter()
                .filter(|file| !anywhere(&headers, file)),
        );
        lacking.into_iter().map(str::to_owned).collect()
    },
    apt: "hipcc libamdhip64-dev libhsa-runtime-dev",
    dnf: "hipcc rocm-hip-devel rocm-runtime-devel",
    pacman: "hip-runtime-amd hsa-rocr",
    zypper: "",
    elsewhere: "install ROCm's HIP development files: https://rocm.docs.amd.com/projects/install-on-linux",
};

/// What makes packages of a program.
pub(super) const PACKAGERS: Group = Group {
    provides: "objcopy, strip, gzip, dpkg-deb, rpmbuild",
    lacking: || programs_lacking(&["objcopy", "strip", "gzip", "dpkg-deb", "rpmbuild"]),
    apt: "binutils gzip dpkg rpm",
    dnf: "binutils gzip dpkg rpm-build",
    pacman: "binutils gzip dpkg rpm-tools",
    zypper: "binutils gzip dpkg rpm-build",
    elsewhere: "install binutils, gzip, dpkg and rpm's build tools",
};

/// What elfutils makes its build files with.
pub(super) const ELFUTILS: Group = Group {
    provides: "autoreconf, automake, autopoint, flex, bison, gawk",
    lacking: || {
        programs_lacking(&[
            "autoreconf",
            "automake",
            "autopoint",
            "flex",
            "bison",
            "gawk",
        ])
    },
    apt: "autoconf automake autopoint flex bison gawk",
    dnf: "autoconf automake gettext-devel flex bison gawk",
    pacman: "base-devel gettext",
    zypper: "autoconf automake gettext-tools flex bison gawk",
    elsewhere: "install autoconf, automake, gettext, flex, bison and gawk",
};

/// What makes the systems that packages are tried on, and reads packages.
pub(super) const CHECKERS: Group = Group {
    provides: "debootstrap, rpm, dpkg-deb, tar, unshare",
    lacking: || programs_lacking(&["debootstrap", "rpm", "dpkg-deb", "tar", "unshare"]),
    apt: "debootstrap rpm dpkg tar util-linux",
    dnf: "debootstrap rpm dpkg tar util-linux",
    pacman: "debootstrap rpm-tools dpkg tar util-linux",
    zypper: "debootstrap rpm dpkg tar util-linux",
    elsewhere: "install debootstrap, rpm, dpkg, tar and util-linux",
};

/// Those of `programs` that are not in `PATH`.
fn programs_lacking(programs: &[&str]) -> Vec<String> {
    programs
        .iter()
        .filter(|name| exec::find_program(name).is_none())
        .map(|name| (*name).to_owned())
        .collect()
}

impl Group {
    /// Installs the group if something is missing and apt-get can be used.
    ///
    /// # Errors
    ///
    /// When apt-get fails.
    pub(super) fn ensure(&self, machine: &Machine) -> Result<State> {
        let lacking = (self.lacking)();
        if lacking.is_empty() {
            return Ok(State::Ready(self.provides.into()));
        }
        if machine.packages == PackageManager::Apt && machine.is_root() {
            apt::install(&self.apt.split_whitespace().collect::<Vec<_>>())?;
            let still = (self.lacking)();
            if still.is_empty() {
                return Ok(State::Done(format!("{} installed", self.apt)));
            }
            return Ok(State::Missing {
                what: format!(
                    "{} still missing after installing {}",
                    still.join(", "),
                    self.apt
                ),
                remedy: self.elsewhere.into(),
            });
        }
        Ok(State::Missing {
            what: lacking.join(", "),
            remedy: self.remedy(machine),
        })
    }

    /// The command that installs the group on this distribution.
    fn remedy(&self, machine: &Machine) -> String {
        let packages = match machine.packages {
            PackageManager::Apt => self.apt,
            PackageManager::Dnf => self.dnf,
            PackageManager::Pacman => self.pacman,
            PackageManager::Zypper => self.zypper,
            PackageManager::Unknown => "",
        };
        if packages.is_empty() {
            return self.elsewhere.into();
        }
        machine.as_root(&format!(
            "{} {packages}",
            machine.packages.install_command()
        ))
    }
}

/// Whether pkg-config finds the development files of `library`.
fn pkg_config_knows(library: &str) -> bool {
    exec::capture(Command::new("pkg-config").args(["--exists", library])).is_ok()
}
