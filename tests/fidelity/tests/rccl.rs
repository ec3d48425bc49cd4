//! Compares every call of Debian's RCCL, with its arguments and result, with the program's own log.
//! The real library creates communicators of one and of two ranks on two software GPUs.

mod support;

use std::{fs, path::Path, process::Command};

use gputrace_e2e::{Trace, bench::skipped, formats};
use gputrace_timeline::args;

use support::{gputrace, record, release};

#[test]
fn arguments_and_results_are_the_programs() {
    let Some(release) = release("5.7.1") else {
        return;
    };
    let command = support::program(&release, "rccl_calls", &[]);
    let arguments: Vec<String> = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let libraries = arguments
        .iter()
        .find_map(|one| one.strip_prefix("LD_LIBRARY_PATH="));
    let libraries = Path::new(libraries.expect("where the libraries are"));
    if !libraries.join("librccl.so.1").exists() {
        return skipped(
            "RCCL is not there; cargo xtask rocm --release 5.7.1 --fetch --with librccl1",
        );
    }
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let program = place.join("rccl_calls");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/rccl/rccl_calls.c");
    let linked = format!(
        "-Wl,--allow-shlib-undefined,--disable-new-dtags,-rpath,{0},--dynamic-linker,{0}/ld-linux-x86-64.so.2",
        libraries.display()
    );
    let built = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-o"])
        .arg(&program)
        .arg(source)
        .arg(libraries.join("librccl.so.1"))
        .arg(linked)
        .status();
    assert!(built.expect("gcc").success(), "the program cannot be built");

    // Through `env`, like other programs of another release.
    let mut command = Command::new("env");
    command
        .arg(format!("LD_LIBRARY_PATH={}", libraries.display()))
        .arg(format!("WORKLOAD_LOG={}", place.display()))
        .arg(&program);
    let options = ["--rccl-trace", "-f", "csv"];
    record(&command, place, "[[agent]]\n[[agent]]\n", &options);

    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();
    let mut shown: Vec<String> = trace
        .calls
        .iter()
        // The program does not know of calls that RCCL makes itself.
        .filter(|call| call.parent == 0)
        .map(|call| {
            let info = trace.function(call);
            let result = args::returned(info, call).map(|value| value.to_string());
            let mut words = vec![trace.name(call).to_owned(), result.unwrap_or_default()];
            words.extend(trace.arguments(call));
            words.join(" ")
        })
        .collect();
    let said = fs::read_to_string(place.join("rccl.txt")).expect("the program's account");
    let mut said: Vec<&str> = said.lines().collect();
    // Two threads make calls at the same time.
    shown.sort_unstable();
    said.sort_unstable();
    assert_eq!(shown, said);
    let csv = fs::read_to_string(place.join("out/run_rccl_api_trace.csv")).expect("RCCL's table");
    assert_eq!(csv.lines().count(), trace.calls.len() + 1);
    if let Some(python) = formats::python() {
        formats::agree(&gputrace(), &place.join("out/run.gtcap"), &python);
    }
}
