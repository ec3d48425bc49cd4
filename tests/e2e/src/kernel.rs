//! Queries the BPF programs and probes in the kernel.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, PerfEventType, ProgInfoIter};

/// Checks whether this process may use BPF.
///
/// # Errors
/// The reason why not, and how to change that.
pub fn bpf_usable() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err(
            "these tests trace other processes, which needs root: run them with sudo".to_owned(),
        );
    }
    // Listing programs proves nothing, because the list may be empty. Creating a map does.
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    libbpf_rs::MapHandle::create(libbpf_rs::MapType::Array, Some("usable"), 4, 4, 1, &options)
        .map(drop)
        .map_err(|error| {
            format!(
                "the kernel refuses BPF ({error}): allow it, or run in a VM or privileged container"
            )
        })
}

/// Descriptions of all probes in the kernel on the file at `path`, whoever created them.
///
/// For a probe of a perf event, the kernel knows only the name by which the file was opened.
/// gputrace names files by a descriptor (`/proc/PID/fd/…`), which could be any file, so such probes
/// are not included. [`breakpoints`] finds them in the processes that have mapped the file, and
/// [`definitions`] those of all files.
///
/// # Panics
/// If `/sys/kernel/tracing` cannot be read.
#[must_use]
pub fn probes_on(path: &Path) -> Vec<String> {
    let mut probes: Vec<String> = LinkInfoIter::default()
        .filter_map(|link| match link.info {
            LinkTypeInfo::UprobeMulti(multi) if multi.path.as_deref() == Some(path) => {
                Some(format!("BPF link {} with {} probes", link.id, multi.count))
            }
            LinkTypeInfo::PerfEvent(event) => match event.event_type {
                PerfEventType::Uprobe {
                    file_name: Some(name),
                    offset,
                    ..
                } if Path::new(&name) == path => Some(format!(
                    "BPF link {} with a perf event at {offset:#x}",
                    link.id
                )),
                _ => None,
            },
            _ => None,
        })
        .collect();
    let profile = fs::read_to_string("/sys/kernel/tracing/uprobe_profile")
        .expect("tracefs at /sys/kernel/tracing");
    let name = path.to_string_lossy();
    probes.extend(
        profile
            .lines()
            .filter(|line| line.contains(&*name))
            .map(str::to_owned),
    );
    probes
}

/// Names of the events that gputraces have defined for probes of the perf back-end.
///
/// # Panics
/// If `/sys/kernel/tracing` cannot be read.
#[must_use]
pub fn definitions() -> BTreeSet<String> {
    let events = fs::read_to_string("/sys/kernel/tracing/uprobe_events");
    let events = events.expect("tracefs at /sys/kernel/tracing");
    let names = events.lines().filter_map(|line| {
        let (_, name) = line.split_whitespace().next()?.split_once(':')?;
        name.strip_prefix("gputrace/").map(str::to_owned)
    });
    names.collect()
}

/// The child process of `pid` that owns the probes of the perf back-end.
#[must_use]
pub fn owner_of_probes(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let mut children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    children.find(|pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "gputrace-probes")
    })
}

/// Offsets, in the file at `library`, of the bytes of code that differ in process `pid`: those of
/// breakpoints.
///
/// # Panics
/// If the process is gone, or a file cannot be read.
#[must_use]
pub fn breakpoints(pid: u32, library: &Path) -> Vec<u64> {
    let file = fs::read(library).expect("the library");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the process's memory");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process's mappings");
    let name = library.to_string_lossy();
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.ends_with(&*name)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a hexadecimal number");
        let (begin, end) = words[0].split_once('-').expect("a range of addresses");
        let (begin, end, offset) = (number(begin), number(end), number(words[2]));
        if !words[1].contains('x') {
            continue;
        }
        let code = &file[offset as usize..];
        let code = &code[..code.len().min((end - begin) as usize)];
        let mut bytes = vec![0; code.len()];
        memory
            .read_exact_at(&mut bytes, begin)
            .expect("code of the process");
        let differ = (offset..).zip(code.iter().zip(&bytes));
        found.extend(
            differ
                .filter(|(_, (own, its))| own != its)
                .map(|(at, _)| at),
        );
    }
    found
}

/// Size in bytes of the code pages of which process `pid` has a private copy, in mapped files whose
/// names contain `library`. Writing a breakpoint into a process makes such a copy, so 0 means that
/// the process has never had a breakpoint there.
///
/// # Panics
/// If the process is gone.
#[must_use]
pub fn modified_code(pid: u32, library: &str) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("the process's mappings");
    let mut inside = false;
    let mut kibibytes = 0;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some(size)) if inside => {
                kibibytes += size.parse::<u64>().expect("a number of KiB");
            }
            (Some(range), Some(permissions)) if !range.ends_with(':') => {
                inside = permissions.contains('x') && line.contains(library);
            }
            _ => {}
        }
    }
    kibibytes << 10
}

/// Ids of loaded BPF programs that have one of these names.
#[must_use]
pub fn programs(names: &[&str]) -> Vec<u32> {
    ProgInfoIter::default()
        .filter(|program| {
            names
                .iter()
                .any(|name| program.name.to_string_lossy() == *name)
        })
        .map(|program| program.id)
        .collect()
}
