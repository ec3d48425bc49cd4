//! Privilege, settings of the kernel, containers, and the place for outputs.

use std::path::{Path, PathBuf};

use gputrace_target::process;
use rustix::{
    fs::{Access, access, statvfs},
    process::geteuid,
    system::uname,
};

use super::{Check, Section};
use crate::inspect::{Machine, more_rights, table::bytes};

/// Capabilities that gputrace uses, by number in the kernel's `linux/capability.h`.
const CAPABILITIES: [(u32, &str); 5] = [
    (39, "CAP_BPF"),
    (38, "CAP_PERFMON"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (40, "CAP_CHECKPOINT_RESTORE"),
];

/// Who runs gputrace.
pub(super) fn privilege(machine: &Machine) -> Section {
    let mut section = Section::new("Privilege");
    let user = if geteuid().is_root() {
        "root".to_owned()
    } else {
        format!("user id {}", geteuid().as_raw())
    };
    let status = std::fs::read_to_string(machine.paths.proc.join("self/status")).unwrap_or_default();
    section.push(capabilities(&user, &status));
    section.push(pid_namespace(machine));
    section
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
            format!("{user}, with all that gputrace uses"),
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
            "some processes or functions may be out of reach; the trials below show what works",
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
            "only processes of this container can be named, and the driver numbers them otherwise",
        )
        .next("run gputrace on the host, or in a container with --pid=host --privileged")
    }
}

/// Settings of the kernel that limit tracing.
pub(super) fn settings(machine: &Machine) -> Section {
    let mut section = Section::new("Kernel");
    let release = uname().release().to_string_lossy().into_owned();
    section.push(Check::ok(
        "release",
        release.clone(),
        "not judged by its number; see the trials above",
    ));
    section.push(lockdown(machine.line("sys/kernel/security/lockdown").as_deref()));
    section.push(paranoid(
        machine.line("proc/sys/kernel/perf_event_paranoid").as_deref(),
    ));
    section.push(pointers(machine.line("proc/sys/kernel/kptr_restrict").as_deref()));
    section.push(ptrace(
        machine.line("proc/sys/kernel/yama/ptrace_scope").as_deref(),
    ));
    section.push(seccomp(&release, &sandboxed(machine)));
    section
}

fn lockdown(line: Option<&str>) -> Check {
    // The kernel puts the mode in force into brackets: `none [integrity] confidentiality`.
    let mode = line.and_then(|line| line.split_once('[')?.1.split_once(']').map(|(mode, _)| mode));
    match mode {
        Some("confidentiality") => Check::missing(
            "lockdown",
            "confidentiality",
            "the kernel hides its tracepoints and its memory from programs; recordings fail",
        )
        .next("boot without lockdown=confidentiality on the kernel's command line"),
        Some(mode) => Check::ok("lockdown", mode, "does not limit tracing"),
        None => Check::ok(
            "lockdown",
            "not in this kernel, or not to be seen",
            "no limit is known",
        ),
    }
}

fn paranoid(line: Option<&str>) -> Check {
    const NAME: &str = "perf_event_paranoid";
    let level = line.and_then(|line| line.parse::<i32>().ok());
    match level {
        Some(level) if geteuid().is_root() => Check::ok(NAME, level.to_string(), "does not limit root"),
        Some(level) if level < 2 => Check::ok(NAME, level.to_string(), "perf events are open to users"),
        Some(level) => Check::warning(
            NAME,
            level.to_string(),
            "perf events need CAP_PERFMON here; uprobe_multi does not use them",
        )
        .next(more_rights("doctor")),
        None => Check::ok(NAME, "not to be seen", "no limit is known"),
    }
}

fn pointers(line: Option<&str>) -> Check {
    match line {
        Some(level) => Check::ok(
            "kptr_restrict",
            level,
            "addresses of kernel symbols are not needed to trace calls",
        ),
        None => Check::ok("kptr_restrict", "not to be seen", "not needed to trace calls"),
    }
}

fn ptrace(line: Option<&str>) -> Check {
    const NAME: &str = "yama ptrace_scope";
    match line {
        // The kernel's Documentation/admin-guide/LSM/Yama.rst: 3 refuses everybody, until the next boot.
        Some("3") => Check::missing(
            NAME,
            "3",
            "nobody may read the memory of another process: kernels have no names, GPU work has no times",
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
        let status = std::fs::read_to_string(path).unwrap_or_default();
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

/// Linux 6.11 to 6.13.2 return from a probed function by a system call that seccomp filters see; from 6.13.3, and in
/// 6.12.14, they let it pass. A trial would need a process with someone's filter, so this alone goes by number.
fn seccomp(release: &str, sandboxed: &[u32]) -> Check {
    const NAME: &str = "seccomp filters";
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
    match (affected, sandboxed) {
        (false, _) => Check::ok(
            NAME,
            "do not clash with return probes on this kernel",
            "programs in sandboxes can be traced",
        ),
        (true, []) => Check::warning(
            NAME,
            "may clash with return probes on Linux 6.11 to 6.13.2",
            "a traced program in a sandbox (Docker, systemd) may be killed, unless the kernel's distributor has fixed \
             it; no process with ROCm libraries has a filter now",
        )
        .next("use Linux 6.12.14, 6.13.3 or later, or do not trace programs in containers"),
        (true, [pid, ..]) => Check::warning(
            NAME,
            format!(
                "may clash with return probes on Linux 6.11 to 6.13.2; processes with ROCm libraries that have one: \
                 {}, e.g. {pid}",
                sandboxed.len()
            ),
            "they may be killed when traced, unless the kernel's distributor has fixed it",
        )
        .next("use Linux 6.12.14, 6.13.3 or later before you trace them"),
    }
}

/// Where a recording would write.
pub(super) fn output(directory: &Path) -> Section {
    /// A busy program makes about this much in a minute, bytes.
    const LITTLE: u64 = 1 << 30;
    const NAME: &str = "output directory";
    let mut section = Section::new("Output");
    let place = existing(directory);
    let shown = place.display();
    let check = match statvfs(&place) {
        Err(error) => Check::missing(NAME, format!("{shown}: {error}"), "nothing can be written there")
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

/// The directory, or that above it which exists: the others would be made.
fn existing(directory: &Path) -> PathBuf {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    absolute
        .ancestors()
        .find(|ancestor| ancestor.is_dir())
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
            assert_eq!(seccomp(release, &[]).status, status, "{release}");
        }
        assert!(seccomp("6.11.0", &[7]).found.contains("e.g. 7"));
    }

    #[test]
    fn lockdown_modes() {
        assert_eq!(
            lockdown(Some("[none] integrity confidentiality")).status,
            Status::Ok
        );
        assert_eq!(
            lockdown(Some("none [integrity] confidentiality")).found,
            "integrity"
        );
        assert_eq!(
            lockdown(Some("none integrity [confidentiality]")).status,
            Status::Missing
        );
        assert_eq!(lockdown(None).status, Status::Ok);
        assert_eq!(lockdown(Some("][")).status, Status::Ok);
    }

    #[test]
    fn capabilities_by_number() {
        let all = capabilities("root", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        assert_eq!(all.status, Status::Ok);
        let docker = capabilities("root", "CapEff:\t00000000a80425fb\n");
        assert_eq!(docker.status, Status::Missing);
        // CAP_BPF and CAP_PERFMON alone.
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
