//! `--suite`: what must work on every kernel, in one guest for each.
//!
//! A suite is a list of steps, each a shell command with a name: questions to the kernel (`gputrace-vm`), gputrace itself,
//! and every end-to-end test of `tests/e2e`. A step that hangs is ended alone. Between the outputs of the steps the guest
//! prints marks, from which [`Progress`] makes a line for each step as it is done.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::guest::{Driver, Guest};
use super::kernels::{self, Files, Kernel};
use super::programs::{Programs, directory};
use super::turns::{Turns, Voice};
use super::verifier::{self, Figures, Table};
use crate::cache::lock;
use crate::progress::{self, Seconds};
use crate::test::build_workloads;
use crate::workspace::Workspace;
use crate::{ebpf, exec};

/// How often the guest may die in the same step before the step has failed.
const MOST_DEATHS: u32 = 2;

/// Seconds after which a step is ended.
const STEP_SECONDS: u32 = 240;

/// How many times longer the end-to-end tests wait than on a real processor.
const SLOWNESS: u32 = 20;

/// Steps that suffice to see that a change is right on other kernels, too: their verifiers take all
/// programs, calls are recorded from a program's begin to its end, and so are the driver's requests.
const QUICK: [&str; 6] = [
    VERIFIER,
    "list",
    "launch",
    "backend::launch_with_perf_events",
    "kfd programs",
    "kfd ioctls by fentry",
];

const NO_GPU_NODE: &str =
    "Linux 7.2 refuses to open /dev/kfd without a GPU (\"no gpu node! Cannot create KFD process\")";

/// Tests that say nothing about a kernel: kernel, name, and why. No kernel means all.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    (
        "6.1",
        "backend::launch_with_uprobe_multi",
        "uprobe_multi came with Linux 6.6",
    ),
    (
        "6.1",
        "backend::attach_with_uprobe_multi",
        "uprobe_multi came with Linux 6.6",
    ),
    ("7.x", "kfd tracepoints", NO_GPU_NODE),
    ("7.x", "kfd both sides", NO_GPU_NODE),
    ("7.x", LOADS_DRIVER, NO_GPU_NODE),
    ("7.x", "kfd ioctls by fentry", NO_GPU_NODE),
    ("7.x", "kfd ioctls by kprobe", NO_GPU_NODE),
    ("7.x", "kfd ioctls by syscall", NO_GPU_NODE),
    ("7.x", "kfd answers", NO_GPU_NODE),
];

/// Marks in the guest's output, at the beginning of a line.
const STEP_BEGINS: &str = "@@ step ";
const STEP_ENDED: &str = "@@ ended ";

/// Name of the step whose output is the verifier's figures.
const VERIFIER: &str = "verifier";

/// Steps whose names contain this, the last ones, run with amdgpu loaded.
const WITH_DRIVER: &str = "kfd";

/// The step that loads it while gputrace records.
const LOADS_DRIVER: &str = "driver loaded later";

/// What to run, and where.
pub(super) struct Suite<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) kernels: &'a [&'a Kernel],
    /// Only steps whose name contains this.
    pub(super) only: Option<&'a str>,
    /// Only the steps of [`QUICK`].
    pub(super) quick: bool,
    /// Keep the verifier's figures.
    pub(super) update: bool,
    /// Guests that run at once.
    pub(super) jobs: usize,
    /// Build the programs under test; else those of the last run are taken.
    pub(super) build: bool,
    pub(super) timeout: Duration,
    pub(super) mirror: Option<&'a str>,
}

/// Something to do in a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    name: String,
    /// For busybox's shell.
    script: String,
}

/// How a step went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    name: String,
    /// Its exit status; none if the guest did not come to its end.
    status: Option<i32>,
    output: String,
}

