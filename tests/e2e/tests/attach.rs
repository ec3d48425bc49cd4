//! Attaches to running programs: gputrace comes, goes, comes again, and traces several at once.

use std::{fs, ops::RangeInclusive, time::Instant};

use gputrace_capture::meta::{EndReason, Mode};
use gputrace_e2e::{
    Bench, CallLog, Outputs, Running, Trace,
    bench::{figure, ring_size},
    compare::{compare, compare_within},
    csvout, kernel,
    process::now,
};
use rustix::process::Signal;

/// Stops a recording as Ctrl-C does. It must end successfully, whatever its programs do.
fn stop(gputrace: &mut Running) {
    let begin = Instant::now();
    gputrace.signal(Signal::INT);
    gputrace.finish();
    figure("attach.stop", begin.elapsed().as_secs_f64(), "s");
}

/// Records some calls of running programs; returns the time in which every call must have been
/// recorded.
fn record(bench: &Bench, outputs: &Outputs, options: &[&str], pids: &[u32]) -> RangeInclusive<u64> {
    let mut gputrace = bench.attach(outputs, options, pids);
    let begin = now();
    bench.wait_for_calls(pids, 300);
    let end = now();
    stop(&mut gputrace);
    begin..=end
}

/// Asserts that a recording of running programs is sound and contains every call made in `window`.
fn assert_complete(log: &CallLog, outputs: &Outputs, window: &RangeInclusive<u64>) {
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    trace.assert_lossless();
    let comparison = compare_within(log, &trace, window);
    comparison.assert_exact();
    assert!(comparison.found >= 200, "only {} calls", comparison.found);
}

#[test]
fn in_mid_run() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "1000"]);
    let outputs = bench.outputs(0);
    let window = record(&bench, &outputs, &["-f", "csv,pftrace"], &[program.pid()]);
    bench.wait_for_calls(&[program.pid()], 100);
    program.close_stdin();
    program.finish();
    assert_complete(&bench.log(), &outputs, &window);
    let trace = outputs.trace();
    assert!(matches!(&trace.recording.mode, Mode::Attach { pids } if *pids == [program.pid()]));
    csvout::assert_same(&outputs, &trace);
}

#[test]
fn detach_and_attach_again() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    // It calls without pause: a recorder that stands still for some seconds finds 100 MB later.
    let rings = ring_size(256, 2048);
    let options = ["-f", "csv", "--ring-size", &rings];
    let recordings: Vec<_> = (0..3)
        .map(|number| {
            let outputs = bench.outputs(number);
            let window = record(&bench, &outputs, &options, &[program.pid()]);
            bench.wait_for_calls(&[program.pid()], 100);
            (outputs, window)
        })
        .collect();
    program.close_stdin();
    program.finish();
    let log = bench.log();
    for (outputs, window) in &recordings {
        assert_complete(&log, outputs, window);
    }
}

#[test]
fn two_processes_at_once() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut programs: Vec<Running> = (0..3)
        .map(|_| bench.start(&["hip_calls", "loop", "300"]))
        .collect();
    let pids: Vec<u32> = programs.iter().map(Running::pid).collect();
    // Once as `-p A -p B`, once as `-p A,B`; the third program is not traced.
    let (apart, together) = (bench.outputs(0), bench.outputs(1));
    let window = record(&bench, &apart, &["-f", "csv"], &pids[..2]);
    let list = format!("{},{}", pids[0], pids[1]);
    let mut gputrace = bench.attach(&together, &["-f", "csv", "-p", &list], &[]);
    let begin = now();
    bench.wait_for_calls(&pids, 100);
    let second_window = begin..=now();
    stop(&mut gputrace);
    for program in &mut programs {
        program.close_stdin();
        program.finish();
    }
    let mut log = bench.log();
    log.threads.retain(|(pid, _), _| *pid != pids[2]);
    assert_complete(&log, &apart, &window);
    assert_complete(&log, &together, &second_window);
}

/// A recording ends by itself when it has reached this limit. The program goes on.
fn ends_at_its_limit(option: &str, limit: u64, reached: impl Fn(&Outputs) -> u64) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    let outputs = bench.outputs(0);
    let options = ["-f", "csv", option, &limit.to_string()];
    let mut gputrace = bench.attach(&outputs, &options, &[program.pid()]);
    gputrace.finish();
    let stderr = gputrace.stderr();
    let message = format!("the recording has reached its {option}, and ends");
    assert!(stderr.contains(&message), "{stderr}");
    bench.wait_for_calls(&[program.pid()], 100);
    program.close_stdin();
    program.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::LimitReached);
    trace.assert_lossless();
    assert!(reached(&outputs) >= limit);
    csvout::assert_same(&outputs, &trace);
}

