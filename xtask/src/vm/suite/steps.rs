//! What is done in each guest: the steps, and on which kernels they are left out.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::Suite;
use crate::test::build_workloads;
use crate::vm::kernels::Kernel;
use crate::vm::programs::Programs;
use crate::{ebpf, exec};

/// Steps that suffice to see that a change works on other kernels, too: their verifiers accept all
/// programs, calls are recorded from a program's begin to its end, and so are the driver's requests.
pub(super) const QUICK: [&str; 6] = [
    VERIFIER,
    "list",
    "launch",
    "backend::launch_with_perf_events",
    "kfd programs",
    "kfd ioctls by fentry",
];

const NO_GPU_NODE: &str =
    "Linux 7.2 refuses to open /dev/kfd without a GPU (\"no gpu node! Cannot create KFD process\")";

/// Tests that say nothing about a kernel: kernel, test name, and reason. An empty kernel means all.
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

/// Name of the step whose output is the verifier's figures.
pub(super) const VERIFIER: &str = "verifier";

/// Steps whose names contain this, which come last, run with amdgpu loaded.
pub(super) const WITH_DRIVER: &str = "kfd";

/// The step that loads the driver while gputrace records.
const LOADS_DRIVER: &str = "driver loaded later";

/// A step of the suite in a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: String,
    /// Script for busybox's shell.
    pub(super) script: String,
}

impl Step {
    pub(super) fn new(name: &str, script: &str) -> Self {
        Self {
            name: name.to_owned(),
            script: script.to_owned(),
        }
    }
}

/// Where the programs under test are, for a shell.
struct Places {
    gputrace: String,
    vm: String,
    /// Without quotes, within those of a shell's program: paths have none.
    plain_vm: String,
    object: String,
    workload: String,
}

impl Suite<'_> {
    /// Builds everything and lists the steps.
    pub(super) fn steps(&self) -> Result<Vec<Step>> {
        let programs = if self.build {
            ebpf::build(self.workspace)?;
            build_workloads(self.workspace)?;
            Programs::build(self.workspace)?
        } else {
            Programs::built(self.workspace)
        };
        let places = Places {
            gputrace: quoted(&programs.gputrace),
            vm: quoted(&programs.vm),
            plain_vm: programs.vm.display().to_string(),
            object: quoted(&self.workspace.bpf.join("gputrace-probes.o")),
            workload: quoted(&self.workspace.workloads().join("hip_calls")),
        };
        let mut steps = places.without_driver();
        steps.extend(tests(&programs)?);
        steps.push(places.driver_loaded_later());
        steps.extend(places.with_driver());
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
}

impl Places {
    /// The kernel, its verifier, and gputrace on a machine without a driver.
    fn without_driver(&self) -> Vec<Step> {
        let Self {
            gputrace,
            vm,
            object,
            workload,
            ..
        } = self;
        vec![
            Step::new("kernel", "uname -rv; cat /proc/uptime"),
            Step::new(VERIFIER, &format!("{vm} verifier {object}")),
            Step::new("list", &format!("{gputrace} list | tail -n 8")),
            Step::new(
                "launch",
                &format!(
                    "WORKLOAD_LOG=/tmp {gputrace} -S -d /tmp/launch -- {workload} threads 2 5"
                ),
            ),
        ]
    }

