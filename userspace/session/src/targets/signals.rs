//! Signals as they were when this process began. A program that is started through gputrace is to find
//! the ones that its caller ignores or blocks (`nohup`, `trap '' INT`, `&` in a script) as it would alone.
//!
//! gputrace changes both before it starts the program: Rust ignores SIGPIPE, and gputrace's handlers replace
//! ignored signals, which `execve(2)` then turns into defaults. The standard library resets SIGPIPE for the
//! program, whatever it was. So both are read before `main`.

use std::{
    io, ptr,
    sync::atomic::{AtomicU64, Ordering},
};

/// The numbers of signals.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=64;

/// Signals that were ignored at the beginning, a bit each: the first for number 1.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Signals that were blocked at the beginning, likewise.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// The dynamic linker calls it before Rust's runtime begins.
#[used]
// SAFETY: a section of pointers to functions that the dynamic linker calls one after the other.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = remember;

/// The bit of a signal, 1 to 64.
const fn bit(number: u32) -> u64 {
    1 << (number - 1)
}

/// `struct sigaction` of the kernel: handler, flags and mask, and on some architectures the address of a
/// trampoline between them. The kernel reads or writes as much of it as it has.
type Action = [usize; 4];

/// Bytes of a set of signals, which the kernel wants to be told.
const SET: usize = size_of::<u64>();

/// Reads or sets what a signal does. glibc's function knows nothing of the two signals that it has taken for
/// itself; callers may ignore those, too.
fn action(number: u32, new: Option<&Action>, old: Option<&mut Action>) {
    let new = new.map_or(ptr::null(), ptr::from_ref::<Action>);
    let old = old.map_or(ptr::null_mut(), ptr::from_mut::<Action>);
    // SAFETY: async-signal-safe; both are null or as large as the kernel's structure. Refused for no number
    // from 1 to 64, except that nothing can be set for SIGKILL and SIGSTOP, which are never ignored.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, number, new, old, SET) };
}

extern "C" fn remember() {
    let mut blocked = 0_u64;
    // SAFETY: the kernel writes a set of signals, and sets none.
    unsafe {
        let none = ptr::null::<u64>();
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            none,
            &raw mut blocked,
            SET,
        );
    }
    BLOCKED.store(blocked, Ordering::Relaxed);
    let ignored = NUMBERS.filter(|number| {
        let mut how = Action::default();
        action(*number, None, Some(&mut how));
        how[0] == libc::SIG_IGN
    });
    IGNORED.store(ignored.map(bit).sum(), Ordering::Relaxed);
}

/// Whether a signal, 1 to 64, was ignored when this process began.
pub(crate) fn was_ignored(number: u32) -> bool {
    IGNORED.load(Ordering::Relaxed) & bit(number) != 0
}

/// Sets which signals are ignored and blocked as they were when this process began. May be called between
/// `fork(2)` and `execve(2)`: only calls that are async-signal-safe.
///
/// # Errors
///
/// When the kernel refuses the mask.
pub(crate) fn restore() -> io::Result<()> {
    for number in NUMBERS {
        // gputrace itself ignores SIGXFSZ (see the command line), and Rust SIGPIPE.
        let ours = [libc::SIGXFSZ, libc::SIGPIPE].contains(&number.cast_signed());
        let how = match (was_ignored(number), ours) {
            (true, _) => libc::SIG_IGN,
            (false, true) => libc::SIG_DFL,
            // `execve(2)` turns a handler into the default.
            (false, false) => continue,
        };
        action(number, Some(&[how, 0, 0, 0]), None);
    }
    let blocked = BLOCKED.load(Ordering::Relaxed);
    // SAFETY: async-signal-safe; the kernel reads a set of signals.
    let outcome = unsafe {
        let none = ptr::null_mut::<u64>();
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const blocked,
            none,
            SET,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
