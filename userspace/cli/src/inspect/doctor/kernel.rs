//! Checks privilege, kernel settings, containers, and the output directory.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use gputrace_files::{kernel as files, own};
use gputrace_session::STOP_FILE;
use gputrace_tracee::process;
use rustix::{
    fs::{Access, access, statvfs},
    process::geteuid,
    system::uname,
};

use super::{
    Check, Section, Verdict,
    sandbox::{self, Outcome},
};
use crate::inspect::{Machine, more_rights, table::bytes};

/// Capabilities that gputrace uses, numbered as in the kernel's `linux/capability.h`.
const CAPABILITIES: [(u32, &str); 5] = [
    (39, "CAP_BPF"),
    (38, "CAP_PERFMON"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (40, "CAP_CHECKPOINT_RESTORE"),
];

/// Checks who runs gputrace.
pub(super) fn privilege(machine: &Machine) -> Section {
    let mut section = Section::new("Privilege");
    let user = if geteuid().is_root() {
        "root".to_owned()
    } else {
        format!("user id {}", geteuid().as_raw())
    };
    let status = files::read_text(machine.paths.proc.join("self/status")).unwrap_or_default();
    section.push(capabilities(&user, &status));
    section.push(pid_namespace(machine));
    section.checks.extend(switched_off(machine));
    section
}

/// Says so if recording is switched off on this node.
fn switched_off(machine: &Machine) -> Option<Check> {
    machine.has(STOP_FILE.trim_start_matches('/')).then(|| {
        Check::missing(
            "this node",
            format!("{STOP_FILE} exists"),
            "nothing can be recorded: recording is switched off on this node",
        )
        .next(format!("sudo rm {STOP_FILE}"))
    })
}

fn capabilities(user: &str, status: &str) -> Check {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let lacking: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(number, _)| effective >> number & 1 == 0)
        .map(|(_, name)| *name)
        .collect();
    if lacking.is_empty() {
        return Check::ok(
            "capabilities",
            format!("{user}, with all capabilities that gputrace uses"),
            "it may load programs and look into every process",
        );
    }
    let found = format!("{user}, without {}", lacking.join(", "));
    let needed = lacking.contains(&"CAP_BPF") || lacking.contains(&"CAP_PERFMON");
    if needed && lacking.contains(&"CAP_SYS_ADMIN") {
        Check::missing(
            "capabilities",
            found,
            "nothing can be recorded; exports need no privilege",
        )
        .next(more_rights("doctor"))
    } else {
        Check::warning(
            "capabilities",
            found,
            "some processes or functions may be out of reach; the tests below show what works",
        )
        .next(more_rights("doctor"))
    }
}

fn pid_namespace(machine: &Machine) -> Check {
    if machine.has_host_pids() {
        Check::ok(
            "pid namespace",
            "the host's",
            "process ids are those of `ps` and of the driver",
        )
    } else {
        Check::warning(
            "pid namespace",
            "a container's",
            "only processes of this container are visible, and the driver uses other ids for them",
        )
        .next("run gputrace on the host, or in a container with --pid=host --privileged")
    }
}

/// Checks kernel settings that limit tracing.
pub(super) fn settings(machine: &Machine, verdict: Verdict) -> Section {
    let mut section = Section::new("Kernel");
    let release = uname().release().to_string_lossy().into_owned();
    section.push(Check::ok(
        "release",
        release.clone(),
        "not judged by its version number; see the tests above",
    ));
    section.push(lockdown(
        machine.line("sys/kernel/security/lockdown").as_deref(),
        verdict,
    ));
    section.push(paranoid(
        machine
            .line("proc/sys/kernel/perf_event_paranoid")
            .as_deref(),
        &open_perf_event(),
    ));
    section.push(pointers(
        machine.line("proc/sys/kernel/kptr_restrict").as_deref(),
    ));
    section.push(ptrace(
        machine.line("proc/sys/kernel/yama/ptrace_scope").as_deref(),
    ));
    section.push(priority(&gputrace_session::run_first()));
    let outcome = match verdict {
        Verdict::Ready | Verdict::PidNamespace => sandbox::outcome(),
        Verdict::NoPermission | Verdict::KernelLacks => Outcome::Unknown,
    };
    section.push(seccomp(&release, outcome, &sandboxed(machine)));
    section
}

/// Whether helpers of gputrace may run before all other threads.
fn priority(tried: &io::Result<()>) -> Check {
    match tried {
        Ok(()) => Check::ok(
            "real-time priority",
            "granted",
            "threads of a launched program are held in time while a library gets its probes",
        ),
        Err(error) => Check::warning(
            "real-time priority",
            format!("refused: {error}"),
            "on a busy machine, a launched program may make the first calls of a library that was \
             not known before it is held; a notice names the process",
        )
        .next(
            "give gputrace CAP_SYS_NICE and, if its cpu control group has cpu.rt_runtime_us, a \
             budget there",
        ),
    }
}

