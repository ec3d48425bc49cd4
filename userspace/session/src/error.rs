//! Why a recording could not be made.

use std::{io, path::PathBuf};

use gputrace_capture::{ReadError, WriteError};
use gputrace_export::{ExportError, OutputError};
use gputrace_loader::ProbeError;
use gputrace_tracee::{elf::ElfError, interp::InterpError, process::ProcessError};

use crate::system::STOP_FILE;

/// Why a recording could not be made or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Neither a program nor a process was given.
    #[error(
        "nothing to trace: give a program (`gputrace -- ./app`), a process (`-p PID`) or `--all`"
    )]
    NoTarget,
    /// Recording is switched off on this node.
    #[error(
        "recording is switched off on this node, because {file} exists: `sudo rm {file}` switches it \
         on again, if whoever made the file agrees",
        file = STOP_FILE
    )]
    SwitchedOff,
    /// The program could not be started.
    #[error("could not start {program}: {cause}. Check its path and that it is executable")]
    Launch {
        /// Program name as the user gave it.
        program: String,
        /// Error returned by the system.
        cause: io::Error,
    },
    /// The program does not exist or cannot be executed.
    #[error(transparent)]
    Command(#[from] InterpError),
    /// A process cannot be traced.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A program or library file cannot be used.
    #[error(transparent)]
    File(#[from] ElfError),
    /// A process has not mapped a library that the user asked for.
    #[error(
        "process {pid} has no library {} mapped: it may load it later (--wait waits), or it uses another copy; \
         `cat /proc/{pid}/maps` lists what it has",
        library.display()
    )]
    NoLibrary {
        /// Process id.
        pid: u32,
        /// Library as the user named it.
        library: PathBuf,
    },
    /// A process has mapped a different file under the name of a library that the user asked for.
    #[error("process {pid}: {reason}")]
    Misnamed {
        /// Process id.
        pid: u32,
        /// The file, what it really is, and what to do; a sentence.
        reason: String,
    },
    /// None of a file's functions can be traced.
    #[error("no function of {} is traced: {reason}", path.display())]
    NoFunction {
        /// Path of the file.
        path: PathBuf,
        /// The reason, as a clause.
        reason: String,
    },
    /// More functions match than the limit allows.
    #[error(
        "{count} functions of {} match, more than {limit}, so none is traced: choose fewer by {choice}, or \
         allow more with --max-functions {count}",
        path.display()
    )]
    TooManyFunctions {
        /// Path of the file.
        path: PathBuf,
        /// Number of functions that match.
        count: usize,
        /// Maximum number of functions (`--max-functions`).
        limit: usize,
        /// The options by which fewer can be chosen.
        choice: &'static str,
    },
    /// Probes cannot be removed one by one.
    #[error(
        "--overhead-limit needs probes that can be removed one by one (uprobe_multi, from Linux 6.6 \
         on); leave functions out with --exclude instead"
    )]
    FixedProbes,
    /// eBPF programs could not be loaded or attached.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The capture could not be created.
    #[error(transparent)]
    Capture(#[from] WriteError),
    /// The output directory or a file in it could not be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The capture could not be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An output could not be written.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Recording stopped early because the capture could not be written.
    #[error("the recording was stopped: {0}")]
    CaptureFailed(String),
    /// The runtime that drives the recording could not be set up.
    #[error("could not {action}: {cause}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// Error returned by the system.
        cause: io::Error,
    },
    /// The user pressed Ctrl-C a second time before the whole recording had been shown.
    #[error("stopped on request; the end of the recording was not shown")]
    NotAllShown,
    /// The user pressed Ctrl-C a second time while outputs were being made.
    #[error(
        "stopped on request; the capture is complete up to the last block written: \
         `gputrace export {capture}` makes outputs of it"
    )]
    GivenUp {
        /// Path of the capture.
        capture: String,
    },
}
