//! A running recording.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use gputrace_capture::{
    CaptureReader,
    follow::{self, Follower, Following},
    meta::{Annotated, Annotation},
};
use gputrace_timeline::Timeline;
use rustix::{
    net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair},
    thread::gettid,
};

use crate::{
    Builder, Cause, Error, Events,
    wire::{self, Asked, Ended, Said},
};

/// Number of the recorder's lines that are kept until they are taken. Then the oldest go.
const LINES: usize = 1000;

/// How often the recorder is told how far the capture was read, bytes.
const PASSED: u64 = 1 << 20;

/// Size of the buffer through which the capture is read, bytes.
const BUFFER: usize = 64 << 10;

/// A running recording.
///
/// Dropping it ends the recording, and waits until its probes are removed and the recorder has
/// ended. A launched program goes on, untraced.
#[derive(Debug)]
pub struct Session {
    control: Control,
    events: Events<LiveReader>,
    /// Receives the recorder's messages until it has ended.
    listener: Option<JoinHandle<Result<Ended, Error>>>,
}

/// How a recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Path of the capture, if it was kept.
    pub capture: Option<PathBuf>,
    /// Outputs that were made of it.
    pub outputs: Vec<PathBuf>,
    /// Status of the launched program, if it has ended.
    pub program: Option<ExitStatus>,
}

/// Controls a session, from any thread. A control does not keep its session alive.
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    lines: Mutex<VecDeque<String>>,
    /// Number of the last annotation or flush.
    numbers: AtomicU64,
    progress: Mutex<Progress>,
    progressed: Condvar,
}

/// How far the recorder and the reader of the events are.
#[derive(Debug, Default)]
struct Progress {
    /// The last flush that the recorder has done, and when this was learned, ns `CLOCK_BOOTTIME`.
    flushed: u64,
    flushed_at: u64,
    /// Everything that was in the capture at this time has been delivered, ns `CLOCK_BOOTTIME`.
    delivered: u64,
    is_over: bool,
}

impl Shared {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            lines: Mutex::default(),
            numbers: AtomicU64::new(0),
            progress: Mutex::default(),
            progressed: Condvar::new(),
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn progress(&self, change: impl FnOnce(&mut Progress)) {
        let progress = self.progress.lock();
        change(&mut progress.unwrap_or_else(PoisonError::into_inner));
        self.progressed.notify_all();
    }
}

/// A range that [`Control::range`] began. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct Range {
    control: Control,
    id: u64,
}

impl Drop for Range {
    fn drop(&mut self) {
        self.control.annotate(self.id, Annotated::End, "");
    }
}

impl Progress {
    /// Whether what was flushed by this number was delivered.
    fn has_delivered(&self, number: u64) -> bool {
        self.flushed >= number && self.delivered >= self.flushed_at
    }
}

impl Control {
    /// Ends the recording. What was recorded until then is still delivered; then the events end. A
    /// launched program goes on, untraced.
    pub fn stop(&self) {
        self.ask(&Asked::Stop);
    }

    /// Records nothing that begins from now on, until [`Control::resume`]. What has begun is
    /// recorded with its end. The probes stay, and cost less.
    pub fn pause(&self) {
        self.ask(&Asked::Pause);
    }

    /// Records again what begins from now on.
    pub fn resume(&self) {
        self.ask(&Asked::Resume);
    }

    /// Marks this moment, with a text. The mark is in the events and in every output, as a marker of
    /// this process and thread (`Domain::MarkerCore`). Texts are cut at 8 KiB.
    pub fn mark(&self, text: &str) {
        self.annotate(self.0.number(), Annotated::Mark, text);
    }

    /// Begins a range, with a text. It is in the events and in every output, as marks are, when it
    /// has ended. Ranges may overlap in any way.
    pub fn range(&self, text: &str) -> Range {
        let id = self.0.number();
        self.annotate(id, Annotated::Begin, text);
        Range {
            control: self.clone(),
            id,
        }
    }

    /// Waits until every call that had ended before is delivered: until the reader of the events has
    /// taken it, and asks for the next one. Dispatches and copies are delivered when nothing more
    /// can become known about them; a flush does not change that.
    ///
    /// Call it from another thread than the one that takes events. Returns `false` if that does not
    /// happen within `limit`, or if the recording has ended: then the events end when everything is
    /// delivered.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        let number = self.0.number();
        self.ask(&Asked::Flush(number));
        let progress = self.0.progress.lock();
        let waited = self.0.progressed.wait_timeout_while(
            progress.unwrap_or_else(PoisonError::into_inner),
            limit,
            |progress| !progress.is_over && !progress.has_delivered(number),
        );
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        progress.has_delivered(number)
    }

    /// Whether the recording has ended and its recorder is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let progress = self.0.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner).is_over
    }

    fn annotate(&self, id: u64, what: Annotated, text: &str) {
        self.ask(&Asked::Annotate(Box::new(Annotation {
            id,
            time: follow::now(),
            pid: 0,
            tid: gettid().as_raw_nonzero().get().cast_unsigned(),
            what,
            text: wire::short(text),
        })));
    }

    /// Takes the lines that the recorder has written for people since the last time: what it found,
    /// what it cannot trace and why. At most the last 1000 are kept.
    #[must_use]
    pub fn take_lines(&self) -> Vec<String> {
        self.lines().drain(..).collect()
    }

    /// Takes the oldest of these lines.
    #[must_use]
    pub fn take_line(&self) -> Option<String> {
        self.lines().pop_front()
    }

    fn line(&self, line: String) {
        let mut lines = self.lines();
        if lines.len() >= LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, message: &Asked) {
        // This fails only if the recorder has gone, which the end of the session reports.
        let _ = wire::send(&self.0.socket, message, None);
    }
}

