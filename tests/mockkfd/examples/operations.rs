//! Measures the parts of HIP operations on each available ROCm release, and prints tables in
//! Markdown: the packets that an operation submits and which of them have completion signals, with
//! and without `GPU_FORCE_QUEUE_PROFILING=1`; packets per doorbell ring; where signals are
//! re-armed; calls of exported `hsa_*` functions.
//!
//! ```text
//! cargo xtask build && cargo xtask rocm --fetch
//! sudo -E cargo run -p gputrace-mockkfd --example operations
//! ```
//!
//! The software GPU's own log shows what the GPU did. gputrace (`target/debug/gputrace`, or what
//! `GPUTRACE_BIN` names) shows the program's calls. The program,
//! `tests/workloads/gpu/operations.cpp`, reports which operation it was doing.

#![expect(clippy::print_stdout, reason = "a program whose output is its result")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement: what it does not expect ends it"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputrace_harness::rocm;
use gputrace_harness::said::{self, Said};
use gputrace_softgpu::truth::{Record, read_directory};
use serde::Deserialize;
use support::library;
use support::releases::{Release, release};

/// A row of rocprofv3's API traces.
#[derive(Debug, Deserialize)]
struct Call {
    #[serde(rename = "Function")]
    function: String,
    #[serde(rename = "Thread_Id")]
    thread: u32,
    #[serde(rename = "Start_Timestamp")]
    begin: u64,
    #[serde(rename = "End_Timestamp")]
    end: u64,
}

/// An operation and its time span.
struct Phase {
    name: String,
    count: u32,
    begin: u64,
    end: u64,
    settled: u64,
}

/// One run of the workload.
struct Measured {
    /// The release, and whether profiling was forced.
    title: String,
    phases: Vec<Phase>,
    truth: Vec<Record<'static>>,
    hsa: Vec<Call>,
    hip: Vec<Call>,
}

/// Packets of one kind: how many there were, had a completion signal, and got their times in it.
#[derive(Clone, Copy, Default)]
struct Packets {
    all: u32,
    signalled: u32,
    stamped: u32,
}

/// The packets of a phase.
#[derive(Default)]
struct OnGpu {
    kernels: Packets,
    barriers: Packets,
    others: Packets,
    copies: Packets,
}

/// The function by which HIP reserves a slot in a queue.
const RESERVE: &str = "hsa_queue_add_write_index_screlease";
/// The function by which HIP rings doorbells; HIP uses it for nothing else.
const RING: &str = "hsa_signal_store_screlease";
/// The function by which HIP arms a signal, including the first time.
const REARM: &str = "hsa_signal_silent_store_relaxed";
/// The functions that HIP calls for each AQL packet.
const OF_A_PACKET: [&str; 4] = [
    RESERVE,
    "hsa_queue_load_read_index_relaxed",
    "hsa_queue_load_read_index_scacquire",
    RING,
];

fn main() {
    let releases: Vec<Release> = rocm::names().filter_map(release).collect();
    let measure_all = |profiling| -> Vec<Measured> {
        let measured = releases.iter().map(|release| measure(release, profiling));
        measured.collect()
    };
    let (plain, forced) = (measure_all(false), measure_all(true));
    print_packets(plain.iter().chain(&forced));
    print_doorbells(plain.iter().chain(&forced));
    print_rearming(plain.iter().chain(&forced));
    println!("\n### Calls of exported `hsa_*` functions for one operation\n");
    print_calls(&plain);
    println!("\nWith profiling forced:\n");
    print_calls(&forced);
}

