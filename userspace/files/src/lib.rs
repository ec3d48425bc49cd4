//! The only ways in which gputrace opens files.
//!
//! gputrace runs as root beside programs that may be hostile. A path that such a program can
//! influence may lead to a device that acts when it is opened (`/dev/watchdog` restarts the
//! machine), to a pipe that blocks, to a file of the kernel, out of a container, or to an endless
//! file. So files are divided into three kinds, each of which is opened in its own way:
//!
//! | owner | examples | way |
//! |---|---|---|
//! | a program | libraries, executables, debug files, code objects | [`target`]: located first, opened only if it is a regular file |
//! | the kernel | `/proc/PID/maps`, `/sys/class/kfd` | [`kernel`]: never through a link that leads to a program's file |
//! | the user | captures, outputs, settings | [`own`]: named by whoever runs gputrace, or made by gputrace |
//!
//! Clippy refuses every other way (`userspace/clippy.toml`).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod kernel;
pub mod own;
pub mod rights;
pub mod target;