impl Session {
    /// Describes a new session.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The events, in the order of [`Event`](crate::Event). The iterator waits for the next event,
    /// and ends when the recording has ended and everything was delivered.
    pub fn events(&mut self) -> &mut Events<LiveReader> {
        &mut self.events
    }

    /// Controls the session from another thread, or while events are read.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Ends the recording if it has not ended, and waits until nothing of it is left but its files.
    /// Events that were not read are given up.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the recording could not be finished; [`Error::Died`] if the recorder
    /// was killed.
    pub fn finish(mut self) -> Result<Finished, Error> {
        self.control.stop();
        let ended = self.end()?;
        Ok(Finished {
            capture: ended.capture,
            outputs: ended.outputs,
            program: ended.program.map(ExitStatus::from_raw),
        })
    }

    /// Waits for the recorder's end.
    fn end(&mut self) -> Result<Ended, Error> {
        let Some(listener) = self.listener.take() else {
            return Ok(Ended::default());
        };
        listener.join().unwrap_or_else(|_| {
            Err(io::Error::other("the thread that receives its messages failed").into())
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The recorder's next read of messages finds the end.
        let _ = shutdown(&self.control.0.socket, Shutdown::Write);
        let _ = self.end();
    }
}

/// Starts the recorder, and waits until the recording has begun.
pub(crate) fn start(mut command: Command, recorder: &Path) -> Result<Session, Error> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(io::Error::from)?;
    let child = command.stdin(Stdio::from(theirs)).spawn();
    // The command still has the recorder's end of the socket.
    drop(command);
    let mut child = child.map_err(|cause| Error::Start {
        recorder: recorder.to_owned(),
        cause,
    })?;
    let control = Control(Arc::new(Shared::new(ours)));
    let begun = Begun::wait(&control, recorder).and_then(|begun| {
        let over = Arc::new(AtomicBool::new(begun.ended.is_some()));
        let events = follow(begun.capture, Arc::clone(&over), control.clone())?;
        Ok((begun.ended, over, events))
    });
    match begun {
        Ok((ended, over, events)) => Ok(Session {
            control: control.clone(),
            events,
            listener: Some(listen(control, child, over, ended)?),
        }),
        Err(error) => {
            let _ = shutdown(&control.0.socket, Shutdown::Both);
            let status = child.wait()?;
            Err(match error {
                Silence::Error(error) => error,
                Silence::Gone if status.code() == Some(Cause::Usage.status().into()) => {
                    Error::Refused {
                        cause: Cause::Usage,
                        text: "the recorder does not accept its options, and has written why to \
                               stderr"
                            .to_owned(),
                    }
                }
                Silence::Gone => Error::Died { status },
            })
        }
    }
}

/// Why there is no recording.
enum Silence {
    Error(Error),
    /// The recorder ended without a message.
    Gone,
}

impl<E: Into<Error>> From<E> for Silence {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// A recording that has begun.
struct Begun {
    capture: File,
    /// Set if it has ended already.
    ended: Option<Ended>,
}

impl Begun {
    /// Receives the recorder's messages until the recording has begun.
    fn wait(control: &Control, recorder: &Path) -> Result<Self, Silence> {
        let mut capture = None;
        loop {
            let Some((message, descriptor)) = wire::receive::<Said>(&control.0.socket)? else {
                return Err(Silence::Gone);
            };
            let ended = match message {
                Said::Opened { version } if version == wire::VERSION => {
                    capture = descriptor.map(File::from);
                    continue;
                }
                Said::Opened { version } => {
                    return Err(Silence::Error(Error::Version {
                        recorder: recorder.to_owned(),
                        theirs: version,
                        ours: wire::VERSION.to_owned(),
                    }));
                }
                Said::Line(line) => {
                    control.line(line);
                    continue;
                }
                Said::Failed { status, text } => {
                    return Err(Silence::Error(refused(status, text)));
                }
                Said::Flushed(_) => continue,
                Said::Began => None,
                Said::Ended(ended) => Some(ended),
            };
            let capture = capture
                .ok_or_else(|| io::Error::other("the recorder did not hand over its capture"))?;
            return Ok(Self { capture, ended });
        }
    }
}

fn refused(status: u8, text: String) -> Error {
    Error::Refused {
        cause: Cause::of_status(status),
        text,
    }
}

/// Reads a capture that grows until `over` is set.
fn follow(
    capture: File,
    over: Arc<AtomicBool>,
    control: Control,
) -> Result<Events<LiveReader>, Silence> {
    let telling = Telling { control, told: 0 };
    let reader = BufReader::with_capacity(BUFFER, Following::new(capture, over, telling));
    let reader = CaptureReader::new(LiveReader(reader)).map_err(Error::from)?;
    Ok(Events::new(Timeline::follow(reader).map_err(Error::from)?))
}

/// Starts the thread that receives the recorder's messages until it has ended.
fn listen(
    control: Control,
    mut child: Child,
    over: Arc<AtomicBool>,
    ended: Option<Ended>,
) -> io::Result<JoinHandle<Result<Ended, Error>>> {
    let mut outcome = ended.map(Ok);
    let listen = move || {
        let failure = loop {
            match wire::receive::<Said>(&control.0.socket) {
                Ok(Some((Said::Line(line), _))) => control.line(line),
                Ok(Some((Said::Flushed(number), _))) => control.0.progress(|progress| {
                    progress.flushed = number;
                    progress.flushed_at = follow::now();
                }),
                Ok(Some((Said::Ended(ended), _))) => outcome = Some(Ok(ended)),
                Ok(Some((Said::Failed { status, text }, _))) => {
                    outcome = Some(Err(refused(status, text)));
                }
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            if outcome.is_some() {
                over.store(true, Ordering::Release);
            }
        };
        // A recorder that says something else would wait for an answer.
        let _ = shutdown(&control.0.socket, Shutdown::Both);
        let status = child.wait();
        over.store(true, Ordering::Release);
        control.0.progress(|progress| progress.is_over = true);
        match (outcome, failure) {
            (Some(outcome), _) => outcome,
            (None, Some(error)) => Err(error.into()),
            (None, None) => Err(Error::Died { status: status? }),
        }
    };
    thread::Builder::new()
        .name("gputrace".to_owned())
        .spawn(listen)
}

/// Tells the recorder how far the capture was read, so that it can give space back.
#[derive(Debug)]
struct Telling {
    control: Control,
    told: u64,
}

impl Follower for Telling {
    fn passed(&mut self, _: &File, position: u64) {
        if position.saturating_sub(self.told) >= PASSED {
            self.told = position;
            self.control.ask(&Asked::Passed(position));
        }
    }

    fn caught_up(&mut self, time: u64) {
        self.control
            .0
            .progress(|progress| progress.delivered = time);
    }
}

/// A capture that is read while it grows.
pub struct LiveReader(BufReader<Following<Telling>>);

impl fmt::Debug for LiveReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveReader")
    }
}

impl Read for LiveReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Seek for LiveReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }

    fn seek_relative(&mut self, offset: i64) -> io::Result<()> {
        self.0.seek_relative(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> (Control, OwnedFd) {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (Control(Arc::new(Shared::new(ours))), theirs)
    }

    /// What becomes of a session whose recorder says this, and then ends.
    fn told(messages: &[Said]) -> Result<Begun, Silence> {
        let (control, recorder) = connected();
        for message in messages {
            wire::send(&recorder, message, None).unwrap();
        }
        drop(recorder);
        Begun::wait(&control, Path::new("/opt/gputrace"))
    }

    #[test]
    fn another_version_is_refused() {
        let opened = Said::Opened {
            version: "0.0.1".to_owned(),
        };
        match told(&[opened, Said::Began]) {
            Err(Silence::Error(error @ Error::Version { .. })) => {
                let text = error.to_string();
                let expected = "the recorder /opt/gputrace is gputrace 0.0.1";
                assert!(text.contains(expected), "{text}");
            }
            _ => panic!("not refused"),
        }
    }

    #[test]
    fn a_recorder_that_fails_or_says_nothing_is_an_error() {
        let failed = Said::Failed {
            status: 4,
            text: "no ROCm libraries".to_owned(),
        };
        assert!(matches!(
            told(&[Said::Line("a line".to_owned()), failed]),
            Err(Silence::Error(Error::Refused {
                cause: Cause::NoRocm,
                ..
            }))
        ));
        assert!(matches!(told(&[]), Err(Silence::Gone)));
        let opened = Said::Opened {
            version: wire::VERSION.to_owned(),
        };
        // It did not hand over its capture.
        assert!(matches!(
            told(&[opened, Said::Began]),
            Err(Silence::Error(Error::Connection(_)))
        ));
    }

    #[test]
    fn the_last_lines_are_kept() {
        let (control, _recorder) = connected();
        for number in 0..LINES + 10 {
            control.line(number.to_string());
        }
        let lines = control.take_lines();
        assert_eq!((lines.len(), lines[0].as_str()), (LINES, "10"));
        assert!(control.take_lines().is_empty());
    }
}
