//! Kernel file systems that tracing uses. A mounted file system is not mounted again, because
//! mounts stack.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::State;
use super::machine::Machine;
use crate::exec;

/// A kernel file system and its usual mount point.
pub(super) struct Mount {
    kind: &'static str,
    place: &'static str,
}

/// The tracing files. Older systems mount them only below debugfs.
pub(super) const TRACEFS: Mount = Mount {
    kind: "tracefs",
    place: "/sys/kernel/tracing",
};

/// Pinned BPF objects.
pub(super) const BPFFS: Mount = Mount {
    kind: "bpf",
    place: "/sys/fs/bpf",
};

impl Mount {
    /// Mounts the file system if it is not mounted, and if root may do so.
    ///
    /// # Errors
    ///
    /// When `mount` fails, as in a container without the privilege.
    pub(super) fn ensure(&self, machine: &Machine) -> Result<State> {
        let Self { kind, place } = self;
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if self.is_in(&mounts) {
            return Ok(State::Ready(format!("mounted on {place}")));
        }
        let by_hand = machine.as_root(&format!("mount -t {kind} {kind} {place}"));
        if !Path::new(place).is_dir() {
            let what = format!(
                "{place} does not exist: this kernel is built without {kind}, or /sys is hidden"
            );
            return Ok(State::Missing {
                what,
                remedy: "use a kernel with CONFIG_FTRACE and CONFIG_BPF_SYSCALL".into(),
            });
        }
        if !machine.is_root() {
            return Ok(State::Missing {
                what: format!("not mounted on {place}"),
                remedy: by_hand,
            });
        }
        match exec::capture(Command::new("mount").args(["-t", kind, kind, place])) {
            Ok(_) => Ok(State::Done(format!("mounted on {place}"))),
            Err(error) => Ok(State::Missing {
                what: format!("{error:#}"),
                remedy: format!("{by_hand}, in a container on its host or with CAP_SYS_ADMIN"),
            }),
        }
    }

    /// Whether `mounts`, in the format of /proc/PID/mounts, has this file system at its mount
    /// point.
    fn is_in(&self, mounts: &str) -> bool {
        mounts.lines().any(|line| {
            let mut fields = line.split(' ').skip(1);
            fields.next() == Some(self.place) && fields.next() == Some(self.kind)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_counts_by_kind_and_place() {
        let mounts = "sysfs /sys sysfs rw 0 0\ntracefs /sys/kernel/debug/tracing tracefs rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n";
        assert!(BPFFS.is_in(mounts));
        assert!(!TRACEFS.is_in(mounts));
        assert!(TRACEFS.is_in("nodev /sys/kernel/tracing tracefs rw,nosuid 0 0\n"));
        assert!(!TRACEFS.is_in("tmpfs /sys/kernel/tracing tmpfs rw 0 0\nshort\n"));
    }
}
