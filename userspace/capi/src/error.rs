//! Statuses, and the text of the last failure.

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    panic::{UnwindSafe, catch_unwind},
};

use gputrace::{Cause, Error};

/// What a function reports.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// There are no more events.
    End = 1,
    /// An argument is null, or no text in UTF-8, or makes no sense for this object.
    Argument = 2,
    /// The recorder could not be started.
    Start = 3,
    /// The recorder is of another version.
    Version = 4,
    /// The options contradict each other, or have impossible values.
    Usage = 5,
    /// There is no such process or program.
    NoTarget = 6,
    /// The process has no ROCm libraries.
    NoRocm = 7,
    /// The process or library cannot be traced.
    Untraceable = 8,
    /// No permission.
    NoPermission = 9,
    /// The kernel lacks a feature.
    Kernel = 10,
    /// A file cannot be written, or exists.
    Output = 11,
    /// A library file cannot be used.
    Library = 12,
    /// The recorder failed otherwise, or was killed.
    Recorder = 13,
    /// The capture cannot be read.
    Capture = 14,
    /// Another thread uses the stream, or one of its own callbacks does.
    Busy = 15,
    /// A defect of the library.
    Internal = 16,
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// A text as C has it. Bytes 0 in it become spaces.
pub(crate) fn c_text(text: &str) -> CString {
    let bytes: Vec<u8> = text
        .bytes()
        .map(|byte| if byte == 0 { b' ' } else { byte })
        .collect();
    // No byte is 0.
    CString::new(bytes).unwrap_or_default()
}

/// Remembers the reason of a failure.
pub(crate) fn fail(status: Status, text: &str) -> Status {
    TEXT.with_borrow_mut(|last| *last = c_text(text));
    status
}

/// Remembers an error.
pub(crate) fn failed(error: &Error) -> Status {
    let status = match error {
        Error::Start { .. } => Status::Start,
        Error::Version { .. } => Status::Version,
        Error::Read(_) => Status::Capture,
        Error::Domain(_) => Status::Usage,
        Error::Refused { cause, .. } => match cause {
            Cause::Usage => Status::Usage,
            Cause::NoTarget => Status::NoTarget,
            Cause::NoRocm => Status::NoRocm,
            Cause::Untraceable => Status::Untraceable,
            Cause::NoPermission => Status::NoPermission,
            Cause::Kernel => Status::Kernel,
            Cause::Output | Cause::Exists => Status::Output,
            Cause::Library => Status::Library,
            _ => Status::Recorder,
        },
        _ => Status::Recorder,
    };
    fail(status, &error.to_string())
}

/// Runs `action`. A panic in it is a defect, which must not unwind into C.
pub(crate) fn guarded(action: impl FnOnce() -> Status + UnwindSafe) -> Status {
    catch_unwind(action).unwrap_or_else(|_| fail(Status::Internal, "a defect of gputrace"))
}

/// The text that C passed; `None`, and the failure remembered, if it is null or not UTF-8.
///
/// # Safety
///
/// `text` is null or points to bytes that end with 0 and live for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Option<&'a str> {
    if text.is_null() {
        fail(Status::Argument, &format!("{what} is null"));
        return None;
    }
    // SAFETY: by this function's contract.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str();
    if text.is_err() {
        fail(Status::Argument, &format!("{what} is not UTF-8"));
    }
    text.ok()
}

/// The reason of the calling thread's last failure, with what to do; empty if nothing has failed. It
/// is valid until the thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_error_text() -> *const c_char {
    TEXT.with_borrow(|text| text.as_ptr())
}

/// The version of this library, e.g. `0.1.0`. It never changes while the program runs.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
