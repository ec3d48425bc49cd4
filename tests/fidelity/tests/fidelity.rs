//! Compares recordings with the truth: the smaller matrix, on the oldest release and on 6.4.3. ROCm
//! 7.2.4 is only in the whole matrix, because its runtime once ended with "corrupted size vs.
//! prev_size" on two software GPUs.
//!
//! The tests assert what must hold on every machine, however slow: everything is recorded once,
//! with the right kernel, size, agent and API call, no window is violated, and the ledger balances.
//! The report (`cargo xtask fidelity`) says how precise the times are.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

mod support;

use gputrace_fidelity::{
    Figures,
    release::SIMROCM_NEWER,
    run::measure,
    scenario::{Mode, Scenario, WORKLOADS},
};

use support::{gputrace, release};

/// Runs the scenarios of a mode from the quick matrix. Fails with a list of everything wrong.
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
            // Printed with the failure of a test.
            eprintln!(
                "{scenario}: {} dispatches, {} copies, {:?}",
                figures.dispatches.found, figures.copies.found, figures.flaws
            );
            sum.add(&figures, &scenario.to_string());
        }
    }
    assert!(sum.runs as usize >= runnable.count());
    let violated = sum.flaws.keys().any(|flaw| flaw.is_invariant());
    assert!(
        sum.flaws.is_empty(),
        "{}ROCm {name}, {mode}: {:#?}",
        if violated { "INVARIANT: " } else { "" },
        sum.flaws
    );
    // Make sure that there was something to compare.
    assert!(
        sum.dispatches.found > 1000 && sum.copies.found > 100,
        "{sum:?}"
    );
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
