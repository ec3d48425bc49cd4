//! Launches programs: the trace contains every call from the first to the last.
#![expect(clippy::expect_used, reason = "tests")]

use std::{fs, os::unix::fs::MetadataExt, process::Command};

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{EndReason, Mode};
use gputrace_e2e::{
    Bench, CallLog, Comparison, Running, Trace,
    compare::{compare, compare_if},
    csvout,
};
use gputrace_timeline::event::LifetimeChange;

/// Result of tracing a program to its end; the trace has been compared with the program's log and
/// found exact.
struct Launched {
    log: CallLog,
    trace: Trace,
    comparison: Comparison,
}

/// Launches a workload; `None` if the test is to be skipped.
fn launched(workload: &[&str]) -> Option<Launched> {
    let bench = Bench::privileged()?;
    let outputs = bench.launch(&["--sys-trace", "-f", "csv,pftrace"], workload);
    let (log, trace) = (bench.log(), outputs.trace());
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    assert_eq!(
        trace.final_ledger().unmatched_returns,
        0,
        "calls that began before the probes were there"
    );
    let comparison = compare(&log, &trace);
    comparison.assert_exact();
    csvout::assert_same(&outputs, &trace);
    assert!(
        fs::metadata(outputs.file("_results.pftrace"))
            .expect("a Perfetto trace")
            .len()
            > 1000
    );
    Some(Launched {
        log,
        trace,
        comparison,
    })
}

#[test]
fn single_thread() {
    let Some(run) = launched(&["hip_calls", "single", "20"]) else {
        return;
    };
    assert_eq!(run.comparison.found, run.log.len());
    assert!(matches!(run.trace.recording.mode, Mode::Launch { .. }));
    // Called by constructors and destructors that hipcc generates, before and after main.
    assert_eq!(run.comparison.unlogged("__hipRegisterFatBinary"), 1);
    assert_eq!(run.comparison.unlogged("__hipRegisterFunction"), 1);
    assert_eq!(run.comparison.unlogged("__hipUnregisterFatBinary"), 1);
    assert_shown(&run.trace);
}

/// Asserts that flags and structures in the rounds of `hip_calls` are shown as the program passed
/// them.
fn assert_shown(trace: &Trace) {
    let of = |function: &'static str| trace.calls_of(function).map(|call| trace.arguments(call));
    let has = |arguments: &[String], wanted: &str| {
        assert!(
            arguments.iter().any(|one| one == wanted),
            "{wanted}: {arguments:?}"
        );
    };
    for (round, arguments) in of("hipHostMalloc").enumerate() {
        let rest = if round % 2 == 1 { "|0x100" } else { "" };
        has(
            &arguments,
            &format!("flags=hipHostMallocPortable|hipHostMallocMapped{rest}"),
        );
    }
    for arguments in of("hipStreamCreateWithFlags") {
        has(&arguments, "flags=hipStreamNonBlocking");
    }
    for (round, arguments) in of("hipMalloc3D").enumerate() {
        has(&arguments, &format!("extent.width={}", round + 1));
        has(&arguments, "extent.depth=3");
        // It failed because there is no GPU.
        let pointer = arguments.first().expect("arguments");
        assert!(pointer.starts_with("pitchedDevPtr=(at 0x"), "{arguments:?}");
    }
    for (round, arguments) in of("hipMemset3D").enumerate() {
        has(&arguments, "pitchedDevPtr.pitch=16");
        has(&arguments, &format!("extent.depth={round}"));
    }
    let copies: Vec<_> = of("hipMemcpy3D").collect();
    let (threes, rest) = copies.as_chunks::<3>();
    assert!(!threes.is_empty() && rest.is_empty());
    for (round, [given, unmapped, null]) in threes.iter().enumerate() {
        assert_eq!(given.len(), 21, "{given:?}");
        for wanted in [
            "p.srcPtr.pitch=16".to_owned(),
            format!("p.srcPtr.ysize={round}"),
            format!("p.dstPos.x={round}"),
            "p.dstPos.z=6".to_owned(),
            format!("p.extent.width={}", round + 1),
            "p.kind=hipMemcpyDeviceToHost".to_owned(),
        ] {
            has(given, &wanted);
        }
        let place = unmapped.first().filter(|_| unmapped.len() == 1);
        assert!(
            place.is_some_and(|one| one.starts_with("p=(at 0x5a5a")),
            "{unmapped:?}"
        );
        assert_eq!(null, &["p=0x0"]);
    }
}