impl Suite<'_> {
    /// Runs the suite on each kernel, on [`Suite::jobs`] of them at once.
    ///
    /// # Errors
    ///
    /// When something does not build, a kernel cannot be had, or a step fails on some kernel.
    pub(super) fn run(&self) -> Result<()> {
        let start = Instant::now();
        // The programs under test are in one place.
        let directory = directory(self.workspace);
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let _lock = lock(&directory)?;
        let steps = self.steps()?;
        let mut guests = Vec::new();
        for kernel in self.kernels {
            guests.push((
                *kernel,
                kernels::ensure(self.workspace, kernel, self.mirror)?,
            ));
        }
        let (turns, next) = (Turns::new(guests.len()), AtomicUsize::new(0));
        let outcomes = Mutex::new(BTreeMap::new());
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((kernel, files)) = guests.get(number) else {
                    return;
                };
                let outcome = self.run_on(kernel, files, &steps, &turns.voice(number));
                let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                outcomes.insert(number, outcome);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.jobs.min(guests.len()) {
                scope.spawn(work);
            }
            work();
        });
        let outcomes = outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut failed = Vec::new();
        for ((kernel, _), outcome) in guests.iter().zip(outcomes.into_values()) {
            let count = outcome?;
            if count > 0 {
                failed.push(format!("{count} on {}", kernel.name));
            }
        }
        progress::heading(format_args!(
            "suite on {} kernels, after {}",
            self.kernels.len(),
            Seconds(start.elapsed())
        ));
        if failed.is_empty() {
            Ok(())
        } else {
            bail!("steps failed, see above: {}", failed.join(", "))
        }
    }

    /// Builds everything and lists the steps.
    fn steps(&self) -> Result<Vec<Step>> {
        let programs = if self.build {
            ebpf::build(self.workspace)?;
            build_workloads(self.workspace)?;
            Programs::build(self.workspace)?
        } else {
            Programs::built(self.workspace)
        };
        let shown = |path: &Path| format!("'{}'", path.display());
        let (gputrace, vm) = (shown(&programs.gputrace), shown(&programs.vm));
        let object = shown(&self.workspace.bpf.join("gputrace-probes.o"));
        let workload = shown(&self.workspace.workloads().join("hip_calls"));
        let mut steps = vec![
            Step::new("kernel", "uname -rv; cat /proc/uptime"),
            Step::new(VERIFIER, &format!("{vm} verifier {object}")),
            Step::new("list", &format!("{gputrace} list | tail -n 8")),
            Step::new(
                "launch",
                &format!(
                    "WORKLOAD_LOG=/tmp {gputrace} -S -d /tmp/launch -- {workload} threads 2 5"
                ),
            ),
        ];
        let mut tests = Vec::new();
        for (program, path) in &programs.tests {
            let listed = exec::capture(Command::new(path).args(["--list", "--format", "terse"]))?;
            for test in listed
                .lines()
                .filter_map(|line| line.strip_suffix(": test"))
            {
                // `--nocapture`, so that one that is ended shows how far it came.
                let script = format!("{} --exact {test} --nocapture", shown(path));
                tests.push(Step::new(&format!("{program}::{test}"), &script));
            }
        }
        steps.extend(tests);
        // A recording that is there before the driver. Its programs wait for the driver, so requests are made when they are on.
        // Within the quotes of a shell's program paths have none.
        let plain_vm = programs.vm.display();
        let later = format!(
            "{gputrace} --kfd-trace -f ndjson -d /tmp/later -o run -- sh -c '
                 for module in $(cat \"$files/modules/driver.list\"); do \"$files/busybox\" insmod \"$files/modules/$module\"; done
                 until grep -q \"tracing the ioctls\" /tmp/later.txt; do sleep 0.2; done
                 exec {plain_vm} kfd' 2>/tmp/later.txt; cat /tmp/later.txt
             grep -q 'amdgpu is not loaded' /tmp/later.txt && grep -q AMDKFD_IOC_GET_VERSION /tmp/later/run_results.ndjson"
        );
        steps.push(Step::new(LOADS_DRIVER, &later));
        steps.push(Step::new("kfd answers", &format!("{vm} kfd")));
        // Those on functions of the driver can only be loaded with it.
        steps.push(Step::new(
            "kfd programs",
            &format!("{vm} verifier {object} kfd_"),
        ));
        // Every request, from each place where the programs can be.
        for place in ["fentry", "kprobe", "syscall"] {
            let script = format!(
                "{gputrace} --kfd-trace --kfd-probes {place} -f csv,pftrace,ndjson -d /tmp/{place} -o run -- {vm} ioctls /tmp/{place}.log &&
                 {vm} check-ioctls /tmp/{place}.log /tmp/{place}/run.gtcap"
            );
            steps.push(Step::new(&format!("kfd ioctls by {place}"), &script));
        }
        // What doctor has tried agrees with what is known of these kernels.
        let doctor = format!(
            "{gputrace} doctor >/tmp/doctor.txt; cat /tmp/doctor.txt
             for line in 'ring buffer' 'BTF of the kernel' 'process lifetimes' 'seccomp filters'; do
                 grep -q \"ok  *$line\" /tmp/doctor.txt || exit 1
             done
             case \"$(uname -r)\" in
                 6.1.*) ! grep -q 'ok  *uprobe_multi' /tmp/doctor.txt ;;
                 *) grep -q 'ok  *uprobe_multi' /tmp/doctor.txt ;;
             esac && grep -q 'gputrace can record here' /tmp/doctor.txt"
        );
        steps.push(Step::new("kfd doctor", &doctor));
        // What HSA is asked for and what it asks the driver for, by probes that know nothing of each other.
        let sides = format!(
            "{gputrace} -s --kfd-trace -f ndjson -d /tmp/sides -o run -- rocminfo && {vm} check-sides /tmp/sides/run_results.ndjson"
        );
        steps.push(Step::new("kfd both sides", &sides));
        // Every event of the driver has a layout that is understood; of those that fire without a GPU, one is awaited (6.1 and
        // 6.12 have it at the opening of the device).
        let tracepoints = format!(
            "{gputrace} --tracepoint 'amdgpu:*' -S -f csv,ndjson -d /tmp/events -o run -- {vm} ioctls /tmp/events.log 2>/tmp/events.txt; cat /tmp/events.txt
             ! grep -q 'is not recorded' /tmp/events.txt && grep -q 'amdgpu_pasid_allocated.*pasid=[1-9]' /tmp/events/run_driver_trace.csv"
        );
        steps.push(Step::new("kfd tracepoints", &tracepoints));
        // Without a GPU there is no descriptor for its events: the programs are put onto the driver's functions.
        let functions = format!(
            "{gputrace} --kfd-events -d /tmp/functions -o run -- /bin/true 2>/tmp/functions.txt; cat /tmp/functions.txt
             grep -q 'breakpoints on 7 of the driver' /tmp/functions.txt"
        );
        steps.push(Step::new("kfd events by functions", &functions));
        // Whatever the program makes of that (HIP 5.2.3 dies of it), the recording must be whole.
        let launch = format!(
            "WORKLOAD_LOG=/tmp {gputrace} -d /tmp/kfd -o kfd -- {workload} threads 1 1 2>/tmp/kfd.txt; cat /tmp/kfd.txt
             grep -q 'KFD shows no GPU' /tmp/kfd.txt && grep -q 'none lost' /tmp/kfd.txt"
        );
        steps.push(Step::new("launch with kfd and no GPU", &launch));
        if self.quick {
            if let Some(gone) = QUICK
                .iter()
                .find(|name| steps.iter().all(|step| step.name != **name))
            {
                bail!("there is no step {gone} any more, which `--quick` should run");
            }
            steps.retain(|step| QUICK.contains(&step.name.as_str()));
        }
        steps.retain(|step| self.only.is_none_or(|text| step.name.contains(text)));
        if steps.is_empty() {
            bail!("no step of the suite has such a name");
        }
        Ok(steps)
    }

    /// Runs the steps in a guest with `kernel`; returns how many failed.
    fn run_on(
        &self,
        kernel: &Kernel,
        files: &Files,
        steps: &[Step],
        voice: &Voice<'_>,
    ) -> Result<usize> {
        voice.heading(format_args!("suite on {kernel}"));
        let chosen: Vec<&Step> = steps
            .iter()
            .filter(|step| match reason_to_leave_out(kernel, &step.name) {
                Some(reason) => {
                    voice.line(
                        "left out",
                        format_args!("{}: {reason}", step.name),
                        Duration::ZERO,
                    );
                    false
                }
                None => true,
            })
            .collect();
        let mut outcomes: Vec<Outcome> = Vec::new();
        let (mut deaths, mut failed) = (BTreeMap::new(), 0);
        while let Some(left) = chosen.get(outcomes.len()..).filter(|left| !left.is_empty()) {
            let mut screen = Progress::new(voice);
            let ended = Guest::new(self.workspace, kernel, files)?.run_script(
                script(self.workspace, left).as_bytes(),
                Driver::OnDemand,
                self.timeout,
                &mut screen,
            );
            outcomes.extend(screen.finish());
            let Err(error) = ended else { break };
            voice.note(format_args!("{error:#}"));
            // QEMU's emulation is not exact where one processor patches code that another one runs, as Linux does when a
            // tracepoint gets its first program: then the kernel oopses in the middle of an instruction, seen once in a hundred
            // steps. What a program of ours does to a kernel, it does each time.
            match outcomes.pop_if(|last| last.status.is_none()) {
                Some(cut)
                    if *deaths
                        .entry(cut.name.clone())
                        .and_modify(|count| *count += 1)
                        .or_insert(1)
                        <= MOST_DEATHS =>
                {
                    voice.note(format_args!(
                        "{} has seen its guest die; once more, in a new one",
                        cut.name
                    ));
                }
                cut => {
                    // Where no step was cut short, it has not booted, or not ended.
                    failed += usize::from(cut.is_none());
                    outcomes.extend(cut);
                    break;
                }
            }
        }
        failed += outcomes
            .iter()
            .filter(|outcome| outcome.status != Some(0))
            .count();
        failed += chosen.len().saturating_sub(outcomes.len());
        if let Some(outcome) = outcomes.iter().find(|outcome| outcome.name == VERIFIER) {
            failed += self.judge_figures(kernel, &outcome.output, voice)?;
        }
        let passed = outcomes
            .iter()
            .filter(|outcome| outcome.status == Some(0))
            .count();
        voice.note(format_args!(
            "{kernel}: {passed} of {} steps passed",
            chosen.len()
        ));
        Ok(failed)
    }

    /// Prints the verifier's figures, and keeps or compares them; returns 1 if something is wrong with them.
    fn judge_figures(&self, kernel: &Kernel, output: &str, voice: &Voice<'_>) -> Result<usize> {
        // One file has the figures of all kernels.
        static TABLE: Mutex<()> = Mutex::new(());
        let _lock = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        voice.note(format_args!("{}", output.trim_end()));
        let seen: BTreeMap<String, Figures> = output.lines().filter_map(verifier::line).collect();
        let path = self.workspace.root.join("tests/vm/verifier.txt");
        let mut table = Table::read(&path)?;
        if self.update {
            table.update(&path, kernel.name, &seen)?;
            return Ok(0);
        }
        let complaints = table.complaints(kernel.name, &seen);
        if complaints.is_empty() {
            return Ok(0);
        }
        voice.note(format_args!(
            "{}\n-> if that must be, `cargo xtask vm --suite --only {VERIFIER} --update` keeps the new figures",
            complaints.join("\n")
        ));
        Ok(1)
    }
}

