//! What BPF programs and probes the kernel holds.

use std::{fs, path::Path};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, PerfEventType, ProgInfoIter};

/// Whether this process may use BPF.
///
/// # Errors
/// Why not, and how to change that.
pub fn bpf_usable() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("these tests trace other processes, which needs root: run them with sudo".to_owned());
    }
    // At least the programs of systemd or of this very check's environment are usually there, but an
    // empty list is no proof of anything; creating a map is.
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    libbpf_rs::MapHandle::create(libbpf_rs::MapType::Array, Some("usable"), 4, 4, 1, &options)
        .map(drop)
        .map_err(|error| {
            format!("the kernel refuses BPF ({error}): allow it, or run in a VM or privileged container")
        })
}

/// Descriptions of all probes on the file at `path` that are in the kernel, whoever made them.
///
/// Of a probe made by a perf event the kernel knows only the name by which the file was opened. Probes
/// on files that were named by a descriptor (`/proc/self/fd/…`), as gputrace does, could be on any file;
/// they count as well.
///
/// # Panics
/// If `/sys/kernel/tracing` cannot be read.
#[must_use]
pub fn probes_on(path: &Path) -> Vec<String> {
    let is_it = |name: &Path| name == path || name.starts_with("/proc/self/fd");
    let mut probes: Vec<String> = LinkInfoIter::default()
        .filter_map(|link| match link.info {
            LinkTypeInfo::UprobeMulti(multi) if multi.path.as_deref().is_some_and(is_it) => {
                Some(format!("BPF link {} with {} probes", link.id, multi.count))
            }
            LinkTypeInfo::PerfEvent(event) => match event.event_type {
                PerfEventType::Uprobe {
                    file_name: Some(name),
                    offset,
                    ..
                } if is_it(name.as_ref()) => {
                    Some(format!("BPF link {} with a perf event at {offset:#x}", link.id))
                }
                _ => None,
            },
            _ => None,
        })
        .collect();
    let profile =
        fs::read_to_string("/sys/kernel/tracing/uprobe_profile").expect("tracefs at /sys/kernel/tracing");
    let name = path.to_string_lossy();
    probes.extend(
        profile
            .lines()
            .filter(|line| line.contains(&*name))
            .map(str::to_owned),
    );
    probes
}

/// Ids of loaded BPF programs with one of these names.
#[must_use]
pub fn programs(names: &[&str]) -> Vec<u32> {
    ProgInfoIter::default()
        .filter(|program| names.iter().any(|name| program.name.to_string_lossy() == *name))
        .map(|program| program.id)
        .collect()
}
