//! Checks the GPU driver, and the ROCm libraries that can be probed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use gputrace_abi::domain::Domain;
use gputrace_files::kernel;
use gputrace_kfd::{
    activity::{ActivityError, Register},
    clock::{ClockError, Sampler},
    metrics::{GpuPlace, gpu_readings, places},
    smi::SmiReader,
    topology::{AgentType, Topology},
};
use gputrace_loader::{
    calls::{BackendChoice, Calls},
    ioctls::Ioctls,
    tracefs::tracefs,
};
use gputrace_session::{FunctionFilter, plan};
use gputrace_tracee::{
    candidates::{self, Search},
    library::LibraryFile,
    process,
};

use super::{
    Check, Section, Verdict,
    bpf::{options, short},
};
use crate::inspect::{Machine, more_rights};

const NOT_NEEDED: &str = "API calls can still be traced, GPU work cannot";

/// Checks the driver: module, device, agents, clocks, tracepoints.
pub(super) fn driver(machine: &Machine, verdict: Verdict) -> Section {
    let mut section = Section::new("GPU driver");
    section.push(module(machine));
    let topology = Topology::read(&machine.paths).unwrap_or_default();
    section.push(agents(machine, &topology));
    if topology.generation_id.is_some() || kernel::exists(&machine.paths.dev_kfd) {
        section.push(clocks(machine, &topology));
    }
    if machine.has("sys/module/amdgpu") {
        section.push(tracepoints());
        if verdict == Verdict::Ready {
            section.push(requests());
        }
    }
    for gpu in places(&topology) {
        section.push(events(machine, &gpu));
        section.push(counters(machine, &gpu));
        section.push(register(machine, &gpu));
    }
    section
}

fn module(machine: &Machine) -> Check {
    const NAME: &str = "amdgpu";
    if machine.has("sys/module/amdgpu") {
        // Only the driver of AMD's packages has its own version.
        let version = machine.line("sys/module/amdgpu/version");
        let found = version.map_or_else(
            || "loaded, the kernel's own".to_owned(),
            |version| format!("loaded, AMD's package {version}"),
        );
        return Check::ok(NAME, found, "the GPU has its driver");
    }
    match machine.amd_gpus().as_slice() {
        [] => Check::warning(
            NAME,
            "not loaded, and no AMD GPU on the PCI bus",
            NOT_NEEDED,
        ),
        [gpu, ..] => Check::missing(
            NAME,
            format!("not loaded, but there is a GPU at {gpu}"),
            NOT_NEEDED,
        )
        .next("sudo modprobe amdgpu"),
    }
}

fn agents(machine: &Machine, topology: &Topology) -> Check {
    const NAME: &str = "agents";
    let agents = topology.agents(&machine.paths);
    let gpus: Vec<String> = agents
        .iter()
        .filter(|agent| agent.agent_type == AgentType::Gpu)
        .map(|agent| format!("{} {}", agent.node_id, agent.name))
        .collect();
    match gpus.as_slice() {
        [] if topology.generation_id.is_none() => {
            Check::warning(NAME, "KFD has no topology", "there are no agents to show")
        }
        [] => Check::warning(NAME, "no GPU is among them", NOT_NEEDED).next("gputrace topology"),
        gpus => Check::ok(NAME, gpus.join(", "), "GPUs have names in the outputs")
            .next("gputrace topology"),
    }
}

/// Reads the clock of every GPU.
fn clocks(machine: &Machine, topology: &Topology) -> Check {
    const NAME: &str = "/dev/kfd and clocks";
    const WITHOUT: &str = "times of GPU work cannot be converted to the host's clock";
    let sampler = match Sampler::open(&machine.paths, topology.gpu_ids()) {
        Ok(sampler) => sampler,
        Err(error @ ClockError::Denied { .. }) => {
            return Check::missing(NAME, error.to_string(), WITHOUT).next(more_rights("doctor"));
        }
        Err(error) => {
            return Check::missing(NAME, error.to_string(), WITHOUT).next("gputrace topology");
        }
    };
    let samples = sampler.sample_all();
    let read = samples.iter().flatten();
    let worst = read
        .clone()
        .map(|sample| sample.uncertainty_ns)
        .max()
        .unwrap_or(0);
    match samples.iter().find_map(|sample| sample.as_ref().err()) {
        Some(error) => Check::missing(NAME, error.to_string(), WITHOUT).next("gputrace topology"),
        None if samples.is_empty() => {
            Check::warning(NAME, "opened, but there is no GPU", NOT_NEEDED)
        }
        None => Check::ok(
            NAME,
            format!("{} clocks read, within {worst} ns", read.count()),
            "GPU work has times",
        ),
    }
}

