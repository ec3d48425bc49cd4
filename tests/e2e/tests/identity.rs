//! Whose a process is: a program in a control group like a pod's, in a pid namespace of its own,
//! and with the variables of Slurm and torchrun, is found by each option and named in the outputs.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_capture::{identity::Identity, meta::Mode};
use gputrace_e2e::{
    Bench, Outputs, Running,
    bench::{skipped, with_own_mounts},
    process::{PATIENCE, eventually},
};
use serde_json::Value;

const POD: &str = "3fa85f64-5717-4562-b3fc-2c963f66afa6";

/// Control groups of a pod and of its container; removed in the end.
struct Groups {
    slice: PathBuf,
    container: PathBuf,
    id: String,
}

impl Groups {
    /// `None` if this machine has no control groups of version 2, or none may be made.
    fn make() -> Option<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let mount = mounts
            .iter()
            .find(|mount| Path::new(mount).join("cgroup.procs").exists())?;
        // Other tests may make the same groups at the same time.
        let id = format!("{:064x}", std::process::id());
        let name = format!("kubepods-burstable-pod{}.slice", POD.replace('-', "_"));
        let slice = Path::new(mount).join(format!("gputrace-{id}")).join(name);
        let container = slice.join(format!("cri-containerd-{id}.scope"));
        fs::create_dir_all(&container).ok()?;
        Some(Self {
            slice,
            container,
            id,
        })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let all = [&self.container, &self.slice];
        let parent = self.slice.parent().into_iter();
        for group in all.into_iter().map(PathBuf::as_path).chain(parent) {
            // A group is empty only when the kernel has seen the end of its last process.
            eventually("an empty group", PATIENCE, || {
                fs::remove_dir(group).is_ok() || !group.exists()
            });
        }
    }
}

/// A program that calls HIP all the time, and its process id.
fn start(bench: &Bench, groups: &Groups) -> (Running, u32) {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "echo 0 > \"$1/cgroup.procs\" && shift && exec \"$@\"",
            "sh",
        ])
        .arg(&groups.container)
        .args(["unshare", "--pid", "--fork", "--kill-child", "--"])
        .arg(bench.program("hip_calls"))
        .args(["loop", "0"])
        .env("WORKLOAD_LOG", bench.logs())
        .envs([
            ("SLURM_JOB_ID", "123"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
        ])
        .envs([("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")]);
    let program = Running::start("hip_calls", &mut command);
    program.wait_for_stdout("ready");
    let parent = program.pid();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let pid = children.expect("the child of unshare").trim().parse();
    (program, pid.expect("one child"))
}

/// Records some calls of what the options choose.
fn record(bench: &Bench, options: &[&str]) -> Outputs {
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(options)
        .args(["-f", "json,ndjson", "--max-events", "200"]);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    let stderr = gputrace.stderr();
    let said = format!("chosen by {}: process ", options.join(" "));
    assert!(stderr.contains(&said), "{stderr}");
    outputs
}

/// Asserts that an identity is that of the program.
fn assert_identity(identity: &Identity, groups: &Groups) {
    assert_eq!(identity.title, "hip_calls");
    assert_eq!(identity.namespace_pid, Some(1));
    assert!(identity.uid.is_some() && !identity.user.is_empty());
    let group = groups.container.to_string_lossy();
    assert!(group.ends_with(&identity.cgroup), "{}", identity.cgroup);
    assert_eq!(
        identity.places(),
        [
            "job 123.0".to_owned(),
            format!("pod {POD}"),
            format!("containerd {}", &groups.id[..12]),
            "rank 3 of 8".to_owned(),
        ]
    );
}

/// Asserts that `top` adds the program up with its pod, and with its container.
fn assert_grouped(bench: &Bench, pid: u32, groups: &Groups) {
    let container = format!("containerd {}", &groups.id[..12]);
    for (by, name) in [("pod", POD), ("container", &container)] {
        let mut command = bench.gputrace_bare();
        command.args(["top", "--once", "--format", "json", "--group-by", by]);
        let output = command.args(["-p", &pid.to_string()]).output();
        let output = output.expect("gputrace");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let line: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let at = |place: &str| line.pointer(place).cloned().unwrap_or_default();
        let group = |member: &str| at(&format!("/groups/{by}/0/{member}"));
        assert_eq!(group("name"), *name, "{line}");
        assert_eq!(group("pids"), Value::from(vec![pid]), "{line}");
        assert_eq!(group("calls"), at("/processes/0/calls"), "{line}");
        assert!(group("cost_ns").as_u64().is_some_and(|ns| ns > 0), "{line}");
        let cpus = at("/gputrace_cpus").as_f64();
        assert!(cpus.is_some_and(|cpus| cpus > 0.0), "{line}");
    }
}

