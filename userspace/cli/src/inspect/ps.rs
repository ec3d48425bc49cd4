//! `gputrace ps`: which processes use GPUs, and with which runtime.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use gputrace_kfd::{
    processes::{self, Detail},
    topology::{Agent, Topology},
};
use gputrace_text::Page;
use gputrace_tracee::{
    library::LibraryFile,
    process::{self, RocmProcess, Survey},
};
use serde::Serialize;

use super::{
    Machine, PsArgs, View, more_rights, notes_of,
    owner::{Owner, show_places},
    show,
    table::{Align, Table, bytes, cut, or_dash, time},
};

/// Shows the processes.
pub(crate) fn run(args: &PsArgs) -> Result<u8> {
    let machine = Machine::this();
    let survey = process::survey()?;
    let seen = Seen::read(&machine, &survey, machine.has_host_pids())?;
    show(&seen, args.json)?;
    Ok(0)
}

/// All processes that use GPUs.
#[derive(Debug, Serialize)]
struct Seen {
    processes: Vec<ProcessView>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ProcessView {
    pid: u32,
    /// Whether `pid` is the host's id, which is meaningless here because gputrace runs in a
    /// container.
    pid_of_host: bool,
    #[serde(flatten)]
    owner: Owner,
    /// Whether KFD lists it, i.e. whether it has opened /dev/kfd.
    in_kfd: bool,
    libraries: Vec<LibraryView>,
    gpus: Vec<GpuView>,
}

/// A ROCm library that a process has mapped.
#[derive(Clone, Debug, Serialize)]
struct LibraryView {
    path: String,
    soname: Option<String>,
    /// The part of the file's name after `.so.`.
    version: Option<String>,
    build_id: Option<String>,
    /// Whether the file has been deleted or replaced since it was mapped.
    deleted: bool,
}

/// What a process holds on a GPU.
#[derive(Debug, Default, Serialize)]
struct GpuView {
    gpu_id: u32,
    node: Option<u32>,
    name: Option<String>,
    /// PCI address; partitions of a GPU have the same, or differ in the function.
    pci: Option<String>,
    queues: usize,
    vram_bytes: Option<u64>,
    sdma_us: Option<u64>,
    evicted_ms: Option<u64>,
    cu_occupancy: Option<u64>,
}

/// Node, name and PCI address of GPUs by KFD's number.
pub(super) struct Agents(BTreeMap<u32, (u32, String, Option<String>)>);

impl Agents {
    pub(super) fn read(machine: &Machine, notes: &mut Vec<String>) -> Self {
        match Topology::read(&machine.paths) {
            Ok(topology) => {
                notes_of(&topology.problems, notes);
                let agents = topology.agents(&machine.paths).into_iter();
                let gpus = agents.filter(|agent| agent.gpu_id != 0);
                let of = |agent: Agent| {
                    let address = agent.pci_address.map(|address| address.to_string());
                    (agent.gpu_id, (agent.node_id, agent.name, address))
                };
                Self(gpus.map(of).collect())
            }
            Err(error) => {
                notes.push(format!("no names of agents: {error}"));
                Self(BTreeMap::new())
            }
        }
    }

    pub(super) fn get(&self, gpu_id: u32) -> Option<&(u32, String, Option<String>)> {
        self.0.get(&gpu_id)
    }

    /// Node and name, e.g. `1 gfx90a`. KFD's own number if the topology does not have the GPU.
    pub(super) fn label(&self, gpu_id: u32) -> String {
        match self.get(gpu_id) {
            Some((node, name, _)) => format!("{node} {name}"),
            None => format!("gpu {gpu_id}"),
        }
    }

