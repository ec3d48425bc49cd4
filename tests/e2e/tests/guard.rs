//! `--overhead-limit`: functions that only ask for a value lose their probes while tracing them
//! costs too much, and get them back.

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{Bench, Running, Trace};

const GETTER: &str = "hipGetDevice";
const LAUNCH: &str = "hipModuleLaunchKernel";

/// When the recording says this of the getter, ns; in order.
fn noted(trace: &Trace, part: &str) -> Vec<u64> {
    let is_it = |text: &str| text.starts_with(GETTER) && text.contains(part);
    let notices = trace.notices.iter();
    notices
        .filter(|notice| is_it(&notice.text))
        .map(|notice| notice.time)
        .collect()
}

#[test]
fn a_getter_is_left_out_while_it_costs_too_much() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command.args(["--hip-trace", "--overhead-limit", "1", "--"]);
    command.arg(bench.program("hip_calls")).arg("getters");
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.wait_for_stderr("hipGetDevice was called so often");
    gputrace.send("calm");
    gputrace.wait_for_stderr("hipGetDevice is traced again");
    // It is calm now, so its calls are recorded until the end.
    gputrace.send("on");
    gputrace.close_stdin();
    gputrace.finish();
    let said = gputrace.stderr();
    assert!(said.contains("hipGetDevice was not traced for"), "{said}");

    let trace = outputs.trace();
    trace.assert_sound(&EndReason::TargetsGone);
    // Each launch is there, as the program's log says.
    let log = bench.log();
    let logged = log.threads.values().flatten();
    let launches = logged.filter(|call| call.name == LAUNCH).count();
    let of = |name: &str| {
        let calls = trace.calls.iter();
        calls
            .filter(|call| trace.is_call_of(call, name))
            .map(|call| call.begin)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(LAUNCH).len(), launches, "{said}");
    // Between a removal and the next return, there is none of the getter's calls, but launches.
    let (removed, restored) = (
        noted(&trace, "are removed for"),
        noted(&trace, "traced again"),
    );
    assert!(!removed.is_empty() && !restored.is_empty(), "{said}");
    let getters = of(GETTER);
    assert!(getters.iter().any(|time| *time < removed[0]), "{said}");
    let last = restored.last().expect("a return");
    let before = removed
        .iter()
        .rfind(|time| *time < last)
        .expect("a removal");
    // The kernel takes a moment to remove the probes.
    let middle = before + (last - before) / 2;
    let among = |times: &[u64]| {
        times
            .iter()
            .filter(|time| (middle..*last).contains(time))
            .count()
    };
    assert_eq!(among(&getters), 0, "{said}");
    assert!(among(&of(LAUNCH)) > 0, "{said}");
}

#[test]
fn probes_that_cannot_be_removed_one_by_one_are_refused() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command.args(["--backend", "perf", "--overhead-limit", "5", "--", "true"]);
    let (status, said) = Running::start("gputrace", &mut command).fail();
    assert_eq!(status, 7, "{said}");
    assert!(said.contains("Linux 6.6"), "{said}");
}