impl Step {
    fn new(name: &str, script: &str) -> Self {
        Self {
            name: name.to_owned(),
            script: script.to_owned(),
        }
    }
}

/// Why the step `name` says nothing about `kernel`.
fn reason_to_leave_out(kernel: &Kernel, name: &str) -> Option<&'static str> {
    LEFT_OUT
        .iter()
        .find(|(on, step, _)| (on.is_empty() || *on == kernel.name) && *step == name)
        .map(|(_, _, reason)| *reason)
}

/// The steps one after the other, with marks between them.
fn script(workspace: &Workspace, steps: &[&Step]) -> String {
    let mut script = format!(
        "cd '{}'\nexport GPUTRACE_REQUIRE_BPF=1 RUST_TEST_THREADS=1 RUST_BACKTRACE=0 GPUTRACE_TEST_SLOWNESS={SLOWNESS} GPUTRACE_BIN='{}' files\n",
        workspace.root.display(),
        directory(workspace).join("gputrace").display()
    );
    // The tests' programs expect a machine without a driver; HIP behaves otherwise where there is one but no GPU.
    let mut driver = false;
    for Step {
        name,
        script: command,
    } in steps
    {
        if name.contains(WITH_DRIVER) && !std::mem::replace(&mut driver, true) {
            // Modules that are there already are refused, which does no harm.
            script.push_str("load_driver 2>/dev/null\n");
        }
        // Standard error goes with the output of its step.
        script += &format!(
            "echo; echo '{STEP_BEGINS}{name}'\n\
             timeout -k 5 {STEP_SECONDS} sh -c {} 2>&1\n\
             status=$?; echo; echo \"{STEP_ENDED}$status\"\n",
            quoted(command)
        );
    }
    script
}

