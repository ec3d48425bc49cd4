//! Facts about a process: name, program, parent, start, threads, owner.

use std::path::Path;

use gputrace_capture::meta;
use gputrace_files::kernel;

use super::{ProcessError, refused};
use crate::whose;

/// Nanoseconds per tick of the times in `/proc/PID/stat`. On x86, the kernel shows user space 100
/// ticks per second, whatever its own timer does (`USER_HZ`).
const TICK: u64 = 10_000_000;
/// Size of a page on x86-64, bytes.
const PAGE: u64 = 4096;

/// Highest number of a processor: Linux supports at most 8192 on x86 (`NR_CPUS_RANGE_END`).
const MOST_PROCESSORS: usize = 8191;

/// Maximum size of a command line that is kept, bytes.
const MAX_COMMAND: u64 = 1 << 20;

/// Describes a process for the capture, from `/proc`.
///
/// The start time has the resolution of `/proc`, 10 ms, rounded down. Threads are in order of id;
/// those that end while they are listed may be missing. `executable` is empty if the program cannot
/// be read (a kernel thread, another user's process).
///
/// # Errors
///
/// [`ProcessError::NoSuchProcess`], or [`ProcessError::Proc`] if `/proc` cannot be read.
pub fn describe(pid: u32) -> Result<meta::Process, ProcessError> {
    let path = format!("/proc/{pid}/stat");
    let stat = kernel::read(&path).map_err(|error| refused(pid, path, error))?;
    let stat = Stat::parse(&stat).ok_or(ProcessError::NoSuchProcess { pid })?;
    let executable = kernel::read_link(format!("/proc/{pid}/exe"));
    // The command line is in the process's memory, which may not answer.
    let command = gputrace_reader::file(pid, "cmdline", MAX_COMMAND).unwrap_or_default();
    let name = comm(pid).unwrap_or(stat.name);
    let command = arguments(&command);
    Ok(meta::Process {
        pid,
        parent: stat.parent,
        start: stat.start_ticks.saturating_mul(TICK),
        identity: whose::Sources::default().identify_as(pid, &command, &name),
        name,
        executable: executable
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
        command,
        threads: threads(pid),
    })
}

