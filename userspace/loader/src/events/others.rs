//! Who else adds or removes probes: the kernel lets only one process at a time do that.

use gputrace_files::kernel;

/// Parts of names of the kernel's functions in which a thread has, or waits for, the lock on events.
const PLACES: [&str; 6] = [
    "perf_trace_",
    "perf_uprobe_",
    "perf_kprobe_",
    "probe_event_",
    "dyn_event_",
    "probes_write",
];

/// Processes with a thread that waits in such a function, e.g. `process 42 (bpftrace)`; not `own`
/// and this one. Empty if this process may not see stacks of the kernel.
pub(super) fn tracers(own: i32) -> Vec<String> {
    let me = rustix::process::getpid().as_raw_pid();
    let numbers = |path: &str| -> Vec<i32> {
        let names = kernel::list(path).unwrap_or_default();
        names
            .iter()
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect()
    };
    let waits = |pid: &i32| {
        numbers(&format!("/proc/{pid}/task"))
            .iter()
            .any(|tid| waits(*tid))
    };
    numbers("/proc")
        .into_iter()
        .filter(|pid| *pid != own && *pid != me)
        .filter(waits)
        .map(|pid| {
            let name = kernel::read_text(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        })
        .collect()
}

/// Whether a thread waits in such a function.
fn waits(tid: i32) -> bool {
    let state = u32::try_from(tid).ok().and_then(kernel::state_of_task);
    state == Some(b'D')
        && kernel::read_text(format!("/proc/{tid}/stack"))
            .is_ok_and(|stack| PLACES.iter().any(|place| stack.contains(place)))
}
