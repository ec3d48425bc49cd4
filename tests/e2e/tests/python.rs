//! Python programs that call HIP through ctypes with a bundled library, as in wheels, are traced
//! like any other program.
#![expect(clippy::expect_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{Bench, CallLog, Running, Trace, bench::skipped, compare::compare};

/// Debian's HIP library, with which the workloads are built.
const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";

/// Number of calls per round of `hip_ctypes.py`, and number of its threads.
const CALLS: usize = 7;
const THREADS: usize = 4;

/// Number of rounds per thread.
const ROUNDS: usize = 50;

/// The real executable of Python: a script in its place, as version managers install it, would
/// start other programs first. `None`, with a message, if there is none.
fn python() -> Option<PathBuf> {
    let asked = Command::new("python3")
        .args(["-c", "import sys, ctypes; print(sys.executable)"])
        .stderr(Stdio::null())
        .output();
    match asked {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).trim_end().into())
        }
        _ => {
            skipped(
                "python3 with ctypes is missing; on Debian and Ubuntu: sudo apt-get install python3",
            );
            None
        }
    }
}

/// HIP under the name that auditwheel would give it, in the directory beside a package.
fn wheel(bench: &Bench, place: impl FnOnce(&Path, &Path) -> std::io::Result<()>) -> PathBuf {
    let libraries = bench
        .path()
        .join("venv/lib/python3.11/site-packages/foo_libs");
    fs::create_dir_all(&libraries).expect("a directory of libraries");
    let library = libraries.join("libamdhip64-1a2b3c.so.5");
    place(Path::new(DEBIAN), &library).expect("HIP in the package");
    library
}

/// Runs the program with this library; `None` if the test is to be skipped.
fn traced(
    place: impl FnOnce(&Path, &Path) -> std::io::Result<()>,
) -> Option<(CallLog, Trace, PathBuf)> {
    let bench = Bench::privileged()?;
    let python = python()?;
    if !Path::new(DEBIAN).exists() {
        skipped(&format!(
            "{DEBIAN} is missing; on Debian: sudo apt-get install libamdhip64-5"
        ));
        return None;
    }
    let library = wheel(&bench, place);
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(["--hip-trace", "-f", "csv", "--"])
        .arg(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/python/hip_ctypes.py"))
        .arg(&library)
        .arg(ROUNDS.to_string());
    Running::start("gputrace", &mut command).finish();
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    let log = bench.log();
    let comparison = compare(&log, &trace);
    comparison.assert_exact();
    assert_eq!(comparison.found, CALLS * THREADS * ROUNDS);
    assert_eq!(log.threads.len(), THREADS);
    Some((log, trace, library))
}

#[test]
fn a_library_in_a_wheel_is_traced_from_the_first_call() {
    let Some((log, trace, library)) = traced(|from, to| fs::copy(from, to).map(drop)) else {
        return;
    };
    for call in &trace.calls {
        assert_eq!(
            Path::new(&trace.function(call).library),
            library,
            "{}",
            trace.name(call)
        );
    }
    let failed = log
        .calls()
        .filter(|call| call.name == "hipMalloc" && call.result.value != 0);
    assert_eq!(failed.count(), THREADS * ROUNDS, "there is no GPU here");
}

#[test]
fn a_link_in_a_wheel_leads_to_the_same() {
    drop(traced(|from, to| std::os::unix::fs::symlink(from, to)));
}
