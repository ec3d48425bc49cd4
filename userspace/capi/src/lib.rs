//! The C interface of the library `gputrace`: `libgputrace`, with `include/gputrace.h`.
//!
//! It has three kinds of objects: [`Options`](options::Options) say what to record,
//! [`Stream`](stream::Stream)s deliver events of a recording or of a capture, and events are
//! structures that are valid until the next event of their stream is taken.
//!
//! Rules that hold for every function:
//!
//! * Functions that can fail return a [`Status`](error::Status); `gputrace_error_text` has the
//!   reason of the calling thread's last failure, with what to do.
//! * Null pointers where an object or text is required are `GPUTRACE_STATUS_ARGUMENT`, not a crash.
//! * Nothing unwinds out of these functions. A callback must not unwind into them: the process is
//!   aborted if it does (a C++ exception).
//! * A structure may get further members at its end in later versions; its first member `size` says
//!   how many bytes this version has.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod error;
pub mod event;
mod names;
pub mod options;
pub mod stream;