fn lockdown(line: Option<&str>, verdict: Verdict) -> Check {
    // The kernel puts the active mode into brackets: `none [integrity] confidentiality`.
    let mode = line.and_then(|line| {
        line.split_once('[')?
            .1
            .split_once(']')
            .map(|(mode, _)| mode)
    });
    match mode {
        Some("confidentiality") if verdict == Verdict::Ready => Check::warning(
            "lockdown",
            "confidentiality",
            "calls can still be recorded; tracepoints and requests to the driver may be out of \
             reach",
        )
        .next(
            "boot without lockdown=confidentiality on the kernel's command line, if you need them",
        ),
        Some("confidentiality") => Check::missing(
            "lockdown",
            "confidentiality",
            "the kernel hides its tracepoints and its memory from programs; recordings fail",
        )
        .next("boot without lockdown=confidentiality on the kernel's command line"),
        Some(mode) => Check::ok("lockdown", mode, "does not limit tracing"),
        None => Check::ok(
            "lockdown",
            "not in this kernel, or not visible",
            "no limit is known",
        ),
    }
}

/// Opens a dummy perf event for all processes on the first CPU, which needs the most rights.
fn open_perf_event() -> io::Result<()> {
    /// The first members of the kernel's `struct perf_event_attr` (`linux/perf_event.h`), up to the
    /// size of its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        rest: [u64; 6],
    }
    const _: () = assert!(size_of::<Attributes>() == 64);
    const SOFTWARE: u32 = 1;
    const DUMMY: u64 = 9;
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: DUMMY,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads as many bytes as `size` says.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            -1,
            0,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    match libc::c_int::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn paranoid(line: Option<&str>, opened: &io::Result<()>) -> Check {
    const NAME: &str = "perf_event_paranoid";
    let level = line.map_or("not visible", str::trim);
    match opened {
        Ok(()) => Check::ok(
            NAME,
            format!("{level}; an event of all processes was opened"),
            "it does not limit gputrace here",
        ),
        Err(error) => Check::warning(
            NAME,
            format!(
                "{level}; an event of all processes was refused: {}",
                error.kind()
            ),
            "kernels without uprobe_multi need perf events for probes, and tracepoints do on all",
        )
        .next(more_rights("doctor")),
    }
}

fn pointers(line: Option<&str>) -> Check {
    match line {
        Some(level) => Check::ok(
            "kptr_restrict",
            level,
            "addresses of kernel symbols are not needed to trace calls",
        ),
        None => Check::ok("kptr_restrict", "not visible", "not needed to trace calls"),
    }
}

fn ptrace(line: Option<&str>) -> Check {
    const NAME: &str = "yama ptrace_scope";
    match line {
        // Documentation/admin-guide/LSM/Yama.rst of the kernel: 3 refuses everybody until the next
        // boot.
        Some("3") => Check::missing(
            NAME,
            "3",
            "no process may read the memory of another: kernels have no names, GPU work has no \
             times",
        )
        .next("boot with kernel.yama.ptrace_scope=2 or less in /etc/sysctl.d"),
        Some(level) => Check::ok(NAME, level, "root may read the memory of traced processes"),
        None => Check::ok(NAME, "absent", "no limit"),
    }
}

/// Processes with ROCm libraries that run under a seccomp filter.
fn sandboxed(machine: &Machine) -> Vec<u32> {
    let filtered = |pid: &u32| {
        let path = machine.paths.proc.join(pid.to_string()).join("status");
        let status = files::read_text(path).unwrap_or_default();
        // `SECCOMP_MODE_FILTER` of the kernel's linux/seccomp.h.
        status.lines().any(|line| {
            line.strip_prefix("Seccomp:")
                .is_some_and(|mode| mode.trim() == "2")
        })
    };
    let processes = process::survey().unwrap_or_default().processes;
    processes
        .iter()
        .map(|process| process.pid)
        .filter(filtered)
        .collect()
}

/// Linux 6.11 to 6.13.2 return from a probed function through a system call that seccomp filters
/// see; since 6.13.3, and in 6.12.14, filters let it pass. If that could not be tried, the version
/// number decides.
fn seccomp(release: &str, outcome: Outcome, sandboxed: &[u32]) -> Check {
    const NAME: &str = "seccomp filters";
    const FIXED: &str =
        "use Linux 6.12.14, 6.13.3 or later, or do not trace programs in containers";
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let mut number = || numbers.next().unwrap_or(0);
    let affected = match (number(), number(), number()) {
        (6, 11, _) => true,
        (6, 12, patch) => patch < 14,
        (6, 13, patch) => patch < 3,
        _ => false,
    };
    let now = match sandboxed {
        [] => "no process with ROCm libraries has a filter now".to_owned(),
        [pid, ..] => format!(
            "processes with ROCm libraries that have a filter now: {}, e.g. {pid}",
            sandboxed.len()
        ),
    };
    match outcome {
        Outcome::Unharmed => Check::ok(
            NAME,
            "a process that forbids the system calls of probes was traced and survived",
            "programs in sandboxes can be traced",
        ),
        Outcome::Harmed => Check::warning(
            NAME,
            "a process that forbids the system calls of probes was traced and did not survive",
            format!("traced programs in sandboxes (Docker, systemd) may be killed; {now}"),
        )
        .next(FIXED),
        Outcome::Unknown if affected => Check::warning(
            NAME,
            "not tried; may conflict with return probes on Linux 6.11 to 6.13.2",
            format!(
                "traced programs in sandboxes (Docker, systemd) may be killed, unless the kernel's distributor has fixed it; {now}"
            ),
        )
        .next(FIXED),
        Outcome::Unknown => Check::ok(
            NAME,
            "not tried; judging by its version, this kernel lets the system calls of probes pass",
            "programs in sandboxes can be traced",
        ),
    }
}

