//! Every workload on every ROCm release: compares the programs' reports with what the GPU did.
//!
//! There is one test per release. Each goes through the same table, runs all rows even if some
//! fail, and then names the failures. A missing release is left out with a message; with
//! `GPUTRACE_REQUIRE_ROCM=1`, it is a failure.

#![expect(clippy::print_stdout, reason = "a test that prints figures")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use gputrace_harness::{Direction, Run, Said};
use gputrace_softgpu::truth::Record;
use support::releases::{Release, code_object, release, say};
use support::run_until;

/// A workload, how to run it, and what to check beyond the common checks.
struct Row {
    program: &'static str,
    arguments: fn(&Release) -> Vec<String>,
    toml: &'static str,
    environment: &'static [(&'static str, &'static str)],
    ends: Ends,
    /// Further checks of the logs.
    check: fn(&Release, &Run),
}

/// How a workload ends.
#[derive(PartialEq)]
enum Ends {
    /// By itself, with status 0.
    Well,
    /// Never, because it waits for what an injected fault prevents.
    AfterFault,
}

const fn row(program: &'static str) -> Row {
    Row {
        program,
        arguments: |_| Vec::new(),
        toml: "",
        environment: &[],
        ends: Ends::Well,
        check: |_, _| {},
    }
}

const TWO_GPUS: &str = "
    [[agent]]
    [[agent]]
    gfx = 'gfx1030'
    device_id = 0x73bf
    clock = { frequency_hz = 25_000_000 }
";

static TABLE: [Row; 20] = [
    Row {
        // Threads that spun instead of sleeping waited 72,000 times; a few dozen are right. Elapsed
        // time depends on what else is running, so it is only a figure.
        environment: &[("MOCKKFD_WAITS", "1000")],
        check: |release, run| {
            assert!(
                !run.stderr.contains("more waits for events"),
                "{}",
                run.stderr
            );
            let wall = run.wall.as_secs_f64();
            println!("figure mockkfd.vector_add.{} = {wall:.3} s", release.name);
        },
        ..row("vector_add")
    },
    Row {
        arguments: |_| vec!["10000".into()],
        ..row("many_kernels")
    },
    row("streams"),
    Row {
        check: |_, run| {
            let within_gpu = run.bytes_said(&[Direction::D2d]).len();
            assert_eq!(run.copy_kernels(), within_gpu, "copies within the GPU");
        },
        ..row("copies")
    },
    Row {
        arguments: |_| vec!["100".into(), "1000".into()],
        toml: "default_duration = { fixed_ns = 500 }",
        ..row("graph")
    },
    Row {
        toml: TWO_GPUS,
        check: |_, run| assert!(run.said.contains(&Said::Devices { value: 2.0 })),
        ..row("devices")
    },
    Row {
        toml: TWO_GPUS,
        check: |_, run| assert!(run.said.contains(&Said::PeerAccess { value: 0.0 })),
        ..row("peers")
    },
    Row {
        toml: "[[agent]]\nhive = 1\n[[agent]]\nhive = 1",
        // HIP 6 does small copies between linked GPUs by a kernel, unless told otherwise.
        environment: &[("ROC_P2P_SDMA_SIZE", "0")],
        check: |_, run| assert!(run.said.contains(&Said::PeerAccess { value: 1.0 })),
        ..row("peers")
    },
    Row {
        arguments: |_| vec![code_object("module.hsaco")],
        ..row("features")
    },
    Row {
        // HIP 5.2 deadlocks in hipStreamDestroy after hipFreeAsync, on a lock of its own.
        arguments: |release| match release.name {
            "5.2.3" => vec!["keep".into()],
            _ => Vec::new(),
        },
        // HIP 5 has memory pools, but only on request.
        environment: &[("HIP_MEM_POOL_SUPPORT", "1")],
        ..row("pools")
    },
    Row {
        check: |release, run| {
            let value = if release.name == "5.2.3" { 0.0 } else { 1.0 };
            assert!(
                run.said.contains(&Said::HostFunctions { value }),
                "hipLaunchHostFunc"
            );
        },
        ..row("callbacks")
    },
    Row {
        arguments: |_| vec!["3".into()],
        check: |_, run| assert_eq!(processes(run), 4),
        ..row("processes")
    },
    Row {
        arguments: |_| vec!["exec".into()],
        check: |_, run| assert_eq!(processes(run), 2),
        ..row("forks")
    },
    Row {
        arguments: |_| vec!["host".into()],
        ..row("forks")
    },
    Row {
        // ROCm does not support this: the child is killed by SIGSEGV (11). The parent must not
        // notice.
        arguments: |_| vec!["inherit".into()],
        check: |_, run| assert!(run.said.contains(&Said::ChildStatus { value: 11.0 })),
        ..row("forks")
    },
    row("rtc"),
    Row {
        arguments: |_| vec![code_object("module-gfx906.hsaco")],
        check: |_, run| {
            let barriers = run
                .packets()
                .iter()
                .filter(|packet| packet.packet == "barrier_and")
                .count();
            assert_eq!(barriers, 1);
        },
        ..row("hsa_dispatch")
    },
    row("hsa_ticks"),
    Row {
        toml: "[[fault]]\nkind = 'never_ends'\nkernel = 'endless'",
        ends: Ends::AfterFault,
        ..row("endless")
    },
    Row {
        check: |_, run| {
            // Kernels of Tensile; a product may need several.
            let products = run
                .dispatches()
                .iter()
                .filter(|dispatch| dispatch.kernel.starts_with("Cijk_"))
                .count();
            assert!(products >= 15, "{products} kernels for 15 products");
            assert!(run.said.contains(&Said::Products { value: 15.0 }));
        },
        ..row("gemm")
    },
];

