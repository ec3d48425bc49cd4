//! Loads optional programs of the probes' object. They go into a separate object that shares rings,
//! counters, targets and the stop flag with the programs that trace calls.

use std::os::fd::{AsFd as _, AsRawFd as _};

use gputrace_files::kernel;
use libbpf_rs::{
    Link, MapCore as _, MapFlags, Object, ObjectBuilder, OpenMapMut, ProgramAttachType, ProgramMut,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{
    ProbeError,
    calls::{Calls, OBJECT},
    libbpf::{capture_messages, forget_messages, refused},
};

/// Maps of the call-tracing programs that other programs share. Names of data sections' maps are
/// prefixed with the object's name.
const SHARED: [&str; 6] = ["RINGS", "COUNTERS", "THREADS", "TARGETS", ".config", ".bss"];

/// Loads `programs` and nothing else. `own` is called for each map that is not shared: it
/// configures a map that the programs need, and returns `None` for others, which are not created.
/// Data sections are named by their last part.
pub(crate) fn load(
    calls: &Calls,
    programs: &[&str],
    own: impl Fn(&str, &mut OpenMapMut<'_>) -> Option<libbpf_rs::Result<()>>,
) -> Result<Object, ProbeError> {
    capture_messages();
    forget_messages();
    let mut open = ObjectBuilder::default()
        .name("gputrace_extra")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| refused("read the eBPF object", &error))?;
    for mut program in open.progs_mut() {
        let wanted = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
        if wanted && calls.is_multi() && program.section().to_string_lossy().starts_with("uprobe") {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let key = name
            .rfind('.')
            .and_then(|at| name.get(at..))
            .unwrap_or(&name);
        let result = if SHARED.contains(&key) {
            map.reuse_fd(calls.map(key)?.as_fd())
        } else {
            own(key, &mut map).unwrap_or_else(|| map.set_autocreate(false))
        };
        result.map_err(|error| refused(format!("configure map {name}"), &error))?;
    }
    open.load()
        .map_err(|error| refused(format!("load {}", programs.join(", ")), &error))
}

/// Finds a program by name.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, ProbeError> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| ProbeError::BrokenObject {
            part: format!("program {name}"),
        })
}

/// How often the kernel should have run a program of `object` and skipped it, because another
/// program, or an operation of bpf(2) on a map, was running on the same processor. This happens
/// only to ordinary tracepoints and kprobes.
pub(crate) fn missed(object: &Object) -> u64 {
    object
        .progs()
        .filter_map(|program| {
            let file = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
            recursion_misses(&kernel::read_text(file).ok()?)
        })
        .sum()
}

/// The number of skipped runs in a program's `fdinfo` (Linux 5.12).
fn recursion_misses(fdinfo: &str) -> Option<u64> {
    fdinfo
        .lines()
        .find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
}

/// The values of a map, which are records that `complete` completes, one after the other. `action`
/// says what a failure prevents.
pub(crate) fn records<T: FromBytes + IntoBytes + Immutable>(
    object: &Object,
    name: &str,
    action: &str,
    complete: impl Fn(&mut T),
) -> Result<Vec<u8>, ProbeError> {
    let map = map(object, name)?;
    let mut records = Vec::new();
    for key in map.keys() {
        let value = map
            .lookup(&key, MapFlags::ANY)
            .map_err(|error| refused(action, &error))?;
        if let Some(mut record) = value.and_then(|bytes| T::read_from_bytes(&bytes).ok()) {
            complete(&mut record);
            records.extend_from_slice(record.as_bytes());
        }
    }
    Ok(records)
}

/// Finds a map by name.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>, ProbeError> {
    object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(|| ProbeError::BrokenObject {
            part: format!("map {name}"),
        })
}

/// Attaches a program to a raw tracepoint.
pub(crate) fn raw_tracepoint(
    object: &Object,
    name: &str,
    tracepoint: &str,
) -> Result<Link, ProbeError> {
    program(object, name)?
        .attach_raw_tracepoint(tracepoint)
        .map_err(|error| refused(format!("attach to raw tracepoint {tracepoint}"), &error))
}

#[cfg(test)]
mod tests {
    use super::recursion_misses;

    #[test]
    fn misses_are_read_from_fdinfo() {
        let fdinfo =
            "pos:\t0\nprog_type:\t5\nrun_cnt:\t0\nrecursion_misses:\t301\nverified_insns:\t9\n";
        assert_eq!(recursion_misses(fdinfo), Some(301));
        assert_eq!(recursion_misses("pos:\t0\n"), None);
        assert_eq!(recursion_misses("recursion_misses:\tmany\n"), None);
    }
}
