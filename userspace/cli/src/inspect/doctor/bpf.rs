//! Checks whether BPF programs can be loaded and attached, by doing each on gputrace itself.

use std::{
    hint, io,
    os::fd::{FromRawFd as _, OwnedFd},
    path::Path,
};

use gputrace_abi::{cookie::Cookie, domain::Domain};
use gputrace_loader::{
    ProbeError,
    attach::{Point, Scope, TracedFunction},
    calls::{BackendChoice, Calls, Options},
    events::leftovers,
    layout::task_pid,
    tasks::Tasks,
    tracefs::{Tracepoint, tracefs},
};
use gputrace_text::tables::plural;
use gputrace_tracee::process::maps;

use super::{Check, Section, Status, Verdict};
use crate::inspect::{Machine, more_rights};

/// The checks and the verdict.
pub(super) struct Tracing {
    pub(super) section: Section,
    pub(super) verdict: Verdict,
}

/// Tries everything that a recording of calls needs.
pub(super) fn tracing(machine: &Machine) -> Tracing {
    let mut section = Section::new("Tracing");
    section.push(map("bpf() system call", MapKind::Array));
    section.push(map("ring buffer", MapKind::RingBuffer));
    section.push(btf());
    section.push(tracing_file_system());
    section.extend_tracepoints();
    let mut verdict = section.try_probes();
    if verdict == Verdict::Ready {
        verdict = section.try_filter(machine.has_host_pids());
    }
    section.push(lifetimes());
    Tracing { section, verdict }
}

/// Map types that are tried, numbered as in the kernel's `enum bpf_map_type`.
#[derive(Clone, Copy)]
enum MapKind {
    Array = 2,
    RingBuffer = 27,
}

/// Creates a small map with a direct system call, so that the kernel's own error is seen.
fn create(kind: MapKind) -> io::Result<OwnedFd> {
    /// The first members of `union bpf_attr` for `BPF_MAP_CREATE` of the kernel's `linux/bpf.h`.
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    const BPF_MAP_CREATE: libc::c_long = 0;
    // A ring buffer has neither keys nor values, and its size is in whole pages.
    let attributes = match kind {
        MapKind::Array => Create {
            map_type: kind as u32,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
        },
        MapKind::RingBuffer => Create {
            map_type: kind as u32,
            key_size: 0,
            value_size: 0,
            max_entries: 4096,
        },
    };
    // SAFETY: the kernel reads `size_of::<Create>()` bytes of initialised memory and takes the rest
    // as 0.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            std::ptr::from_ref(&attributes),
            size_of::<Create>(),
        )
    };
    match libc::c_int::try_from(fd) {
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn map(name: &str, kind: MapKind) -> Check {
    match create(kind) {
        Ok(_) => Check::ok(
            name,
            "works",
            match kind {
                MapKind::Array => "eBPF maps can be created",
                MapKind::RingBuffer => "the kernel can send records",
            },
        ),
        Err(error) => {
            let answer = error.to_string();
            // The number adds nothing for people.
            let answer = answer.split(" (os error").next().unwrap_or_default();
            let check = |meaning| Check::missing(name, answer, meaning);
            match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    check("nothing can be recorded").next(more_rights("doctor"))
                }
                Some(libc::ENOSYS) => check("the kernel has no eBPF; nothing can be recorded")
                    .next("use a kernel with CONFIG_BPF_SYSCALL"),
                _ => check("the kernel lacks this; nothing can be recorded")
                    .next("use Linux 6.1 or later"),
            }
        }
    }
}

fn btf() -> Check {
    match task_pid() {
        Ok(_) => Check::ok(
            "BTF of the kernel",
            "present",
            "processes and threads can be followed",
        ),
        Err(ProbeError::Unsupported { cause, .. }) => {
            Check::missing("BTF of the kernel", cause, "nothing can be recorded")
                .next("use a kernel with CONFIG_DEBUG_INFO_BTF")
        }
        Err(error) => Check::missing(
            "BTF of the kernel",
            short(&error),
            "nothing can be recorded",
        ),
    }
}

fn tracing_file_system() -> Check {
    match tracefs() {
        Ok(path) => Check::ok(
            "tracefs",
            path.display().to_string(),
            "layouts of tracepoints can be read",
        ),
        Err(error @ ProbeError::PermissionDenied { .. }) => {
            Check::missing("tracefs", short(&error), "tracepoints cannot be used")
                .next(more_rights("doctor"))
        }
        Err(_) => Check::missing("tracefs", "not mounted", "tracepoints cannot be used")
            .next("sudo mount -t tracefs tracefs /sys/kernel/tracing"),
    }
}