/// The process that the thread `id` belongs to, `id` itself for a process's first thread; `None` if
/// there is no such thread.
pub(super) fn process_of(id: u32) -> Option<u32> {
    let status = kernel::read_text(format!("/proc/{id}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}

/// Whether a process has ended and only waits for its parent to collect it.
#[must_use]
pub fn has_ended(pid: u32) -> bool {
    matches!(state(pid), Some('Z' | 'X'))
}

/// Ids of all processes, in order.
///
/// # Errors
/// [`ProcessError::Proc`] if `/proc` cannot be read.
pub fn pids() -> Result<Vec<u32>, ProcessError> {
    numbered("/proc").map_err(|source| ProcessError::Proc {
        path: "/proc".into(),
        source,
    })
}

/// The process's id in its own pid namespace, if that differs from gputrace's (a container); else
/// `None`.
#[must_use]
pub fn namespace_pid(pid: u32) -> Option<u32> {
    let status = kernel::read_text(format!("/proc/{pid}/status")).ok()?;
    whose::namespace_pid(&status)
}

/// Address where the stack of a process's main thread begins, which differs between the programs
/// that the process executes one after the other; `None` if the process is gone or the kernel does
/// not tell.
#[must_use]
pub fn start_stack(pid: u32) -> Option<u64> {
    let stat = Stat::parse(&kernel::read(format!("/proc/{pid}/stat")).ok()?)?;
    Some(stat.start_stack).filter(|stack| *stack != 0)
}

/// A fingerprint of a process's code. As long as it stays the same, the process has most likely
/// mapped no other library. It is far cheaper to obtain than the list of mapped files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeState {
    /// Start time of the process, in ticks of `/proc/PID/stat`. It differs if the id belongs to
    /// another process now.
    start_ticks: u64,
    /// See [`start_stack`]; 0 if unknown.
    start_stack: u64,
    /// Size of the mapped code, kB.
    size: u64,
}

/// The state of a process's code; `None` if the process is gone, has no code (a kernel thread), or
/// may not be inspected.
#[must_use]
pub fn code_state(pid: u32) -> Option<CodeState> {
    let status = kernel::read(format!("/proc/{pid}/status")).ok()?;
    let size = code_size(&status)?;
    let stat = Stat::parse(&kernel::read(format!("/proc/{pid}/stat")).ok()?)?;
    Some(CodeState {
        start_ticks: stat.start_ticks,
        start_stack: stat.start_stack,
        size,
    })
}

/// Sum of `VmExe` and `VmLib` in `/proc/PID/status`, kB: the program's own code, and all other
/// executable mappings (`fs/proc/task_mmu.c`).
fn code_size(status: &[u8]) -> Option<u64> {
    let mut sizes = status.split(|byte| *byte == b'\n').filter_map(|line| {
        let value = line
            .strip_prefix(b"VmExe:")
            .or_else(|| line.strip_prefix(b"VmLib:"))?;
        let value = std::str::from_utf8(value).ok()?;
        value.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    let first = sizes.next()?;
    Some(sizes.fold(first, u64::saturating_add))
}

/// Numbers of the online processors; only the first if the kernel does not tell.
pub(super) fn online_processors() -> Vec<usize> {
    let online = kernel::read_text("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = online.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?.min(MOST_PROCESSORS))
    });
    let numbers: Vec<usize> = ranges.flatten().collect();
    if numbers.is_empty() { vec![0] } else { numbers }
}

/// The name in `/proc/PID/comm`, lossily decoded.
pub(super) fn comm(pid: u32) -> Option<String> {
    name(Path::new(&format!("/proc/{pid}/comm")))
}

/// State letter of a process, e.g. `Z` for a zombie.
pub(super) fn state(pid: u32) -> Option<char> {
    Stat::parse(&kernel::read(format!("/proc/{pid}/stat")).ok()?).map(|stat| stat.state)
}

pub(crate) fn name(path: &Path) -> Option<String> {
    let bytes = kernel::read(path).ok()?;
    // The name itself may end with newlines; the kernel appends one.
    let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Some(String::from_utf8_lossy(name).into_owned())
}

fn threads(pid: u32) -> Vec<meta::Thread> {
    let tasks = format!("/proc/{pid}/task");
    let thread = |tid| {
        Some(meta::Thread {
            tid,
            name: name(Path::new(&format!("{tasks}/{tid}/comm")))?,
        })
    };
    numbered(&tasks)
        .unwrap_or_default()
        .into_iter()
        .filter_map(thread)
        .collect()
}

/// The directory entries whose names are numbers, in order.
fn numbered(directory: &str) -> std::io::Result<Vec<u32>> {
    let mut numbers: Vec<u32> = kernel::list(directory)?
        .iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Splits arguments as the kernel stores them: each ends with a zero byte. A program that overwrote
/// them to show a title may have left any bytes.
pub(crate) fn arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let text = |argument: &[u8]| String::from_utf8_lossy(argument).into_owned();
    bytes.split(|byte| *byte == 0).map(text).collect()
}

/// What a process has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// `/proc/PID/comm`.
    pub name: String,
    /// Parent's process id.
    pub parent: u32,
    /// When it started, ns `CLOCK_BOOTTIME`, to 10 ms.
    pub start: u64,
    /// Processor time of all its threads, ns, to 10 ms.
    pub cpu: u64,
    /// Memory in use, bytes.
    pub resident: u64,
}

/// What a process has used until now; `None` if it is gone.
#[must_use]
pub fn used(pid: u32) -> Option<Used> {
    let stat = Stat::parse(&kernel::read(format!("/proc/{pid}/stat")).ok()?)?;
    Some(Used {
        name: stat.name,
        parent: stat.parent,
        start: stat.start_ticks.saturating_mul(TICK),
        cpu: stat.cpu_ticks.saturating_mul(TICK),
        resident: stat.resident_pages.saturating_mul(PAGE),
    })
}

/// The fields of `/proc/PID/stat` that are used (`man 5 proc_pid_stat`).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    state: char,
    parent: u32,
    cpu_ticks: u64,
    start_ticks: u64,
    resident_pages: u64,
    /// 0 if the reader lacks permission.
    start_stack: u64,
}

impl Stat {
    fn parse(bytes: &[u8]) -> Option<Self> {
        // The name is in parentheses and may itself contain parentheses; nothing after it does.
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
        let mut fields = std::str::from_utf8(bytes.get(close + 1..)?)
            .ok()?
            .split_ascii_whitespace();
        // Fields are numbered from 1; the state is the third.
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let user_ticks: u64 = fields.nth(14 - 5)?.parse().ok()?;
        let system_ticks = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(22 - 16)?.parse().ok()?;
        let resident_pages = fields.nth(24 - 23).and_then(|field| field.parse().ok());
        let start_stack = fields.nth(28 - 25).and_then(|field| field.parse().ok());
        Some(Self {
            name,
            state,
            parent,
            cpu_ticks: user_ticks.saturating_add(system_ticks),
            start_ticks,
            resident_pages: resident_pages.unwrap_or(0),
            start_stack: start_stack.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stat_lines() {
        let line =
            b"77 (a) b (c)) S 1 77 77 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 123456 1000 20 1 1 1 4711 0\n";
        let expected = Stat {
            name: "a) b (c)".to_owned(),
            state: 'S',
            parent: 1,
            cpu_ticks: 3,
            start_ticks: 123_456,
            resident_pages: 20,
            start_stack: 4711,
        };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse(b"77 (a) S 1 77"), None);
        assert_eq!(Stat::parse(b")("), None);
    }

    #[test]
    fn argument_lists() {
        assert_eq!(arguments(b"a\0\0b c\0"), ["a", "", "b c"]);
        assert_eq!(arguments(b"title without end"), ["title without end"]);
        assert!(arguments(b"").is_empty() && arguments(b"\0").is_empty());
    }

    #[test]
    fn this_process() {
        let pid = std::process::id();
        let me = describe(pid).unwrap();
        assert_eq!(me.parent, std::os::unix::process::parent_id());
        assert_eq!(
            me.executable,
            std::env::current_exe().unwrap().to_string_lossy()
        );
        assert_eq!(me.command, std::env::args().collect::<Vec<_>>());
        assert!(me.threads.iter().any(|thread| thread.tid == pid));
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = u64::try_from(now.tv_sec).unwrap() * 1_000_000_000
            + u64::try_from(now.tv_nsec).unwrap();
        assert!(
            me.start <= now && now - me.start < 3_600_000_000_000,
            "{} of {now}",
            me.start
        );
        assert!(pids().unwrap().contains(&pid));
        assert_eq!(namespace_pid(pid), None);
    }

    #[test]
    fn code_of_this_process() {
        let pid = std::process::id();
        let state = code_state(pid).unwrap();
        assert_eq!(code_state(pid), Some(state));
        assert!(state.size > 0);
        // A kernel thread, and a process that does not exist.
        assert_eq!(code_state(2), None);
        assert_eq!(code_state(1 << 30), None);
        assert_eq!(
            code_size(b"Name:\tVmExe: 7\nVmExe:\t     12 kB\nVmLib:\t  30 kB\n"),
            Some(42)
        );
        assert_eq!(code_size(b"VmExe:\t"), None);
        assert!(online_processors().contains(&0));
    }

    #[test]
    fn a_process_that_does_not_exist() {
        // Beyond the largest pid_max that Linux knows.
        assert!(matches!(
            describe(1 << 30),
            Err(ProcessError::NoSuchProcess { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_stat(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stat::parse(&bytes);
            let _ = arguments(&bytes);
        }
    }
}