#[test]
fn threads() {
    let Some(run) = launched(&["hip_calls", "threads", "8", "20"]) else {
        return;
    };
    assert_eq!(run.log.threads.len(), 8);
    let pid = run.log.processes()[0];
    let started = run
        .trace
        .lifetimes
        .iter()
        .filter(|lifetime| matches!(lifetime.what, LifetimeChange::ThreadStarted { .. }));
    assert_eq!(started.filter(|lifetime| lifetime.pid == pid).count(), 8);
}

#[test]
fn forks() {
    let Some(run) = launched(&["hip_calls", "fork", "3", "5"]) else {
        return;
    };
    assert_eq!(run.log.processes().len(), 4);
    // Forked processes inherit their parent's registration.
    assert_eq!(run.comparison.unlogged("__hipRegisterFatBinary"), 1);
    for (pid, _) in run.log.threads.keys() {
        let named = run
            .trace
            .processes
            .iter()
            .any(|process| process.pid == *pid && process.name == "hip_calls");
        assert!(
            named,
            "process {pid} has no name in the trace: {:?}",
            run.trace.processes
        );
    }
}

#[test]
fn executes_itself() {
    let Some(run) = launched(&["hip_calls", "exec", "3", "5"]) else {
        return;
    };
    assert_eq!(run.log.threads.len(), 1);
    assert_eq!(run.comparison.unlogged("__hipRegisterFatBinary"), 4);
    let executed = |what: &LifetimeChange| matches!(what, LifetimeChange::Executed { .. });
    assert!(
        run.trace
            .lifetimes
            .iter()
            .filter(|lifetime| executed(&lifetime.what))
            .count()
            >= 3
    );
}

#[test]
fn another_tool_inside_is_told_of_and_nothing_counted_twice() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // A library of that name that does nothing.
    let library = bench.path().join("librocprofiler-sdk.so.1");
    let built = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(&library)
        .status()
        .expect("a C compiler");
    assert!(built.success());
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(["--sys-trace", "-f", "csv", "--", "env"])
        .arg(format!("LD_PRELOAD={}", library.display()))
        .arg(bench.program("hip_calls"))
        .args(["single", "20"]);
    Running::start("gputrace", &mut command).finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    compare(&bench.log(), &trace).assert_exact();
    let told = trace.notices.iter().filter(|notice| {
        notice
            .text
            .contains("librocprofiler-sdk.so.1 of rocprofiler-sdk")
    });
    assert_eq!(told.count(), 1, "{:?}", trace.notices);
}

#[test]
fn loads_the_runtime_late() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(["--sys-trace", "-f", "csv", "--"])
        .arg(bench.program("hip_late"))
        .args(["dlopen", "10"]);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.wait_for_stdout("ready");
    gputrace.send("load");
    gputrace.wait_for_stdout("loaded");
    gputrace.send("call");
    gputrace.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    compare(&bench.log(), &trace).assert_exact();
}

#[test]
fn hsa_alone() {
    let Some(run) = launched(&["hsa_calls", "20"]) else {
        return;
    };
    assert_eq!(run.comparison.found, run.log.len());
    assert!(run.trace.calls_of("hsa_init").count() >= 20);
}

#[test]
fn functions_that_begin_in_different_ways() {
    let Some(run) = launched(&["synthetic/synthetic", "shapes", "200"]) else {
        return;
    };
    assert_eq!(run.trace.calls.len(), run.log.len());
    let inner = run.trace.calls_of("hipSyntheticTarget");
    assert!(
        inner.into_iter().all(|call| call.depth == 1),
        "a function that another one jumps to is inside it"
    );
}

#[test]
fn polled_functions_are_traced_only_if_asked_for() {
    let polled = "hsa_signal_load_relaxed";
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let trace = bench
        .launch(&["--hsa-trace"], &["synthetic/hsa_synthetic", "10"])
        .trace();
    compare_if(&bench.log(), &trace, |call| call.name != polled).assert_exact();
    assert_eq!(trace.calls_of(polled).count(), 0);

    let bench = Bench::new();
    let trace = bench
        .launch(
            &["--hsa-trace", "--hsa-include", "signal_load_relaxed$"],
            &["synthetic/hsa_synthetic", "10"],
        )
        .trace();
    compare(&bench.log(), &trace).assert_exact();
    assert_eq!(trace.calls_of(polled).count(), 10);
}