/// Runs the workload under gputrace.
fn measure(release: &Release, profiling: bool) -> Measured {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("truth")).unwrap();
    std::fs::write(
        at("softgpu.toml"),
        "default_duration = { fixed_ns = 2_000 }",
    )
    .unwrap();
    let workload = release.workload("operations");
    let gputrace = std::env::var_os("GPUTRACE_BIN").map_or_else(beside, PathBuf::from);
    let mut command = Command::new(&gputrace);
    command.args([
        "--hsa-trace",
        "--hip-runtime-trace",
        "--hsa-include",
        ".*",
        "-f",
        "csv",
    ]);
    command
        .args(["-o", "run", "-d"])
        .arg(directory.path())
        .args(["--", "env"]);
    // Small copies are done as the release does them by default.
    let own = workload
        .get_envs()
        .filter(|(name, _)| *name != "GPU_FORCE_BLIT_COPY_SIZE");
    let mut variable = |name: &str, value: &Path| {
        command.arg(format!("{name}={}", value.display()));
    };
    for (name, value) in own {
        variable(name.to_str().unwrap(), Path::new(value.unwrap()));
    }
    variable("LD_PRELOAD", &library());
    variable("SOFTGPU_CONFIG", &at("softgpu.toml"));
    variable("SOFTGPU_LOG", &at("truth"));
    variable("WORKLOAD_LOG", &at("said"));
    if profiling {
        variable("GPU_FORCE_QUEUE_PROFILING", Path::new("1"));
    }
    let output = command.arg(workload.get_program()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", gputrace.display()));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let phase = |said| match said {
        Said::Phase {
            name,
            count,
            begin_ns,
            end_ns,
            settled_ns,
        } => Some(Phase {
            name,
            count,
            begin: begin_ns,
            end: end_ns,
            settled: settled_ns,
        }),
        _ => None,
    };
    Measured {
        title: format!(
            "{}{}",
            release.name,
            if profiling { ", forced" } else { "" }
        ),
        phases: said::read(&at("said"))
            .unwrap()
            .into_iter()
            .filter_map(phase)
            .collect(),
        truth: read_directory(&at("truth")).unwrap(),
        hsa: read_calls(&at("run_hsa_api_trace.csv")),
        hip: read_calls(&at("run_hip_api_trace.csv")),
    }
}

/// gputrace as built by cargo, in the directory above that of the examples.
fn beside() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().join("gputrace")
}

fn read_calls(path: &Path) -> Vec<Call> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

impl Measured {
    /// The packets of a phase.
    fn on_gpu(&self, phase: &Phase) -> OnGpu {
        let mut on_gpu = OnGpu::default();
        for record in &self.truth {
            let (packets, begin, signal, stamped) = match record {
                Record::Dispatch(it) => (&mut on_gpu.kernels, it.begin, it.signal, it.stamped),
                Record::Packet(it) if it.packet.starts_with("barrier") => {
                    (&mut on_gpu.barriers, it.begin, it.signal, it.stamped)
                }
                Record::Packet(it) => (&mut on_gpu.others, it.begin, it.signal, it.stamped),
                Record::Copy(it) => (&mut on_gpu.copies, it.begin, it.signal, it.stamped),
                _ => continue,
            };
            if (phase.begin..phase.settled).contains(&begin.ns) {
                packets.all += 1;
                packets.signalled += u32::from(signal != 0);
                packets.stamped += u32::from(stamped);
            }
        }
        on_gpu
    }

    /// Calls of HSA within a phase, by function.
    fn calls(&self, phase: &Phase) -> BTreeMap<&str, u32> {
        let mut calls = BTreeMap::new();
        for call in &self.hsa {
            if (phase.begin..phase.end).contains(&call.begin) {
                *calls.entry(call.function.as_str()).or_default() += 1;
            }
        }
        calls
    }

    /// The outermost HIP function that was running around a call of HSA; `None` on the runtime's
    /// own threads.
    fn inside(&self, call: &Call) -> Option<&str> {
        let around =
            |hip: &&Call| hip.thread == call.thread && (hip.begin..=hip.end).contains(&call.begin);
        self.hip
            .iter()
            .find(around)
            .map(|hip| hip.function.as_str())
    }
}

impl Packets {
    /// E.g. `2 K`, for one of `count` operations; followed by `s` if all have signals, by `t` if
    /// all got their times in them.
    fn per(self, count: u32, letter: char) -> Option<String> {
        let text = format!("{} {letter}", per(self.all, count));
        match self {
            Self { all: 0, .. } => None,
            Self {
                all,
                signalled,
                stamped: 0,
            } if signalled == all => Some(format!("{text}s")),
            Self { all, stamped, .. } if stamped == all => Some(format!("{text}t")),
            Self { signalled: 0, .. } => Some(text),
            Self {
                signalled, stamped, ..
            } => Some(format!("{text} ({signalled} signals, {stamped} times)")),
        }
    }
}

/// A number per operation: an integer, or one decimal if it varies.
fn per(number: u32, count: u32) -> String {
    let each = f64::from(number) / f64::from(count);
    if number.is_multiple_of(count) {
        format!("{each:.0}")
    } else if each < 0.05 {
        "<0.1".to_owned()
    } else {
        format!("~{each:.1}")
    }
}

