//! Programs written by others, run on the ROCm of a release's root directory (`cargo xtask rocm`).
//!
//! The only knowledge about their launches is the software GPU's log. Therefore these things are
//! checked: every dispatch is recorded once, with its name, size, agent and window, and under a
//! call that launches kernels. The number of kernels per call is not checked.
//!
//! Kernels compute nothing on the software GPU, so programs that check their results fail in the
//! end. This does not count as a failure here.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use gputrace_e2e::Trace;

use crate::{
    compare::{Evidence, compare},
    figures::Figures,
    release::preload,
    run::{How, Place, attach, caught, launch},
    scenario::{Mode, Moment},
};

/// Loading a library of a gigabyte takes a while.
const PATIENCE: Duration = Duration::from_mins(5);

/// HSA's own API is not recorded, because rocBLAS alone makes millions of such calls.
const OPTIONS: [&str; 3] = ["--hip-trace", "--kernel-trace", "--memory-copy-trace"];

/// Maximum number of attempts if the program ends before it can be stopped.
const ATTEMPTS: u32 = 3;

/// A program to run.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// Title for the table.
    pub title: &'static str,
    /// The release whose root contains it.
    pub release: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
    /// Its path in the root.
    path: &'static str,
    /// Its arguments; `{files}` stands for the directory with further files that it needs.
    arguments: &'static [&'static str],
    /// Its environment variables.
    environment: &'static [(&'static str, &'static str)],
    /// A library in `{files}` that it must find instead of another one.
    stub: Option<&'static str>,
    /// Settings of the software GPU.
    settings: &'static str,
    may_fail: bool,
    /// Number of kernels after which gputrace attaches.
    attach_after: usize,
}

/// Two GPUs that can access each other's memory, of a type that RCCL is built for.
const TWO_GPUS: &str = "
    [[agent]]
    gfx = 'gfx90a'
    hive = 1
    [[agent]]
    gfx = 'gfx90a'
    hive = 1
";

/// A few thousand matrix multiplications by rocBLAS.
const ROCBLAS: Real = Real {
    title: "rocBLAS: rocblas-bench, sgemm",
    release: "7.2.4",
    package: "librocblas5-bench",
    path: "/usr/libexec/rocm/librocblas5-bench/rocblas-bench",
    arguments: &[
        "-f", "gemm", "-r", "s", "-m", "256", "-n", "256", "-k", "256", "-i", "2000",
    ],
    environment: &[],
    stub: Some("rsmi.so"),
    settings: "",
    may_fail: false,
    attach_after: 300,
};

/// All programs.
pub const PROGRAMS: [Real; 5] = [
    Real {
        title: "llama.cpp, ggml's HIP backend: llama-bench",
        release: "6.4.3",
        package: "llama.cpp-tools",
        path: "/usr/bin/llama-bench",
        arguments: &[
            "-m",
            "{files}/tiny.gguf",
            "-p",
            "64",
            "-n",
            "64",
            "-r",
            "3",
            "-ngl",
            "99",
        ],
        environment: &[],
        stub: None,
        settings: "",
        may_fail: false,
        attach_after: 1000,
    },
    ROCBLAS,
    Real {
        release: "6.4.3",
        package: "librocblas4-bench",
        path: "/usr/libexec/rocm/librocblas4-bench/rocblas-bench",
        ..ROCBLAS
    },
    Real {
        title: "rocFFT: rocfft-test, streams (kernels made by hipRTC)",
        release: "7.2.4",
        package: "librocfft0-tests",
        path: "/usr/libexec/rocm/librocfft0-tests/rocfft-test",
        arguments: &["--gtest_filter=rocfft_UnitTest.simple_multistream_1D"],
        environment: &[],
        stub: None,
        settings: "",
        may_fail: true,
        attach_after: 100,
    },
    Real {
        title: "RCCL: rccl-UnitTests, AllReduce on two GPUs",
        release: "7.2.4",
        package: "librccl1-tests",
        path: "/usr/libexec/rocm/librccl1-tests/rccl-UnitTests",
        arguments: &["--gtest_filter=AllReduce.OutOfPlace"],
        environment: &[("UT_POW2_GPUS", "1")],
        stub: None,
        settings: TWO_GPUS,
        may_fail: true,
        attach_after: 20,
    },
];

/// Paths needed for running programs.
#[derive(Debug)]
pub struct Equipment {
    /// The program under test.
    pub gputrace: PathBuf,
    /// `xtask`, which enters the roots of releases.
    pub xtask: PathBuf,
    /// The directory with further files that programs need.
    pub files: PathBuf,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The results of the comparison.
    pub figures: Figures,
    /// Number of different kernels that ran.
    pub kernels: usize,
    /// Number of calls in the recording.
    pub calls: usize,
    /// Total time, including preparation.
    pub wall: Duration,
}

