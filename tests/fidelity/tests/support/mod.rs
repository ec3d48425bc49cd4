//! What the tests on real runtimes share.

use std::{
    env,
    path::{Path, PathBuf},
};

use gputrace_e2e::{bench::skipped, kernel::bpf_usable};
use gputrace_fidelity::release::{Release, SIMROCM_NEWER};
use gputrace_simrocm::HipSoname;

/// A release to test on, unless the test has to be skipped: then says why. Fails where it was promised.
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

/// The stand-ins with the ways of newer releases.
fn stand_ins() -> anyhow::Result<Release> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fidelity-stand-ins");
    let libraries = gputrace_simrocm::stage(&directory, HipSoname::Five)?;
    Release::simrocm(SIMROCM_NEWER, &libraries)
}

/// The binary under test.
pub(crate) fn gputrace() -> PathBuf {
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