/// Prints a table with a row for each operation and a column for each run.
fn print_operations<'a>(
    runs: impl Iterator<Item = &'a Measured>,
    cell: impl Fn(&Measured, &Phase) -> String,
) {
    let runs: Vec<&Measured> = runs.collect();
    let titles: Vec<&str> = runs.iter().map(|run| run.title.as_str()).collect();
    println!("| operation | {} |", titles.join(" | "));
    println!("|---|{}", "---|".repeat(runs.len()));
    for (row, phase) in runs
        .first()
        .map(|run| &run.phases)
        .into_iter()
        .flatten()
        .enumerate()
    {
        // The program is the same, so the phases are the same.
        let cells = runs
            .iter()
            .map(|run| cell(run, run.phases.get(row).unwrap()));
        println!(
            "| {} | {} |",
            phase.name,
            cells.collect::<Vec<_>>().join(" | ")
        );
    }
}

fn print_packets<'a>(runs: impl Iterator<Item = &'a Measured>) {
    println!("### Packets of one operation, and which have completion signals\n");
    println!(
        "K: kernel; B: barrier; V: other AQL packet; C: copy by SDMA. Behind it nothing: no completion signal;"
    );
    println!("s: a signal; t: a signal that got begin and end.\n");
    print_operations(runs, |run, phase| {
        let OnGpu {
            kernels,
            barriers,
            others,
            copies,
        } = run.on_gpu(phase);
        let kinds = [
            (kernels, 'K'),
            (barriers, 'B'),
            (others, 'V'),
            (copies, 'C'),
        ];
        let texts: Vec<String> = kinds
            .into_iter()
            .filter_map(|(packets, letter)| packets.per(phase.count, letter))
            .collect();
        or_none(&texts)
    });
}

fn print_doorbells<'a>(runs: impl Iterator<Item = &'a Measured>) {
    println!("\n### Packets per ring of a doorbell, over all operations\n");
    println!("| release | AQL packets | `{RESERVE}` | `{RING}` |");
    println!("|---|---|---|---|");
    for run in runs {
        let (mut packets, mut reserved, mut rings) = (0, 0, 0);
        for phase in &run.phases {
            let on_gpu = run.on_gpu(phase);
            packets += on_gpu.kernels.all + on_gpu.barriers.all + on_gpu.others.all;
            let calls = run.calls(phase);
            reserved += calls.get(RESERVE).unwrap_or(&0);
            rings += calls.get(RING).unwrap_or(&0);
        }
        println!("| {} | {packets} | {reserved} | {rings} |", run.title);
    }
}

fn print_rearming<'a>(runs: impl Iterator<Item = &'a Measured>) {
    println!("\n### Where signals are armed: `{REARM}`, over the whole program\n");
    println!("| release | signalled packets and copies | calls | of these inside |");
    println!("|---|---|---|---|");
    for run in runs {
        let signalled = |record: &&Record<'_>| match record {
            Record::Dispatch(it) => it.signal != 0,
            Record::Packet(it) => it.signal != 0,
            Record::Copy(it) => it.signal != 0,
            _ => false,
        };
        let signalled = run.truth.iter().filter(signalled).count();
        let mut inside: BTreeMap<&str, u32> = BTreeMap::new();
        for call in run.hsa.iter().filter(|call| call.function == REARM) {
            *inside
                .entry(run.inside(call).unwrap_or("no HIP call"))
                .or_default() += 1;
        }
        let calls: u32 = inside.values().sum();
        println!(
            "| {} | {signalled} | {calls} | {} |",
            run.title,
            most_first(&inside, 1)
        );
    }
}

fn print_calls(runs: &[Measured]) {
    println!(
        "P: the calls of one packet: {}.\n",
        OF_A_PACKET.map(|name| format!("`{name}`")).join(", ")
    );
    print_operations(runs.iter(), |run, phase| {
        let mut calls = run.calls(phase);
        let packets = OF_A_PACKET.map(|name| calls.get(name).copied().unwrap_or(0));
        if let [packets, rest @ ..] = packets
            && packets > 0
            && rest.iter().all(|calls| *calls == packets)
        {
            calls.retain(|name, _| !OF_A_PACKET.contains(name));
            calls.insert("P", packets);
        }
        most_first(&calls, phase.count)
    });
}

/// Numbers and names for one of `count` operations, most frequent first.
fn most_first(numbers: &BTreeMap<&str, u32>, count: u32) -> String {
    let mut numbers: Vec<_> = numbers.iter().collect();
    numbers.sort_by_key(|(_, number)| std::cmp::Reverse(**number));
    let texts: Vec<String> = numbers
        .iter()
        .map(|(name, number)| {
            format!(
                "{} {}",
                per(**number, count),
                name.trim_start_matches("hsa_")
            )
        })
        .collect();
    or_none(&texts)
}

fn or_none(texts: &[String]) -> String {
    if texts.is_empty() {
        "-".to_owned()
    } else {
        texts.join(", ")
    }
}
