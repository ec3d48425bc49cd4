//! How a recording ends: by signals, the time limit, or the end of its targets.

use std::{os::fd::OwnedFd, process::ExitStatus, time::Duration};

use gputrace_capture::meta::EndReason;
use gputrace_text::Line;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use super::Say;
use crate::{
    SessionError,
    targets::{
        launch::{self, Program},
        signals,
    },
};

/// How long a program has to end after Ctrl-C or SIGTERM has ended its recording.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// The signals that end a recording.
pub(crate) struct Stops {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// SIGHUP; `None` under `nohup`, so that the recording continues when its terminal is closed.
    /// Ctrl-C and SIGTERM always stop the recording: scripts stop a background recording by SIGINT,
    /// although their shell starts it with SIGINT ignored.
    hangup: Option<tokio::signal::unix::Signal>,
    /// Signals received so far.
    received: u32,
}

/// The signal that ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Interrupt,
    Terminate,
}

impl Stops {
    pub(crate) fn new() -> Result<Self, SessionError> {
        let listen = |kind| {
            signal(kind).map_err(|cause| SessionError::System {
                action: "listen to signals",
                cause,
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: if signals::was_ignored(libc::SIGHUP.cast_unsigned()) {
                None
            } else {
                Some(listen(SignalKind::hangup())?)
            },
            received: 0,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Stop {
        let stop = tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
            () = heard(self.hangup.as_mut()) => Stop::Terminate,
        };
        self.received += 1;
        stop
    }

    /// Waits for a signal that means "give up": the second one. The first one stops the recording.
    /// It may arrive shortly after the end of the program, which the terminal has interrupted as
    /// well.
    pub(crate) async fn give_up(&mut self) {
        loop {
            self.next().await;
            if self.received > 1 {
                return;
            }
        }
    }
}

/// Waits for a signal that may not be listened to, and then never arrives.
async fn heard(signal: Option<&mut tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Why the recording ended.
#[derive(Debug)]
pub(crate) enum Ending {
    Stopped(Stop),
    DurationOver,
    /// The recording is as large as it may become.
    LimitReached,
    ProgramEnded(Option<ExitStatus>),
    TargetsGone,
    CaptureFailed,
    /// The reader of live output is gone, or the program that controls the recording.
    Unread,
    /// The program that controls the recording asked for it.
    Asked,
    /// An operator has switched recording off on this node.
    SwitchedOff,
}

impl Ending {
    /// The reason as the capture records it.
    pub(crate) fn reason(&self) -> EndReason {
        match self {
            Self::Stopped(_) | Self::Unread | Self::Asked | Self::SwitchedOff => {
                EndReason::Interrupted
            }
            Self::DurationOver => EndReason::DurationOver,
            Self::LimitReached => EndReason::LimitReached,
            Self::ProgramEnded(_) | Self::TargetsGone => EndReason::TargetsGone,
            Self::CaptureFailed => EndReason::Failed("the capture could not be written".to_owned()),
        }
    }
}

pub(crate) async fn ended(program: &mut Option<Program>) -> Option<ExitStatus> {
    match program {
        Some(program) => program.wait().await.ok(),
        None => std::future::pending().await,
    }
}

/// The program's status, once the recording is over. If a limit ended the recording, waits for the
/// program: whoever started it through gputrace expects its status. If the program was told
/// to end, waits only briefly.
pub(crate) async fn last_status(
    program: Option<Program>,
    ending: &Ending,
    stops: &mut Stops,
    say: Say<'_>,
) -> Option<ExitStatus> {
    let mut program = program?;
    match ending {
        Ending::ProgramEnded(status) => *status,
        Ending::Asked => program.ended(),
        // As with strace: the pipe is closed, and whoever waits for gputrace continues.
        Ending::Unread => {
            let status = program.ended();
            if status.is_none() {
                say(&Line::new(format_args!(
                    "the reader of the output has gone; process {} keeps running",
                    program.pid
                )));
            }
            status
        }
        Ending::Stopped(stop) => {
            // The terminal has sent Ctrl-C to the program as well; SIGTERM was sent only to
            // gputrace.
            if *stop == Stop::Terminate {
                launch::signal(program.pid, Signal::TERM);
            }
            let status = tokio::time::timeout(LAST_WAIT, program.wait()).await;
            if status.is_err() {
                say(&Line::new(format_args!(
                    "process {} keeps running",
                    program.pid
                )));
            }
            status.ok().and_then(Result::ok)
        }
        Ending::DurationOver
        | Ending::LimitReached
        | Ending::SwitchedOff
        | Ending::TargetsGone
        | Ending::CaptureFailed => {
            if let Some(status) = program.ended() {
                return Some(status);
            }
            say(&Line::new(format_args!(
                "recorded; waiting for process {} to end (Ctrl-C: do not wait)",
                program.pid
            )));
            tokio::select! {
                status = program.wait() => status.ok(),
                _ = stops.next() => None,
            }
        }
    }
}

/// Starts one task per process, which ends when the process does.
pub(crate) fn ends_of(pids: &[u32]) -> JoinSet<()> {
    let mut ends = JoinSet::new();
    for pid in pids {
        let descriptor = i32::try_from(*pid)
            .ok()
            .and_then(Pid::from_raw)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        ends.spawn(async move {
            // If there is no descriptor, the process has ended already.
            if let Some(descriptor) = descriptor {
                end_of(descriptor).await;
            }
        });
    }
    ends
}

/// Waits for the end of a process: its descriptor then becomes readable.
async fn end_of(descriptor: OwnedFd) {
    // SAFETY: an `OwnedFd` keeps its descriptor open, and refers to the same one, as long as it
    // lives.
    match unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) } {
        Ok(descriptor) => drop(descriptor.readable().await),
        Err(_) => std::future::pending().await,
    }
}
