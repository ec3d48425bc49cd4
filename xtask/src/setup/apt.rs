//! Installs Debian packages.

use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

use crate::{exec, progress};

/// An `apt-get` command that never asks, waits for another apt to finish, and retries failed
/// downloads.
fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args([
            "-y",
            "-q",
            "-o",
            "DPkg::Lock::Timeout=300",
            "-o",
            "Acquire::Retries=3",
        ])
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Refreshes the package lists, once per run. A failure is only noted: one broken third-party
/// source must not prevent an installation from the others, and if the packages cannot be
/// installed, the installation reports that.
fn update() {
    static UPDATED: OnceLock<()> = OnceLock::new();
    UPDATED.get_or_init(|| {
        progress::note(format_args!("apt-get update ..."));
        if let Err(error) = exec::capture(apt_get().arg("update")) {
            progress::note(format_args!("{error:#}"));
        }
    });
}

/// Installs `packages`. Never removes a conflicting package, which the user may need.
///
/// # Errors
///
/// With apt-get's message when it fails.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    update();
    progress::note(format_args!("apt-get install {} ...", packages.join(" ")));
    let mut command = apt_get();
    command
        .args(["install", "--no-install-recommends", "--no-remove"])
        .args(packages);
    exec::capture(&mut command).context("the packages could not be installed")?;
    Ok(())
}

/// Whether the package sources offer `package`.
pub(super) fn offers(package: &str) -> bool {
    update();
    exec::capture(Command::new("apt-cache").args(["policy", package]))
        .is_ok_and(|policy| has_candidate(&policy))
}

/// Parses `apt-cache policy PACKAGE`, which prints nothing for an unknown name.
fn has_candidate(policy: &str) -> bool {
    policy
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Candidate:"))
        .any(|candidate| candidate.trim() != "(none)")
}

#[cfg(test)]
mod tests {
    use super::has_candidate;

    #[test]
    fn a_package_is_offered_when_it_has_a_candidate() {
        assert!(has_candidate(
            "rustc-web:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1~deb12u2\n"
        ));
        assert!(!has_candidate(
            "clang-web:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
        ));
        assert!(!has_candidate(""));
    }
}
