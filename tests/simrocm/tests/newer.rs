//! Behaviours of newer releases, each and all together.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

mod support;

use gputrace_harness::Run;
use support::{Runner, code_object};

/// Runs the programs that launch kernels in all ways.
fn run_all(newer: &str) -> [Run; 3] {
    let module = code_object("module.hsaco");
    let runs = [
        Runner::new("graph").arguments(&["700", "30"]),
        Runner::new("features").arguments(&[&module]),
        Runner::new("copies"),
    ]
    .map(|runner| runner.env("SIMROCM_NEWER", newer).run());
    for run in &runs {
        run.assert_success();
        run.assert_all_ran();
    }
    runs
}

#[test]
fn each_behaviour_keeps_programs_working() {
    for newer in [
        "doorbell_batches",
        "ext_dispatch",
        "queue_desc",
        "signal_batch",
        "gpu_only_signals",
        "copy_batch",
        "all",
    ] {
        run_all(newer);
    }
}

#[test]
fn an_unknown_behaviour_is_named() {
    let run = Runner::new("vector_add")
        .env("SIMROCM_NEWER", "nonsense")
        .run();
    assert_eq!(run.status.and_then(|status| status.code()), Some(86));
    assert!(run.stderr.contains("nonsense"), "{}", run.stderr);
}
