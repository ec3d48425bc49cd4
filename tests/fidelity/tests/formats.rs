//! Checks with third-party readers that every format holds the spans of the capture, for recordings
//! of all programs that use GPUs, on real runtimes. (The tests of markers, regions, functions and
//! collectives do the same for those.)

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

mod support;

use gputrace_e2e::formats;
use gputrace_fidelity::{
    run::launched,
    scenario::{Clock, Mode, Moment, ReadIndex, Scenario, WORKLOADS, Workload},
};

use support::{gputrace, release};

/// Programs that are not in the fidelity matrix.
const OTHERS: [Workload; 6] = [
    other("one vector addition", "vector_add", &[]),
    other("one of each", "features", &["{objects}/module.hsaco"]),
    other("callbacks", "callbacks", &[]),
    other("memory in the order of a stream", "pools", &[]),
    other("a child that executes the program anew", "forks", &["exec"]),
    other("HSA's ticks", "hsa_ticks", &[]),
];

const fn other(
    title: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
) -> Workload {
    Workload {
        title,
        program,
        arguments,
        attach_arguments: &[],
        duration: "{ uniform_ns = [1_000, 30_000] }",
        attach_duration: "",
        attach_kernels: "",
        // None of these is attached to.
        moment: Moment::Dispatches(0),
        gpus: 1,
        one_thread: false,
        graph_nodes: 0,
        is_hip: true,
        compiles: false,
        deferred: false,
        is_mix: false,
    }
}

/// What is recorded on releases without a row in [`ON`].
const ANYWHERE: &[&str] = &["many kernels, one stream", "one of each"];

/// Which workloads are recorded on which release. Together they cover all workloads.
const ON: [(&str, &[&str]); 4] = [
    (
        "5.2.3",
        &[
            "HSA only, many packets a doorbell",
            "HSA's ticks",
            "one vector addition",
            "two GPUs, a thread each",
            "one stream, submitted by a thread of HIP's",
        ],
    ),
    (
        "5.7.1",
        &[
            "four streams",
            "callbacks",
            "two GPUs, copies between",
            "HSA only, attached before a batch",
            "a child that executes the program anew",
            "four streams, submitted by threads of HIP's",
        ],
    ),
    (
        "6.4.3",
        &[
            "graph, captured and replayed",
            "copies",
            "two processes",
            "memory in the order of a stream",
            "two GPUs, submitted by threads of HIP's",
        ],
    ),
    (
        "7.2.4",
        &[
            "many kernels, one stream",
            "module made by hipRTC",
            "one of each",
        ],
    ),
];

fn programs() -> impl Iterator<Item = &'static Workload> {
    WORKLOADS.iter().chain(&OTHERS)
}

/// Runs and compares everything assigned to a release.
fn all_agree(name: &str) {
    let Some(python) = formats::python() else {
        return;
    };
    let Some(release) = release(name) else { return };
    let titles = ON.iter().find(|(on, _)| *on == name);
    let titles = titles.map_or(ANYWHERE, |(_, titles)| titles);
    for title in titles {
        let Some(workload) = programs().find(|workload| workload.title == *title) else {
            panic!("there is no workload {title}");
        };
        let scenario = Scenario {
            workload,
            mode: Mode::Launch,
            clock: Clock::Drift,
            // When a GPU asks for scratch memory, ROCr looks at the packet at the read index, and
            // asserts that it is valid.
            read_index: match workload.program {
                "features" => ReadIndex::Prompt,
                _ => ReadIndex::Late,
            },
        };
        let gputrace = gputrace();
        let found = launched(&scenario, &release, &gputrace, |capture| {
            Ok(formats::agree(&gputrace, capture, &python))
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => panic!("ROCm {name}, {scenario}: {error:#}"),
        };
        eprintln!("ROCm {name}, {scenario}: {found:?}");
        let work: u64 = found
            .iter()
            .filter(|(kind, _)| kind.contains("kernel_dispatch") || kind.contains("memory_copy"))
            .map(|(_, count)| count)
            .sum();
        assert!(work > 0, "nothing to compare");
    }
}

gputrace_releases::on_each_release!(all_agree);

#[test]
fn every_program_is_recorded_on_some_release() {
    for workload in programs() {
        let on = ON
            .iter()
            .filter(|(_, titles)| titles.contains(&workload.title))
            .count();
        assert_eq!(on, 1, "{}", workload.title);
    }
}
