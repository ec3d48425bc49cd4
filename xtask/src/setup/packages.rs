//! Groups of the distribution's packages, and how to see that a group is there.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::State;
use super::apt;
use super::machine::{Machine, PackageManager};
use crate::exec;

/// Packages that belong together.
pub(super) struct Group {
    /// What the group provides, for the line that says it is there.
    provides: &'static str,
    /// Names what does not work yet.
    lacking: fn() -> Vec<String>,
    apt: &'static str,
    dnf: &'static str,
    pacman: &'static str,
    zypper: &'static str,
    /// Where to look when the distribution has no such packages.
    elsewhere: &'static str,
}

/// What the tool is compiled with, and what bpf-linker and `protoc` link to.
pub(super) const BUILD: Group = Group {
    provides: "cc, c++, make, pkg-config, libelf, zlib",
    lacking: || {
        let programs = ["cc", "c++", "make", "pkg-config"];
        let missing_programs = programs
            .into_iter()
            .filter(|name| exec::find_program(name).is_none());
        let missing_libraries = ["libelf", "zlib"]
            .into_iter()
            .filter(|name| !pkg_config_knows(name));
        missing_programs
            .chain(missing_libraries)
            .map(str::to_owned)
            .collect()
    },
    apt: "gcc g++ libc6-dev make pkg-config libelf-dev zlib1g-dev",
    dnf: "gcc gcc-c++ make pkgconf-pkg-config elfutils-libelf-devel zlib-devel",
    pacman: "base-devel pkgconf libelf zlib",
    zypper: "gcc gcc-c++ make pkg-config libelf-devel zlib-devel",
    elsewhere: "install a C and C++ compiler, make, pkg-config, and libelf and zlib with their headers",
};

/// The libraries that are traced, with what compiles programs against them.
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
        // By the names that the linker uses: they come with the development packages, which bring the libraries.
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

impl Group {
    /// Installs the group when something is lacking and apt-get can be used.
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