fn quoted(command: &str) -> String {
    format!("'{}'", command.replace('\'', r"'\''"))
}

/// Follows the output of a guest: says how each step went when it is done, and shows what one that failed has printed.
struct Progress<'a> {
    voice: &'a Voice<'a>,
    line: Vec<u8>,
    current: Option<(Outcome, Instant)>,
    done: Vec<Outcome>,
}

impl<'a> Progress<'a> {
    fn new(voice: &'a Voice<'a>) -> Self {
        Self {
            voice,
            line: Vec::new(),
            current: None,
            done: Vec::new(),
        }
    }

    /// What became of the steps; the last may have been cut short.
    fn finish(mut self) -> Vec<Outcome> {
        if self.current.is_some() {
            self.ended(None);
        }
        self.done
    }

    fn add_line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix(STEP_BEGINS) {
            let outcome = Outcome {
                name: name.to_owned(),
                ..Outcome::default()
            };
            self.current = Some((outcome, Instant::now()));
        } else if let Some(status) = line.strip_prefix(STEP_ENDED) {
            self.ended(status.parse().ok());
        } else if let Some((outcome, _)) = &mut self.current {
            outcome.output.push_str(line);
            outcome.output.push('\n');
        }
    }

    fn ended(&mut self, status: Option<i32>) {
        let Some((mut outcome, start)) = self.current.take() else {
            return;
        };
        outcome.status = status;
        outcome.output = outcome.output.trim().to_owned();
        let (state, how) = match status {
            Some(0) => ("passed", String::new()),
            // Of timeout(1), busybox's and coreutils'.
            Some(124 | 137 | 143) => ("FAILED", format!(" (ended after {STEP_SECONDS} s)")),
            Some(status) => ("FAILED", format!(" (exit status {status})")),
            None => ("died", " (the guest ended)".to_owned()),
        };
        self.voice.line(
            state,
            format_args!("{}{how}", outcome.name),
            start.elapsed(),
        );
        if state != "passed" {
            self.voice.note(format_args!("{}", outcome.output));
        }
        self.done.push(outcome);
    }
}

