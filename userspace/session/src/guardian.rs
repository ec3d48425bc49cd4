//! A helper process that makes sure no program stays stopped.
//!
//! A launched program is stopped by SIGSTOP for the moments in which its new libraries get their probes.
//! Were gputrace killed in such a moment, nobody would wake the program up. So a small child of gputrace
//! waits for it to die (the end of a pipe); then it freezes the eBPF programs, so that they stop nobody any more,
//! and sends SIGCONT to every traced process. For that it keeps two maps open, and nothing else: the probes go
//! with gputrace.
//!
//! There is a trap. When gputrace dies, its process group, which the program shares, may become *orphaned*
//! (no member has a parent in another group of the session), and the kernel sends SIGHUP to the members of an
//! orphaned group if one of them is stopped (POSIX, `exit`). So the guardian has a group of its own, and a child in
//! gputrace's: as long as that pair lives, the group has a parent outside.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
};

use crate::helper::{Helper, Wake, leave_group};

/// The part of `union bpf_attr` for operations on elements of maps.
#[repr(C)]
struct MapElement {
    map_fd: u32,
    padding: u32,
    key: u64,
    /// Or where the next key goes.
    value: u64,
    flags: u64,
}

const BPF_MAP_GET_NEXT_KEY: libc::c_int = 4;

const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;

/// How long the guardian goes on waking processes after gputrace's death, 50 ms a turn: a program that was
/// just running may still stop its process.
const TURNS: usize = 4;

/// A running guardian; dropping it dismisses it.
#[derive(Debug)]
pub(crate) struct Guardian(Option<Helper>);

impl Guardian {
    /// Starts a guardian of the processes in the map `targets`; `stop` is the map of the stop flag.
    pub(crate) fn start(targets: &OwnedFd, stop: &OwnedFd) -> io::Result<Self> {
        let (targets, stop) = (targets.as_raw_fd(), stop.as_raw_fd());
        let helper = Helper::fork(
            c"gputrace-guard",
            move |waits_on| {
                leave_member();
                close_others([targets, stop, waits_on]);
            },
            move |wake| {
                if wake == Wake::Gone {
                    freeze(stop);
                    for _ in 0..TURNS {
                        wake_all(targets);
                        // SAFETY: a system call on an integer.
                        unsafe { libc::usleep(50_000) };
                    }
                }
            },
        )?;
        Ok(Self(Some(helper)))
    }
}

/// Leaves gputrace's process group, and a child behind in it that lives as long as the guardian.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a sequence of plain system calls with one and the same justification"
)]
fn leave_member() {
    // SAFETY: system calls on integers; the child does nothing else.
    unsafe {
        let group = libc::getpgrp();
        leave_group();
        if libc::fork() == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::setpgid(0, group);
            close_others([-1; 3]);
            loop {
                libc::pause();
            }
        }
    }
}

/// Closes every descriptor above the standard streams, except those given.
fn close_others(mut keep: [RawFd; 3]) {
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep {
        if fd >= from {
            close_range(from, fd - 1);
            from = fd + 1;
        }
    }
    close_range(from, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: descriptors of this process that nothing in it uses any more.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Sets the stop flag, which makes every program of the recording return at once.
fn freeze(stop: RawFd) {
    let (key, value) = (0u32, 1u32);
    let mut attr = MapElement {
        map_fd: stop as u32,
        padding: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: the attribute, key and value are local and live; the size is the attribute's own.
    unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_UPDATE_ELEM,
            &raw mut attr,
            size_of::<MapElement>(),
        )
    };
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(helper) = self.0.take() {
            helper.dismiss();
        }
    }
}

/// Sends SIGCONT to every process in the map.
fn wake_all(targets: RawFd) {
    let mut key = 0u32;
    let mut next = 0u32;
    let mut first = true;
    // At most as many as the map holds, in case it changes meanwhile.
    for _ in 0..16384 {
        let mut attr = MapElement {
            map_fd: targets as u32,
            padding: 0,
            key: if first { 0 } else { (&raw const key) as u64 },
            value: (&raw mut next) as u64,
            flags: 0,
        };
        // SAFETY: the attribute and the keys it points to are local and live; the size is its own.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_MAP_GET_NEXT_KEY,
                &raw mut attr,
                size_of::<MapElement>(),
            )
        };
        if result != 0 {
            return;
        }
        first = false;
        key = next;
        // 0 would be this process's own group.
        if key != 0 {
            // SAFETY: a system call on integers.
            unsafe { libc::kill(key as libc::pid_t, libc::SIGCONT) };
        }
    }
}
