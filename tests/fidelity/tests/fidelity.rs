//! Recordings against the truth: the smaller matrix, on the oldest release and on the newest.
//!
//! Each test asserts what must hold on every machine, however slow: everything is there once, with the right
//! kernel, size, agent and API call, no window is violated, the accounts balance. How sharp times are, the report says
//! (`cargo xtask fidelity`).

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

use std::{
    env,
    path::{Path, PathBuf},
};

use gputrace_e2e::{bench::skipped, kernel::bpf_usable};
use gputrace_fidelity::{
    Figures,
    release::{Release, SIMROCM_NEWER},
    run::measure,
    scenario::{Mode, Scenario, WORKLOADS},
};
use gputrace_simrocm::HipSoname;

/// A release to test on, unless the test has to be skipped: then says why. Fails where it was promised.
fn release(name: &str) -> Option<Release> {
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

/// The stand-ins with the ways of newer releases.
fn stand_ins() -> anyhow::Result<Release> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fidelity-stand-ins");
    let libraries = gputrace_simrocm::stage(&directory, HipSoname::Five)?;
    Release::simrocm(SIMROCM_NEWER, &libraries)
}

/// The binary under test.
fn gputrace() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout.join("target"), PathBuf::from);
    let binary = env::var_os("GPUTRACE_BIN").map_or_else(|| target.join("debug/gputrace"), PathBuf::from);
    assert!(
        binary.exists(),
        "{} does not exist: build gputrace first (`cargo xtask build`), or name one in GPUTRACE_BIN",
        binary.display()
    );
    binary
}

/// Runs the scenarios of a mode from the quick matrix; fails with all that was wrong.
fn all_true(name: &str, mode: Mode) {
    let Some(release) = release(name) else { return };
    let mut sum = Figures::default();
    let attaches = mode == Mode::Attach;
    let runnable = WORKLOADS
        .iter()
        .filter(|workload| release.runs(workload) && !(attaches && workload.deferred));
    for scenario in Scenario::matrix(true) {
        if scenario.mode == mode && release.runs(scenario.workload) {
            let figures = measure(&scenario, &release, &gputrace());
            // Shown with the failure of a test.
            eprintln!("{scenario}: {:?}", figures.flaws);
            sum.add(&figures, &scenario.to_string());
        }
    }
    assert!(sum.runs as usize >= runnable.count());
    assert!(sum.flaws.is_empty(), "ROCm {name}, {mode}: {:#?}", sum.flaws);
    // Not for want of anything to compare.
    assert!(sum.dispatches.found > 1000 && sum.copies.found > 100, "{sum:?}");
}

#[test]
fn launched_on_rocm_5_2_3() {
    all_true("5.2.3", Mode::Launch);
}

#[test]
fn attached_on_rocm_5_2_3() {
    all_true("5.2.3", Mode::Attach);
}

#[test]
fn launched_on_rocm_6_4_3() {
    all_true("6.4.3", Mode::Launch);
}

#[test]
fn attached_on_rocm_6_4_3() {
    all_true("6.4.3", Mode::Attach);
}

#[test]
fn launched_with_the_ways_of_rocm_7() {
    all_true(SIMROCM_NEWER, Mode::Launch);
}

#[test]
fn attached_with_the_ways_of_rocm_7() {
    all_true(SIMROCM_NEWER, Mode::Attach);
}
