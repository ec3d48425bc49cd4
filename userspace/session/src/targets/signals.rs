//! The signal state of this process at its start. A program started through gputrace should find
//! the same signals ignored and blocked (`nohup`, `trap '' INT`, `&` in a script) as without
//! gputrace.
//!
//! gputrace changes both before it starts the program: Rust ignores SIGPIPE, and gputrace's
//! handlers replace ignored signals; `execve(2)` then resets those to their defaults. The standard
//! library resets SIGPIPE in the program, whatever it was. So the state is read before `main`.

use std::{
    io, ptr,
    sync::atomic::{AtomicU64, Ordering},
};

/// The range of signal numbers.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=64;

/// Signals ignored at the start, one bit each; bit 0 is signal 1.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Signals blocked at the start, in the same form.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Called by the dynamic linker before Rust's runtime starts.
#[used]
// SAFETY: the section holds function pointers, which the dynamic linker calls one after the other.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = remember;

/// The bit of a signal, 1 to 64.
const fn bit(number: u32) -> u64 {
    1 << (number - 1)
}

/// The kernel's `struct sigaction`: handler, flags and mask, and on some architectures the address
/// of a trampoline between them. The kernel reads or writes only the members that it has.
type Action = [usize; 4];

/// Size of a signal set in bytes, as the kernel expects it.
const SET: usize = size_of::<u64>();

/// Gets or sets the action of a signal. glibc's function refuses the two signals that glibc
/// reserves for itself; callers may ignore those, too.
fn action(number: u32, new: Option<&Action>, old: Option<&mut Action>) {
    let new = new.map_or(ptr::null(), ptr::from_ref::<Action>);
    let old = old.map_or(ptr::null_mut(), ptr::from_mut::<Action>);
    // SAFETY: async-signal-safe; both pointers are null or point to as much memory as the kernel's
    // structure needs. The kernel refuses no number from 1 to 64, except to set an action for
    // SIGKILL and SIGSTOP, which are never ignored.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, number, new, old, SET) };
}

extern "C" fn remember() {
    let mut blocked = 0_u64;
    // SAFETY: the kernel writes a signal set, and changes none.
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

/// Restores the ignored and blocked signals that this process had at its start. May be called
/// between `fork(2)` and `execve(2)`: it makes only async-signal-safe calls.
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
            // `execve(2)` resets a handler to the default.
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
