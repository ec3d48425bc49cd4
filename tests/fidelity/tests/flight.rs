//! Dumps of the flight recorder on real runtimes. The software GPU does what the recorder waits for,
//! and its log says what a dump must contain.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::process::Command;

use gputrace_capture::{flight::Dump, meta::EndReason};
use gputrace_e2e::{
    Running, Trace,
    process::{PATIENCE, eventually, now},
};
use gputrace_fidelity::release::Release;
use gputrace_timeline::{
    event::CallEnd,
    gpu::{Quality, Window},
};
use rustix::process::Signal;

use support::{gputrace, kernels, program, recording, release};

const SECOND: u64 = 1_000_000_000;

/// Kernels of 1.5 ms, one every 3 ms, for longer than the test needs.
const MIX: &[&str] = &["classes=1", "from=1", "to=1", "every=3000", "seconds=60"];

/// A flight recorder, and where it works.
struct Flight {
    place: tempfile::TempDir,
    recorder: Running,
}

impl Flight {
    /// Starts a program under a flight recorder, on a software GPU with these settings.
    fn start(program: &Command, settings: &str, options: &[&str]) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let gputrace = Command::new(gputrace());
        let mut command = recording(gputrace, program, place.path(), settings, options);
        let recorder = Running::start("gputrace", &mut command);
        Self { place, recorder }
    }

    /// Waits for the first dump, and reads it.
    fn dumped(&self) -> (Trace, Dump) {
        self.recorder.wait_for_stderr("dump 1: ");
        let trace = Trace::read(&self.place.path().join("out/run_dump-1.gtcap"));
        assert_eq!(trace.truncation, None);
        let about = trace.recording.dump.as_deref().expect("a dump").clone();
        (trace, about)
    }

    /// Ends program and recorder.
    fn end(mut self) {
        self.recorder.signal(Signal::TERM);
        self.recorder.wait();
    }
}

/// The dump of a queue that does not move contains the kernel that hangs, and the call that waits.
fn stuck(release: &Release) {
    let settings = "[[fault]]\nkind = 'never_ends'\nkernel = 'endless'\n";
    let options = ["--flight", "--dump-on", "stuck=1s", "--dump-after", "1ms"];
    let flight = Flight::start(&program(release, "endless", &[]), settings, &options);
    let (trace, about) = flight.dumped();
    flight.end();
    let why = &about.causes.first().expect("a cause").text;
    assert!(why.contains("has not moved for"), "{why}");
    let unfinished = trace
        .gpu
        .dispatches
        .iter()
        .filter(|one| one.time.unfinished);
    assert!(unfinished.count() >= 1, "{:?}", trace.gpu.dispatches);
    let mut waiting = trace.calls_of("hipDeviceSynchronize");
    let waiting = waiting.next().expect("the call that waits");
    assert_eq!(waiting.how, CallEnd::RecordingStopped);
    let end = trace.end.as_ref().map(|end| &end.reason);
    assert_eq!(end, Some(&EndReason::Dumped));
}

/// Long kernels are dumped. All kernels that ran in the time of the dump are in it, as they ran.
fn long(release: &Release) {
    let settings = "default_duration = { fixed_ns = 1_500_000 }\n";
    let flight = Flight::start(
        &program(release, "mix", MIX),
        settings,
        &[
            "--flight",
            "1s",
            "--dump-on",
            "kernel=mixed:1ms",
            "--dump-pause",
            "1h",
        ],
    );
    let (_, first) = flight.dumped();
    let why = &first.causes.first().expect("a cause").text;
    assert!(why.starts_with("mixed of process"), "{why}");
    // By now the begin of the recording is no longer kept, if it is two seconds and more ago.
    let began = first.recording_began;
    eventually("the begin is old", PATIENCE, || now() > began + 7 * SECOND);
    let mut ask = Command::new(gputrace());
    ask.args(["dump-flight", &flight.recorder.pid().to_string()]);
    assert!(ask.status().expect("gputrace").success());
    flight.recorder.wait_for_stderr("dump 2: ");
    let trace = Trace::read(&flight.place.path().join("out/run_dump-2.gtcap"));
    let truth = kernels(flight.place.path(), "mixed");
    flight.end();
    let about = trace.recording.dump.as_deref().expect("a dump");
    assert!(about.from > began, "{about:?}");
    as_they_ran(&trace, about, &truth);
}

fn is_within(time: u64, window: &Window) -> bool {
    window.earliest <= time && window.latest.is_some_and(|latest| time <= latest)
}

/// Dispatches of a dump, held against the GPU's log.
fn as_they_ran(trace: &Trace, about: &Dump, truth: &[(u64, u64)]) {
    let dispatches = &trace.gpu.dispatches;
    let exact = dispatches
        .iter()
        .filter(|one| one.time.quality == Quality::Exact);
    let mut found = 0;
    for one in exact {
        let ran = |(begin, end): &(u64, u64)| {
            is_within(*begin, &one.time.begin_window) && is_within(*end, &one.time.end_window)
        };
        assert!(truth.iter().any(ran), "{one:?}");
        found += 1;
    }
    // Those whose completion has not been read yet when the dump is made have bounds.
    let (from, to) = (about.from + SECOND / 2, about.to - SECOND / 2);
    let expected = truth
        .iter()
        .filter(|(begin, end)| *begin > from && *end < to);
    assert!(found >= expected.count(), "{found}: {about:?}");
    assert!(found > 200, "{found}");
    let ledger = trace.ledger.as_ref().expect("an account");
    assert_eq!(ledger.total().lost(), 0, "{ledger:?}");
    assert_eq!(ledger.work().written, dispatches.len() as u64, "{ledger:?}");
}

/// HIP tells programs when their GPU was reset. The dump has what came before.
fn reset(release: &Release) {
    let settings = "[[fault]]\nkind = 'gpu_reset'\nkernel = 'mixed'\nnth = 20\n";
    let options = ["--flight", "--dump-on", "error=hipErrorLaunchFailure"];
    let mut flight = Flight::start(&program(release, "mix", MIX), settings, &options);
    flight.recorder.wait();
    let (trace, about) = flight.dumped();
    let why = &about.causes.first().expect("a cause").text;
    assert!(why.contains("returned hipErrorLaunchFailure"), "{why}");
    trace.assert_sound(&EndReason::TargetsGone);
    let dispatches = &trace.gpu.dispatches;
    assert!(dispatches.len() >= 20, "{dispatches:?}");
}

macro_rules! on {
    ($($name:ident: $test:ident on $release:literal;)*) => {
        $(#[test]
        fn $name() {
            if let Some(release) = release($release) {
                $test(&release);
            }
        })*
    };
}

on! {
    a_queue_that_does_not_move_on_rocm_7_2_4: stuck on "7.2.4";
    a_queue_that_does_not_move_on_rocm_5_2_3: stuck on "5.2.3";
    long_kernels_on_rocm_7_2_4: long on "7.2.4";
    long_kernels_on_rocm_6_4_3: long on "6.4.3";
    a_reset_gpu_on_rocm_7_2_4: reset on "7.2.4";
}