#[test]
fn ends_after_a_number_of_events() {
    ends_at_its_limit("--max-events", 1000, |outputs| {
        outputs.trace().final_ledger().calls().written
    });
}

#[test]
fn ends_at_a_size() {
    ends_at_its_limit("--max-size", 1 << 20, |outputs| {
        let capture = fs::metadata(outputs.capture()).expect("the capture");
        capture.len()
    });
}

/// Waits until a program has ended and its recording has ended for that reason; no calls may be
/// lost.
fn to_the_end(program: &mut Running, gputrace: &mut Running, outputs: &Outputs) -> Trace {
    program.finish();
    gputrace.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    trace
}

/// Attaches to a program before its first call and records it to its end: no call may be missing.
fn from_the_first_call(workload: &[&str]) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(workload);
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, &["--sys-trace", "-f", "csv"], &[program.pid()]);
    program.send("go");
    let trace = to_the_end(&mut program, &mut gputrace, &outputs);
    compare(&bench.log(), &trace).assert_exact();
    csvout::assert_same(&outputs, &trace);
}

#[test]
fn children_of_a_process_with_neighbours() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // The same libraries in a process that is not traced and makes calls all the time.
    let mut neighbour = bench.start(&["hip_calls", "loop", "1000"]);
    bench.wait_for_calls(&[neighbour.pid()], 10);
    from_the_first_call(&["hip_calls", "wait", "fork", "2", "5"]);
    neighbour.close_stdin();
    neighbour.finish();
}

/// Traces one of two processes that have the same library. Returns for each, the traced one first,
/// how much of the library's code was modified meanwhile.
fn modified_code(options: &[&str]) -> Option<[u64; 2]> {
    let bench = Bench::privileged()?;
    let library = bench.copy_synthetic();
    let library = library.to_string_lossy();
    let mut programs = [0, 1].map(|_| bench.start(&["synthetic/synthetic", "block", "3"]));
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, options, &[programs[0].pid()]);
    let modified = programs
        .each_ref()
        .map(|program| kernel::modified_code(program.pid(), &library));
    for program in &mut programs {
        program.send("go");
        program.wait_for_stdout("inside");
        program.close_stdin();
        program.finish();
    }
    gputrace.finish();
    let mut log = bench.log();
    log.threads.retain(|(pid, _), _| *pid == programs[0].pid());
    compare(&log, &outputs.trace()).assert_exact();
    Some(modified)
}

#[test]
fn neighbours_keep_their_code_if_children_are_not_followed() {
    let Some([target, neighbour]) = modified_code(&["-f", "csv", "--follow-forks=False"]) else {
        return;
    };
    assert!(target > 0);
    assert_eq!(neighbour, 0);
    // With children, the neighbour has breakpoints, too: this shows that the check above would
    // notice them.
    assert!(modified_code(&["-f", "csv"]).is_some_and(|[_, neighbour]| neighbour > 0));
}

#[test]
fn children_are_left_alone_on_request() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "wait", "fork", "2", "5"]);
    let outputs = bench.outputs(0);
    let options = ["--sys-trace", "-f", "csv", "--follow-forks=False"];
    let mut gputrace = bench.attach(&outputs, &options, &[program.pid()]);
    program.send("go");
    let trace = to_the_end(&mut program, &mut gputrace, &outputs);
    let mut log = bench.log();
    assert!(log.processes().len() > 1, "the program has forked");
    log.threads.retain(|(pid, _), _| *pid == program.pid());
    compare(&log, &trace).assert_exact();
}

#[test]
fn threads_that_start_later() {
    from_the_first_call(&["hip_calls", "wait", "threads", "8", "10"]);
}

#[test]
fn children_that_are_forked_later() {
    from_the_first_call(&["hip_calls", "wait", "fork", "2", "5"]);
}

#[test]
fn programs_that_are_executed_later() {
    from_the_first_call(&["hip_calls", "wait", "exec", "2", "5"]);
}

#[test]
fn calls_in_progress_are_not_made_up() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["synthetic/synthetic", "block", "3"]);
    program.send("go");
    program.wait_for_stdout("inside");
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, &["-f", "csv"], &[program.pid()]);
    program.close_stdin();
    let trace = to_the_end(&mut program, &mut gputrace, &outputs);
    assert_eq!(trace.final_ledger().total().seen, 0);
    assert_eq!(trace.calls, []);
}

