//! gputrace's messages about what was asked for but is missing, impossible, or expensive.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use gputrace_e2e::{Bench, Running};

/// Runs a program under gputrace, which must succeed; returns gputrace's messages and the
/// recording's remarks.
fn said(bench: &Bench, options: &[&str], workload: &[&str]) -> (String, Vec<String>) {
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    let (program, arguments) = workload.split_first().unwrap();
    command
        .args(options)
        .arg("--")
        .arg(bench.program(program))
        .args(arguments);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    let notices = outputs.trace().notices;
    (
        gputrace.stderr(),
        notices.into_iter().map(|notice| notice.text).collect(),
    )
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn what_no_program_had_is_named() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let fib = &["functions/fib", "1", "1", "3"][..];
    for (options, part) in [
        (
            &["--library", "librocblas.so"][..],
            "a library librocblas.so mapped",
        ),
        (&["--functions", "no_such"], "functions matches"),
        (&["--functions", "^add"], "only inlined"),
        (&["--kokkos-trace"], "KOKKOS_TOOLS_LIBS"),
        (
            &["--library", "libc.so.6", "--include", "^memcpy$"],
            "indirect (IFUNC)",
        ),
    ] {
        let (stderr, notices) = said(&bench, options, fib);
        assert_has(&stderr, &[part, "no call was recorded"]);
        assert!(!stderr.contains("Did the program call HIP"), "{stderr}");
        assert!(
            notices.iter().any(|text| text.contains(part)),
            "{notices:?}"
        );
    }
    // A library that is there is not mentioned.
    let (stderr, _) = said(&bench, &["--library", "libshared.so"], fib);
    assert!(!stderr.contains("mapped"), "{stderr}");
    let (stderr, notices) = said(&bench, &[], fib);
    let reason = "gputrace saw no process of the program load a ROCm library";
    assert_has(&stderr, &[reason, "no call was recorded"]);
    assert!(!stderr.contains("Did the program call HIP"), "{stderr}");
    assert!(notices.iter().any(|text| text.starts_with(reason)));
    // The library is there, but no function that was asked for.
    let hip = &["hip_calls", "single", "3"];
    let (stderr, _) = said(&bench, &["--include", "no_such_function"], hip);
    assert_has(
        &stderr,
        &[
            "--include and --exclude leave no function",
            "no call was recorded",
        ],
    );
    // The program is over before anything is to be recorded.
    let (stderr, _) = said(&bench, &["-P", "600:1:1"], hip);
    assert_has(
        &stderr,
        &[
            "before its first collection period (-P) began",
            "no call was recorded",
        ],
    );
}

#[test]
fn what_cannot_be_traced_is_told_with_the_number() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let fib = &["functions/fib", "1", "1", "3"][..];
    let (stderr, _) = said(
        &bench,
        &[
            "--library",
            "libc.so.6",
            "--include",
            "^(memcpy|getpid|puts)$",
        ],
        fib,
    );
    assert_has(
        &stderr,
        &[
            "tracing 2 functions of",
            "1 indirect function (IFUNC) is not traced",
            ": memcpy",
        ],
    );
    // The function that starts the program cannot be probed.
    let (stderr, _) = said(&bench, &["--functions", "^(fib[(]|_start$)"], fib);
    assert_has(
        &stderr,
        &["tracing 1 function of", "1 more cannot be traced: _start ("],
    );
}

#[test]
fn functions_of_rocm_belong_to_their_options() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "100"]);
    let pid = program.pid().to_string();
    let library = [
        "--library",
        "libamdhip64.so",
        "--include",
        "^hipGetDevice$",
        "-p",
        &pid,
    ];
    let mut command = bench.gputrace(&bench.outputs(1));
    command
        .args(["--hip-trace", "--duration", "50ms"])
        .args(library);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    let stderr = gputrace.stderr();
    assert_has(&stderr, &["tracing 1 function of"]);
    assert!(!stderr.contains("error"), "{stderr}");

    let mut command = bench.gputrace(&bench.outputs(2));
    command
        .args(["--marker-trace", "--duration", "50ms"])
        .args(library);
    let (status, stderr) = Running::start("gputrace", &mut command).fail();
    assert_eq!(status, 11, "{stderr}");
    assert_has(&stderr, &["ROCm's own", "--hip-runtime-trace (1)"]);
    program.close_stdin();
    program.wait();
}

#[test]
fn it_is_said_that_nothing_was_selected() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let options = ["--functions", "^fib", "--selected-regions"];
    let fib = ["functions/fib", "1", "1", "3"];
    let (stderr, _) = said(&bench, &options, &fib);
    assert_has(
        &stderr,
        &["Nothing was selected, 10 calls", "roctxProfilerResume"],
    );
    let (stderr, _) = said(&bench, &[&options[..], &["-S"]].concat(), &fib);
    assert_has(
        &stderr,
        &["Nothing was selected, 10 calls", "roctxProfilerResume"],
    );
    assert!(!stderr.contains("NOTHING WAS RECORDED"), "{stderr}");
}

#[test]
fn full_rings_and_expensive_probes_are_told_with_what_helps() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let stderr = bench.attach_with_full_rings(&bench.outputs(0), 200);
    let last = stderr
        .lines()
        .find(|line| line.contains("calls seen"))
        .unwrap();
    assert_has(
        last,
        &["LOST (", "because buffers were full", "--ring-size"],
    );

    // These probes take most of the program's time, unless other programs keep it from running. On a
    // machine that is busy with them, it may take some runs until one is not disturbed.
    let expensive = || {
        let options = ["--functions", "^fib[(]", "--max-probe-time", "0"];
        said(&bench, &options, &["functions/fib", "1", "20", "15"]).0
    };
    let is_told = |stderr: &String| stderr.contains("tracing cost about");
    let stderr = (0..10).map(|_| expensive()).find(is_told).unwrap();
    assert_has(
        &stderr,
        &[
            "fib(long) cost most",
            "measured on this machine",
            "--exclude-functions",
            "--max-call-rate",
        ],
    );
}

#[test]
fn a_program_that_is_killed_is_told_with_the_signal() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut command = bench.gputrace(&bench.outputs(0));
    command.args(["--", "sh", "-c", "kill -SEGV $$"]);
    let (status, stderr) = Running::start("gputrace", &mut command).fail();
    assert_eq!(status, 128 + 11, "{stderr}");
    assert_has(&stderr, &["the program was killed by signal 11 (SIGSEGV)"]);
}

#[test]
fn calls_that_fail_are_told_first() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // There is no GPU here.
    let hip = ["hip_calls", "single", "3"];
    let (stderr, _) = said(&bench, &[], &hip);
    let failed = |text: &str| {
        text.contains("Failed calls:") && text.contains(" HIP calls returned an error")
    };
    assert!(stderr.lines().any(failed), "{stderr}");
    assert_has(&stderr, &["; the first was hipError"]);
    let (stderr, _) = said(&bench, &["-S"], &hip);
    let summary = stderr
        .lines()
        .skip_while(|line| !line.starts_with("Recorded "));
    assert!(summary.skip(1).take(1).all(failed), "{stderr}");
    assert_eq!(stderr.matches("Failed calls:").count(), 1, "{stderr}");
}