#[test]
fn domains_can_be_chosen() {
    let all = [
        "hsa_synthetic_core",
        "hsa_amd_synthetic",
        "hsa_ext_image_synthetic",
        "hsa_ext_program_synthetic",
    ];
    for (options, names) in [
        (&["--hsa-core-trace"][..], &all[0..1]),
        (&["--hsa-amd-trace"], &all[1..2]),
        (&["--hsa-image-trace"], &all[2..3]),
        (&["--hsa-finalizer-trace"], &all[3..4]),
        (&["--hsa-trace"], &all),
        (&["--sys-trace"], &all),
        (&["--hsa-trace", "--hsa-core-trace=False"], &all[1..]),
        (
            &["--hsa-core-trace", "--hsa-finalizer-trace=True"],
            &[all[0], all[3]],
        ),
    ] {
        let Some(bench) = Bench::privileged() else {
            return;
        };
        let trace = bench
            .launch(options, &["synthetic/hsa_synthetic", "3"])
            .trace();
        compare_if(&bench.log(), &trace, |call| {
            names.contains(&call.name.as_str())
        })
        .assert_exact();
        for name in all {
            let expected = if names.contains(&name) { 3 } else { 0 };
            assert_eq!(
                trace.calls_of(name).count(),
                expected,
                "{name} with {options:?}"
            );
        }
    }
}

#[test]
fn the_hip_runtime_is_the_default() {
    for options in [
        &[][..],
        &["--runtime-trace"],
        &["--hip-runtime-trace"],
        &["--hip-trace", "--hip-compiler-trace=False"],
    ] {
        let Some(bench) = Bench::privileged() else {
            return;
        };
        let trace = bench.launch(options, &["hip_calls", "single", "3"]).trace();
        trace.assert_lossless();
        compare_if(&bench.log(), &trace, |call| !call.name.starts_with("__hip")).assert_exact();
        let runtime = Domain::HipRuntime.id();
        assert!(
            trace.calls.iter().all(|call| call.domain == runtime),
            "other domains with {options:?}"
        );
    }
}

#[test]
fn functions_can_be_chosen() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let options = ["--include", "^hip(Malloc|Memcpy)", "--exclude", "2D"];
    let trace = bench
        .launch(&options, &["hip_calls", "single", "3"])
        .trace();
    let chosen = |name: &str| {
        (name.starts_with("hipMalloc") || name.starts_with("hipMemcpy")) && !name.contains("2D")
    };
    compare_if(&bench.log(), &trace, |call| chosen(&call.name)).assert_exact();
    let others: Vec<&str> = trace
        .calls
        .iter()
        .map(|call| trace.name(call))
        .filter(|name| !chosen(name))
        .collect();
    assert_eq!(others, [""; 0]);
}

#[test]
fn functions_are_chosen_by_the_names_in_their_headers() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // The library exports it under a C++ name.
    let name = "hipExtModuleLaunchKernel";
    let trace = bench
        .launch(
            &["--include", &format!("^{name}$")],
            &["hip_calls", "single", "3"],
        )
        .trace();
    compare_if(&bench.log(), &trace, |call| call.name == name).assert_exact();
    assert_eq!(trace.calls.len(), 3);
}

#[test]
fn exit_status_is_passed_on() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    for (command, expected) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["true"], 0),
    ] {
        let outputs = bench.outputs(0);
        let mut gputrace =
            Running::start("gputrace", bench.gputrace(&outputs).arg("--").args(command));
        assert_eq!(
            gputrace.wait().code(),
            Some(expected),
            "{command:?}: {}",
            gputrace.describe()
        );
        outputs.trace().assert_sound(&EndReason::TargetsGone);
    }
    let mut gputrace = Running::start(
        "gputrace",
        bench
            .gputrace(&bench.outputs(1))
            .args(["--", "/no/such/program"]),
    );
    let (_, said) = gputrace.fail();
    assert!(said.contains("/no/such/program"), "{said}");
}

#[test]
fn under_sudo_the_program_and_the_files_are_the_callers() {
    const NOBODY: u32 = 65534;
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    // The user may not be allowed to access the directory of this checkout.
    let _library = bench.copy_synthetic();
    let mut open = Command::new("chmod");
    let status = open
        .args(["-R", "a+rwx"])
        .arg(bench.path())
        .status()
        .expect("chmod");
    assert!(status.success());
    let mut command = bench.gputrace(&outputs);
    command
        .env("SUDO_UID", NOBODY.to_string())
        .env("SUDO_GID", NOBODY.to_string())
        .env("SUDO_USER", "nobody");
    command.args([
        "-f",
        "csv,pftrace",
        "--",
        "sh",
        "-c",
        "id -u; exec \"$0\" shapes 3",
    ]);
    command.arg(bench.program("synthetic/synthetic"));
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    assert_eq!(gputrace.stdout(), NOBODY.to_string());
    let trace = outputs.trace();
    compare(&bench.log(), &trace).assert_exact();
    for entry in fs::read_dir(outputs.directory()).expect("the output directory") {
        let path = entry.expect("an output").path();
        assert_eq!(
            fs::metadata(&path).expect("an output").uid(),
            NOBODY,
            "{}",
            path.display()
        );
    }
}
