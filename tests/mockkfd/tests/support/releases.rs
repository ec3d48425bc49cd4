//! The ROCm releases to test on: their roots, the workloads built for them, and how to run programs
//! on them.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use gputrace_harness::Run;
use gputrace_harness::rocm::{self, LIBRARIES};
use gputrace_softgpu::truth::Record;

use super::{run_until, target_tmpdir};

/// If this variable is 1, a missing release fails the test instead of being left out.
const REQUIRE: &str = "GPUTRACE_REQUIRE_ROCM";

/// A ROCm release.
#[derive(Debug)]
pub struct Release {
    pub name: &'static str,
    root: PathBuf,
}

/// The release of this name. If it is missing, prints so directly to standard error, because the
/// test runner would not show it.
pub fn release(name: &'static str) -> Option<Release> {
    let root = rocm::root(name);
    if root.is_none() {
        missing(&rocm::missing(name));
    }
    root.map(|root| Release { name, root })
}

/// Prints that something is not tested because something is missing; fails if everything was
/// required.
pub fn missing(reason: &str) {
    let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
    assert!(!required, "{REQUIRE}=1, but {reason}");
    say(&format!("SKIPPED {reason}"));
}

/// Writes a line directly to standard error.
pub fn say(line: &str) {
    let thread = std::thread::current();
    // If writing fails, nobody reads it.
    drop(writeln!(
        std::io::stderr(),
        "{}: {line}",
        thread.name().unwrap_or("a test")
    ));
}

/// Runs a test on each available release that is selected.
pub fn on_each_release(test: impl Fn(&Release)) {
    for release in rocm::selected().into_iter().filter_map(release) {
        // Shown if the test fails.
        eprintln!("on ROCm {}:", release.name);
        test(&release);
    }
}

/// Directory of the built workloads.
fn built() -> PathBuf {
    target_tmpdir().join("gpu-workloads")
}

/// A code object of the workloads, which each release builds together with its own.
pub fn code_object(name: &str) -> String {
    built()
        .join("objects")
        .join(name)
        .to_str()
        .unwrap()
        .to_owned()
}

impl Release {
    /// Builds the workloads, once.
    pub fn build(&self) {
        static BUILT: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        let mut built_for = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if built_for.contains(&self.name) {
            return;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/gpu/build.sh");
        let status = Command::new(&script)
            .arg(built().join(self.name))
            .arg(&self.root)
            .arg(built().join("objects"))
            .status()
            .unwrap();
        assert!(
            status.success(),
            "{} failed; it says above what is missing",
            script.display()
        );
        built_for.push(self.name);
    }

    /// Whether the release has a library of this file name.
    pub fn has(&self, library: &str) -> bool {
        self.root.join(LIBRARIES).join(library).exists()
    }

    /// The command that runs a workload.
    ///
    /// The program names the release's own loader and libraries. Libraries that these open are also
    /// searched there, which is why the command must not start other programs of this machine.
    pub fn workload(&self, name: &str) -> Command {
        self.build();
        let mut command = Command::new(built().join(self.name).join(name));
        command.env("LD_LIBRARY_PATH", self.root.join(LIBRARIES));
        // Later releases do small copies by kernels, which compute nothing here.
        command.env("GPU_FORCE_BLIT_COPY_SIZE", "0");
        // HIP 7 creates pools of addresses that it maps to memory later, which the software GPU
        // does not support.
        command.env("DEBUG_HIP_MEM_POOL_VMHEAP", "0");
        command
    }

    /// Runs a workload until it ends.
    pub fn run(&self, name: &str, arguments: &[&str], toml: &str) -> Run {
        self.run_until(name, arguments, toml, |_| false)
    }

    /// Runs a workload; kills it when `enough` holds for its ground truth.
    pub fn run_until(
        &self,
        name: &str,
        arguments: &[&str],
        toml: &str,
        enough: impl Fn(&[Record<'static>]) -> bool,
    ) -> Run {
        run_until(self.workload(name).args(arguments), toml, enough)
    }

    /// Runs the release's rocminfo.
    pub fn rocminfo(&self, toml: &str) -> Run {
        // The rocminfo of 5.2 runs lsmod by this machine's shell, and this machine may have no
        // lsmod.
        let tools = tempfile::tempdir().unwrap();
        let lsmod = tools.path().join("lsmod");
        std::fs::write(&lsmod, "#!/bin/sh\nexec cat /proc/modules\n").unwrap();
        std::fs::set_permissions(&lsmod, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(
            std::iter::once(tools.path().to_owned()).chain(std::env::split_paths(&path)),
        )
        .unwrap();
        let libraries = self.root.join(LIBRARIES);
        // Started by its own loader, because the kernel would use this machine's.
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries);
        command
            .arg(self.root.join("usr/bin/rocminfo"))
            .env("PATH", path);
        run_until(&mut command, toml, |_| false)
    }
}