/// The cause only; the remedy is shown separately.
pub(super) fn short(error: &ProbeError) -> String {
    match error {
        ProbeError::PermissionDenied { action } => format!("permission denied to {action}"),
        ProbeError::Unsupported { action, cause, .. } => format!("could not {action}: {cause}"),
        // The following lines are libbpf's messages.
        other => other
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Tracepoints by use: the use, whether it is essential, the tracepoints, what they provide, and
/// what is lost without them.
type Tracepoints = (
    &'static str,
    bool,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

const TRACEPOINTS: [Tracepoints; 3] = [
    (
        "tracepoints: tasks",
        true,
        &[
            ("task", "task_newtask"),
            ("sched", "sched_process_exec"),
            ("sched", "sched_process_exit"),
        ],
        "processes and threads are followed",
        "processes cannot be followed",
    ),
    (
        "tracepoints: scheduler",
        false,
        &[("sched", "sched_switch"), ("sched", "sched_wakeup")],
        "whether a thread ran can be recorded",
        "whether a thread ran cannot be recorded",
    ),
    (
        "tracepoints: syscalls",
        false,
        &[
            ("syscalls", "sys_enter_exit_group"),
            ("raw_syscalls", "sys_enter"),
        ],
        "the end of a process is noticed before its memory is gone",
        "GPU work that is open when a process ends may lack times",
    ),
];

impl Section {
    fn extend_tracepoints(&mut self) {
        for (name, needed, points, gained, lost) in TRACEPOINTS {
            let failure = points.iter().find_map(|(category, point)| {
                let error = Tracepoint::read(category, point).err()?;
                Some((format!("{category}:{point}"), error))
            });
            let check = match failure {
                None => Check::ok(name, "present", gained),
                Some((point, error)) => {
                    let status = if needed {
                        Status::Missing
                    } else {
                        Status::Warning
                    };
                    let check = |found| Check::new(name, status, found, lost);
                    match tracefs() {
                        Err(ProbeError::PermissionDenied { .. }) => {
                            check("not visible".to_owned()).next(more_rights("doctor"))
                        }
                        Err(_) => check("not visible without tracefs".to_owned()),
                        Ok(_) => {
                            tracing::debug!("{error}");
                            check(format!("no {point}")).next(if needed {
                                "use a kernel with CONFIG_FTRACE and CONFIG_EVENT_TRACING"
                            } else {
                                "use a kernel with CONFIG_FTRACE_SYSCALLS, if you need it"
                            })
                        }
                    }
                }
            };
            self.push(check);
        }
    }

    /// Tries whether the programs recognise a process by the id that it has here.
    fn try_filter(&mut self, has_host_pids: bool) -> Verdict {
        const NAME: &str = "choice of processes";
        match trial(BackendChoice::Auto, Target::ThisProcess) {
            Ok(()) => {
                self.push(Check::ok(
                    NAME,
                    "works",
                    "processes are recognised by their ids, as -p and launched programs require",
                ));
                Verdict::Ready
            }
            Err(error) if has_host_pids => {
                self.push(
                    Check::missing(NAME, short(&error), "no process can be chosen")
                        .next("gputrace -a"),
                );
                Verdict::KernelLacks
            }
            Err(_) => {
                self.push(
                    Check::missing(
                        NAME,
                        "gputrace's programs in the kernel see other ids than this pid namespace",
                        "calls of a process named by -p, or launched by gputrace, are not recorded",
                    )
                    .next(
                        "run gputrace on the host, or in a container with --pid=host --privileged",
                    ),
                );
                Verdict::PidNamespace
            }
        }
    }

    /// Names definitions of probes that killed gputraces have left behind.
    fn leftovers(&mut self) {
        let count = leftovers().len() as u64;
        if count != 0 {
            self.push(
                Check::warning(
                    "leftovers",
                    plural(
                        count,
                        "event of a killed gputrace is",
                        "events of killed gputraces are",
                    ) + " defined in uprobe_events",
                    "they do nothing, but file systems that they name cannot be unmounted",
                )
                .next("gputrace --backend perf -- true"),
            );
        }
    }

    /// Tries both back-ends, the second only if necessary.
    fn try_probes(&mut self) -> Verdict {
        self.leftovers();
        const MULTI: &str = "uprobe_multi";
        const PERF: &str = "perf uprobes";
        let multi = match trial(BackendChoice::UprobeMulti, Target::Any) {
            Ok(()) => {
                self.push(Check::ok(
                    MULTI,
                    "a call was seen from start to end",
                    "hundreds of functions are probed and released within milliseconds",
                ));
                return Verdict::Ready;
            }
            Err(error) => error,
        };
        tracing::debug!("uprobe_multi: {multi}");
        if matches!(multi, ProbeError::PermissionDenied { .. }) {
            self.push(
                Check::missing(MULTI, short(&multi), "functions cannot be probed")
                    .next(more_rights("doctor")),
            );
            return Verdict::NoPermission;
        }
        self.push(
            Check::warning(
                MULTI,
                short(&multi),
                "perf events are used, which the kernel removes within about a second",
            )
            .next("nothing: it works, a little slower"),
        );
        match trial(BackendChoice::Perf, Target::Any) {
            Ok(()) => {
                self.push(Check::ok(
                    PERF,
                    "a call was seen from start to end",
                    "functions can be probed",
                ));
                Verdict::Ready
            }
            Err(error @ ProbeError::PermissionDenied { .. }) => {
                self.push(
                    Check::missing(PERF, short(&error), "functions cannot be probed")
                        .next(more_rights("doctor")),
                );
                Verdict::NoPermission
            }
            Err(error) => {
                self.push(
                    Check::missing(PERF, short(&error), "functions cannot be probed")
                        .next("use a kernel with CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS and CONFIG_UPROBES"),
                );
                Verdict::KernelLacks
            }
        }
    }
}

/// The function that is probed in the trial.
#[inline(never)]
pub(super) extern "C" fn probed(value: u64) -> u64 {
    hint::black_box(value)
}

/// Whose calls a trial should see. In any case, only this process has the probe.
#[derive(Clone, Copy)]
enum Target {
    /// Any process's calls: the process filter is off.
    Any,
    /// This process's calls, selected by its id.
    ThisProcess,
}

/// Options for a trial, for which small maps are enough.
pub(super) fn options(backend: BackendChoice) -> Options {
    Options {
        backend,
        ring_bytes: 1 << 16,
        max_threads: 16,
        max_processes: 64,
        limit: None,
        stacks: false,
        every_library: false,
        follow_forks: false,
    }
}

/// The location of the probe.
pub(super) fn point() -> Result<Point, ProbeError> {
    let offset = offset_of(probed as *const ()).ok_or_else(|| ProbeError::Refused {
        action: "find a function of gputrace".to_owned(),
        cause: "it is not in /proc/self/maps".to_owned(),
        log: Vec::new(),
    })?;
    Ok(Point {
        offset,
        cookie: Cookie::new(0, Domain::HipRuntime as u8, 0).0,
    })
}

/// Loads the programs, probes a function of this process, calls it, and checks whether the call was
/// seen.
fn trial(backend: BackendChoice, target: Target) -> Result<(), ProbeError> {
    let refused = |action: &str, cause: &str| ProbeError::Refused {
        action: action.to_owned(),
        cause: cause.to_owned(),
        log: Vec::new(),
    };
    let calls = Calls::load(&options(backend))?;
    let pid = std::process::id();
    match target {
        Target::Any => calls.add_every_process()?,
        Target::ThisProcess => calls.add_target(pid, 0)?,
    }
    let function = TracedFunction::by_return(point()?);
    let probes = calls.attach(
        Path::new("/proc/self/exe"),
        Scope::Process(pid),
        &[function],
    )?;
    if let Some(failure) = probes.failures.into_iter().next() {
        return Err(failure.error);
    }
    hint::black_box(probed(hint::black_box(1)));
    calls.stop()?;
    let counters = calls.counters()?;
    let seen: u64 = counters.iter().flat_map(|cpu| cpu.seen).sum();
    let open = calls
        .threads()?
        .iter()
        .map(|(_, thread)| u64::from(thread.depth))
        .sum::<u64>();
    match (seen, open) {
        (1, 0) => Ok(()),
        (0, _) => Err(refused(
            "see a call",
            "the probe is attached and did not run",
        )),
        _ => Err(refused(
            "see the return of a call",
            "only its entry was seen",
        )),
    }
}

/// File offset of a function of this program.
fn offset_of(function: *const ()) -> Option<u64> {
    let address = function as u64;
    let mappings = maps::of_process(std::process::id()).ok()?;
    let mapping = mappings
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&address))?;
    Some(address - mapping.start + mapping.offset)
}

/// Checks the programs for process and thread lifetimes.
fn lifetimes() -> Check {
    const NAME: &str = "process lifetimes";
    match Tasks::load(false, false) {
        Ok(_) => Check::ok(
            NAME,
            "programs loaded and attached",
            "names of processes and threads are recorded",
        ),
        Err(error @ ProbeError::PermissionDenied { .. }) => {
            Check::missing(NAME, short(&error), "processes cannot be followed")
                .next(more_rights("doctor"))
        }
        Err(error) => Check::missing(NAME, short(&error), "processes cannot be followed")
            .next("gputrace doctor --json, and report it together with the kernel's configuration"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test for all trials, because they probe the same function of the same process.
    #[test]
    fn a_trial_succeeds_with_either_back_end_or_says_why_not() {
        for backend in [BackendChoice::UprobeMulti, BackendChoice::Perf] {
            for target in [Target::Any, Target::ThisProcess] {
                match trial(backend, target) {
                    Ok(()) => {}
                    // On kernels before 6.6.
                    Err(ProbeError::Unsupported { .. } | ProbeError::Refused { .. })
                        if backend == BackendChoice::UprobeMulti => {}
                    Err(
                        error
                        @ (ProbeError::PermissionDenied { .. } | ProbeError::NoTracefs { .. }),
                    ) => {
                        assert!(
                            std::env::var_os("GPUTRACE_REQUIRE_BPF").is_none(),
                            "{error}"
                        );
                        gputrace_skip::skipped(&error.to_string());
                        return;
                    }
                    Err(error) => panic!("{backend:?}: {error}"),
                }
            }
        }
    }
}
