//! Checks what gputrace must not leave behind: BPF objects, probes, processes.

use std::{collections::BTreeSet, fs, io::ErrorKind, process::ExitStatus};

use gputrace_e2e::process::{PATIENCE, eventually};
use libbpf_rs::libbpf_sys;
use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus, set_child_subreaper, wait, waitpid},
};

/// Objects in the kernel that a tracer could have created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
    /// Names of the probes in `uprobe_events` and `kprobe_events`.
    probes: BTreeSet<String>,
}

impl Kernel {
    /// The present objects.
    ///
    /// # Panics
    /// If `/sys/kernel/tracing` cannot be read.
    #[must_use]
    pub fn now() -> Self {
        let events = ["uprobe_events", "kprobe_events"].map(|name| {
            let path = format!("/sys/kernel/tracing/{name}");
            match fs::read_to_string(&path) {
                Ok(text) => text,
                // The kernel does not support probes of that kind.
                Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                Err(error) => panic!("{path}: {error}"),
            }
        });
        Self {
            programs: ids(libbpf_sys::bpf_prog_get_next_id),
            maps: ids(libbpf_sys::bpf_map_get_next_id),
            links: ids(libbpf_sys::bpf_link_get_next_id),
            probes: events
                .iter()
                .flat_map(|text| text.lines())
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Objects that are in `self` but not in `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let new =
            |now: &BTreeSet<u32>, before: &BTreeSet<u32>| now.difference(before).copied().collect();
        Self {
            programs: new(&self.programs, &earlier.programs),
            maps: new(&self.maps, &earlier.maps),
            links: new(&self.links, &earlier.links),
            probes: self.probes.difference(&earlier.probes).cloned().collect(),
        }
    }

    /// Waits until there is nothing that is not in `self`.
    ///
    /// # Panics
    /// If something stays.
    pub fn wait_for_nothing_new(&self) {
        // The kernel frees the objects of a process some grace periods after its end.
        let mut left = Self::default();
        eventually("INVARIANT: nothing new in the kernel", PATIENCE, || {
            left = Self::now().since(self);
            left == Self::default() || {
                // Shown if the check fails.
                std::env::var_os("GPUTRACE_CHAOS_VERBOSE").is_some_and(|_| {
                    eprintln!("left in the kernel: {left:?}");
                    false
                })
            }
        });
    }
}

/// The ids of all objects of one kind. `next` finds the id that follows another one.
///
/// This opens no object. Linux 6.18 leaks a program array if it is opened by its id while its last
/// descriptor is being closed: `prog_array_map_clear` runs twice and takes a reference each time,
/// but its work, which drops one, is queued only once. Opening the maps here would cause the leak
/// that the test looks for.
fn ids(next: unsafe extern "C" fn(u32, *mut u32) -> i32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut id = 0;
    // SAFETY: writes the next id.
    while unsafe { next(id, &raw mut id) } == 0 {
        found.insert(id);
    }
    found
}

/// Makes this process the parent of every descendant whose own parent ends, so that none is missed.
///
/// # Panics
/// If the kernel refuses.
pub fn adopt_orphans() {
    set_child_subreaper(Some(rustix::process::getpid())).expect("to be a subreaper");
}

/// Waits for the end of an orphaned process.
///
/// # Panics
/// If it is not a child of this process, or does not end.
#[must_use]
pub fn end_of_orphan(pid: u32) -> ExitStatus {
    use std::os::unix::process::ExitStatusExt as _;
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let mut end: Option<WaitStatus> = None;
    eventually("the program ends", PATIENCE, || {
        match waitpid(id, WaitOptions::NOHANG) {
            Ok(found) => end = found.map(|(_, status)| status),
            // It is not ours yet; its parent is about to end.
            Err(Errno::CHILD) => {}
            Err(error) => panic!("cannot wait for process {pid}: {error}"),
        }
        end.is_some()
    });
    ExitStatus::from_raw(end.map(WaitStatus::as_raw).unwrap_or_default())
}

/// Waits until this process has no children left, neither its own nor adopted ones.
///
/// # Panics
/// If a child stays; the message contains its name.
pub fn wait_for_no_process() {
    eventually(
        &format!("no process is left: {:?}", children()),
        PATIENCE,
        || {
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) => {}
                    Ok(None) => return false,
                    Err(_) => return true,
                }
            }
        },
    );
}

/// Ids and names of this process's children.
#[must_use]
pub fn children() -> Vec<String> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let ids = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let ids = ids.collect::<String>();
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    ids.split_whitespace()
        .map(|pid| format!("{pid} {}", name(pid).trim_end().escape_debug()))
        .collect()
}