/// Checks where a recording would be written.
pub(super) fn output(directory: &Path) -> Section {
    /// Bytes that a busy program produces in about a minute.
    const LITTLE: u64 = 1 << 30;
    const NAME: &str = "output directory";
    let mut section = Section::new("Output");
    let place = existing(directory);
    let shown = place.display();
    let check = match statvfs(&place) {
        Err(error) => Check::missing(
            NAME,
            format!("{shown}: {error}"),
            "nothing can be written there",
        )
        .next("gputrace -d DIRECTORY"),
        Ok(_) if access(&place, Access::WRITE_OK | Access::EXEC_OK).is_err() => Check::missing(
            NAME,
            format!("{shown} is not writable"),
            "nothing can be written there",
        )
        .next("gputrace -d DIRECTORY"),
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            let found = format!("{} free in {shown}", bytes(free));
            if free < LITTLE {
                Check::warning(
                    NAME,
                    found,
                    "a busy program fills this in a minute; a full disk ends a capture",
                )
                .next("gputrace -d DIRECTORY")
            } else {
                Check::ok(NAME, found, "enough to begin with")
            }
        }
    };
    section.push(check);
    section
}

/// The directory, or its closest existing parent: the others would be created.
fn existing(directory: &Path) -> PathBuf {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    absolute
        .ancestors()
        .find(|ancestor| own::is_directory(ancestor))
        .map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn kernels_that_clash_with_seccomp() {
        for (release, status) in [
            ("6.10.14", Status::Ok),
            ("6.11.0-19-generic", Status::Warning),
            ("6.12.13", Status::Warning),
            ("6.12.14-amd64", Status::Ok),
            ("6.13.2", Status::Warning),
            ("6.13.3", Status::Ok),
            ("6.13-rc1", Status::Warning),
            ("6.18.5", Status::Ok),
            ("nonsense", Status::Ok),
        ] {
            assert_eq!(
                seccomp(release, Outcome::Unknown, &[]).status,
                status,
                "{release}"
            );
            // The result of a trial takes precedence.
            assert_eq!(seccomp(release, Outcome::Unharmed, &[]).status, Status::Ok);
            assert_eq!(
                seccomp(release, Outcome::Harmed, &[]).status,
                Status::Warning
            );
        }
        let harmed = seccomp("6.11.0", Outcome::Harmed, &[7]);
        assert!(harmed.meaning.contains("e.g. 7"), "{harmed:?}");
    }

    #[test]
    fn lockdown_modes() {
        assert_eq!(
            lockdown(Some("[none] integrity confidentiality"), Verdict::Ready).status,
            Status::Ok
        );
        assert_eq!(
            lockdown(Some("none [integrity] confidentiality"), Verdict::Ready).found,
            "integrity"
        );
        assert_eq!(
            lockdown(
                Some("none integrity [confidentiality]"),
                Verdict::KernelLacks
            )
            .status,
            Status::Missing
        );
        assert_eq!(
            lockdown(Some("none integrity [confidentiality]"), Verdict::Ready).status,
            Status::Warning
        );
        assert_eq!(lockdown(None, Verdict::Ready).status, Status::Ok);
        assert_eq!(lockdown(Some("]["), Verdict::Ready).status, Status::Ok);
    }

    #[test]
    fn capabilities_by_number() {
        let all = capabilities("root", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        assert_eq!(all.status, Status::Ok);
        let docker = capabilities("root", "CapEff:\t00000000a80425fb\n");
        assert_eq!(docker.status, Status::Missing);
        // Only CAP_BPF and CAP_PERFMON.
        let few = capabilities("user id 1000", "CapEff:\t000000c000000000\n");
        assert_eq!(few.status, Status::Warning);
        assert!(
            few.found.contains("CAP_SYS_PTRACE") && !few.found.contains("CAP_BPF"),
            "{}",
            few.found
        );
        assert_eq!(capabilities("user id 1000", "").status, Status::Missing);
    }

    #[test]
    fn ptrace_scope_three_is_the_one_that_binds_root() {
        assert_eq!(ptrace(Some("3")).status, Status::Missing);
        assert_eq!(ptrace(Some("1")).status, Status::Ok);
        assert_eq!(ptrace(None).status, Status::Ok);
    }

    #[test]
    fn a_directory_that_is_yet_to_be_made_is_judged_by_the_one_above() {
        let directory = tempfile::tempdir().unwrap();
        let new = directory.path().join("a/b");
        assert_eq!(existing(&new), directory.path());
        let section = output(&new);
        assert!(
            section.checks[0].found.contains("free in"),
            "{:?}",
            section.checks
        );
    }
}