/// Asserts that the program is chosen by the GPU on which the driver lists it. The driver's files
/// are made up, in a mount namespace.
fn assert_chosen_by_gpu(bench: &Bench, pid: u32) {
    let script = format!(
        "set -e; mount -t tmpfs none /sys/class; cd /sys/class; mkdir -p kfd/kfd; cd kfd/kfd
         mkdir -p topology/nodes/1 proc/{pid}/queues/0
         echo 1 > topology/generation_id; echo 4242 > topology/nodes/1/gpu_id
         printf 'simd_count 416\\nlocation_id 49920\\ndomain 0\\ngfx_target_version 90010\\n' \
             > topology/nodes/1/properties
         echo 4242 > proc/{pid}/queues/0/gpuid
         exec \"$@\""
    );
    let run = |gpu: &str| {
        let bare = bench.gputrace_bare();
        let mut command = with_own_mounts(&script);
        command
            .arg(bare.get_program())
            .args(["top", "--once", "--format", "json", "--gpu", gpu]);
        command.output().expect("gputrace")
    };
    for gpu in ["1", "c3:00.0", "4242"] {
        let output = run(gpu);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{gpu}: {said}");
        assert!(
            said.contains(&format!("chosen by --gpu {gpu}: process {pid} ")),
            "{said}"
        );
    }
    let output = run("2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("GPU 1"), "{said}");
}

#[test]
fn found_by_each_option_and_named_in_the_outputs() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let Some(groups) = Groups::make() else {
        return skipped("no control groups of version 2 can be made");
    };
    let (mut program, pid) = start(&bench, &groups);
    let uid = rustix::process::getuid().as_raw().to_string();
    let group = groups.slice.to_string_lossy();
    for options in [
        &["--name", "hip_c*"][..],
        &["--cgroup", &group],
        &["--container", &groups.id[..63]],
        &["--pod", POD],
        &["--job", "123.0", "--user", &uid],
    ] {
        let outputs = record(&bench, options);
        let trace = outputs.trace();
        let mode = &trace.recording.mode;
        assert!(
            matches!(mode, Mode::Attach { pids } if *pids == [pid]),
            "{options:?}: {mode:?}"
        );
        let found = trace.processes.iter().find(|process| process.pid == pid);
        assert_identity(&found.expect("the process").identity, &groups);
    }
    assert_grouped(&bench, pid, &groups);
    assert_chosen_by_gpu(&bench, pid);
    let mut nobody = Running::start("gputrace", bench.gputrace_bare().args(["--job", "124"]));
    let (status, stderr) = nobody.fail();
    assert_eq!(status, 3, "{stderr}");
    let there =
        format!("no process matches --job 124: the processes with a ROCm library are {pid}");
    assert!(stderr.contains(&there), "{stderr}");
    program.close_stdin();
    program.finish();

    let outputs = bench.outputs(0);
    let json = fs::read(outputs.file("_results.json")).expect("the JSON document");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let identity = &json["rocprofiler-sdk-tool"][0]["metadata"]["gputrace"]["identity"];
    let identity = serde_json::from_value(identity.clone()).expect("an identity");
    assert_identity(&identity, &groups);
    let ndjson = fs::read_to_string(outputs.file("_results.ndjson")).expect("NDJSON");
    assert!(ndjson.contains(&format!("\"pod\":{{\"uid\":\"{POD}\"}}")));
    let mut summary = bench.gputrace_bare();
    let summary = summary.arg("summary").arg(outputs.capture()).output();
    let summary = String::from_utf8_lossy(&summary.expect("a summary").stdout).into_owned();
    let line = format!("process {pid}: job 123.0, pod {POD}, containerd ");
    assert!(summary.contains(&line), "{summary}");
}
