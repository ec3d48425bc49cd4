//! Helpers shared by the tests on real runtimes.
#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(clippy::expect_used, reason = "test code outside of #[test] functions")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_e2e::{Running, bench::skipped, kernel::bpf_usable};
use gputrace_fidelity::{
    release::{Release, SIMROCM_NEWER, equip},
    run::ROOM,
    scenario::{WORKLOADS, Workload},
};
use gputrace_simrocm::HipSoname;
use gputrace_softgpu::truth::{Record, read_directory};

/// A release to test on; `None`, with a message, if the test has to be skipped. Fails if the
/// environment promises that the release is installed.
pub(crate) fn release(name: &str) -> Option<Release> {
    let promised = |variable: &str| env::var_os(variable).is_some_and(|value| value == "1");
    let skip = |variable: &str, reason: String| {
        assert!(!promised(variable), "{variable}=1, but {reason}");
        skipped(&reason);
        None
    };
    if let Err(reason) = bpf_usable() {
        return skip("GPUTRACE_REQUIRE_BPF", reason);
    }
    let found = match name {
        SIMROCM_NEWER => stand_ins(),
        _ => Release::find(name),
    };
    match found {
        Ok(release) => Some(release),
        Err(error) => skip("GPUTRACE_REQUIRE_ROCM", format!("{error:#}")),
    }
}

/// The stand-ins with the behaviours of newer releases.
fn stand_ins() -> anyhow::Result<Release> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fidelity-stand-ins");
    let libraries = gputrace_simrocm::stage(&directory, HipSoname::Five)?;
    Release::simrocm(SIMROCM_NEWER, &libraries)
}

/// A command that runs a program of `tests/workloads/gpu`, including those not in the fidelity
/// matrix.
pub(crate) fn program(
    release: &Release,
    program: &'static str,
    arguments: &'static [&'static str],
) -> Command {
    let workload = Workload {
        program,
        arguments,
        ..*WORKLOADS.first().expect("a workload")
    };
    release.program(&workload, arguments)
}

/// Records a program from the start on a software GPU with these settings. Afterwards `place`
/// contains the outputs (`out/run…`), the GPU's logs (`truth`), and the program's log (`said`).
pub(crate) fn record(program: &Command, place: &Path, settings: &str, options: &[&str]) {
    record_by(Command::new(gputrace()), program, place, settings, options);
}

/// As [`record`]; `recorder` is a command that starts gputrace with the arguments appended to it.
pub(crate) fn record_by(
    recorder: Command,
    program: &Command,
    place: &Path,
    settings: &str,
    options: &[&str],
) {
    let mut command = recording(recorder, program, place, settings, options);
    Running::start("gputrace", &mut command).finish();
}

/// The command that records as [`record_by`] does.
pub(crate) fn recording(
    mut recorder: Command,
    program: &Command,
    place: &Path,
    settings: &str,
    options: &[&str],
) -> Command {
    fs::write(place.join("softgpu.toml"), settings).expect("the settings");
    recorder
        .args(["-o", "run", "-d"])
        .arg(place.join("out"))
        .args(ROOM)
        .args(options)
        .arg("--")
        .arg(program.get_program())
        .args(program.get_args());
    equip(&mut recorder, place).expect("the software GPU");
    recorder
}

/// When the GPU executed the kernels called `name`, ns `CLOCK_BOOTTIME`, in order. Kernels that a
/// runtime launches on a queue of its own are not seen from outside.
pub(crate) fn kernels(place: &Path, name: &str) -> Vec<(u64, u64)> {
    let log = read_directory(&place.join("truth")).expect("the software GPU's log");
    let mut kernels: Vec<(u64, u64)> = log
        .iter()
        .filter_map(|record| match record {
            Record::Dispatch(one) if &*one.kernel == name => Some((one.begin.ns, one.end?.ns)),
            _ => None,
        })
        .collect();
    kernels.sort_unstable();
    kernels
}

/// The binary under test.
pub(crate) fn gputrace() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout.join("target"), PathBuf::from);
    let binary =
        env::var_os("GPUTRACE_BIN").map_or_else(|| target.join("debug/gputrace"), PathBuf::from);
    assert!(
        binary.exists(),
        "{} does not exist: build gputrace first (`cargo xtask build`), or name one in GPUTRACE_BIN",
        binary.display()
    );
    binary
}
