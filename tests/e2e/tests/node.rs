//! Recordings of a whole node: containers that share files, untraced processes, libraries that come
//! and go.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench, CallLog, Outputs, Running, Trace,
    bench::{figure, with_own_mounts},
    compare, kernel,
    process::{PATIENCE, eventually},
};
use rustix::process::Signal;

/// Directories of containers below `base`, which their mount namespaces see.
struct Containers {
    base: PathBuf,
    lower: PathBuf,
}

impl Containers {
    /// All containers see the directory of `library`.
    fn new(bench: &Bench, library: &Path) -> Self {
        Self {
            base: bench.path().join("containers"),
            lower: library.parent().unwrap_or(library).to_owned(),
        }
    }

    /// Runs a workload in its own mount namespace, in which an overlay of the lower directory is
    /// mounted. Before that, `prepare` is run as shell code in the overlay.
    fn start(&self, bench: &Bench, number: u32, prepare: &str, workload: &str) -> Running {
        let own = self.base.join(number.to_string());
        // The upper directory must not be on an overlay itself, but the test's directory may be on
        // one.
        let script = format!(
            "set -e; mkdir -p {own}; mount -t tmpfs none {own}; cd {own}; mkdir upper work merged
             mount -t overlay -o lowerdir={lower},upperdir=upper,workdir=work none merged
             cd merged; {prepare}
             exec ./{workload}",
            own = own.display(),
            lower = self.lower.display(),
        );
        let mut command = with_own_mounts(&script);
        command.env("WORKLOAD_LOG", bench.logs());
        let running = Running::start("container", &mut command);
        running.wait_for_stdout("ready");
        running
    }
}

/// Starts recording the node, and waits until the recording has begun.
fn record(bench: &Bench, outputs: &Outputs) -> Running {
    bench.attach(outputs, &["-f", "csv", "--all"], &[])
}

/// Interrupts a recording and waits for its end. `cargo xtask bench node` has the real figures.
fn interrupt(gputrace: &mut Running) {
    let begin = Instant::now();
    gputrace.signal(Signal::INT);
    gputrace.finish();
    figure("node.stop", begin.elapsed().as_secs_f64(), "s");
}

/// Interrupts a recording and reads it. Others on this machine may use ROCm, so only calls of the
/// log's processes are kept.
fn stop(gputrace: &mut Running, outputs: &Outputs, log: &CallLog) -> Trace {
    interrupt(gputrace);
    let mut trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    trace
        .calls
        .retain(|call| log.processes().contains(&call.pid));
    trace
}

/// Lets programs make the calls that they are holding back, and end.
fn call(programs: &mut [Running]) {
    for program in programs.iter_mut() {
        program.send("go");
    }
    for program in programs {
        program.wait_for_stdout("inside");
        program.close_stdin();
        program.finish();
    }
}

/// Containers share a library, and one has its own copy, for which the kernel needs separate
/// probes: each call is recorded once. Run with and without a build id.
fn in_containers(with_build_id: bool) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.copy_synthetic();
    if !with_build_id {
        let mut strip = Command::new("objcopy");
        strip
            .args(["--remove-section", ".note.gnu.build-id"])
            .arg(&library);
        assert!(
            strip.status().is_ok_and(|status| status.success()),
            "objcopy"
        );
    }
    let containers = Containers::new(&bench, &library);
    let mut programs: Vec<Running> = (0..3)
        .map(|number| {
            // Changing a file of the lower directory copies it to the upper one, and keeps its
            // inode number.
            let prepare = if number == 2 {
                "chmod 700 libamdhip64.so.99"
            } else {
                ""
            };
            containers.start(&bench, number, prepare, "synthetic block 3")
        })
        .collect();
    // A program outside the containers, with the original file.
    programs.push(bench.start(&["synthetic/synthetic", "block", "3"]));
    let outputs = bench.outputs(0);
    let mut gputrace = record(&bench, &outputs);
    call(&mut programs);
    let log = bench.log();
    assert_eq!(log.processes().len(), 4);
    compare(&log, &stop(&mut gputrace, &outputs, &log)).assert_exact();
}

#[test]
fn a_library_of_many_mounts_is_probed_once() {
    in_containers(true);
}

#[test]
fn a_library_of_many_mounts_without_build_id_is_probed_once() {
    in_containers(false);
}

#[test]
fn probes_go_with_the_last_user() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.copy_synthetic();
    let mut first = bench.start(&["synthetic/synthetic", "block", "1"]);
    let outputs = bench.outputs(0);
    let mut gputrace = record(&bench, &outputs);
    assert!(
        !kernel::probes_on(&library).is_empty(),
        "the check for probes sees none"
    );
    call(std::slice::from_mut(&mut first));
    eventually("no probes on a library that nobody uses", PATIENCE, || {
        kernel::probes_on(&library).is_empty()
    });
    // A later program is traced again.
    let mut second = bench.start(&["synthetic/synthetic", "block", "1"]);
    eventually("probes on a library that is used again", PATIENCE, || {
        !kernel::probes_on(&library).is_empty()
    });
    gputrace.wait_for_stderr("not known before");
    call(std::slice::from_mut(&mut second));
    let log = bench.log();
    assert_eq!(log.processes().len(), 2);
    compare(&log, &stop(&mut gputrace, &outputs, &log)).assert_exact();
}

/// A library that is mapped by an unknown dynamic linker, in a container with its own copy.
#[test]
fn a_new_container_is_noticed() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.copy_synthetic();
    let outputs = bench.outputs(0);
    let mut gputrace = record(&bench, &outputs);
    let containers = Containers::new(&bench, &library);
    let linker = "cp /lib64/ld-linux-x86-64.so.2 .; chmod 700 libamdhip64.so.99";
    let run = "ld-linux-x86-64.so.2 ./synthetic block 3";
    let mut program = containers.start(&bench, 0, linker, run);
    gputrace.wait_for_stderr("not known before");
    call(std::slice::from_mut(&mut program));
    let log = bench.log();
    assert_eq!(log.processes().len(), 1);
    compare(&log, &stop(&mut gputrace, &outputs, &log)).assert_exact();
}

#[test]
fn a_storm_of_strangers_is_passed_over() {
    /// Number of programs executed.
    const EXECS: u64 = 2000;
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut gputrace = record(&bench, &outputs);
    let script = format!(
        "i=0; while [ $i -lt {EXECS} ]; do /bin/true; i=$((i+1)); done; echo done; exec sleep 1000"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let mut storm = Running::start("storm", &mut command);
    storm.wait_for_stdout("done");
    // More of them while the recording ends.
    let endless = "while :; do /bin/true; done";
    let mut more = Running::start("storm", Command::new("sh").args(["-c", endless]));
    interrupt(&mut gputrace);
    assert!(more.is_running());
    for storm in [&mut storm, &mut more] {
        storm.signal(Signal::KILL);
        storm.wait();
    }
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    // Each of these programs made three events: fork, exec, exit. Programs of other tests may have
    // made some.
    let events = trace.final_ledger().task_events;
    assert!(
        events < EXECS / 4,
        "{events} events of processes of no interest"
    );
}
