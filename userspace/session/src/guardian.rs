//! A helper process that makes sure no program stays stopped.
//!
//! A launched program is stopped by SIGSTOP for the moment in which its new libraries get their probes.
//! Were gputrace killed in that moment, nobody would wake the program up. So a small child of gputrace
//! waits for it to die (the end of a pipe), and then sends SIGCONT to every traced process, whose ids it
//! reads from the map that it keeps open. It holds nothing else: the probes go with gputrace.

use std::{
    io::{self, PipeWriter, Write as _},
    os::fd::{AsRawFd as _, OwnedFd},
};

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

/// Said to the guardian when all is well.
const DISMISSED: u8 = 1;

/// A running guardian; dropping it dismisses it.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: libc::pid_t,
    pipe: PipeWriter,
}

impl Guardian {
    /// Starts a guardian of the processes in the map `targets`. To be called while the process has one
    /// thread.
    pub(crate) fn start(targets: &OwnedFd) -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        // SAFETY: the child calls only async-signal-safe functions and ends with _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(reader.as_raw_fd(), pipe.as_raw_fd(), targets.as_raw_fd()),
            pid => Ok(Self { pid, pipe }),
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // If it is gone already, there is nobody to dismiss.
        let _ = self.pipe.write_all(&[DISMISSED]);
        // SAFETY: a child of this process; no status is wanted.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// The guardian's life. Allocates nothing and takes no lock.
fn watch(reader: libc::c_int, writer: libc::c_int, targets: libc::c_int) -> ! {
    // SAFETY: async-signal-safe calls on integers and on local variables only.
    unsafe {
        // Out of reach of the terminal's Ctrl-C, with a name of its own for `ps`.
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"gputrace-guard".as_ptr());
        libc::close(writer);
        let mut said = 0u8;
        let read = loop {
            let count = libc::read(reader, (&raw mut said).cast(), 1);
            if count >= 0 || *libc::__errno_location() != libc::EINTR {
                break count;
            }
        };
        if read == 0 {
            wake_all(targets);
        }
        libc::_exit(0)
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
            libc::syscall(libc::SYS_bpf, BPF_MAP_GET_NEXT_KEY, &raw mut attr, size_of::<NextKey>())
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