impl Real {
    /// Runs the program under gputrace, and compares.
    ///
    /// # Errors
    ///
    /// If the program or gputrace fails.
    pub fn measure(&self, mode: Mode, equipment: &Equipment) -> Result<Outcome> {
        let begin = Instant::now();
        let evidence = caught(|| self.run(mode, equipment))?;
        let names = evidence.truth.dispatches.iter().map(|one| &*one.kernel);
        Ok(Outcome {
            kernels: names.collect::<std::collections::BTreeSet<_>>().len(),
            calls: evidence.trace.calls.len(),
            figures: compare(&evidence),
            wall: begin.elapsed(),
        })
    }

    fn run(&self, mode: Mode, equipment: &Equipment) -> Result<Evidence> {
        let how = How {
            options: &OPTIONS,
            patience: PATIENCE,
            may_fail: self.may_fail,
        };
        for _ in 0..ATTEMPTS {
            let place = Place::new(self.settings, how)?;
            let program = self.program(equipment)?;
            let cut = match mode {
                Mode::Launch => {
                    launch(&place, &equipment.gputrace, &program)?;
                    None
                }
                Mode::Attach => {
                    let moment = Moment::Dispatches(self.attach_after);
                    let Some((cut, _)) = attach(&place, &equipment.gputrace, program, moment)?
                    else {
                        continue;
                    };
                    Some(cut)
                }
            };
            return Ok(Evidence {
                summary: None,
                truth: place.truth()?,
                trace: Trace::try_read(&place.at("out/run.gtcap"))?,
                cut,
                one_thread: false,
                graph_nodes: 0,
                says: false,
            });
        }
        bail!("it was done before it could be stopped, {ATTEMPTS} times")
    }

    fn program(&self, equipment: &Equipment) -> Result<Command> {
        let files = &equipment.files;
        // Not preloaded into gputrace, which starts the program.
        let mut preloaded = preload()?.display().to_string();
        if let Some(stub) = self.stub {
            preloaded.push_str(&format!(":{}", files.join(stub).display()));
        }
        let mut command = Command::new("env");
        command.arg(format!("LD_PRELOAD={preloaded}"));
        // Debian selects a BLAS through links that only an installation creates.
        command
            .arg("LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/blas:/usr/lib/x86_64-linux-gnu/lapack");
        command.args(
            self.environment
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        command
            .arg(&equipment.xtask)
            .args(["rocm", "--release", self.release, "--", self.path]);
        let files = files.to_string_lossy();
        command.args(
            self.arguments
                .iter()
                .map(|word| word.replace("{files}", &files)),
        );
        Ok(command)
    }
}

impl Outcome {
    /// Whether something was compared and nothing is wrong.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.figures.flaws.is_empty() && self.figures.dispatches.found > 0
    }
}

/// A row of the Markdown table.
#[must_use]
pub fn row(program: &Real, mode: Mode, outcome: &Result<Outcome>) -> String {
    let Real { title, release, .. } = program;
    let what = match outcome {
        Ok(outcome) => {
            let work = &outcome.figures.dispatches;
            let flaws: Vec<String> = outcome
                .figures
                .flaws
                .iter()
                .map(|(flaw, found)| {
                    let example = found.examples.first().map_or("", String::as_str);
                    format!("{} x {}: {example}", found.count, flaw.words())
                })
                .collect();
            let flaws = if flaws.is_empty() {
                "none".to_owned()
            } else {
                flaws.join("; ")
            };
            format!(
                "{} | {} of {} | {} | {} | {:.1} s | {flaws}",
                outcome.kernels,
                work.found,
                work.required,
                outcome.figures.copies.found,
                outcome.calls,
                outcome.wall.as_secs_f64()
            )
        }
        Err(error) => {
            let text = format!("{error:#}");
            format!(
                "- | - | - | - | - | {}",
                text.lines().next().unwrap_or_default()
            )
        }
    };
    format!("| {title} | {release} | {mode} | {what} |")
}

/// The header of the table.
pub const HEAD: &str = "| program | ROCm | mode | kernels | dispatches once, named, with their calls | copies | calls | time | flaws |\n\
                        |---|---|---|--:|--:|--:|--:|--:|---|";

/// A message if `path` (of `xtask` or of the files) does not exist.
#[must_use]
pub fn lacks(path: &Path) -> Option<String> {
    (!path.exists()).then(|| {
        format!(
            "{} is not there: `scripts/real-programs` makes it",
            path.display()
        )
    })
}
