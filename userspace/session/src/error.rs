//! Why a recording could not be made.

use std::{io, path::PathBuf};

use gputrace_capture::{ReadError, WriteError};
use gputrace_export::{ExportError, OutputError};
use gputrace_loader::ProbeError;
use gputrace_tracee::{elf::ElfError, interp::InterpError, process::ProcessError};

/// Why a recording could not be made or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Neither a program nor a process.
    #[error(
        "nothing to trace: give a program (`gputrace -- ./app`), a process (`-p PID`) or `--all`"
    )]
    NoTarget,
    /// The program could not be started.
    #[error("could not start {program}: {cause}. Check its path and that it is executable")]
    Launch {
        /// As given.
        program: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// There is no such program, or it cannot be executed.
    #[error(transparent)]
    Command(#[from] InterpError),
    /// A process cannot be traced.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A program or library file cannot be used.
    #[error(transparent)]
    File(#[from] ElfError),
    /// A process has not mapped a library that was asked for.
    #[error(
        "process {pid} has no library {} mapped: it may load it later (--wait waits), or it uses another copy; \
         `cat /proc/{pid}/maps` lists what it has",
        library.display()
    )]
    NoLibrary {
        /// The process.
        pid: u32,
        /// As the user gave it.
        library: PathBuf,
    },
    /// A process has mapped something else under the name of a library that was asked for.
    #[error("process {pid}: {reason}")]
    Misnamed {
        /// The process.
        pid: u32,
        /// Which file, what it is, and what to do.
        reason: String,
    },
    /// Nothing in a file is to be traced.
    #[error("no function of {} is traced: {reason}", path.display())]
    NoFunction {
        /// The file.
        path: PathBuf,
        /// Why, as a clause.
        reason: String,
    },
    /// More functions match than is reasonable.
    #[error(
        "{count} functions of {} match, more than {limit}: choose fewer by the regular expression or \
         --min-instructions, or allow more with --max-functions {count}",
        path.display()
    )]
    TooManyFunctions {
        /// The file.
        path: PathBuf,
        /// How many match.
        count: usize,
        /// How many may.
        limit: usize,
    },
    /// eBPF programs could not be loaded or attached.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The capture could not be created.
    #[error(transparent)]
    Capture(#[from] WriteError),
    /// The output directory or a file in it could not be made.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The capture could not be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An output could not be made.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Recording stopped early because the capture could not be written.
    #[error("the recording was stopped: {0}")]
    CaptureFailed(String),
    /// The runtime that drives the recording could not be set up.
    #[error("could not {action}: {cause}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        cause: io::Error,
    },
    /// A second Ctrl-C while the rest of a recording was still to be shown.
    #[error("given up on request; the end of the recording was not shown")]
    NotAllShown,
    /// A second Ctrl-C.
    #[error(
        "given up on request; the capture is complete up to the last block written: `gputrace export {capture}` makes outputs of it"
    )]
    GivenUp {
        /// Path of the capture.
        capture: String,
    },
}
