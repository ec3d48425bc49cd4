//! A helper process that makes sure no program stays stopped.
//!
//! A launched program is stopped by SIGSTOP for the moment in which its new libraries get their probes.
//! Were gputrace killed in that moment, nobody would wake the program up. So a small child of gputrace
//! waits for it to die (the end of a pipe), and then sends SIGCONT to every traced process, whose ids it
//! reads from the map that it keeps open. It holds nothing else: the probes go with gputrace.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use crate::helper::{Helper, Wake};

/// Bits of `union bpf_attr` for `BPF_MAP_GET_NEXT_KEY`: the start of the element struct.
#[repr(C)]
struct NextKey {
    map_fd: u32,
    padding: u32,
    key: u64,
    next_key: u64,
    flags: u64,
}

const BPF_MAP_GET_NEXT_KEY: libc::c_int = 4;

/// A running guardian; dropping it dismisses it.
#[derive(Debug)]
pub(crate) struct Guardian(Option<Helper>);

impl Guardian {
    /// Starts a guardian of the processes in the map `targets`.
    pub(crate) fn start(targets: &OwnedFd) -> io::Result<Self> {
        let targets = targets.as_raw_fd();
        let helper = Helper::fork(c"gputrace-guard", move |wake| {
            if wake == Wake::Gone {
                wake_all(targets);
            }
        })?;
        Ok(Self(Some(helper)))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(helper) = self.0.take() {
            helper.dismiss();
        }
    }
}

/// Sends SIGCONT to every process in the map.
fn wake_all(targets: libc::c_int) {
    let mut key = 0u32;
    let mut next = 0u32;
    let mut first = true;
    // At most as many as the map holds, in case it changes meanwhile.
    for _ in 0..16384 {
        let mut attr = NextKey {
            map_fd: targets as u32,
            padding: 0,
            key: if first { 0 } else { (&raw const key) as u64 },
            next_key: (&raw mut next) as u64,
            flags: 0,
        };
        // SAFETY: the attribute and the keys it points to are local and live; the size is its own.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_MAP_GET_NEXT_KEY,
                &raw mut attr,
                size_of::<NextKey>(),
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