    /// All names by which a user can choose a GPU: its node, its PCI address with and without the
    /// domain, and KFD's own number.
    fn names(&self, gpu_id: u32) -> Vec<String> {
        let mut names = Vec::new();
        if let Some((node, _, address)) = self.get(gpu_id) {
            names.push(node.to_string());
            names.extend(address.clone());
            let short = address
                .as_deref()
                .and_then(|address| address.split_once(':'));
            names.extend(short.map(|(_, short)| short.to_owned()));
        }
        names.push(gpu_id.to_string());
        names
    }
}

/// All names of the GPUs on which each process has a queue or memory, as the driver lists them.
///
/// # Errors
///
/// If the driver lists no processes, or by ids that mean nothing here.
pub(crate) fn gpus_of_processes() -> Result<BTreeMap<u32, Vec<Vec<String>>>> {
    let machine = Machine::this();
    if !machine.has("sys/class/kfd/kfd") {
        bail!(
            "--gpu: the driver lists no processes: {}",
            machine.why_no_kfd()
        );
    }
    if !machine.has_host_pids() {
        bail!(
            "--gpu: gputrace runs in a container, and the driver lists processes by the host's ids; \
             run it on the host, or with --pid=host"
        );
    }
    gpus_below(&machine)
}

fn gpus_below(machine: &Machine) -> Result<BTreeMap<u32, Vec<Vec<String>>>> {
    let agents = Agents::read(machine, &mut Vec::new());
    let mut used = BTreeMap::new();
    for pid in processes::pids(&machine.paths)? {
        // It may have ended since it was listed.
        let Some(process) = processes::process(&machine.paths, pid, Detail::Cheap)? else {
            continue;
        };
        let queues = process.queues.iter().filter_map(|queue| queue.gpu_id);
        let queues = queues.filter_map(|id| u32::try_from(id).ok());
        let held = process.gpus.iter();
        let held = held.filter(|(_, held)| held.vram_bytes.unwrap_or(0) > 0);
        let ids: BTreeSet<u32> = queues.chain(held.map(|(id, _)| *id)).collect();
        used.insert(pid, ids.iter().map(|id| agents.names(*id)).collect());
    }
    Ok(used)
}

impl Seen {
    fn read(machine: &Machine, survey: &Survey, host_pids: bool) -> Result<Self> {
        let mut notes = Vec::new();
        let agents = Agents::read(machine, &mut notes);
        let in_kfd = processes::pids(&machine.paths)?;
        let mut mapped: BTreeMap<u32, &RocmProcess> = survey
            .processes
            .iter()
            .map(|found| (found.pid, found))
            .collect();
        let mut views = Vec::new();
        for pid in &in_kfd {
            // It may have ended since it was listed.
            let Some(gpus) = gpus(machine, *pid, &agents, &mut notes)? else {
                continue;
            };
            let found = if host_pids { mapped.remove(pid) } else { None };
            views.push(ProcessView {
                pid: *pid,
                pid_of_host: !host_pids,
                owner: if host_pids {
                    Owner::read(&machine.paths, *pid)
                } else {
                    Owner::default()
                },
                in_kfd: true,
                libraries: found.map(libraries).unwrap_or_default(),
                gpus,
            });
        }
        for (pid, found) in mapped {
            views.push(ProcessView {
                pid,
                pid_of_host: false,
                owner: Owner::read(&machine.paths, pid),
                in_kfd: false,
                libraries: libraries(found),
                gpus: Vec::new(),
            });
        }
        if views.is_empty() {
            notes.push(if machine.has("sys/class/kfd/kfd") {
                "no process has opened /dev/kfd, and no process that gputrace may look into has a \
                 ROCm library mapped"
                    .to_owned()
            } else {
                format!(
                    "no process that gputrace may look into has a ROCm library mapped, and the \
                     driver lists none: {}",
                    machine.why_no_kfd()
                )
            });
        }
        notes.extend(unseen(survey, &in_kfd, host_pids));
        Ok(Self {
            processes: views,
            notes,
        })
    }
}

/// Notes about what could not be read.
fn unseen(survey: &Survey, in_kfd: &[u32], host_pids: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !survey.unreadable.is_empty() {
        let known: BTreeSet<&u32> = in_kfd.iter().filter(|_| host_pids).collect();
        let gpu = survey
            .unreadable
            .iter()
            .filter(|pid| known.contains(pid))
            .count();
        notes.push(format!(
            "processes whose libraries were not looked up for lack of permission: {}, of which the driver lists {gpu}; \
             to see them: {}",
            survey.unreadable.len(),
            more_rights("ps"),
        ));
    }
    if !host_pids && !in_kfd.is_empty() {
        notes.push(
            "gputrace runs in a container: the driver lists processes by the host's ids, which do \
             not match the container's; run it on the host to see names and libraries"
                .to_owned(),
        );
    }
    notes
}

/// KFD's data about a process; `None` if KFD no longer lists it.
fn gpus(
    machine: &Machine,
    pid: u32,
    agents: &Agents,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<GpuView>>> {
    let Some(process) = processes::process(&machine.paths, pid, Detail::All)? else {
        return Ok(None);
    };
    notes_of(&process.problems, notes);
    let mut gpus: BTreeMap<u32, GpuView> = BTreeMap::new();
    for (gpu_id, held) in &process.gpus {
        let gpu = gpus.entry(*gpu_id).or_default();
        gpu.vram_bytes = held.vram_bytes;
        gpu.sdma_us = held.sdma_us;
        gpu.evicted_ms = held.evicted_ms;
        gpu.cu_occupancy = held.cu_occupancy;
    }
    for queue in &process.queues {
        let gpu_id = queue.gpu_id.and_then(|id| u32::try_from(id).ok());
        if let Some(gpu_id) = gpu_id {
            gpus.entry(gpu_id).or_default().queues += 1;
        }
    }
    for (gpu_id, gpu) in &mut gpus {
        gpu.gpu_id = *gpu_id;
        if let Some((node, name, address)) = agents.get(*gpu_id) {
            (gpu.node, gpu.name) = (Some(*node), Some(name.clone()));
            gpu.pci.clone_from(address);
        }
    }
    Ok(Some(gpus.into_values().collect()))
}

/// The libraries of a process, with data from their files.
fn libraries(found: &RocmProcess) -> Vec<LibraryView> {
    let view = |mapped: &process::MappedFile| {
        let file = process::open_mapped(found.pid, mapped).ok();
        let elf = file.as_ref().map(LibraryFile::elf);
        let name = mapped
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        LibraryView {
            path: mapped.path.to_string_lossy().into_owned(),
            soname: elf.and_then(|elf| elf.soname.clone()),
            version: name
                .split_once(".so.")
                .map(|(_, version)| version.to_owned()),
            build_id: elf.and_then(|elf| elf.build_id.clone()),
            deleted: mapped.deleted,
        }
    };
    found.libraries.iter().map(view).collect()
}

impl View for Seen {
    fn text(&self) -> String {
        use Align::{Left, Right};
        let mut out = Page::new(String::new());
        let mut table = Table::new(&[
            ("PID", Right),
            ("USER", Left),
            ("NAME", Left),
            ("AGENT", Left),
            ("QUEUES", Right),
            ("VRAM", Right),
            ("SDMA", Right),
            ("EVICTED", Right),
            ("BUSY CUS", Right),
        ]);
        for process in &self.processes {
            let owner = &process.owner;
            let mut who = [
                process.pid.to_string(),
                or_dash(owner.user.as_deref(), |user| cut(user, 12)),
                or_dash(owner.title(), |title| cut(title, 15)),
            ];
            if process.gpus.is_empty() {
                let [pid, user, name] = who;
                let agent = if process.in_kfd {
                    "none in use"
                } else {
                    "no KFD"
                };
                let dash = || "-".to_owned();
                table.row([
                    pid,
                    user,
                    name,
                    agent.to_owned(),
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                ]);
                continue;
            }
            for gpu in &process.gpus {
                // A process with several GPUs is named only once.
                let [pid, user, name] = std::mem::take(&mut who);
                table.row([
                    pid,
                    user,
                    name,
                    match (gpu.node, &gpu.name) {
                        (Some(node), Some(name)) => format!("{node} {name}"),
                        _ => format!("gpu {}", gpu.gpu_id),
                    },
                    gpu.queues.to_string(),
                    or_dash(gpu.vram_bytes, bytes),
                    or_dash(gpu.sdma_us, |us| time(us.saturating_mul(1_000))),
                    or_dash(gpu.evicted_ms, |ms| time(ms.saturating_mul(1_000_000))),
                    or_dash(gpu.cu_occupancy, |units| units.to_string()),
                ]);
            }
        }
        if !table.is_empty() {
            table.render(&mut out);
        }
        let mut libraries = Table::new(&[
            ("PID", Right),
            ("LIBRARY", Left),
            ("VERSION", Left),
            ("BUILD ID", Left),
        ]);
        let mut places = Vec::new();
        for process in &self.processes {
            for library in &process.libraries {
                let name = library.path.rsplit('/').next().unwrap_or(&library.path);
                let name = name.split_once(".so").map_or(name, |(stem, _)| stem);
                let gone = if library.deleted { " (deleted)" } else { "" };
                libraries.row([
                    process.pid.to_string(),
                    format!("{}{gone}", cut(name, 22)),
                    or_dash(library.version.as_deref(), |version| cut(version, 12)),
                    or_dash(library.build_id.as_deref(), |id| cut(id, 40)),
                ]);
            }
            if let Some(place) = process.owner.place() {
                places.push((process.pid, place));
            }
        }
        libraries.section(&mut out, "ROCm libraries");
        show_places(&mut out, places);
        out.into_inner()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{table::WIDTH, tree};

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn processes_with_and_without_gpus() {
        let directory = tree::two_gpus();
        let machine = Machine::under(directory.path());
        let seen = Seen::read(&machine, &Survey::default(), true).unwrap();
        assert!(seen.notes.is_empty(), "{:?}", seen.notes);
        let text = seen.text();
        let lines: Vec<String> = text.lines().map(words).collect();
        for expected in [
            "8 - - none in use - - - - -",
            "4711 424242 train 1 gfx90a 1 64.0 GiB 1.5 ms 12.0 ms 104",
            "2 gfx90a 1 0 B - - -",
            "4711 docker 0123456789ab",
        ] {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected} is not in\n{text}"
            );
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        let json = serde_json::to_value(&seen).unwrap();
        let process = &json["processes"][1];
        assert_eq!(
            (&process["pid"], &process["uid"]),
            (&4711.into(), &424_242.into())
        );
        assert_eq!(process["gpus"][0]["evicted_ms"], 12);
        assert_eq!(process["gpus"][0]["pci"], "0001:83:00.0");
        assert_eq!(process["container"]["engine"], "docker");
    }

    #[test]
    fn gpus_have_all_their_names() {
        let directory = tree::two_gpus();
        let machine = Machine::under(directory.path());
        let used = gpus_below(&machine).unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let first = names(&["1", "0001:83:00.0", "83:00.0", "10321"]);
        assert_eq!(used[&4711].first(), Some(&first));
        // It has the device open, and uses no GPU.
        assert_eq!(used[&8], Vec::<Vec<String>>::new());
    }

    #[test]
    fn in_a_container_numbers_of_the_host_are_not_looked_up() {
        let directory = tree::two_gpus();
        let machine = Machine::under(directory.path());
        let seen = Seen::read(&machine, &Survey::default(), false).unwrap();
        assert!(
            seen.processes
                .iter()
                .all(|process| process.owner == Owner::default())
        );
        assert!(seen.notes[0].contains("on the host"), "{:?}", seen.notes);
    }

    #[test]
    fn what_was_not_seen_is_said() {
        let directory = tree::two_gpus();
        let machine = Machine::under(directory.path());
        let survey = Survey {
            unreadable: vec![1, 8],
            ..Survey::default()
        };
        let seen = Seen::read(&machine, &survey, true).unwrap();
        assert!(
            seen.notes[0].contains("permission: 2, of which the driver lists 1"),
            "{:?}",
            seen.notes
        );
        let nothing = tempfile::tempdir().unwrap();
        let seen = Seen::read(&Machine::under(nothing.path()), &Survey::default(), true).unwrap();
        assert!(seen.notes[0].contains("no AMD GPU"), "{:?}", seen.notes);
        assert_eq!(seen.text(), "");
    }
}