    /// A recording that is there before the driver. Its programs wait for the driver, so requests
    /// are made when they are on.
    fn driver_loaded_later(&self) -> Step {
        let Self {
            gputrace, plain_vm, ..
        } = self;
        let later = format!(
            "{gputrace} --kfd-trace -f ndjson -d /tmp/later -o run -- sh -c '
                 for module in $(cat \"$files/modules/driver.list\"); do \"$files/busybox\" insmod \"$files/modules/$module\"; done
                 until grep -q \"tracing the ioctls\" /tmp/later.txt; do sleep 0.2; done
                 exec {plain_vm} kfd' 2>/tmp/later.txt; cat /tmp/later.txt
             grep -q 'amdgpu is not loaded' /tmp/later.txt && grep -q AMDKFD_IOC_GET_VERSION /tmp/later/run_results.ndjson"
        );
        Step::new(LOADS_DRIVER, &later)
    }

    /// What is done with amdgpu loaded, without a GPU.
    fn with_driver(&self) -> Vec<Step> {
        let Self { vm, object, .. } = self;
        let mut steps = vec![
            Step::new("kfd answers", &format!("{vm} kfd")),
            // Programs on functions of the driver can only be loaded together with it.
            Step::new("kfd programs", &format!("{vm} verifier {object} kfd_")),
        ];
        steps.extend(self.every_request());
        steps.push(self.doctor());
        steps.extend(self.kernel_sides());
        steps
    }

    /// Every request, from each place where the programs can be.
    fn every_request(&self) -> impl Iterator<Item = Step> {
        let Self { gputrace, vm, .. } = self;
        ["fentry", "kprobe", "syscall"].into_iter().map(move |place| {
            let script = format!(
                "{gputrace} --kfd-trace --kfd-probes {place} -f csv,pftrace,ndjson -d /tmp/{place} -o run -- {vm} ioctls /tmp/{place}.log &&
                 {vm} check-ioctls /tmp/{place}.log /tmp/{place}/run.gtcap"
            );
            Step::new(&format!("kfd ioctls by {place}"), &script)
        })
    }

    /// What doctor has tried agrees with what is known of these kernels.
    fn doctor(&self) -> Step {
        let Self { gputrace, .. } = self;
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
        Step::new("kfd doctor", &doctor)
    }

    /// What the kernel tells of the driver, and a program of HIP's on it.
    fn kernel_sides(&self) -> Vec<Step> {
        let Self {
            gputrace,
            vm,
            workload,
            ..
        } = self;
        let mut steps = Vec::new();
        // Compares what is requested from HSA with what HSA requests from the driver, using
        // independent probes.
        let sides = format!(
            "{gputrace} -s --kfd-trace -f ndjson -d /tmp/sides -o run -- rocminfo && {vm} check-sides /tmp/sides/run_results.ndjson"
        );
        steps.push(Step::new("kfd both sides", &sides));
        // Checks that the layout of every event of the driver can be decoded. Of the events that
        // fire without a GPU, one must occur (on 6.1 and 6.12, it fires when the device is opened).
        let tracepoints = format!(
            "{gputrace} --tracepoint 'amdgpu:*' -S -f csv,ndjson -d /tmp/events -o run -- {vm} ioctls /tmp/events.log 2>/tmp/events.txt; cat /tmp/events.txt
             ! grep -q 'is not recorded' /tmp/events.txt && grep -q 'amdgpu_pasid_allocated.*pasid=[1-9]' /tmp/events/run_driver_trace.csv"
        );
        steps.push(Step::new("kfd tracepoints", &tracepoints));
        // Without a GPU there is no descriptor for its events: the programs are attached to the
        // driver's functions.
        let functions = format!(
            "{gputrace} --kfd-events -d /tmp/functions -o run -- /bin/true 2>/tmp/functions.txt; cat /tmp/functions.txt
             grep -q 'breakpoints on 7 of the driver' /tmp/functions.txt"
        );
        steps.push(Step::new("kfd events by functions", &functions));
        // Whatever the program does then (HIP 5.2.3 crashes), the recording must be complete.
        let launch = format!(
            "WORKLOAD_LOG=/tmp {gputrace} -d /tmp/kfd -o kfd -- {workload} threads 1 1 2>/tmp/kfd.txt; cat /tmp/kfd.txt
             grep -q 'KFD shows no GPU' /tmp/kfd.txt && grep -q 'none lost' /tmp/kfd.txt"
        );
        steps.push(Step::new("launch with kfd and no GPU", &launch));
        steps
    }
}

/// The end-to-end tests.
fn tests(programs: &Programs) -> Result<Vec<Step>> {
    let mut tests = Vec::new();
    for (program, path) in &programs.tests {
        let listed = exec::capture(Command::new(path).args(["--list", "--format", "terse"]))?;
        for test in listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
        {
            // `--nocapture`, so that a test that is ended shows how far it got.
            let script = format!("{} --exact {test} --nocapture", quoted(path));
            tests.push(Step::new(&format!("{program}::{test}"), &script));
        }
    }
    Ok(tests)
}

/// Why the step `name` says nothing about `kernel`.
pub(super) fn reason_to_leave_out(kernel: &Kernel, name: &str) -> Option<&'static str> {
    LEFT_OUT
        .iter()
        .find(|(on, step, _)| (on.is_empty() || *on == kernel.name) && *step == name)
        .map(|(_, _, reason)| *reason)
}

/// A path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::kernels;

    #[test]
    fn steps_that_are_left_out_are_left_out_on_their_kernel_only() {
        let [old, new, _] = &kernels::KERNELS;
        let name = "backend::launch_with_uprobe_multi";
        assert!(reason_to_leave_out(old, name).is_some());
        assert!(reason_to_leave_out(new, name).is_none());
        assert!(reason_to_leave_out(old, "backend::launch_with_perf_events").is_none());
    }
}