impl Write for Progress<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                self.add_line(line.trim_end());
            } else {
                self.line.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_the_guests_output() {
        let turns = Turns::new(1);
        let voice = turns.voice(0);
        let mut progress = Progress::new(&voice);
        for part in [
            "boot noise\n\n@@ step kfd\nKFD interface ",
            "1.17\n\n@@ ended 0\n\n@@ step a::b\nnot so good",
            "\n\n@@ ended 101\n@@ step c\nhalf",
        ] {
            progress.write_all(part.as_bytes()).unwrap();
        }
        let outcome = |name: &str, status, output: &str| Outcome {
            name: name.to_owned(),
            status,
            output: output.to_owned(),
        };
        assert_eq!(
            progress.finish(),
            [
                outcome("kfd", Some(0), "KFD interface 1.17"),
                outcome("a::b", Some(101), "not so good"),
                outcome("c", None, ""),
            ]
        );
    }

    #[test]
    fn steps_that_are_left_out_are_left_out_on_their_kernel_only() {
        let [old, new, _] = &kernels::KERNELS;
        let name = "backend::launch_with_uprobe_multi";
        assert!(reason_to_leave_out(old, name).is_some());
        assert!(reason_to_leave_out(new, name).is_none());
        assert!(reason_to_leave_out(old, "backend::launch_with_perf_events").is_none());
    }

    #[test]
    fn a_failing_step_does_not_end_the_others() {
        let steps = [
            Step::new("bad", "echo it\\'s bad; exit 3"),
            Step::new("good", "true"),
        ];
        let workspace = Workspace {
            root: "/".into(),
            target: "/nonexistent".into(),
            bpf: "/nonexistent".into(),
            tools: "/nonexistent".into(),
        };
        let script = script(&workspace, &steps.iter().collect::<Vec<_>>());
        let printed = exec::capture(Command::new("sh").args(["-c", &script])).unwrap();
        let turns = Turns::new(1);
        let voice = turns.voice(0);
        let mut progress = Progress::new(&voice);
        progress.write_all(printed.as_bytes()).unwrap();
        let outcomes = progress.finish();
        assert_eq!(
            outcomes
                .iter()
                .map(|outcome| outcome.status)
                .collect::<Vec<_>>(),
            [Some(3), Some(0)]
        );
        assert_eq!(outcomes[0].output, "it's bad");
    }
}
