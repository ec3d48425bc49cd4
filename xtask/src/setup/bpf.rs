//! Checks whether this process may trace on this kernel, by creating the two objects that every
//! recording needs.

use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd as _, OwnedFd};

use super::State;
use super::machine::Machine;

/// Numbers of `enum bpf_cmd`, `bpf_map_type` and `bpf_prog_type` in `linux/bpf.h`.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;
const BPF_PROG_TYPE_KPROBE: u32 = 2;

/// The beginning of `union bpf_attr` for `BPF_MAP_CREATE`; omitted members count as zero.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    /// For a ring buffer its size in bytes: a power of two and a multiple of the page size,
    /// whichever that is.
    max_entries: u32,
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

/// The program `r0 = 0; exit`.
const RETURN_ZERO: [u64; 2] = [0x00b7, 0x0095];

/// bpf(2) for the commands that return a file descriptor.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `attributes`, which are alive during the
    // call, and addresses inside it point to statics.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(result) {
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn make_ring() -> io::Result<OwnedFd> {
    let ring = MapCreate {
        map_type: BPF_MAP_TYPE_RINGBUF,
        key_size: 0,
        value_size: 0,
        max_entries: 1 << 16,
    };
    bpf(BPF_MAP_CREATE, &ring)
}

fn load_program() -> io::Result<OwnedFd> {
    static CODE: [u64; 2] = RETURN_ZERO;
    static LICENSE: &std::ffi::CStr = c"GPL";
    let program = ProgLoad {
        prog_type: BPF_PROG_TYPE_KPROBE,
        insn_cnt: 2,
        insns: CODE.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
    };
    bpf(BPF_PROG_LOAD, &program)
}

/// Creates a ring buffer and loads a probe program, and explains a refusal.
pub(super) fn check(machine: &Machine) -> State {
    let tried = [
        ("a ring buffer", make_ring().err()),
        ("a probe program", load_program().err()),
    ];
    for (what, error) in tried {
        if let Some(error) = error {
            return explain(machine, what, &error);
        }
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    State::Ready(format!("usable, kernel {}", kernel.trim()))
}

/// Explains why the kernel refused, from errno and the process's own state.
fn explain(machine: &Machine, what: &str, error: &io::Error) -> State {
    let refused = format!("the kernel refuses {what}: {error}");
    let lacking = machine.process.lacking_capabilities();
    let (what, remedy) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !lacking.is_empty() => (
            format!("{refused}; this process lacks {}", lacking.join(" and ")),
            "run as root: `sudo env \"PATH=$PATH\" \"HOME=$HOME\" cargo xtask ...`, or build as you are and run only \
             gputrace with sudo",
        ),
        Some(libc::EPERM | libc::EACCES) if machine.process.seccomp => (
            format!(
                "{refused} though its capabilities suffice; a seccomp filter is on, as in a container"
            ),
            "start the container with bpf() and perf_event_open() allowed (docker: --privileged), or run on its host",
        ),
        Some(libc::EPERM | libc::EACCES) => (
            format!("{refused} though this process's capabilities suffice"),
            "see /sys/kernel/security/lockdown: in mode `confidentiality` nobody may trace; it is set at boot",
        ),
        Some(libc::ENOSYS) => (refused, "use a kernel with CONFIG_BPF_SYSCALL"),
        Some(libc::EINVAL) => (
            refused,
            "use Linux 5.8 or later with CONFIG_BPF_EVENTS: older ones have no ring buffer",
        ),
        _ => (refused, "see the kernel log (`dmesg`) for the cause"),
    };
    State::Missing {
        what,
        remedy: remedy.into(),
    }
}
