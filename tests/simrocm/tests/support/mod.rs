//! Stages the stand-ins, and runs the GPU workloads on them.
#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    unreachable_pub,
    reason = "a module of test programs, which have no other face"
)]
#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use gputrace_harness::{Run, run};
use gputrace_simrocm::{HipSoname, stage};
use gputrace_softgpu::truth::Record;

/// The libraries for programs of one generation, staged on first use.
pub fn staged(hip: HipSoname) -> &'static Path {
    static STAGED: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let (slot, name) = match hip {
        HipSoname::Five => (&STAGED[0], "five"),
        HipSoname::Six => (&STAGED[1], "six"),
    };
    slot.get_or_init(|| {
        // One directory per test program, because several run at the same time.
        let program = std::env::current_exe().unwrap();
        let stem = program.file_stem().unwrap().to_string_lossy().into_owned();
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simrocm-{name}-{stem}"));
        stage(&directory, hip).unwrap()
    })
}

/// Path of a workload, built on first use.
pub fn workload(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let directory = BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu-workloads");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/gpu/build.sh");
        let status = Command::new(&script).arg(&directory).status().unwrap();
        assert!(
            status.success(),
            "{} failed; it says above what is missing",
            script.display()
        );
        directory
    });
    directory.join(name)
}

/// Path of a code object that programs load, built on first use.
pub fn code_object(name: &str) -> String {
    workload("objects")
        .join(name)
        .to_string_lossy()
        .into_owned()
}

/// Maximum time of a workload. Only one that hangs takes that long.
const PATIENCE: Duration = Duration::from_mins(5);

/// Parameters of a run.
pub struct Runner<'a> {
    program: PathBuf,
    arguments: Vec<&'a str>,
    toml: &'a str,
    environment: Vec<(&'a str, String)>,
}

impl<'a> Runner<'a> {
    pub fn new(name: &str) -> Self {
        Self {
            program: workload(name),
            arguments: Vec::new(),
            toml: "",
            environment: Vec::new(),
        }
    }

    pub fn arguments(mut self, arguments: &[&'a str]) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// The software GPU's configuration.
    pub fn gpu(mut self, toml: &'a str) -> Self {
        self.toml = toml;
        self
    }

    pub fn env(mut self, name: &'a str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Runs the program until it ends.
    pub fn run(self) -> Run {
        self.run_until(|_| false)
    }

    /// Runs the program; kills it when `enough` holds for its ground truth, or after five
    /// minutes.
    pub fn run_until(self, enough: impl Fn(&[Record<'static>]) -> bool) -> Run {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env("LD_LIBRARY_PATH", staged(HipSoname::Five))
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        let run = run::run_until(&mut command, self.toml, PATIENCE, enough);
        // Otherwise it would be taken for one of the runtime's own.
        let unnamed = run
            .all_dispatches()
            .into_iter()
            .find(|one| one.kernel.is_empty());
        assert!(
            unnamed.is_none(),
            "the stand-ins list all code: {unnamed:?}"
        );
        run
    }
}