/// Number of processes that used a GPU.
fn processes(run: &Run) -> usize {
    let mut pids: Vec<u32> = run
        .dispatches()
        .iter()
        .map(|dispatch| dispatch.place.pid)
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids.len()
}

/// The release with which rocBLAS is tested; its suite contains librocblas0.
const WITH_ROCBLAS: &str = "5.7.1";

/// Whether a workload is skipped because the release lacks something here; prints so.
fn left_out(row: &Row, release: &Release) -> bool {
    if row.program != "gemm" || release.has("librocblas.so.0") {
        return false;
    }
    if release.name == WITH_ROCBLAS {
        // Two gigabytes for one program: never required, not even where releases are.
        say(&format!(
            "SKIPPED gemm: `cargo xtask rocm --release {WITH_ROCBLAS} --fetch --with librocblas0` gets rocBLAS"
        ));
    } else {
        say(&format!(
            "gemm left out on ROCm {}: it is for {WITH_ROCBLAS}",
            release.name
        ));
    }
    true
}

/// Checks that hold for every workload.
fn as_said(row: &Row, run: &Run) {
    // The program does not know which kernels rocBLAS launches.
    if row.program != "gemm" {
        run.assert_all_ran();
    }
    // Between GPUs that cannot access each other's memory, copies go through the host: each uses
    // SDMA twice.
    let through_host = run.said.contains(&Said::PeerAccess { value: 0.0 });
    let once = run.bytes_said(&[Direction::H2d, Direction::D2h]);
    let between = run.bytes_said(&[Direction::Peer]);
    let times = if through_host { 2 } else { 1 };
    let said = once.iter().sum::<u64>() + times * between.iter().sum::<u64>();
    // This program does not report all of its copies, because it is about other things.
    if row.program != "features" {
        assert_eq!(run.bytes_copied(), said, "bytes copied");
    }
}

fn try_row(row: &Row, release: &Release) {
    let mut command = release.workload(row.program);
    command
        .args((row.arguments)(release))
        .envs(row.environment.iter().copied());
    let faulty = |truth: &[Record<'static>]| {
        truth
            .iter()
            .any(|record| matches!(record, Record::Fault { .. }))
    };
    let stop = row.ends == Ends::AfterFault;
    let run = run_until(&mut command, row.toml, |truth| stop && faulty(truth));
    match row.ends {
        Ends::Well => run.assert_success(),
        Ends::AfterFault => assert!(
            run.status.is_none() && faulty(&run.truth),
            "{:?}",
            run.status
        ),
    }
    if row.ends == Ends::Well {
        as_said(row, &run);
    }
    (row.check)(release, &run);
}

fn try_rocminfo(release: &Release) {
    let run = release.rocminfo(TWO_GPUS);
    run.assert_success();
    for name in ["gfx906", "gfx1030"] {
        let line = format!("Name:                    {name}");
        assert!(run.stdout.contains(&line), "{}", run.stdout);
    }
}

/// Runs all workloads on a release.
fn whole_release(name: &'static str) {
    let Some(release) = release(name) else {
        return;
    };
    // Built first, so that this does not count.
    release.build();
    let begin = Instant::now();
    let mut failed = Vec::new();
    let mut ran = 0;
    let mut attempt = |what: String, test: &dyn Fn()| {
        ran += 1;
        // Shown if the test fails.
        eprintln!("{what}:");
        if catch_unwind(AssertUnwindSafe(test)).is_err() {
            failed.push(what);
        }
    };
    attempt("rocminfo".into(), &|| try_rocminfo(&release));
    for row in &TABLE {
        if !left_out(row, &release) {
            let words = [vec![row.program.to_owned()], (row.arguments)(&release)].concat();
            attempt(words.join(" "), &|| try_row(row, &release));
        }
    }
    say(&format!(
        "ROCm {name}: {ran} programs in {:.1} s",
        begin.elapsed().as_secs_f64()
    ));
    assert!(failed.is_empty(), "on ROCm {name} failed: {failed:#?}");
}

gputrace_releases::on_each_release!(whole_release);
