//! Exit codes, one for each kind of cause, listed in `gputrace --help`.

use gputrace_capture::ReadError;
use gputrace_export::{OutputError, merge::MergeError};
use gputrace_loader::ProbeError;
use gputrace_rocpd::QueryError;
use gputrace_session::SessionError;
use gputrace_tracee::{elf::ElfError, process::ProcessError, whose::selection::SelectionError};

use crate::input::InputError;

/// Any failure without a code of its own.
pub(crate) const FAILURE: u8 = 1;
/// Wrong usage; the same as clap's code.
pub(crate) const USAGE: u8 = 2;
/// No such process or program.
pub(crate) const NO_TARGET: u8 = 3;
const NO_ROCM: u8 = 4;
const UNTRACEABLE: u8 = 5;
/// No permission.
pub(crate) const NO_PERMISSION: u8 = 6;
/// The kernel lacks a required feature.
pub(crate) const KERNEL: u8 = 7;
/// The outputs or the capture cannot be written.
pub(crate) const OUTPUT: u8 = 8;
/// The capture cannot be read.
pub(crate) const CAPTURE: u8 = 9;
const NEWER_CAPTURE: u8 = 10;
const LIBRARY: u8 = 11;
const QUERY: u8 = 12;
const MERGE: u8 = 13;
/// A recording of that name exists, or another file that must not be replaced.
const EXISTS: u8 = 14;
/// The capture is damaged or has no end; the outputs contain everything that could be read.
pub(crate) const INCOMPLETE: u8 = 15;
/// The user interrupted it.
pub(crate) const GIVEN_UP: u8 = 130;

/// The exit code of an error: that of the first cause in its chain that has one.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        let code = cause
            .downcast_ref::<SessionError>()
            .map(session)
            .or_else(|| cause.downcast_ref::<ProbeError>().map(probe))
            .or_else(|| cause.downcast_ref::<ProcessError>().map(process))
            .or_else(|| cause.downcast_ref::<SelectionError>().map(selection))
            .or_else(|| cause.downcast_ref::<ElfError>().map(elf))
            .or_else(|| cause.downcast_ref::<ReadError>().map(read))
            .or_else(|| cause.downcast_ref::<InputError>().map(|_| USAGE))
            .or_else(|| cause.downcast_ref::<OutputError>().map(output))
            .or_else(|| cause.downcast_ref::<QueryError>().map(query))
            .or_else(|| cause.downcast_ref::<MergeError>().map(merge));
        if let Some(code) = code {
            return code;
        }
    }
    FAILURE
}

/// The exit code of a command with two captures: a failure counts more than an incomplete capture.
pub(crate) fn worse(one: u8, other: u8) -> u8 {
    if one == 0 || (one == INCOMPLETE && other != 0) {
        other
    } else {
        one
    }
}

/// The text of an error, followed by those of its causes that it does not contain.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn session(error: &SessionError) -> u8 {
    match error {
        SessionError::NoTarget | SessionError::TooManyFunctions { .. } => USAGE,
        SessionError::File(error) => elf(error),
        SessionError::NoLibrary { .. }
        | SessionError::Misnamed { .. }
        | SessionError::NoFunction { .. } => LIBRARY,
        SessionError::FixedProbes => KERNEL,
        SessionError::Launch { .. } | SessionError::Command(_) => NO_TARGET,
        SessionError::Process(error) => process(error),
        SessionError::Probe(error) => probe(error),
        SessionError::Read(error) => read(error),
        SessionError::Output(error) => output(error),
        SessionError::Capture(_) | SessionError::CaptureFailed(_) | SessionError::Export(_) => {
            OUTPUT
        }
        SessionError::GivenUp { .. } | SessionError::NotAllShown => GIVEN_UP,
        _ => FAILURE,
    }
}

fn output(error: &OutputError) -> u8 {
    match error {
        OutputError::Exists { .. } | OutputError::Capture { .. } => EXISTS,
        OutputError::Name { .. } => USAGE,
        _ => OUTPUT,
    }
}

fn process(error: &ProcessError) -> u8 {
    match error {
        ProcessError::NoSuchProcess { .. } | ProcessError::Thread { .. } => NO_TARGET,
        ProcessError::NoRocmLibraries { .. } => NO_ROCM,
        ProcessError::WrongArchitecture { .. } | ProcessError::StaticRuntime { .. } => UNTRACEABLE,
        ProcessError::PermissionDenied { .. } => NO_PERMISSION,
        ProcessError::LibraryReplaced { .. } => LIBRARY,
        ProcessError::Elf(error) => elf(error),
        _ => FAILURE,
    }
}

fn selection(error: &SelectionError) -> u8 {
    match error {
        SelectionError::NoMatch { .. } => NO_TARGET,
        SelectionError::NoRocmLibraries { .. } => NO_ROCM,
        SelectionError::Process(error) => process(error),
        _ => FAILURE,
    }
}

fn elf(error: &ElfError) -> u8 {
    match error {
        ElfError::WrongArchitecture { .. } => UNTRACEABLE,
        _ => LIBRARY,
    }
}

fn probe(error: &ProbeError) -> u8 {
    match error {
        ProbeError::PermissionDenied { .. } => NO_PERMISSION,
        ProbeError::BrokenObject { .. } => FAILURE,
        _ => KERNEL,
    }
}

fn query(error: &QueryError) -> u8 {
    match error {
        QueryError::Sql { .. } | QueryError::Writes { .. } | QueryError::Empty => QUERY,
        QueryError::Output(_) => OUTPUT,
        _ => FAILURE,
    }
}

fn merge(error: &MergeError) -> u8 {
    match error {
        MergeError::Read { cause, .. } => read(cause),
        MergeError::TooFew | MergeError::Twice { .. } => USAGE,
        _ => MERGE,
    }
}

fn read(error: &ReadError) -> u8 {
    match error {
        ReadError::Newer { .. } => NEWER_CAPTURE,
        _ => CAPTURE,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use gputrace::Cause;

    use super::*;

    #[test]
    fn causes_are_told_once() {
        let source = std::io::Error::from_raw_os_error(libc::ENOENT);
        let path = "run.gtcap".into();
        let error = Err::<(), _>(SessionError::Read(ReadError::Open { path, source }));
        let error = error.context("cannot export run.gtcap").unwrap_err();
        assert_eq!(
            text(&error),
            "cannot export run.gtcap: cannot open run.gtcap: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn the_library_knows_the_causes() {
        for (code, cause) in [
            (USAGE, Cause::Usage),
            (NO_TARGET, Cause::NoTarget),
            (NO_ROCM, Cause::NoRocm),
            (UNTRACEABLE, Cause::Untraceable),
            (NO_PERMISSION, Cause::NoPermission),
            (KERNEL, Cause::Kernel),
            (OUTPUT, Cause::Output),
            (LIBRARY, Cause::Library),
            (EXISTS, Cause::Exists),
            (QUERY, Cause::Other(QUERY)),
        ] {
            assert_eq!((Cause::of_status(code), cause.status()), (cause, code));
        }
    }

    #[test]
    fn failures_count_more_than_captures_without_an_end() {
        for (one, other, both) in [
            (0, 0, 0),
            (0, INCOMPLETE, INCOMPLETE),
            (INCOMPLETE, 0, INCOMPLETE),
            (INCOMPLETE, OUTPUT, OUTPUT),
            (CAPTURE, INCOMPLETE, CAPTURE),
        ] {
            assert_eq!(worse(one, other), both, "{one} {other}");
        }
    }
}
