//! Runs programs on the software GPU with the preloaded library.
#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    unreachable_pub,
    reason = "a module of test programs, which have no other face"
)]
#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

pub mod releases;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gputrace_harness::{Run, run};
use gputrace_softgpu::truth::Record;

/// Maximum time of a workload, including the start of the runtime. Only one that hangs takes that
/// long.
const PATIENCE: Duration = Duration::from_mins(5);

/// Cargo's directory for this profile: tests are in its `deps`, examples in its `examples`.
fn profile() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().to_owned()
}

/// The library to preload, which cargo has built together with the test program.
pub fn library() -> PathBuf {
    let library = profile().join("deps/libgputrace_mockkfd.so");
    assert!(
        library.exists(),
        "{} is missing; run the tests by cargo",
        library.display()
    );
    library
}

/// Cargo's directory for files made by tests.
fn target_tmpdir() -> PathBuf {
    profile().with_file_name("tmp")
}

/// Runs a command with the library preloaded, on a software GPU with this configuration. Kills it
/// when `enough` holds for its ground truth, or after five minutes.
pub fn run_until(
    command: &mut Command,
    toml: &str,
    enough: impl Fn(&[Record<'static>]) -> bool,
) -> Run {
    run::run_until(command.env("LD_PRELOAD", library()), toml, PATIENCE, enough)
}
