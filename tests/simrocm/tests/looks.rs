//! Looks at read indices: compares their cost and results with what the software GPU did.

#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "test code outside of #[test] functions"
)]

mod support;

use std::{
    collections::HashMap,
    fs,
    fs::File,
    path::Path,
    process::Command,
    sync::{Mutex, PoisonError},
};

use gputrace_capture::{Block, CaptureReader, ledger::Looks, records};
use gputrace_e2e::{Running, Trace, bench::Bench};
use gputrace_simrocm::HipSoname;
use gputrace_softgpu::truth::{Record, read_directory};

use support::staged;

/// Kernels as short as in programs that are bound by launches.
const SETTINGS: &str = "default_duration = { fixed_ns = 20_000 }\n";

/// A record of a look at which the read index had changed: [`gputrace_abi::gpu::QueueState`].
#[derive(Clone, Copy, Debug)]
struct Change {
    time: u64,
    read_index: u64,
    looked: u64,
}

/// Attaches to a program that submits 20,000 kernels a second without completion signals.
fn record(bench: &Bench, options: &[&str]) -> (Trace, Vec<Change>) {
    let (settings, truth) = (
        bench.path().join("softgpu.toml"),
        bench.path().join("truth"),
    );
    fs::write(&settings, SETTINGS).expect("the settings");
    fs::create_dir(&truth).expect("a directory for the GPU's log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_simrocm-dispatch"));
    command
        .env("LD_LIBRARY_PATH", staged(HipSoname::Six))
        .env("SOFTGPU_CONFIG", settings)
        .env("SOFTGPU_LOG", truth);
    let mut program = Running::start("simrocm-dispatch", &mut command);
    program.wait_for_stdout("ready");
    let outputs = bench.outputs(0);
    let all = [&["-r", "-f", "csv"], options].concat();
    bench.attach(&outputs, &all, &[program.pid()]).finish();
    program.close_stdin();
    program.finish();
    (outputs.trace(), changes(&outputs.capture()))
}

fn changes(capture: &Path) -> Vec<Change> {
    let mut reader =
        CaptureReader::new(File::open(capture).expect("the capture")).expect("a capture");
    let mut changes = Vec::new();
    while let Some(block) = reader.next_block().expect("a block") {
        let Block::Records(bytes) = block else {
            continue;
        };
        let records = records::split(bytes).map_while(Result::ok);
        let queues =
            records.filter(|record| record.header.kind == gputrace_abi::record::kind::QUEUE);
        changes.extend(queues.filter_map(|record| {
            let state: gputrace_abi::gpu::QueueState =
                zerocopy::FromBytes::read_from_bytes(record.bytes).ok()?;
            Some(Change {
                time: state.time,
                read_index: state.read_index,
                looked: state.looked,
            })
        }));
    }
    // The watcher's last report may come before its previous one.
    changes.sort_by_key(|change| change.time);
    changes
}

/// Time when each packet was taken by the GPU and began, ns.
fn begins(bench: &Bench) -> HashMap<u64, u64> {
    let truth = read_directory(&bench.path().join("truth")).expect("the truth");
    let begin = truth.iter().filter_map(|record| match record {
        Record::Dispatch(dispatch) => Some((dispatch.place.index, dispatch.begin.ns)),
        _ => None,
    });
    begin.collect()
}

/// Each test keeps a CPU busy, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn looks(trace: &Trace) -> Looks {
    trace.final_ledger().looks.expect("what looks came to")
}

/// How long is recorded where looks have a budget: for some seconds, of which one is the busiest.
const DURATION: &str = "4s";

#[test]
fn looks_keep_their_budget_by_the_figures() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (trace, changes) = record(&bench, &["--duration", DURATION, "--look-budget", "1.5"]);
    let looks = looks(&trace);
    let budget = f64::from(looks.budget) / 1e6;
    let busiest = looks.busiest as f64 / 1e9;
    for (name, share) in [("share", looks.share()), ("busiest", busiest)] {
        println!("figure simrocm.looks.{name} = {:.3} %", share * 100.0);
    }
    println!("figure simrocm.looks.looks = {} looks", looks.looks);
    println!("figure simrocm.looks.changes = {} changes", changes.len());
    // The cost of a series of looks is known only when it is over, so the busiest second may exceed
    // the budget a little.
    assert!(looks.share() <= budget, "{looks:?}");
    assert!(busiest <= budget * 1.25, "{looks:?}");
    assert!(looks.looks > 100, "{looks:?}");
}

#[test]
fn looks_say_what_they_cost_and_tell_the_truth() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (trace, changes) = record(&bench, &["--duration", DURATION, "--look-budget", "1.5"]);
    let looks = looks(&trace);
    assert_eq!(looks.budget, 15_000);
    assert!(
        looks.looks > 0 && looks.period > 0 && looks.cpu > 0,
        "{looks:?}"
    );
    assert!(
        trace.gpu.dispatches.len() > 1_000,
        "{}",
        trace.gpu.dispatches.len()
    );

    // Only changes are written, including those seen when a doorbell rang; the last record has the
    // final state.
    let unchanged = changes.windows(2).filter(|pair| match pair {
        [before, change] => before.read_index == change.read_index,
        _ => false,
    });
    assert!(unchanged.count() <= 1, "{changes:?}");
    let begins = begins(&bench);
    let mut checked = 0;
    for pair in changes.windows(2) {
        let [before, change] = pair else { continue };
        assert!(
            change.looked >= before.looked && change.looked < change.time,
            "{pair:?}"
        );
        if change.read_index == before.read_index {
            continue;
        }
        let last = change.read_index - 1;
        if let Some(begin) = begins.get(&last) {
            // A packet begins when it is taken, and had not been taken at the previous look.
            assert!(
                *begin >= change.looked,
                "packet {last} began at {begin}: {change:?}"
            );
            checked += 1;
        }
    }
    assert!(checked > 0, "{checked} of {}", changes.len());
}

#[test]
fn without_a_budget_nobody_looks() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (trace, changes) = record(&bench, &["--duration", "1s", "--look-budget", "0"]);
    let looks = looks(&trace);
    assert_eq!((looks.budget, looks.looks, looks.cpu), (0, 0, 0));
    // The state of the queue is read when the recording ends: three times in a row, between which it
    // may change.
    assert!(changes.len() <= 3, "{changes:?}");
    assert!(
        trace.gpu.dispatches.len() > 1_000,
        "{}",
        trace.gpu.dispatches.len()
    );
}
