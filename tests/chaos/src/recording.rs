//! One recording of a round: gputrace from its start to the resulting files.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench, Outputs, Running, Trace,
    bench::figure,
    csvout,
    process::{PATIENCE, eventually, now, on_this_machine},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    STOP,
    plan::{End, Of, Recording},
    shared::Shared,
    target::Target,
};

/// Maximum time for writing the outputs after the end of a recording.
const OUTPUTS: Duration = Duration::from_secs(60);

/// A recording that is running or has ended.
#[derive(Debug)]
pub struct Made<'a> {
    bench: &'a Bench,
    plan: &'a Recording,
    shared: &'a Shared,
    outputs: Outputs,
    /// gputrace; for a launched program, its output includes the program's.
    pub gputrace: Running,
    /// Whether more processes are alive at once than gputrace must be able to follow.
    crowded: bool,
    /// When it was told to end, ns `CLOCK_BOOTTIME`; 0 if it ends by itself.
    asked: u64,
}

impl<'a> Made<'a> {
    /// Starts gputrace.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn begin(
        bench: &'a Bench,
        number: u32,
        plan: &'a Recording,
        target: &Target<'_>,
        shared: &'a Shared,
    ) -> Self {
        let outputs = bench.outputs(number);
        let mut command = bench.gputrace(&outputs);
        command.args(["-f", "csv"]).args(plan.all_options());
        if let End::Duration(duration) = plan.end {
            command
                .arg("--duration")
                .arg(format!("{}ms", duration.as_millis()));
        }
        match plan.of {
            Of::Launched => {
                let passes = u32::from(plan.end == End::Target);
                command.arg("--").args(target.words(passes, shared.path()));
            }
            Of::Attached => {
                command.arg("-p").arg(shared.pid().to_string());
            }
            Of::Node => {
                command.arg("-a");
            }
        }
        Self {
            bench,
            plan,
            shared,
            outputs,
            gputrace: Running::start("gputrace", &mut command),
            crowded: target.is_crowded(),
            asked: 0,
        }
    }

    /// Ends gputrace, and returns its exit status.
    ///
    /// # Panics
    /// If it does not end in time.
    #[must_use]
    pub fn end(&mut self) -> ExitStatus {
        if let End::KillEarly(after) = self.plan.end {
            // Any time will do, and no condition covers all of them.
            thread::sleep(after);
        } else {
            self.gputrace.wait_for_stderr("recording");
        }
        let paused = self.plan.stopped.then(|| Paused::new(self.shared.pid()));
        if paused.is_none() && self.plan.end != End::Target {
            self.wait_for_actions();
        }
        let signal = match self.plan.end {
            End::Target | End::Duration(_) => None,
            End::Interrupt => Some(Signal::INT),
            End::Terminate => Some(Signal::TERM),
            End::Kill | End::KillEarly(_) => Some(Signal::KILL),
        };
        if let Some(signal) = signal {
            self.asked = now();
            self.gputrace.signal(signal);
        }
        if self.plan.of == Of::Launched && matches!(self.plan.end, End::Duration(_)) {
            // It waits for the program's end.
            self.gputrace.wait_for_stderr("waiting for process");
            self.shared.stop();
        }
        let status = self.gputrace.wait_within(OUTPUTS + PATIENCE);
        drop(paused);
        status
    }

    /// Waits until the program has done some more actions.
    fn wait_for_actions(&self) {
        let enough = self.shared.steps() + self.plan.actions;
        let deadline = Instant::now() + PATIENCE;
        eventually("the program goes on", PATIENCE, || {
            self.shared.steps() >= enough
                || !self.gputrace.is_running()
                || Instant::now() > deadline
        });
    }

    /// Checks the resulting files. `status` is gputrace's exit status.
    ///
    /// # Panics
    /// If something is wrong.
    pub fn check(&self, status: ExitStatus) {
        let said = self.gputrace.stderr();
        let raw = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(
            !said.contains(raw),
            "control characters on the terminal: {said:?}"
        );
        assert!(!said.contains("panicked"), "{said}");
        if self.plan.end.is_orderly() {
            self.check_status(status);
            self.check_accounts();
        } else {
            assert_eq!(status.signal(), Some(9), "{status}: {said}");
            self.check_export();
        }
    }

    fn check_status(&self, status: ExitStatus) {
        // For a launched program, gputrace passes on the program's status, if it saw one.
        let own = status.success() || self.plan.of == Of::Launched;
        assert!(
            own && status.signal().is_none(),
            "{status}: {}",
            self.gputrace.describe()
        );
    }

    fn check_accounts(&self) {
        let trace = self.outputs.trace();
        let reason = match self.plan.end {
            End::Duration(_) => EndReason::DurationOver,
            End::Target => EndReason::TargetsGone,
            _ => EndReason::Interrupted,
        };
        trace.assert_sound(&reason);
        csvout::assert_same(&self.outputs, &trace);
        let end = trace.end.as_ref().map_or(0, |end| end.time);
        if self.asked != 0 {
            let took = Duration::from_nanos(end.saturating_sub(self.asked));
            figure("chaos.stop", took.as_secs_f64(), "s");
            assert!(
                took <= on_this_machine(STOP),
                "stopping took {took:?}: {}",
                self.gputrace.describe()
            );
        }
        if self.plan.sees_all() {
            self.check_all_seen(&trace);
        }
        let names = fs::read_dir(self.outputs.directory()).expect("the outputs' directory");
        for name in names.map(|entry| entry.expect("an entry").file_name()) {
            let name = name.to_string_lossy().into_owned();
            assert!(name.starts_with("trace"), "left unfinished: {name}");
        }
    }

    /// Checks that every call of a program that was recorded from its start to its end is in the
    /// account, either recorded or counted as lost. In a crowd, there may be no room for some
    /// processes, whose calls are then in no account; but gputrace must report that.
    fn check_all_seen(&self, trace: &Trace) {
        let hip = Domain::HipRuntime.id();
        let rows = trace
            .final_ledger()
            .rows
            .iter()
            .filter(|row| row.domain == hip);
        let seen: u64 = rows.map(|row| row.seen).sum();
        let made = self.shared.done()..=self.shared.begun();
        let owned = self.crowded
            && trace
                .notices
                .iter()
                .any(|notice| notice.text.contains("no room"));
        assert!(
            made.contains(&seen) || (owned && seen < *made.start()),
            "{seen} calls seen, {made:?} made: {}",
            self.gputrace.describe()
        );
    }

    /// Checks that the capture of a killed recording can be exported.
    fn check_export(&self) {
        let capture = self.outputs.capture();
        if !capture.exists() {
            let early = matches!(self.plan.end, End::KillEarly(_));
            assert!(early, "no capture: {}", self.gputrace.describe());
            return;
        }
        let exported = self.bench.outputs(99);
        let mut command = self.bench.gputrace_bare();
        command.arg("export").arg(&capture);
        command
            .args(["-f", "csv", "-o", "trace", "-d"])
            .arg(exported.directory());
        let mut export = Running::start("gputrace export", &mut command);
        let status = export.wait();
        let begun = fs::metadata(&capture).is_ok_and(|metadata| metadata.len() > 0);
        // A file that was created but not yet written to is no capture.
        let expected = if begun { 15 } else { 9 };
        assert_eq!(status.code(), Some(expected), "{}", export.describe());
        if begun {
            csvout::assert_same(&exported, &Trace::read(&capture));
            fs::remove_dir_all(exported.directory()).expect("what was exported");
        }
    }

    /// The program's exit status, if gputrace waited for the program and passed it on.
    #[must_use]
    pub fn passed_on(&self, status: ExitStatus) -> Option<i32> {
        let waited = matches!(self.plan.end, End::Target | End::Duration(_));
        (self.plan.of == Of::Launched && waited).then(|| status.code().unwrap_or(-1))
    }
}

/// A process that is stopped while this is alive.
struct Paused(Pid);

impl Paused {
    fn new(pid: u32) -> Self {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process");
        kill_process(pid, Signal::STOP).expect("the program");
        let paused = Self(pid);
        eventually("the program is stopped", PATIENCE, || paused.is_stopped());
        paused
    }

    fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.contains(") T ")
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let stopped = self.is_stopped();
        // If it has ended, there is nothing to continue.
        let _ = kill_process(self.0, Signal::CONT);
        assert!(
            stopped || thread::panicking(),
            "gputrace continued a process that it had not stopped"
        );
    }
}
