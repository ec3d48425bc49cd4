//! Programs of the probes' object that are loaded only when they are asked for, into an object of their own that shares
//! rings, counters, targets and the stop flag with the call programs.

use std::os::fd::AsFd as _;

use libbpf_rs::{Link, MapCore as _, Object, ObjectBuilder, OpenMapMut, ProgramMut, TracepointCategory};

use crate::{
    ProbeError,
    calls::{Calls, OBJECT},
    libbpf::{capture_messages, forget_messages, refused},
};

/// Maps of the call programs that others share. Those of data sections have the object's name before the section's.
const SHARED: [&str; 6] = ["RINGS", "COUNTERS", "THREADS", "TARGETS", ".config", ".bss"];

/// Loads `programs` and nothing else. `own` is asked for each map that is not shared: it configures those that the
/// programs need and says so; data sections go by their last part.
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
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let key = name.rfind('.').and_then(|at| name.get(at..)).unwrap_or(&name);
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

/// The program of this name.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, ProbeError> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| ProbeError::BrokenObject {
            part: format!("program {name}"),
        })
}

/// The map of this name.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>, ProbeError> {
    object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(|| ProbeError::BrokenObject {
            part: format!("map {name}"),
        })
}

/// Attaches a program to `category:tracepoint`.
pub(crate) fn tracepoint(
    object: &Object,
    name: &str,
    category: &str,
    tracepoint: &str,
) -> Result<Link, ProbeError> {
    program(object, name)?
        .attach_tracepoint(TracepointCategory::Custom(category.to_owned()), tracepoint)
        .map_err(|error| refused(format!("attach to tracepoint {category}:{tracepoint}"), &error))
}
