//! Names of definitions. A definition outlives the process that made it, so its name says whose it
//! is: the next gputrace removes those whose owners are gone.

use gputrace_files::kernel;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use crate::tracefs::tracefs;

/// The group of all definitions.
pub(super) const GROUP: &str = "gputrace";

/// The process that has made a definition and has it in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Process id in its pid namespace.
    pub(super) pid: i32,
    /// Number of the pid namespace. Ids of another one say nothing here.
    pub(super) namespace: u64,
}

impl Owner {
    /// Name of the owner's definition with this number.
    pub(super) fn name(self, number: u64) -> String {
        format!("p{}_{}_{number}", self.pid, self.namespace)
    }

    /// The owner of the definition with this name.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix('p')?.split('_');
        let owner = Self {
            pid: parts.next()?.parse().ok()?,
            namespace: parts.next()?.parse().ok()?,
        };
        parts.next()?.parse::<u64>().ok()?;
        parts.next().is_none().then_some(owner)
    }

    /// Whether the owner's descriptors are certain to be closed. The kernel does not check whether
    /// a definition with several probes is in use: it would free what it still needs.
    fn is_gone(self, namespace: u64) -> bool {
        // The system call, because /proc could be that of another namespace. A process that only
        // has the id of the owner keeps the definition for a while.
        let is_nobody = |pid| matches!(test_kill_process(pid), Err(error) if error == Errno::SRCH);
        self.namespace == namespace && Pid::from_raw(self.pid).is_some_and(is_nobody)
    }
}

/// Number of this process's pid namespace.
pub(super) fn pid_namespace() -> Option<u64> {
    let link = kernel::read_link("/proc/self/ns/pid").ok()?;
    let number = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// The names of definitions in the kernel whose owners are gone. They do nothing, but each keeps the
/// file system of its files from being unmounted.
#[must_use]
pub fn leftovers() -> Vec<String> {
    pid_namespace().map_or_else(Vec::new, |here| of(|owner| owner.is_gone(here)))
}

/// The names of definitions in the kernel with such an owner.
pub(super) fn of(is_one: impl Fn(Owner) -> bool) -> Vec<String> {
    // The group has no directory if it is empty.
    let directory = tracefs().map(|root| root.join("events").join(GROUP));
    let names = directory.map_or_else(
        |_| Vec::new(),
        |path| kernel::list(path).unwrap_or_default(),
    );
    names
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .filter(|name| Owner::of(name).is_some_and(&is_one))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_they_are() {
        let owner = Owner {
            pid: 42,
            namespace: 4_026_531_836,
        };
        assert_eq!(owner.name(7), "p42_4026531836_7");
        assert_eq!(Owner::of(&owner.name(7)), Some(owner));
        for other in ["p42_1", "p42_1_x", "p42_1_1_1", "q42_1_1", "enable", ""] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
    }

    #[test]
    fn only_processes_of_this_namespace_can_be_known_to_be_gone() {
        let here = pid_namespace().unwrap();
        let owner = |pid, namespace| Owner { pid, namespace };
        let me = rustix::process::getpid().as_raw_pid();
        assert!(!owner(me, here).is_gone(here));
        assert!(!owner(1, here).is_gone(here));
        // Larger than any process id (`PID_MAX_LIMIT`).
        assert!(owner(1 << 30, here).is_gone(here));
        assert!(!owner(1 << 30, here + 1).is_gone(here));
    }
}
