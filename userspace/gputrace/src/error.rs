//! Why a session or a capture cannot be used.

use std::{io, path::PathBuf, process::ExitStatus};

use gputrace_capture::ReadError;

/// Why a session or a capture cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recorder could not be started.
    #[error(
        "could not start the recorder {}: {cause}. Install gputrace, or give its path to \
         `Builder::recorder`",
        recorder.display()
    )]
    Start {
        /// The program that was to be started.
        recorder: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The recorder is of another version, and does not understand this library.
    #[error(
        "the recorder {} is gputrace {theirs}, and this library is of {ours}: install the same \
         version of both",
        recorder.display()
    )]
    Version {
        /// The program that was started.
        recorder: PathBuf,
        /// Its version; `unknown` if it is older than this library's first version.
        theirs: String,
        /// This library's version.
        ours: String,
    },
    /// The recorder cannot make the recording, or could not finish it.
    #[error("{text}")]
    Refused {
        /// The kind of cause.
        cause: Cause,
        /// What `gputrace` says on a command line: the cause, and what to do.
        text: String,
    },
    /// The recorder has ended without a word. What it recorded before was delivered.
    #[error(
        "the recorder ended unexpectedly ({status}): it was killed, or what it wrote to stderr says \
         why"
    )]
    Died {
        /// How it ended.
        status: ExitStatus,
    },
    /// The connection to the recorder failed.
    #[error("the connection to the recorder failed: {0}")]
    Connection(#[from] io::Error),
    /// The capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A domain cannot be chosen by itself: it is recorded along with others.
    #[error("the domain {0} cannot be chosen by itself: it is recorded along with others")]
    Domain(&'static str),
}

/// The kinds of causes for which recordings fail; each is an exit status of `gputrace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The options contradict each other, or have impossible values.
    Usage,
    /// There is no such process or program.
    NoTarget,
    /// The process has no ROCm libraries.
    NoRocm,
    /// The process or library cannot be traced: another architecture, a static runtime.
    Untraceable,
    /// No permission.
    NoPermission,
    /// The kernel lacks a feature.
    Kernel,
    /// The capture or an output cannot be written.
    Output,
    /// A library file cannot be used.
    Library,
    /// A recording of that name exists.
    Exists,
    /// Anything else; the exit status.
    Other(u8),
}

impl Cause {
    /// The causes with their exit statuses.
    const ALL: [(u8, Self); 9] = [
        (2, Self::Usage),
        (3, Self::NoTarget),
        (4, Self::NoRocm),
        (5, Self::Untraceable),
        (6, Self::NoPermission),
        (7, Self::Kernel),
        (8, Self::Output),
        (11, Self::Library),
        (14, Self::Exists),
    ];

    /// The cause that an exit status of `gputrace` stands for.
    #[must_use]
    pub fn of_status(status: u8) -> Self {
        let found = Self::ALL.iter().find(|(known, _)| *known == status);
        found.map_or(Self::Other(status), |(_, cause)| *cause)
    }

    /// The exit status of `gputrace` for this cause.
    #[must_use]
    pub fn status(self) -> u8 {
        if let Self::Other(status) = self {
            return status;
        }
        let found = Self::ALL.iter().find(|(_, known)| *known == self);
        found.map_or(1, |(status, _)| *status)
    }
}