#[test]
fn two_recordings_at_once() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "500"]);
    let (first, second) = (bench.outputs(0), bench.outputs(1));
    let mut gputrace = bench.attach(&first, &["-f", "csv"], &[program.pid()]);
    let begin = now();
    let inner_window = record(&bench, &second, &["-f", "csv"], &[program.pid()]);
    bench.wait_for_calls(&[program.pid()], 100);
    let window = begin..=now();
    stop(&mut gputrace);
    program.close_stdin();
    program.finish();
    let log = bench.log();
    assert_complete(&log, &first, &window);
    assert_complete(&log, &second, &inner_window);
}

#[test]
fn whole_node() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut programs: Vec<Running> = (0..2)
        .map(|_| bench.start(&["hip_calls", "loop", "300"]))
        .collect();
    let pids: Vec<u32> = programs.iter().map(Running::pid).collect();
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, &["-f", "csv", "--all"], &[]);
    let begin = now();
    bench.wait_for_calls(&pids, 100);
    let window = begin..=now();
    // A program that starts later is traced, too.
    let mut late = bench.start(&["hip_calls", "loop", "300"]);
    bench.wait_for_calls(&[late.pid()], 100);
    stop(&mut gputrace);
    for program in programs.iter_mut().chain([&mut late]) {
        program.close_stdin();
        program.finish();
    }
    let log = bench.log();
    let mut trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    // Others on this machine may use ROCm as well.
    trace
        .calls
        .retain(|call| log.processes().contains(&call.pid));
    compare_within(&log, &trace, &window).assert_exact();
    assert!(
        trace.calls.iter().any(|call| call.pid == late.pid()),
        "a program that started later"
    );
}

#[test]
fn waits_for_the_runtime() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_late", "dlopen", "10"]);
    let outputs = bench.outputs(0);
    let pid = program.pid().to_string();
    let mut gputrace = Running::start(
        "gputrace",
        bench
            .gputrace(&outputs)
            .args(["-f", "csv", "--sys-trace", "--wait", "-p", &pid]),
    );
    gputrace.wait_for_stderr("recording");
    program.send("load");
    program.wait_for_stdout("loaded");
    program.send("call");
    let trace = to_the_end(&mut program, &mut gputrace, &outputs);
    compare(&bench.log(), &trace).assert_exact();
}

#[test]
fn ends_when_the_time_is_over() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "1000"]);
    let ways = [["--duration", "400ms"], ["--attach-duration-msec", "400"]];
    let mut has_calls = false;
    for (number, options) in (0..).zip(ways.iter().cycle()) {
        // The program may have had no processor during a recording.
        if has_calls && number >= 2 {
            break;
        }
        assert!(number < 20, "no recording has a call");
        let outputs = bench.outputs(number);
        let mut gputrace = bench.attach(
            &outputs,
            &["-f", "csv", options[0], options[1]],
            &[program.pid()],
        );
        gputrace.finish();
        let trace = outputs.trace();
        trace.assert_sound(&EndReason::DurationOver);
        let end = trace.end.as_ref().map_or(0, |end| end.time);
        let took = end.saturating_sub(trace.recording.clocks.boottime);
        assert!(took >= 400_000_000, "ended after only {took} ns");
        figure("attach.duration_of_400ms", took as f64 / 1e6, "ms");
        trace.assert_lossless();
        has_calls |= !trace.calls.is_empty();
    }
    program.close_stdin();
    program.finish();
}

#[test]
fn ends_when_the_program_does() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "1000"]);
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, &["-f", "csv"], &[program.pid()]);
    let begin = now();
    bench.wait_for_calls(&[program.pid()], 100);
    program.close_stdin();
    program.finish();
    gputrace.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    trace.assert_lossless();
    // Up to the very last call.
    compare_within(&bench.log(), &trace, &(begin..=u64::MAX)).assert_exact();
}

#[test]
fn library_replaced_under_a_running_program() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.copy_synthetic();
    for (number, replace) in [true, false].into_iter().enumerate() {
        let mut program = bench.start(&["synthetic/synthetic", "block", "3"]);
        // As in an update of the package: another file under the same name, or none.
        let copy = library.with_extension("new");
        fs::copy(&library, &copy).expect("a copy of the library");
        fs::remove_file(&library).expect("the library");
        if replace {
            fs::write(&library, b"not even a library").expect("a file in its place");
        }
        let outputs = bench.outputs(number as u32);
        let mut gputrace = bench.attach(&outputs, &["-f", "csv"], &[program.pid()]);
        program.send("go");
        program.wait_for_stdout("inside");
        program.close_stdin();
        program.finish();
        gputrace.finish();
        let mut log = bench.log();
        log.threads.retain(|(pid, _), _| *pid == program.pid());
        assert_eq!(log.len(), 6);
        compare(&log, &outputs.trace()).assert_exact();
        fs::rename(&copy, &library).expect("the library back in its place");
    }
}