/// Attaches the programs for driver requests at each possible place in turn.
fn requests() -> Check {
    const NAME: &str = "ioctls of /dev/kfd";
    let attached = Calls::load(&options(BackendChoice::Auto))
        .and_then(|calls| Ioctls::attach(&calls, None, 16));
    match attached {
        Ok(ioctls) => {
            let cost = ioctls.place().cost();
            let meaning = cost.map_or(
                "--kfd-trace costs other programs nothing".to_owned(),
                |cost| {
                    format!(
                        "--kfd-trace works, but {cost}; the kernel has no BTF of the driver, and \
                         no kprobes"
                    )
                },
            );
            let found = format!("programs attached by {}", ioctls.place());
            if cost.is_some() {
                Check::warning(NAME, found, meaning)
            } else {
                Check::ok(NAME, found, meaning)
            }
        }
        Err(error) => Check::warning(NAME, short(&error), "--kfd-trace cannot be used")
            .next(more_rights("doctor")),
    }
}

/// Opens the descriptor from which a GPU's driver events are read.
fn events(machine: &Machine, gpu: &GpuPlace) -> Check {
    let name = format!("events of GPU {}", gpu.gpu_id);
    match SmiReader::open(&machine.paths, gpu.gpu_id) {
        Ok(_) => Check::ok(
            name,
            "the driver would report them",
            "--kfd-events works; events of other users' processes need CAP_SYS_ADMIN",
        ),
        Err(error) => Check::warning(
            name,
            error.to_string(),
            "--kfd-events cannot record evictions, page faults and resets",
        )
        .next(more_rights("doctor")),
    }
}

/// Reads the values that `--counters` would read.
fn counters(machine: &Machine, gpu: &GpuPlace) -> Check {
    let name = format!("counters of GPU {}", gpu.gpu_id);
    let read = gpu_readings(&machine.paths, gpu);
    let found = format!("{} numbers read", read.values.len());
    match read.problems.first() {
        _ if read.asleep => Check::ok(
            name,
            "the GPU is asleep and was not woken",
            "--counters reads it when it is awake",
        ),
        Some(problem) => {
            Check::warning(name, format!("{found}; {problem}"), "--counters lacks some")
        }
        None if read.values.is_empty() => {
            Check::warning(name, "none", "--counters has nothing to show for this GPU")
        }
        None => Check::ok(name, found, "--counters shows them"),
    }
}

/// Reads the status register, unless that would wake the GPU.
fn register(machine: &Machine, gpu: &GpuPlace) -> Check {
    const WITHOUT: &str = "programs that launch a kernel now and then have no mean durations \
        after attaching, and GPU use is a wide range";
    let name = format!("status register of GPU {}", gpu.gpu_id);
    if gpu_readings(&machine.paths, gpu).asleep {
        return Check::ok(
            name,
            "the GPU is asleep and was not woken",
            "it is read while kernels run",
        );
    }
    match Register::open(&machine.paths, gpu.drm_render_minor) {
        Ok(register) => Check::ok(
            name,
            format!("read through {}", register.path().display()),
            "it shows when kernels end; `gputrace verify` checks how well",
        ),
        Err(error @ ActivityError::Open { .. }) => {
            Check::warning(name, error.to_string(), WITHOUT).next(more_rights("doctor"))
        }
        Err(error) => Check::warning(name, error.to_string(), WITHOUT),
    }
}

/// Checks the driver's tracepoints.
fn tracepoints() -> Check {
    const NAME: &str = "amdgpu tracepoints";
    let Ok(tracefs) = tracefs() else {
        return Check::warning(
            NAME,
            "not visible",
            "the driver's own events cannot be recorded",
        )
        .next(more_rights("doctor"));
    };
    let count = |category: &str| {
        let directory = tracefs.join("events").join(category);
        let names = kernel::list(&directory).unwrap_or_default();
        let events = names
            .iter()
            .filter(|name| kernel::is_directory(directory.join(name)));
        events.count()
    };
    let categories = ["amdgpu", "amdkfd", "gpu_scheduler", "dma_fence"];
    let found: Vec<String> = categories
        .into_iter()
        .map(|category| (category, count(category)))
        .filter(|(_, count)| *count > 0)
        .map(|(category, count)| format!("{count} of {category}"))
        .collect();
    if found.is_empty() {
        Check::warning(NAME, "none", "the driver's own events cannot be recorded")
    } else {
        Check::ok(
            NAME,
            found.join(", "),
            "the driver's own events can be recorded",
        )
    }
}

