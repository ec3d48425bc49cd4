//! `gputrace status`: who records on this node.
//!
//! Everything comes from `/proc`, so the list is also right for a gputrace that hangs, or that runs
//! in a container.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use gputrace_files::kernel;
use gputrace_session::{STOP_FILE, is_switched_off};
use gputrace_text::Page;
use gputrace_tracee::{
    process::{self, Used},
    whose::{self, Sources},
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::{
    StatusArgs, View, more_rights,
    owner::show_places,
    show,
    table::{
        Align::{Left, Right},
        Table, WIDTH, bytes, cut, or_dash, time,
    },
};
use crate::recorders::{Kind, Recorder};

/// `/proc/PID/loginuid` of a process that no login session has started.
const NO_LOGIN: u32 = u32::MAX;

/// Widest command line of the table, columns. The other columns need the rest.
const COMMAND: usize = WIDTH - 69;

/// Shows the gputraces that record.
pub(crate) fn run(args: &StatusArgs) -> Result<u8> {
    show(&Seen::read()?, args.json)?;
    Ok(0)
}

/// All gputraces that record on this node.
#[derive(Debug, Serialize)]
struct Seen {
    /// Whether [`STOP_FILE`] exists.
    switched_off: bool,
    recorders: Vec<RecorderView>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RecorderView {
    pid: u32,
    kind: Kind,
    /// Who logged in and started it, also by sudo; else its user.
    user: String,
    /// How long it has been running, ns.
    running_ns: u64,
    /// Processor time of it and its helpers, ns.
    cpu_ns: u64,
    /// Memory of it and its helpers, bytes.
    memory_bytes: u64,
    /// Memory of its eBPF programs and maps, with its rings, bytes; `None` if it cannot be read.
    kernel_memory_bytes: Option<u64>,
    /// What it has written to files and pipes since it began, bytes; `None` if that cannot be read.
    written_bytes: Option<u64>,
    /// Its capture, if that has a name.
    capture: Option<String>,
    /// Its container, pod or job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    places: Vec<String>,
    command: Vec<String>,
}

impl Seen {
    fn read() -> Result<Self> {
        let all: BTreeMap<u32, Used> = process::pids()?
            .into_iter()
            .filter_map(|pid| Some((pid, process::used(pid)?)))
            .collect();
        let now = clock_gettime(ClockId::Boottime);
        let now = u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(now.tv_nsec).unwrap_or(0);
        let recorders: Vec<RecorderView> = all
            .keys()
            .filter_map(|pid| RecorderView::of(*pid, &all, now))
            .collect();
        let switched_off = is_switched_off();
        let mut notes = Vec::new();
        if switched_off {
            notes.push(format!(
                "{STOP_FILE} exists: recording is switched off on this node; `sudo rm {STOP_FILE}` \
                 switches it on again"
            ));
        }
        if recorders.is_empty() {
            notes.push("no gputrace records on this node".to_owned());
        }
        let is_unread = |one: &RecorderView| one.written_bytes.is_none();
        if recorders.iter().any(is_unread) {
            notes.push(format!(
                "not everything may be read; to see it: {}",
                more_rights("status")
            ));
        }
        Ok(Self {
            switched_off,
            recorders,
            notes,
        })
    }
}

impl RecorderView {
    /// A gputrace that records; `None` for every other process. `all` has all processes.
    fn of(pid: u32, all: &BTreeMap<u32, Used>, now: u64) -> Option<Self> {
        let recorder = Recorder::of(pid)?;
        let own = all.get(&pid)?;
        // Helpers call themselves gputrace-clocks and so on. A launched program is no helper.
        let is_helper = |used: &Used| used.parent == pid && used.name.starts_with("gputrace-");
        let helpers: Vec<u32> = all
            .iter()
            .filter(|(_, used)| is_helper(used))
            .map(|(helper, _)| *helper)
            .collect();
        let total = |of: fn(&Used) -> u64| {
            let helpers = helpers.iter().filter_map(|helper| all.get(helper));
            helpers.map(of).fold(of(own), u64::saturating_add)
        };
        let identity = Sources::default().identify(pid);
        let logged_in = kernel::read_text(format!("/proc/{pid}/loginuid"));
        let logged_in = logged_in.ok().and_then(|uid| uid.trim().parse().ok());
        let files = Files::of(pid);
        Some(Self {
            pid,
            kind: recorder.kind,
            user: match logged_in.filter(|uid| *uid != NO_LOGIN) {
                Some(uid) => whose::user_name(uid),
                None => identity.user.clone(),
            },
            running_ns: now.saturating_sub(own.start),
            cpu_ns: total(|used| used.cpu),
            memory_bytes: total(|used| used.resident),
            kernel_memory_bytes: files.as_ref().map(|own| {
                helpers
                    .iter()
                    .filter_map(|pid| Files::of(*pid))
                    .fold(own.clone(), Files::with)
                    .memory()
            }),
            written_bytes: written(pid),
            capture: files.and_then(|files| files.capture),
            places: identity.places(),
            command: recorder.command,
        })
    }
}

/// Bytes that a process has passed to write(2) and its like.
fn written(pid: u32) -> Option<u64> {
    let io = kernel::read_text(format!("/proc/{pid}/io")).ok()?;
    let bytes = io.lines().find_map(|line| line.strip_prefix("wchar:"))?;
    bytes.trim().parse().ok()
}

/// What is known of a process's open files.
#[derive(Clone, Debug, Default)]
struct Files {
    capture: Option<String>,
    /// eBPF maps and programs by kind and id, with their memory in bytes. A helper can hold the
    /// same ones.
    held: BTreeSet<(String, u64)>,
}

impl Files {
    /// `None` if they may not be read.
    fn of(pid: u32) -> Option<Self> {
        let numbers = kernel::list(format!("/proc/{pid}/fd")).ok()?;
        let mut files = Self::default();
        for number in numbers {
            let number = number.to_string_lossy();
            let Ok(link) = kernel::read_link(format!("/proc/{pid}/fd/{number}")) else {
                continue;
            };
            let link = link.to_string_lossy();
            if link.ends_with(".gtcap") {
                files.capture = Some(link.into_owned());
            } else if link.starts_with("anon_inode:bpf-") {
                let info = kernel::read_text(format!("/proc/{pid}/fdinfo/{number}"));
                files.held.extend(info.ok().and_then(|info| held(&info)));
            }
        }
        Some(files)
    }

    fn with(mut self, other: Self) -> Self {
        self.held.extend(other.held);
        self
    }

    fn memory(&self) -> u64 {
        self.held.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// A map or a program, by its lines in `/proc/PID/fdinfo` (`bpf_map_show_fdinfo` and
/// `bpf_prog_show_fdinfo` of the kernel): kind and id, and its memory in bytes.
fn held(info: &str) -> Option<(String, u64)> {
    let line = |start: &str| info.lines().find(|line| line.starts_with(start));
    let id = line("map_id:").or_else(|| line("prog_id:"))?;
    let bytes = line("memlock:")?.split_ascii_whitespace().nth(1)?;
    Some((id.to_owned(), bytes.parse().ok()?))
}

impl View for Seen {
    fn text(&self) -> String {
        let mut out = Page::new(String::new());
        let mut table = Table::new(&[
            ("PID", Right),
            ("USER", Left),
            ("DOES", Left),
            ("FOR", Right),
            ("CPU %", Right),
            ("MEMORY", Right),
            ("WRITTEN", Right),
            ("COMMAND", Left),
        ]);
        let mut captures = Table::new(&[("PID", Right), ("CAPTURE", Left)]);
        let mut places = Vec::new();
        for one in &self.recorders {
            let share = one.cpu_ns as f64 / one.running_ns.max(1) as f64;
            let kernel = one.kernel_memory_bytes.unwrap_or(0);
            let command: Vec<&str> = one.command.iter().skip(1).map(String::as_str).collect();
            table.row([
                one.pid.to_string(),
                cut(&one.user, 10),
                match one.kind {
                    Kind::Recording => "record",
                    Kind::Parts => "keep",
                    Kind::Flight => "flight",
                    Kind::Top => "top",
                }
                .to_owned(),
                time(one.running_ns),
                format!("{:.1}", share * 100.0),
                bytes(one.memory_bytes.saturating_add(kernel)),
                or_dash(one.written_bytes, bytes),
                cut(&command.join(" "), COMMAND),
            ]);
            if let Some(capture) = &one.capture {
                captures.row([one.pid.to_string(), capture.clone()]);
            }
            if !one.places.is_empty() {
                places.push((one.pid, one.places.join(", ")));
            }
        }
        if !table.is_empty() {
            table.render(&mut out);
        }
        captures.section(&mut out, "Captures");
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

    fn recorder(pid: u32, command: &str) -> RecorderView {
        RecorderView {
            pid,
            kind: Kind::Flight,
            user: "a-rather-long-name".to_owned(),
            running_ns: 100 * 3_600_000_000_000,
            cpu_ns: 3_600_000_000_000,
            memory_bytes: 1000 << 20,
            kernel_memory_bytes: Some(1 << 20),
            written_bytes: Some(1001 << 30),
            capture: Some("/var/run.gtcap".to_owned()),
            places: vec!["pod ml/tools".to_owned()],
            command: command.split(' ').map(str::to_owned).collect(),
        }
    }

    #[test]
    fn tables_fit_and_escape_what_comes_from_outside() {
        let seen = Seen {
            switched_off: false,
            recorders: vec![
                recorder(4_194_304, &format!("gputrace -a {}", "x".repeat(200))),
                recorder(7, "gputrace --flight \u{1b}[2J"),
            ],
            notes: Vec::new(),
        };
        let text = seen.text();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
        for part in [
            "100.0 h",
            "1.0",
            "1001.0 MiB",
            "1001.0 GiB",
            "--flight",
            "pod ml/tools",
        ] {
            assert!(text.contains(part), "no {part}: {text}");
        }
    }

    #[test]
    fn each_map_and_program_counts_once() {
        let map = "pos:\t0\nmap_type:\t27\nmemlock:\t8462800\nmap_id:\t12\nfrozen:\t0\n";
        let program = "prog_type:\t2\nmemlock:\t4096\nprog_id:\t12\nrun_time_ns:\t0\n";
        let files = Files {
            capture: None,
            held: [held(map), held(program)].into_iter().flatten().collect(),
        };
        assert_eq!(files.clone().with(files).memory(), 8_462_800 + 4096);
        assert_eq!(held("pos:\t0\nmemlock:\t1\n"), None);
        assert_eq!(held("map_id:\t1\nmemlock:\tx\n"), None);
    }
}