/// Checks ROCm libraries that are mapped or installed.
pub(super) fn libraries() -> Section {
    let mut section = Section::new("ROCm libraries");
    let mut seen = BTreeSet::new();
    let mut add = |file: &LibraryFile, section: &mut Section| {
        if seen.insert((file.device(), file.inode())) {
            section.push(library(file));
        }
    };
    let survey = process::survey().unwrap_or_default();
    for found in &survey.processes {
        for mapped in &found.libraries {
            // The process has ended meanwhile, or is inaccessible.
            if let Ok(file) = process::open_mapped(found.pid, mapped) {
                add(&file, &mut section);
            }
        }
    }
    let search = Search {
        root: Path::new("/"),
        executable: None,
        library_path: None,
        current_dir: Path::new("/"),
    };
    for candidate in candidates::find(&search) {
        let path = candidate.path().to_owned();
        match candidate.into_library() {
            Ok(file) => add(&file, &mut section),
            Err(error) => section.push(Check::warning(
                label(&path),
                error.to_string(),
                "this file cannot be probed",
            )),
        }
    }
    if section.checks.is_empty() {
        section.push(
            Check::warning(
                "none",
                "no process has one mapped, and none is in a usual place",
                "containers and Python wheels bring their own: gputrace finds these when a program \
                 maps them",
            )
            .next("gputrace list --library PATH"),
        );
    }
    if let Some(pid) = survey.unreadable.first() {
        section.push(
            Check::warning(
                "other processes",
                format!(
                    "{} could not be inspected, e.g. {pid}",
                    survey.unreadable.len()
                ),
                "these processes may have other libraries mapped",
            )
            .next(more_rights("doctor")),
        );
    }
    section
}

/// The file's name; its directory is in the text.
fn label(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Functions of a library that can be probed, by cost.
fn library(file: &LibraryFile) -> Check {
    let name = label(file.path());
    let directory = file
        .path()
        .parent()
        .unwrap_or(Path::new("/"))
        .display()
        .to_string();
    let plan = match plan(file, Domain::ALL, &FunctionFilter::default()) {
        Ok(plan) => plan,
        Err(error) => {
            return Check::warning(
                name,
                format!("in {directory}, {error}"),
                "it cannot be probed",
            );
        }
    };
    let mut costs: BTreeMap<&str, usize> = BTreeMap::new();
    for probe in &plan.probes {
        *costs.entry(probe.site.cost.name()).or_default() += 1;
    }
    let by_cost: Vec<String> = costs
        .iter()
        .map(|(cost, count)| format!("{count} {}", cost.replace('_', "-")))
        .collect();
    let found = format!(
        "in {directory}, {} functions ({})",
        plan.probes.len(),
        by_cost.join(", ")
    );
    let next = format!("gputrace list --probes --library {}", file.path().display());
    if plan.probes.is_empty() {
        Check::warning(
            name,
            format!("in {directory}, no known function"),
            "it cannot be traced",
        )
        .next(next)
    } else if plan.refused.is_empty() {
        Check::ok(name, found, "all of them can be traced")
    } else {
        let meaning = format!("{} more cannot be traced", plan.refused.len());
        Check::warning(name, found, meaning).next(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_gpu_without_a_driver_is_told_from_a_machine_without_one() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::under(directory.path());
        assert_eq!(module(&machine).status, Status::Warning);
        let device = directory.path().join("sys/bus/pci/devices/0000:03:00.0");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("vendor"), "0x1002\n").unwrap();
        std::fs::write(device.join("class"), "0x038000\n").unwrap();
        let missing = module(&machine);
        assert_eq!(missing.status, Status::Missing);
        assert!(missing.found.contains("0000:03:00.0"), "{}", missing.found);
        assert_eq!(missing.next.as_deref(), Some("sudo modprobe amdgpu"));
        let sections = driver(&machine, Verdict::NoPermission);
        assert!(
            sections
                .checks
                .iter()
                .all(|check| check.status != Status::Ok),
            "{sections:?}"
        );

        let module_directory = directory.path().join("sys/module/amdgpu");
        std::fs::create_dir_all(&module_directory).unwrap();
        assert!(module(&machine).found.contains("the kernel's own"));
        std::fs::write(module_directory.join("version"), "6.12.12\n").unwrap();
        assert!(module(&machine).found.contains("6.12.12"));
    }
}
